// all_reduce: every rank ends with the reduction of all ranks' vectors, bit-identical everywhere.
//
// Collective: every rank calls it with the same count, dtype and options. sum, product, min, max work
// on every dtype, avg and premul_sum on floating ones, band, bor, bxor on integers. bfloat16 and float16
// are computed in float and rounded once a step.
#pragma once

#include <parx/comm/detail/issue.hpp>

namespace parx {

namespace detail {

template <buffer In, mutable_buffer Out>
[[nodiscard]] collective_arguments all_reduce_arguments(const In& input, Out& output,
                                                        const reduce_options& options,
                                                        call_site site) {
  const const_buffer_view in = const_view_of(input);
  const buffer_view out = view_of(output);
  require(in.type == out.type, "all_reduce: the input holds {}, the output {}", name_of(in.type),
          name_of(out.type));
  require(in.count == out.count, "all_reduce: the input holds {} elements, the output {}", in.count,
          out.count);
  return {.what = operation::all_reduce, .input = in.data, .output = out.data,
          .input_count = in.count, .output_count = out.count, .type = in.type, .root = -1,
          .reduces = true, .op = options.op, .factor = options.factor,
          .divide_by = options.divide_by, .use = options.use,
          .timeout = options.timeout, .site = site};
}

}  // namespace detail

/// In place. Blocks until `data` holds the result. Throws usage_error before any I/O, parx::error when
/// communication fails (the group is then closed).
template <mutable_buffer Data>
void all_reduce(process_group& group, Data&& data, reduce_options options = {},
                call_site site = call_site::current()) {
  detail::run(group, detail::all_reduce_arguments(data, data, options, site));
}

/// Out of place; `input` is left as it is.
template <buffer In, mutable_buffer Out>
void all_reduce(process_group& group, const In& input, Out&& output, reduce_options options = {},
                call_site site = call_site::current()) {
  detail::run(group, detail::all_reduce_arguments(input, output, options, site));
}

/// The buffers are borrowed until the work is waited for. Errors arrive in work::wait().
template <mutable_buffer Data>
[[nodiscard]] work async_all_reduce(process_group& group, Data&& data, reduce_options options = {},
                                    call_site site = call_site::current()) {
  return detail::start(group, detail::all_reduce_arguments(data, data, options, site));
}
template <buffer In, mutable_buffer Out>
[[nodiscard]] work async_all_reduce(process_group& group, const In& input, Out&& output,
                                    reduce_options options = {},
                                    call_site site = call_site::current()) {
  return detail::start(group, detail::all_reduce_arguments(input, output, options, site));
}

}  // namespace parx
