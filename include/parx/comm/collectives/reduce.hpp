// reduce: the root receives the reduction of all ranks' vectors.
//
// Collective. Out of place: only the root's output is written (the others may pass an empty one).
// In place: the root's buffer is overwritten, the others' are unchanged.
#pragma once

#include <parx/comm/detail/issue/issue.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

template <typename In, typename Out, typename Options>
[[nodiscard]] collective_arguments reduce_arguments(const process_group& group, const In& input,
                                                    Out& output, const Options& options,
                                                    call_site site) {
  const call_check check(group, collective<operation::reduce>, site);
  collective_arguments given = check.arguments<rooted_reduce_options>(input, output, options);
  if (group.rank() == given.root) {
    check.same_count(given.input, given.output);
  } else {
    given.output.data = nullptr;
  }
  given.count = given.input.count;
  return given;
}

}  // namespace detail

/// Blocks until the root's `output` holds the result; other ranks return when their part is done.
/// `options` are rooted_reduce_options or a user_op. Throws usage_error before any I/O, parx::error
/// when communication fails (the group is then closed).
template <typename In, detail::second_buffer Out, typename Options = rooted_reduce_options>
void reduce(process_group& group, const In& input, Out&& output, Options options = {},
            call_site site = call_site::current()) {
  detail::run(group, detail::reduce_arguments(group, input, output, options, site));
}
template <typename Data, detail::no_buffer Options = rooted_reduce_options>
void reduce(process_group& group, Data&& data, Options options = {},
            call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  detail::run(group, detail::reduce_arguments(group, data, data, options, site));
}

/// The buffers are borrowed until the work is waited for.
template <typename In, detail::second_buffer Out, typename Options = rooted_reduce_options>
[[nodiscard]] work async_reduce(process_group& group, In&& input, Out&& output,
                                Options options = {}, call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start_reduction(group, std::move(options), [&](const Options& kept) {
    return detail::reduce_arguments(group, input, output, kept, site);
  });
}
template <typename Data, detail::no_buffer Options = rooted_reduce_options>
[[nodiscard]] work async_reduce(process_group& group, Data&& data, Options options = {},
                                call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  return detail::start_reduction(group, std::move(options), [&](const Options& kept) {
    return detail::reduce_arguments(group, data, data, kept, site);
  });
}

}  // namespace parx
