// reduce: the root ends with the reduction of all ranks' vectors.
//
// Collective. Out of place: only the root's output is written (the others may pass an empty one).
// In place: the root's buffer is overwritten, the others' are left as they are.
#pragma once

#include <parx/comm/detail/issue.hpp>
#include <parx/comm/detail/misuse.hpp>

namespace parx {

namespace detail {

template <movable_buffer In, mutable_movable_buffer Out, typename Options>
[[nodiscard]] collective_arguments reduce_arguments(const process_group& group, const In& input,
                                                    Out& output, const Options& options,
                                                    call_site site) {
  const call_check check(group, operation::reduce, site);
  collective_arguments given = check.arguments(input, output, options);
  given.root = plain_options(options).root;
  check.is_rank(given.root, "root");
  if (group.rank() == given.root) {
    check.same_count(given.input, given.output);
  } else {
    given.output.data = nullptr;
  }
  given.count = given.input.count;
  read_arithmetic<In>(options, given.combine);
  return given;
}

}  // namespace detail

/// Blocks until the root's `output` holds the result; other ranks return when their part is done.
/// `options` are rooted_reduce_options or a user_op. Throws usage_error before any I/O, parx::error
/// when communication fails (the group is then closed).
template <movable_buffer In, mutable_movable_buffer Out, typename Options = rooted_reduce_options>
  requires detail::reduction_options_for<Options, rooted_reduce_options, In>
void reduce(process_group& group, const In& input, Out&& output, Options options = {},
            call_site site = call_site::current()) {
  detail::run(group, detail::reduce_arguments(group, input, output, options, site));
}
template <mutable_movable_buffer Data, typename Options = rooted_reduce_options>
  requires detail::reduction_options_for<Options, rooted_reduce_options, Data>
void reduce(process_group& group, Data&& data, Options options = {},
            call_site site = call_site::current()) {
  detail::run(group, detail::reduce_arguments(group, data, data, options, site));
}

/// The buffers are borrowed until the work is waited for.
template <movable_buffer In, mutable_movable_buffer Out, typename Options = rooted_reduce_options>
  requires detail::reduction_options_for<Options, rooted_reduce_options, In>
[[nodiscard]] work async_reduce(process_group& group, In&& input, Out&& output,
                                Options options = {}, call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start_reduction(group, std::move(options), [&](const Options& kept) {
    return detail::reduce_arguments(group, input, output, kept, site);
  });
}
template <mutable_movable_buffer Data, typename Options = rooted_reduce_options>
  requires detail::reduction_options_for<Options, rooted_reduce_options, Data>
[[nodiscard]] work async_reduce(process_group& group, Data&& data, Options options = {},
                                call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  return detail::start_reduction(group, std::move(options), [&](const Options& kept) {
    return detail::reduce_arguments(group, data, data, kept, site);
  });
}

/// For what they do not take: a compile-time error that says what to do.
template <typename Data, typename Options = rooted_reduce_options>
  requires detail::no_reduction_in_place<Data, Options, rooted_reduce_options>
void reduce(process_group&, Data&&, Options = {}, call_site = {}) {
  detail::explain_misuse<Data, Data, Options, rooted_reduce_options>();
}
template <typename In, typename Out, typename Options = rooted_reduce_options>
  requires detail::no_reduction_out_of_place<In, Out, Options, rooted_reduce_options>
void reduce(process_group&, const In&, Out&&, Options = {}, call_site = {}) {
  detail::explain_misuse<In, Out, Options, rooted_reduce_options>();
}
template <typename Data, typename Options = rooted_reduce_options>
  requires detail::no_reduction_in_place<Data, Options, rooted_reduce_options>
[[nodiscard]] work async_reduce(process_group&, Data&&, Options = {}, call_site = {}) {
  detail::explain_misuse<Data, Data, Options, rooted_reduce_options>();
  return {};
}
template <typename In, typename Out, typename Options = rooted_reduce_options>
  requires detail::no_reduction_out_of_place<In, Out, Options, rooted_reduce_options>
[[nodiscard]] work async_reduce(process_group&, const In&, Out&&, Options = {}, call_site = {}) {
  detail::explain_misuse<In, Out, Options, rooted_reduce_options>();
  return {};
}

}  // namespace parx
