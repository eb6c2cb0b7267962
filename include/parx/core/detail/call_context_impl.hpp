// Definitions of call_context.hpp.
#pragma once

#include <cctype>
#include <cstddef>

#include <parx/core/call_context.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI {

[[nodiscard]] PARX_INLINE bool is_communication_failure(const error& failure) noexcept {
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

[[nodiscard]] PARX_INLINE bool names_a_line(std::string_view text) noexcept {
  constexpr std::string_view before = " at ";
  for (auto at = text.find(before); at != text.npos; at = text.find(before, at)) {
    at += before.size();
    const std::string_view word = text.substr(at, text.substr(at).find_first_of(" ,"));
    const std::size_t colon = word.find(':');
    if (colon != word.npos && colon + 1 < word.size() &&
        std::isdigit(static_cast<unsigned char>(word[colon + 1])) != 0 &&
        word.substr(0, colon).find('.') != word.npos) {
      return true;
    }
  }
  return false;
}

[[nodiscard, gnu::cold]] PARX_INLINE std::string with_last_call(std::string_view text) {
  const call_site last = last_call_site();
  if (last.line == 0 || names_a_line(text)) return std::string(text);
  return formatted("{} (at or after {})", text, last);
}

[[nodiscard, gnu::cold]] PARX_INLINE std::string with_last_call(const error& failure) {
  return is_communication_failure(failure) ? failure.what() : with_last_call(failure.what());
}

namespace detail {

[[noreturn, gnu::cold]] PARX_INLINE void throw_with_call_context(const char* name, call_site site) {
  try {
    throw;
  } catch (const error& failure) {
    const bool of_ranks = is_communication_failure(failure);
    if (!of_ranks && names_a_line(failure.message())) throw;
    throw error(failure.code_value(),
                formatted("{} at {}{}: {}", name, site, of_ranks ? ", which all ranks call" : "",
                          failure.message()),
                failure.context(), failure.cause());
  } catch (const usage_error& mistake) {
    if (names_a_line(mistake.what())) throw;
    throw_usage("{} at {}: {}", name, site, mistake.what());
  }
}

}  // namespace detail

}  // namespace parx
