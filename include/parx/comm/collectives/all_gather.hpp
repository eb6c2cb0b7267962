// all_gather: every rank ends with all ranks' vectors, one behind the other in rank order.
//
// Collective. The output holds size() times as many elements as the input. In place: the input is chunk
// rank() of the output itself. Any trivially copyable element type.
#pragma once

#include <parx/comm/detail/issue.hpp>

namespace parx {

namespace detail {

template <movable_buffer In, mutable_movable_buffer Out>
[[nodiscard]] collective_arguments all_gather_arguments(const process_group& group, const In& input,
                                                        Out& output, const gather_options& options,
                                                        call_site site) {
  const const_buffer_view in = const_movable_view_of(input);
  const buffer_view out = movable_view_of(output);
  require(in.type == out.type, "all_gather: the input holds {}, the output {}", name_of(in.type),
          name_of(out.type));
  require(out.count == in.count * static_cast<std::size_t>(group.size()),
          "all_gather: the output must have room for {} ranks x {} bytes = {}, not {}", group.size(),
          in.bytes(), in.bytes() * static_cast<std::size_t>(group.size()), out.bytes());
  return {.what = operation::all_gather, .input = in.data, .output = out.data,
          .input_count = in.count, .output_count = out.count, .type = in.type, .root = -1,
          .reduces = false, .op = {}, .factor = 1, .divide_by = nullptr, .use = options.use, .timeout = options.timeout,
          .site = site};
}

}  // namespace detail

/// Blocks until `output` is full. Throws usage_error before any I/O, parx::error when communication
/// fails (the group is then closed).
template <movable_buffer In, mutable_movable_buffer Out>
void all_gather(process_group& group, const In& input, Out&& output, gather_options options = {},
                call_site site = call_site::current()) {
  detail::run(group, detail::all_gather_arguments(group, input, output, options, site));
}

/// The buffers are borrowed until the work is waited for.
template <movable_buffer In, mutable_movable_buffer Out>
[[nodiscard]] work async_all_gather(process_group& group, const In& input, Out&& output,
                                    gather_options options = {},
                                    call_site site = call_site::current()) {
  return detail::start(group, detail::all_gather_arguments(group, input, output, options, site));
}

}  // namespace parx
