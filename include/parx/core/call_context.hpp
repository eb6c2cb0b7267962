// with_call_context: a call of the program that does several things together with other ranks (a
// save, a step). Where one of them fails because a rank is missing or elsewhere, the error says
// which call that was, before the collective.
#pragma once

#include <utility>

#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

/// Whether the failure is one of communication, not of this rank's files or data.
[[nodiscard]] inline bool is_communication_failure(const error& failure) noexcept {
  switch (failure.code_value()) {
    case errc::timeout:
    case errc::peer_lost:
    case errc::aborted:
    case errc::closed:
      return true;
    case errc::mismatch:
      return !failure.context().group.empty();
    default:
      return false;
  }
}

/// Returns function(). `name` and `site` are those of the call: "save at train.cpp:12".
template <typename Function>
decltype(auto) with_call_context(const char* name, call_site site, Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const error& failure) {
    if (!is_communication_failure(failure)) throw;
    throw error(failure.code_value(),
                formatted("{} at {}, which all ranks call: {}", name, site, failure.message()),
                failure.context(), failure.cause());
  }
}

}  // namespace parx
