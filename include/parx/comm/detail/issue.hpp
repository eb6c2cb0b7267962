// issue: turns checked, typed arguments into type-erased calls.
//
// Everything below this file works on pointers, counts and dtypes: one copy of the machinery in a
// program, however many element types it uses.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include <parx/comm/detail/call.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/comm/schedule/catalog.hpp>
#include <parx/comm/work.hpp>
#include <parx/types/buffer.hpp>

namespace parx::detail {

/// The caller's memory and how it is to be combined.
struct collective_arguments {
  operation what = operation::barrier;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t input_count = 0;
  std::size_t output_count = 0;
  dtype type = dtype::uint8;
  int root = -1;
  bool reduces = false;
  reduce_op op = reduce_op::sum;
  double factor = 1;
  const double* divide_by = nullptr;
  algorithm use = algorithm::automatic;
  std::chrono::milliseconds timeout{0};
  call_site site;
};

/// Throws usage_error for what no rank could mean. Local, before any I/O.
inline void check_arguments(const process_group& group, const collective_arguments& given) {
  const auto where = [&] {
    return fmt::format("{} on group \"{}\" at {}:{}", name_of(given.what), group.name(),
                       given.site.file_name(), given.site.line);
  };
  const std::size_t size = size_of(given.type);
  const std::size_t whole = std::max(given.input_count, given.output_count);
  if (whole > std::numeric_limits<std::size_t>::max() / size / 2) {
    throw_usage("{}: {} elements of {} bytes are more than memory can hold", where(), whole, size);
  }
  if (has_root(given.what) && (given.root < 0 || given.root >= group.size())) {
    throw_usage("{}: root {} is not a rank of this group of {}", where(), given.root, group.size());
  }
  if (given.input == nullptr || given.output == nullptr) return;
  const auto in = reinterpret_cast<std::uintptr_t>(given.input);
  const auto out = reinterpret_cast<std::uintptr_t>(given.output);
  const std::size_t in_bytes = given.input_count * size;
  const std::size_t out_bytes = given.output_count * size;
  if (in >= out + out_bytes || out >= in + in_bytes) return;
  const auto rank = static_cast<std::size_t>(group.rank());
  bool exact = in == out && in_bytes == out_bytes;
  if (given.what == operation::all_gather) exact = in == out + rank * in_bytes;
  if (given.what == operation::reduce_scatter) exact = out == in + rank * out_bytes;
  if (!exact) {
    throw_usage("{}: input and output overlap without being the same elements; pass one buffer for an "
                "in-place operation, or two separate ones", where());
  }
}

inline void fill_call(const process_group& group, const collective_arguments& given, call& request) {
  check_arguments(group, given);
  const int world = group.size();
  const std::size_t count = std::max(given.input_count, given.output_count);
  request.data = {.input = static_cast<const std::byte*>(given.input),
                  .output = static_cast<std::byte*>(given.output),
                  .element_size = size_of(given.type)};
  request.data.shared_input = group.core()->find_shared(given.input, given.input_count * size_of(given.type));
  request.data.shared_output = group.core()->find_shared(given.output, given.output_count * size_of(given.type));
  const call_shape shape{.what = given.what,
                         .rank = group.rank(),
                         .world = world,
                         .count = count,
                         .root = given.root,
                         .element_bytes = size_of(given.type),
                         .shared_input = request.data.shared_input.area != nullptr,
                         .shared_output = request.data.shared_output.area != nullptr};
  const algorithm use = given.use != algorithm::automatic ? given.use : choose(shape, group.core()->costs());
  request.what = given.what;
  request.site = given.site;
  request.timeout = given.timeout;
  request.steps = group.core()->plan_of(given.what, use, count, given.root,
                                        [&] { return make_schedule(shape, use); });
  request.header.type = static_cast<std::uint8_t>(given.type);
  request.header.count = count;
  request.header.root = given.root;
  request.header.algorithm = static_cast<std::uint8_t>(use);
  if (given.reduces) {
    request.header.reduction = static_cast<std::uint8_t>(given.op);
    request.data.reduce = reduce_kernel(given.type, given.op);
    if (given.op == reduce_op::avg && world > 1) request.data.factor = 1.0 / world;
    if (given.op == reduce_op::premul_sum) request.data.factor = given.factor;
    if (given.divide_by != nullptr) {
      require(given.op == reduce_op::sum && is_floating(given.type),
              "{} at {}:{}: divide_by needs reduce_op::sum over floating elements, not {} over {}",
              name_of(given.what), given.site.file_name(), given.site.line, name_of(given.op),
              name_of(given.type));
      request.data.divide_by = given.divide_by;
      request.data.scale = scale_kernel(given.type);
    }
    if (request.data.factor != 1) request.data.scale = scale_kernel(given.type);
  }
}

inline void run(const process_group& group, const collective_arguments& given) {
  call request;
  fill_call(group, given, request);
  group.core()->run(request);
}

[[nodiscard]] inline work start(const process_group& group, const collective_arguments& given) {
  auto request = std::make_unique<call>();
  fill_call(group, given, *request);
  group.core()->submit(*request);
  return {group.core(), std::move(request)};
}

}  // namespace parx::detail
