// all_gather: every rank receives the vectors of all ranks, concatenated in rank order.
//
// Collective. Any trivially copyable element type. In place: the input is this rank's block of the
// output. all_gather: all vectors have the same length; the output has size() times as many
// elements. all_gather_v: rank r's vector has counts[r] elements; every rank passes all counts.
// all_gather_into: the same into a buffer for each rank, which may lie anywhere.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <parx/comm/block_counts.hpp>
#include <parx/comm/detail/issue/blocks.hpp>
#include <parx/comm/detail/issue/issue.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// Of all_gather_v where there are counts.
template <typename In, typename Out>
[[nodiscard]] collective_arguments all_gather_arguments(const process_group& group, const In& input,
                                                        Out& output,
                                                        const collective_options& options,
                                                        call_site site,
                                                        const block_counts* counts = nullptr) {
  const call_check check(group, collective<operation::all_gather>, site,
                         counts != nullptr ? "_v" : "");
  collective_arguments given = check.arguments<collective_options>(input, output, options);
  fill_blocks(check, counts,
              {given.output, "the output must have room for", given.input, "the input"}, given);
  return given;
}

/// Where the blocks of an all_gather_into lie; the call owns this while it runs.
struct separate_blocks {
  std::vector<mutable_bytes> memory;
  std::vector<std::size_t> counts;
};

template <typename In>
[[nodiscard]] collective_arguments all_gather_into_arguments(const process_group& group,
                                                             const In& input,
                                                             std::span<const buffer_view> outputs,
                                                             const collective_options& options,
                                                             call_site site) {
  const call_check check(group, collective<operation::all_gather>, site, "_into");
  check.require(outputs.size() == static_cast<std::size_t>(group.size()), "{} outputs for {} ranks",
                outputs.size(), group.size());
  buffer_view own = outputs[check.own_rank()];  // in place it is the input, too
  auto blocks = std::make_shared<separate_blocks>();
  for (const buffer_view& each : outputs) {
    elements block;
    check.view(each, block);
    check.require(each.type == own.type, "an output holds {}, this rank's own {}",
                  name_of(each.type), name_of(own.type));
    blocks->memory.push_back({static_cast<std::byte*>(block.data), block.bytes()});
    blocks->counts.push_back(block.count);
  }
  collective_arguments given = check.arguments<collective_options>(input, own, options);
  check.same_count(given.input, given.output);
  given.counts = blocks->counts;
  given.count = check.sum(given.counts, "the outputs' sizes", given.output);
  given.output_blocks = blocks->memory;
  given.keep = std::move(blocks);
  return given;
}

}  // namespace detail

/// Blocks until `output` is full. Throws usage_error before any I/O, parx::error when communication
/// fails (the group is then closed).
template <typename In, typename Out>
void all_gather(process_group& group, const In& input, Out&& output,
                collective_options options = {}, call_site site = call_site::current()) {
  detail::run(group, detail::all_gather_arguments(group, input, output, options, site));
}

/// The buffers are borrowed until the work is waited for.
template <typename In, typename Out>
[[nodiscard]] work async_all_gather(process_group& group, In&& input, Out&& output,
                                    collective_options options = {},
                                    call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start(group, detail::all_gather_arguments(group, input, output, options, site));
}

/// As all_gather; `counts`, in elements and equal on all ranks, are only read during the call.
template <typename In, typename Out>
void all_gather_v(process_group& group, const In& input, Out&& output, const block_counts& counts,
                  collective_options options = {}, call_site site = call_site::current()) {
  detail::run(group, detail::all_gather_arguments(group, input, output, options, site, &counts));
}
template <typename In, typename Out>
[[nodiscard]] work async_all_gather_v(process_group& group, In&& input, Out&& output,
                                      const block_counts& counts, collective_options options = {},
                                      call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start(group,
                       detail::all_gather_arguments(group, input, output, options, site, &counts));
}

/// As all_gather; rank r's vector comes into outputs[r], whose sizes are equal on all ranks. The
/// buffers do not overlap, but the input may be this rank's own output. All have one dtype.
template <typename In>
void all_gather_into(process_group& group, const In& input, std::span<const buffer_view> outputs,
                     collective_options options = {}, call_site site = call_site::current()) {
  detail::run(group, detail::all_gather_into_arguments(group, input, outputs, options, site));
}
/// The buffers, not the views, are borrowed until the work is waited for.
template <typename In>
[[nodiscard]] work async_all_gather_into(process_group& group, In&& input,
                                         std::span<const buffer_view> outputs,
                                         collective_options options = {},
                                         call_site site = call_site::current()) {
  detail::explain_temporary<In>();
  return detail::start(group,
                       detail::all_gather_into_arguments(group, input, outputs, options, site));
}

}  // namespace parx
