// reduce: the root ends with the reduction of all ranks' vectors.
//
// Collective. Out of place: only the root's output is written (the others may pass an empty one). In
// place: the root's buffer is overwritten, the others' are left as they are.
#pragma once

#include <parx/comm/detail/issue.hpp>

namespace parx {

namespace detail {

template <buffer In, mutable_buffer Out>
[[nodiscard]] collective_arguments reduce_arguments(const process_group& group, const In& input,
                                                    Out& output, const rooted_reduce_options& options,
                                                    call_site site) {
  const const_buffer_view in = const_view_of(input);
  const buffer_view out = view_of(output);
  const bool is_root = group.rank() == options.root;
  require(in.type == out.type, "reduce: the input holds {}, the output {}", name_of(in.type),
          name_of(out.type));
  require(!is_root || in.count == out.count,
          "reduce: the input holds {} elements, the root's output {}", in.count, out.count);
  return {.what = operation::reduce, .input = in.data, .output = is_root ? out.data : nullptr,
          .input_count = in.count, .output_count = is_root ? out.count : 0, .type = in.type,
          .root = options.root, .reduces = true, .op = options.op, .factor = options.factor,
          .divide_by = nullptr,
          .use = options.use, .timeout = options.timeout, .site = site};
}

}  // namespace detail

/// Blocks until the root's `output` holds the result; other ranks return when their part is done.
/// Throws usage_error before any I/O, parx::error when communication fails (the group is then closed).
template <buffer In, mutable_buffer Out>
void reduce(process_group& group, const In& input, Out&& output, rooted_reduce_options options = {},
            call_site site = call_site::current()) {
  detail::run(group, detail::reduce_arguments(group, input, output, options, site));
}
template <mutable_buffer Data>
void reduce(process_group& group, Data&& data, rooted_reduce_options options = {},
            call_site site = call_site::current()) {
  detail::run(group, detail::reduce_arguments(group, data, data, options, site));
}

/// The buffers are borrowed until the work is waited for.
template <buffer In, mutable_buffer Out>
[[nodiscard]] work async_reduce(process_group& group, const In& input, Out&& output,
                                rooted_reduce_options options = {},
                                call_site site = call_site::current()) {
  return detail::start(group, detail::reduce_arguments(group, input, output, options, site));
}
template <mutable_buffer Data>
[[nodiscard]] work async_reduce(process_group& group, Data&& data, rooted_reduce_options options = {},
                                call_site site = call_site::current()) {
  return detail::start(group, detail::reduce_arguments(group, data, data, options, site));
}

}  // namespace parx
