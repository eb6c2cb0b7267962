// Definitions of issue.hpp.
#pragma once

#include <cstdint>

#include <parx/comm/detail/issue/issue.hpp>
#include <parx/comm/detail/progress/group_core.hpp>
#include <parx/comm/measure.hpp>
#include <parx/comm/schedule/catalog.hpp>

namespace parx::inline PARX_ABI::detail {

/// Throws usage_error if input and output overlap, unless the operation is in place.
inline void check_overlap(const call_check& check, const collective_arguments& given) {
  if (given.input.data == nullptr || given.output.data == nullptr) return;
  const auto in = reinterpret_cast<std::uintptr_t>(given.input.data);
  const auto out = reinterpret_cast<std::uintptr_t>(given.output.data);
  if (in >= out + given.output.bytes() || out >= in + given.input.bytes()) return;
  const std::size_t own = given.own_begin * given.input.size;
  bool exact = in == out;
  if (given.what == operation::all_gather || given.what == operation::gather)
    exact = in == out + own;
  if (given.what == operation::reduce_scatter || given.what == operation::scatter)
    exact = out == in + own;
  check.require(exact,
                "input and output overlap without being the same elements; pass one buffer for an "
                "in-place operation, or two separate ones");
  check.require(!given.preserve_input || !given.pack.inputs.empty(),
                "preserve_input in place is for all_reduce; a second buffer for the result leaves "
                "the input as it is");
}

inline void fill_arithmetic(const call_check& check, const collective_arguments& given, int world,
                            call& request) {
  const arithmetic& how = given.combine;
  collective_data& data = request.data;
  request.header.arithmetic = hash_of(how, given.input.size);
  if (how.user) {
    request.header.reduction = call_header::user_reduction;
    data.reduce = how.user;
    return;
  }
  const auto type = static_cast<dtype>(given.input.type);
  request.header.reduction = static_cast<std::uint8_t>(how.op);
  check.guard([&] { data.reduce = {.kernel = how.kernels->combine(type, how.op)}; });
  if (how.op == reduce_op::avg && world > 1) data.factor = 1.0 / world;
  if (how.op == reduce_op::premul_sum) data.factor = how.factor;
  if (how.divide_by != nullptr) {
    check.require(how.op == reduce_op::sum && is_floating(type),
                  "divide_by needs reduce_op::sum over floating elements, not {} over {}",
                  name_of(how.op), name_of(type));
    data.divide_by = how.divide_by;
    data.scale = how.kernels->scale(type);
  }
  if (data.factor != 1) data.scale = how.kernels->scale(type);
}

/// Fills `request` and issues the set-up call before it if one is needed. Returns the call's plan;
/// the reference is valid until the next call.
inline const std::shared_ptr<const execution_plan>& fill_call(const process_group& group,
                                                              const collective_arguments& given,
                                                              call& request) {
  const call_check check(group, given.what, given.site, given.form);
  if (has_root(given.what)) check.is_rank(given.root, "root");
  check_overlap(check, given);
  group_core& core = *core_of(group);
  const elements& described = given.input.data != nullptr ? given.input : given.output;
  request.what = given.what;
  request.form = given.form;
  request.site = given.site;
  request.timeout = given.timeout;
  request.keep = given.keep;
  request.names_late = given.names_late;
  request.data = {.input = static_cast<const std::byte*>(given.input.data),
                  .output = static_cast<std::byte*>(given.output.data),
                  .element_size = described.size,
                  .pack = given.pack,
                  .counts_differ = !given.incoming.empty()};
  if (given.pack.inputs.empty()) {
    request.data.shared_input = core.find_shared(given.input.data, given.input.bytes());
    request.data.shared_output = core.find_shared(given.output.data, given.output.bytes());
  }
  const plan_key key{
      .scalars = {.what = given.what,
                  .asked = given.use,
                  .count = given.count,
                  .root = given.root,
                  .element_bytes = described.size,
                  .order = needed_order(given.combine, described.type, group.size()),
                  .shared_input = request.data.shared_input.area != nullptr,
                  .shared_output = request.data.shared_output.area != nullptr},
      .counts = given.counts,
      .incoming = given.incoming};
  ready_choice(group, given.site);
  const std::shared_ptr<const execution_plan>& steps = core.plans().find(key, [&] {
    call_shape shape{.what = given.what,
                     .rank = group.rank(),
                     .world = group.size(),
                     .count = given.count,
                     .root = given.root,
                     .element_bytes = key.scalars.element_bytes,
                     .order = key.scalars.order,
                     .shared_input = key.scalars.shared_input,
                     .shared_output = key.scalars.shared_output,
                     .staging_bytes = core.choice().staging_bytes(),
                     .host_of = core.choice().hosts()};
    if (!key.counts.empty()) shape.blocks = partition::uneven(key.counts);
    if (!key.incoming.empty()) shape.incoming = partition::uneven(key.incoming);
    return check.guard([&] {
      if (given.use != algorithm::automatic) return make_schedule(shape, given.use);
      return make_schedule(shape, choose(shape, core.choice().costs(), core.choice().rules()));
    });
  });
  request.steps = steps.get();
  request.header.type = described.type;
  request.header.count = request.data.counts_differ ? 0 : given.count;
  request.header.root = given.root;
  request.header.algorithm = static_cast<std::uint8_t>(request.steps->steps.name);
  request.header.sizes = hash_of_sizes(given, described.type, described.size);
  if (request.steps->steps.name == algorithm::shared) {
    // Other ranks expect this rank's buffer in the same area and at the same offset as their own.
    const collective_data& data = request.data;
    const shared_view& view =
        given.what == operation::reduce_scatter ? data.shared_input : data.shared_output;
    const std::uint64_t place = view.offset + (view.area->id << 48);
    request.header.sizes ^= static_cast<std::uint32_t>(place * 0x9e3779b97f4a7c15u >> 32);
  }
  if (reduces(given.what)) fill_arithmetic(check, given, group.size(), request);
  call* const ahead = core.memory().ahead_of(request, group.rank(), group.size());
  if (ahead != nullptr) core.issue(*ahead);
  return steps;
}

/// Whether call_likeness has all fields that this call depends on, except its buffers.
[[nodiscard]] inline bool is_plain(const collective_arguments& given) noexcept {
  return given.counts.empty() && given.incoming.empty() && given.pack.inputs.empty() &&
         !given.combine.user && given.combine.divide_by == nullptr && given.keep == nullptr &&
         !given.names_late;
}

[[nodiscard]] inline call_likeness likeness_of(const group_core& core,
                                               const collective_arguments& given) noexcept {
  const elements& described = given.input.data != nullptr ? given.input : given.output;
  return {.what = given.what,
          .use = given.use,
          .combine = given.combine.op,
          .order = given.combine.order,
          .type = described.type,
          .root = given.root,
          .line = given.site.line,
          .input_in_area = core.may_be_shared(given.input.data),
          .output_in_area = core.may_be_shared(given.output.data),
          .file = given.site.file,
          .element_size = described.size,
          .count = given.count,
          .input_count = given.input.count,
          .output_count = given.output.count,
          .factor = given.combine.factor,
          .timeout = given.timeout};
}

/// Whether a call's plan is valid for all calls with this likeness, wherever their buffers are. Not
/// for algorithm::shared, whose fingerprint depends on the buffer's place. If a buffer lies in a
/// shared area, it must have been usable as a shared buffer: another algorithm was then chosen even
/// so, and would be without it.
[[nodiscard]] inline bool is_repeatable(const call& request, const call_likeness& like) noexcept {
  const algorithm chosen = request.steps->steps.name;
  const bool found_all = (!like.input_in_area || request.data.shared_input.area != nullptr) &&
                         (!like.output_in_area || request.data.shared_output.area != nullptr);
  return chosen != algorithm::shared && found_all;
}

PARX_INLINE void run(const process_group& group, const collective_arguments& given) {
  group_core& core = *core_of(group);
  const auto inside = core.enter(given.what, given.site);
  if (!is_plain(given)) {
    call request;
    fill_call(group, given, request);
    core.run(request);
    return;
  }
  repeated_call& kept = core.repeated().at(given.site.line);
  if (kept.ready && kept.like == likeness_of(core, given)) {
    check_overlap({group, given.what, given.site}, given);
    kept.request.data.input = static_cast<const std::byte*>(given.input.data);
    kept.request.data.output = static_cast<std::byte*>(given.output.data);
    kept.request.renew();
  } else {
    call request;
    request.kept_steps = fill_call(group, given, request);
    const call_likeness like = likeness_of(core, given);
    if (!is_repeatable(request, like)) {
      core.run(request);
      return;
    }
    // Otherwise the cache would keep the memory of a destroyed shared_buffer.
    request.data.shared_input = request.data.shared_output = {};
    kept = {.like = like, .request = std::move(request), .ready = true};
  }
  core.run(kept.request);
}

PARX_INLINE work start(const process_group& group, const collective_arguments& given) {
  const auto inside = core_of(group)->enter(given.what, given.site);
  auto request = std::make_unique<call>();
  request->kept_steps = fill_call(group, given, *request);
  request->timed = true;
  core_of(group)->submit(*request);
  return {core_of(group), std::move(request)};
}

PARX_INLINE void run(const process_group& group, call& request) { core_of(group)->run(request); }

PARX_INLINE work start(const process_group& group, std::unique_ptr<call> request) {
  core_of(group)->submit(*request);
  return {core_of(group), std::move(request)};
}

}  // namespace parx::detail
