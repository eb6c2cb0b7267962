// coalesced: several buffers in one operation, with the latency of one.
//
// Collective. The buffers are packed into one when the operation starts to run and unpacked when it
// ends. This pays off for many small buffers; for a few large ones use one async operation each.
// All buffers have the same dtype; every rank passes buffers of the same sizes in the same order.
// Make the views with view_of: all_reduce_coalesced(group, std::array{view_of(a), view_of(b)}).
#pragma once

#include <span>
#include <vector>

#include <parx/comm/detail/issue/issue.hpp>
#include <parx/core/hash.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// The buffers of a coalesced call; the call owns this while it runs.
struct packed_memory {
  std::vector<const_bytes> inputs;
  std::vector<mutable_bytes> outputs;
};

/// Packs `inputs` into block `own` of `blocks`, and unpacks the whole into `outputs`.
template <typename Options>
[[nodiscard]] collective_arguments packed_arguments(const call_check& check, const Options& options,
                                                    std::span<const const_buffer_view> inputs,
                                                    std::span<const buffer_view> outputs,
                                                    std::size_t blocks = 1, std::size_t own = 0) {
  check.require(!inputs.empty(), "it was given no buffers");
  check.require(inputs.size() == outputs.size(), "{} inputs and {} outputs", inputs.size(),
                outputs.size());
  auto memory = std::make_shared<packed_memory>();
  collective_arguments given = check.arguments();
  given.use = options.use;
  given.timeout = options.timeout;
  std::size_t count = 0;
  std::uint64_t hash = fnv1a("coalesced");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    elements input;
    elements output;
    check.view(inputs[i], input);
    check.view(outputs[i], output);
    check.require(inputs[i].type == inputs[0].type && outputs[i].type == inputs[0].type,
                  "buffer {} holds {}, but buffer 0 {}; all buffers must have one dtype", i,
                  name_of(inputs[i].type != inputs[0].type ? inputs[i].type : outputs[i].type),
                  name_of(inputs[0].type));
    check.require(output.count == input.count * blocks,
                  "buffer {}: the input holds {} elements, the output {}{}", i, input.count,
                  output.count, blocks > 1 ? " (it needs as many for each rank)" : "");
    check.require(!__builtin_add_overflow(count, input.count, &count),
                  "all buffers together are more than memory can hold");
    memory->inputs.push_back({static_cast<const std::byte*>(input.data), input.bytes()});
    memory->outputs.push_back({static_cast<std::byte*>(output.data), output.bytes()});
    hash = (hash ^ input.count) * 0x100000001b3u;
  }
  // The addresses are set when the call starts to run and packs its buffers.
  given.input = {nullptr, count, size_of(inputs[0].type),
                 static_cast<std::uint8_t>(inputs[0].type)};
  given.output = given.input;
  given.count = count;
  given.pack = {
      .inputs = memory->inputs, .outputs = memory->outputs, .blocks = blocks, .input_block = own};
  given.pack_hash = hash;
  given.keep = std::move(memory);
  return given;
}

[[nodiscard]] inline std::vector<const_buffer_view> read_only(std::span<const buffer_view> views) {
  return {views.begin(), views.end()};
}

[[nodiscard]] inline collective_arguments all_reduce_coalesced_arguments(
    const process_group& group, std::span<const buffer_view> data, const reduce_options& options,
    call_site site) {
  const call_check check(group, collective<operation::all_reduce>, site, "_coalesced");
  collective_arguments given = packed_arguments(check, options, read_only(data), data);
  read_arithmetic<buffer_view>(options, given.combine);
  return given;
}

[[nodiscard]] inline collective_arguments broadcast_coalesced_arguments(
    const process_group& group, std::span<const buffer_view> data, const rooted_options& options,
    call_site site) {
  const call_check check(group, collective<operation::broadcast>, site, "_coalesced");
  collective_arguments given = packed_arguments(check, options, read_only(data), data);
  given.root = options.root;
  return given;
}

[[nodiscard]] inline collective_arguments all_gather_coalesced_arguments(
    const process_group& group, std::span<const const_buffer_view> inputs,
    std::span<const buffer_view> outputs, const collective_options& options, call_site site) {
  const call_check check(group, collective<operation::all_gather>, site, "_coalesced");
  collective_arguments given = packed_arguments(
      check, options, inputs, outputs, static_cast<std::size_t>(group.size()), check.own_rank());
  given.count = check.for_all_ranks(given.input);
  return given;
}

}  // namespace detail

/// all_reduce of each buffer, in place. Blocks until all hold their results. Throws usage_error
/// before any I/O, parx::error when communication fails (the group is then closed).
inline void all_reduce_coalesced(process_group& group, std::span<const buffer_view> data,
                                 reduce_options options = {},
                                 call_site site = call_site::current()) {
  detail::run(group, detail::all_reduce_coalesced_arguments(group, data, options, site));
}
/// The buffers, not the views, are borrowed until the work is waited for.
[[nodiscard]] inline work async_all_reduce_coalesced(process_group& group,
                                                     std::span<const buffer_view> data,
                                                     reduce_options options = {},
                                                     call_site site = call_site::current()) {
  return detail::start(group, detail::all_reduce_coalesced_arguments(group, data, options, site));
}

/// broadcast of each buffer. Blocks and throws as all_reduce_coalesced.
inline void broadcast_coalesced(process_group& group, std::span<const buffer_view> data,
                                rooted_options options = {},
                                call_site site = call_site::current()) {
  detail::run(group, detail::broadcast_coalesced_arguments(group, data, options, site));
}
[[nodiscard]] inline work async_broadcast_coalesced(process_group& group,
                                                    std::span<const buffer_view> data,
                                                    rooted_options options = {},
                                                    call_site site = call_site::current()) {
  return detail::start(group, detail::broadcast_coalesced_arguments(group, data, options, site));
}

/// all_gather of inputs[i] into outputs[i], which is size() times as long. An input may be this
/// rank's block of its output. Blocks and throws as all_reduce_coalesced.
inline void all_gather_coalesced(process_group& group, std::span<const const_buffer_view> inputs,
                                 std::span<const buffer_view> outputs,
                                 collective_options options = {},
                                 call_site site = call_site::current()) {
  detail::run(group, detail::all_gather_coalesced_arguments(group, inputs, outputs, options, site));
}
[[nodiscard]] inline work async_all_gather_coalesced(process_group& group,
                                                     std::span<const const_buffer_view> inputs,
                                                     std::span<const buffer_view> outputs,
                                                     collective_options options = {},
                                                     call_site site = call_site::current()) {
  return detail::start(
      group, detail::all_gather_coalesced_arguments(group, inputs, outputs, options, site));
}

}  // namespace parx
