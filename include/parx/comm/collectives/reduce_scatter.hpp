// reduce_scatter: the ranks' vectors are reduced, and rank r keeps chunk r of the result.
//
// Collective. The input holds size() times as many elements as the output. In place: the output is
// chunk rank() of the input itself.
#pragma once

#include <parx/comm/detail/issue.hpp>

namespace parx {

namespace detail {

template <buffer In, mutable_buffer Out>
[[nodiscard]] collective_arguments reduce_scatter_arguments(const process_group& group,
                                                            const In& input, Out& output,
                                                            const reduce_options& options,
                                                            call_site site) {
  const const_buffer_view in = const_view_of(input);
  const buffer_view out = view_of(output);
  require(in.type == out.type, "reduce_scatter: the input holds {}, the output {}", name_of(in.type),
          name_of(out.type));
  require(in.count == out.count * static_cast<std::size_t>(group.size()),
          "reduce_scatter: the input must hold {} ranks x {} output elements = {}, not {}",
          group.size(), out.count, out.count * static_cast<std::size_t>(group.size()), in.count);
  return {.what = operation::reduce_scatter, .input = in.data, .output = out.data,
          .input_count = in.count, .output_count = out.count, .type = in.type, .root = -1,
          .reduces = true, .op = options.op, .factor = options.factor,
          .divide_by = options.divide_by, .use = options.use,
          .timeout = options.timeout, .site = site};
}

}  // namespace detail

/// Blocks until `output` holds this rank's chunk. Throws usage_error before any I/O, parx::error when
/// communication fails (the group is then closed).
template <buffer In, mutable_buffer Out>
void reduce_scatter(process_group& group, const In& input, Out&& output, reduce_options options = {},
                    call_site site = call_site::current()) {
  detail::run(group, detail::reduce_scatter_arguments(group, input, output, options, site));
}

/// The buffers are borrowed until the work is waited for.
template <buffer In, mutable_buffer Out>
[[nodiscard]] work async_reduce_scatter(process_group& group, const In& input, Out&& output,
                                        reduce_options options = {},
                                        call_site site = call_site::current()) {
  return detail::start(group, detail::reduce_scatter_arguments(group, input, output, options, site));
}

}  // namespace parx
