// all_to_all: rank r's block s becomes rank s's block r, like the transpose of a matrix of blocks.
//
// Collective. Any trivially copyable element type. In place, the input is copied first.
// all_to_all: all blocks have the same length. all_to_all_v: each rank passes how many elements it
// sends to each rank and how many it receives from each. Both ranks of a pair must pass the same
// number, which is checked on the wire. Blocks are stored one after the other in rank order.
#pragma once

#include <memory>
#include <span>

#include <parx/comm/block_counts.hpp>
#include <parx/comm/detail/issue/issue.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// No schedule exchanges blocks in place: an in-place call reads a copy of its input.
inline void copy_input_if_in_place(collective_arguments& given) {
  if (given.input.data != given.output.data || given.input.bytes() == 0) return;
  const auto input = std::make_shared<const const_bytes>(
      const_bytes{static_cast<const std::byte*>(given.input.data), given.input.bytes()});
  given.pack.inputs = {input.get(), 1};
  given.keep = input;
}

template <typename In, typename Out>
[[nodiscard]] collective_arguments all_to_all_arguments(const process_group& group, const In& input,
                                                        Out& output,
                                                        const collective_options& options,
                                                        call_site site) {
  const call_check check(group, collective<operation::all_to_all>, site);
  collective_arguments given = check.arguments<collective_options>(input, output, options);
  check.same_count(given.input, given.output);
  given.count = given.input.count;
  check.require(given.count % static_cast<std::size_t>(group.size()) == 0,
                "{} elements cannot be cut into {} blocks of one size; use all_to_all_v",
                given.count, group.size());
  copy_input_if_in_place(given);
  return given;
}

template <typename In, typename Out>
[[nodiscard]] collective_arguments all_to_all_v_arguments(
    const process_group& group, const In& input, std::span<const std::size_t> send_counts,
    Out& output, std::span<const std::size_t> receive_counts, const collective_options& options,
    call_site site) {
  const call_check check(group, collective<operation::all_to_all>, site, "_v");
  collective_arguments given = check.arguments<collective_options>(input, output, options);
  // Elements that are integers could stand in the counts' place.
  const auto ranks = static_cast<std::size_t>(group.size());
  check.require(send_counts.size() == ranks && receive_counts.size() == ranks,
                "send_counts has {} entries and receive_counts {}, but both have one for each of "
                "the {} ranks. As in MPI, the arguments are: group, input, send_counts, output, "
                "receive_counts",
                send_counts.size(), receive_counts.size(), ranks);
  given.count = check.sum(send_counts, "send_counts", given.input);
  check.require(given.input.count == given.count,
                "the input must hold the sum of all send_counts, {} elements, not {}", given.count,
                given.input.count);
  const std::size_t incoming = check.sum(receive_counts, "receive_counts", given.output);
  check.require(given.output.count == incoming,
                "the output must have room for the sum of all receive_counts, {} elements, not {}",
                incoming, given.output.count);
  const std::size_t own = check.own_rank();
  check.require(send_counts[own] == receive_counts[own],
                "this rank sends itself {} elements, but expects {} from itself", send_counts[own],
                receive_counts[own]);
  given.counts = send_counts;
  given.incoming = receive_counts;
  copy_input_if_in_place(given);
  return given;
}

}  // namespace detail

/// Blocks until `output` is full. Throws usage_error before any I/O, parx::error when communication
/// fails (the group is then closed).
template <typename In, detail::second_buffer Out>
void all_to_all(process_group& group, const In& input, Out&& output,
                collective_options options = {}, call_site site = call_site::current()) {
  detail::run(group, detail::all_to_all_arguments(group, input, output, options, site));
}
/// In place.
template <typename Data>
void all_to_all(process_group& group, Data&& data, collective_options options = {},
                call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  detail::run(group, detail::all_to_all_arguments(group, data, data, options, site));
}

/// The buffers are borrowed until the work is waited for.
template <typename In, detail::second_buffer Out>
[[nodiscard]] work async_all_to_all(process_group& group, In&& input, Out&& output,
                                    collective_options options = {},
                                    call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start(group, detail::all_to_all_arguments(group, input, output, options, site));
}
template <typename Data>
[[nodiscard]] work async_all_to_all(process_group& group, Data&& data,
                                    collective_options options = {},
                                    call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  return detail::start(group, detail::all_to_all_arguments(group, data, data, options, site));
}

/// As all_to_all; send_counts[r] elements go to rank r and receive_counts[r] come from it. Each
/// rank passes its own counts; they are only read during the call.
template <typename In, typename Out>
void all_to_all_v(process_group& group, const In& input, const block_counts& send_counts,
                  Out&& output, const block_counts& receive_counts, collective_options options = {},
                  call_site site = call_site::current()) {
  detail::run(group, detail::all_to_all_v_arguments(group, input, send_counts.view(), output,
                                                    receive_counts.view(), options, site));
}
template <typename In, typename Out>
[[nodiscard]] work async_all_to_all_v(process_group& group, In&& input,
                                      const block_counts& send_counts, Out&& output,
                                      const block_counts& receive_counts,
                                      collective_options options = {},
                                      call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start(group,
                       detail::all_to_all_v_arguments(group, input, send_counts.view(), output,
                                                      receive_counts.view(), options, site));
}

}  // namespace parx
