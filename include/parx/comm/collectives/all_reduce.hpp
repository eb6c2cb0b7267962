// all_reduce: every rank receives the reduction of all ranks' vectors, with the same bits.
//
// Collective: every rank calls it with the same count, dtype and options. sum, product, min, max
// work on every dtype, avg and premul_sum on floating types, band, bor and bxor on integers, and
// user_op on any trivially copyable type. bfloat16 and float16 are computed in float and rounded
// after each step. A variable that is a number is a vector of one element, here as in every
// collective and message: `all_reduce(world, k, {.op = reduce_op::max})`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <parx/comm/detail/issue/issue.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// For preserve_input in place: the call runs on a packed copy, like a coalesced one. If it fails,
/// the copy is not unpacked, so the buffer is unchanged.
inline void write_result_last(collective_arguments& given) {
  if (given.input.data != given.output.data || given.input.bytes() == 0) return;
  struct places {
    const_bytes input;
    mutable_bytes output;
  };
  const auto kept = std::make_shared<const places>(
      places{{static_cast<const std::byte*>(given.input.data), given.input.bytes()},
             {static_cast<std::byte*>(given.output.data), given.output.bytes()}});
  given.pack = {.inputs = {&kept->input, 1}, .outputs = {&kept->output, 1}};
  given.keep = kept;
}

template <typename In, typename Out, typename Options>
[[nodiscard]] collective_arguments all_reduce_arguments(const process_group& group, const In& input,
                                                        Out& output, const Options& options,
                                                        call_site site) {
  const call_check check(group, collective<operation::all_reduce>, site);
  collective_arguments given = check.arguments<reduce_options>(input, output, options);
  check.same_count(given.input, given.output);
  given.count = given.input.count;
  if (given.preserve_input) write_result_last(given);
  return given;
}

}  // namespace detail

/// In place. Blocks until `data` holds the result. `options` are reduce_options or a user_op.
/// Throws usage_error before any I/O, parx::error when communication fails, which closes the group.
template <typename Data, detail::no_buffer Options = reduce_options>
void all_reduce(process_group& group, Data&& data, Options options = {},
                call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  detail::run(group, detail::all_reduce_arguments(group, data, data, options, site));
}

/// Out of place; `input` is left as it is.
template <typename In, detail::second_buffer Out, typename Options = reduce_options>
void all_reduce(process_group& group, const In& input, Out&& output, Options options = {},
                call_site site = call_site::current()) {
  detail::run(group, detail::all_reduce_arguments(group, input, output, options, site));
}

/// The buffers are borrowed until the work is waited for. Errors arrive in work::wait().
template <typename Data, detail::no_buffer Options = reduce_options>
[[nodiscard]] work async_all_reduce(process_group& group, Data&& data, Options options = {},
                                    call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  return detail::start_reduction(group, std::move(options), [&](const Options& kept) {
    return detail::all_reduce_arguments(group, data, data, kept, site);
  });
}
template <typename In, detail::second_buffer Out, typename Options = reduce_options>
[[nodiscard]] work async_all_reduce(process_group& group, In&& input, Out&& output,
                                    Options options = {}, call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start_reduction(group, std::move(options), [&](const Options& kept) {
    return detail::all_reduce_arguments(group, input, output, kept, site);
  });
}

/// Collective. Whether `here` is true on any rank. Blocks and throws as all_reduce.
[[nodiscard]] inline bool on_any_rank(process_group& group, bool here,
                                      call_site site = call_site::current()) {
  std::array<std::uint8_t, 1> any{static_cast<std::uint8_t>(here)};
  all_reduce(group, any, {.op = reduce_op::max}, site);
  return any[0] != 0;
}

}  // namespace parx
