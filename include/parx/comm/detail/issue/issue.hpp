// issue: turns checked arguments into calls of the group.
//
// All code below this file works on pointers, counts and sizes, so a program has one copy of it,
// however many element types it uses.
#pragma once

#include <memory>
#include <utility>

#include <parx/comm/detail/issue/arguments.hpp>
#include <parx/comm/work.hpp>

namespace parx::inline PARX_ABI::detail {

/// Runs a collective to its end, or starts it asynchronously.
void run(const process_group& group, const collective_arguments& given);
[[nodiscard]] work start(const process_group& group, const collective_arguments& given);

/// The same for a message and those chained to it.
void run(const process_group& group, call& request);
[[nodiscard]] work start(const process_group& group, std::unique_ptr<call> request);

/// Starts the call make(options). The call owns a copy of a user's operation.
template <typename Options, typename Make>
[[nodiscard]] work start_reduction(const process_group& group, Options options, Make make) {
  if constexpr (is_user_operation<Options>) {
    const auto kept = std::make_shared<const Options>(std::move(options));
    collective_arguments given = make(*kept);
    given.keep = kept;
    return start(group, given);
  } else {
    return start(group, make(options));
  }
}

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/comm/detail/issue/issue_impl.hpp>
#endif
