// with_call_context: a call of the program that does several things together with other ranks (a
// save, a step), and in which it runs functions of the program's, such as a model's layers. Where
// one of them fails, the error says which call that was: of ranks that are missing or elsewhere
// before the collective, and of a mistake unless it names a line itself.
#pragma once

#include <cctype>
#include <cstddef>
#include <exception>
#include <string>
#include <string_view>
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

/// Whether a sentence names a line of a program, as a call_site is printed: "at train.cpp:12".
[[nodiscard]] inline bool names_a_line(std::string_view text) noexcept {
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

/// A usage_error's text with a line of the program, " (at or after train.cpp:12)", where it names
/// none itself: most operations only note where they were called.
[[nodiscard, gnu::cold]] inline std::string with_last_call(std::string_view text) {
  const call_site last = last_call_site();
  if (last.line == 0 || names_a_line(text)) return std::string(text);
  return formatted("{} (at or after {})", text, last);
}

namespace detail {

/// Throws the failure that is being handled, as one of the call `name` at `site`.
[[noreturn, gnu::cold]] inline void throw_with_call_context(const char* name, call_site site) {
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

/// Returns function(). `name` and `site` are those of the call: "save at train.cpp:12".
template <typename Function>
decltype(auto) with_call_context(const char* name, call_site site, Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const std::exception&) {
    detail::throw_with_call_context(name, site);
  }
}

}  // namespace parx
