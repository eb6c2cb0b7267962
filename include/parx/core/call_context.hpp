// with_call_context: a call of the program that does several things together with other ranks (a
// save, a step), and in which it runs functions of the program's, such as a model's layers. Where
// one of them fails, the error says which call that was: of ranks that are missing or elsewhere
// before the collective, and of a mistake unless it names a line itself.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include <parx/core/error.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

/// Whether the failure is one of communication, not of this rank's files or data.
[[nodiscard]] bool is_communication_failure(const error& failure) noexcept;

/// Whether a sentence names a line of a program, as a call_site is printed: "at train.cpp:12".
[[nodiscard]] bool names_a_line(std::string_view text) noexcept;

/// A usage_error's text with a line of the program, " (at or after train.cpp:12)", where it names
/// none itself: most operations only note where they were called.
[[nodiscard]] std::string with_last_call(std::string_view text);
/// The same of what is no failure of communication, whose line is another rank's.
[[nodiscard]] std::string with_last_call(const error& failure);

namespace detail {

/// Throws the failure that is being handled, as one of the call `name` at `site`.
[[noreturn]] void throw_with_call_context(const char* name, call_site site);

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

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/call_context_impl.hpp>
#endif
