// The form of all error messages of a store:
//   store get of "rank/3" at tcp_store n1:29500 failed after 30.0 s: nobody set "rank/3".
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <parx/core/deadline.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/store/store_error.hpp>

namespace parx::inline PARX_ABI::detail {

/// Thrown by the functions below a store's operations. The operation catches it and throws a
/// store_error with its name and keys.
struct store_failure {
  errc code;
  std::string reason;
  bool accepted = true;  ///< of a connect: some process has taken the connection
};

/// A key in quotes; unprintable bytes, quotes and backslashes as \xNN.
[[nodiscard, gnu::cold]] inline std::string quoted_key(std::string_view key) {
  std::string result = "\"";
  for (const char c : key.substr(0, 200)) {
    if (c >= ' ' && c <= '~' && c != '"' && c != '\\') {
      result.push_back(c);
    } else {
      result += formatted("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return result + (key.size() > 200 ? "...\"" : "\"");
}

/// The first eight keys and the number of the others.
[[nodiscard, gnu::cold]] inline std::string quoted_keys(std::span<const std::string> keys) {
  constexpr std::size_t shown = 8;
  std::string result;
  for (std::size_t i = 0; i < keys.size() && i < shown; ++i) {
    result += (i == 0 ? "" : ", ") + quoted_key(keys[i]);
  }
  if (keys.size() > shown) result += formatted(" and {} more", keys.size() - shown);
  return result;
}

/// `keys` is the result of one of the functions above, empty for an operation without keys.
[[noreturn, gnu::cold]] inline void throw_store_error(errc code, std::string_view operation,
                                                      std::string_view keys, std::string_view where,
                                                      const deadline& limit,
                                                      std::string_view reason) {
  const double elapsed = limit.elapsed_seconds();
  error_context context;
  context.operation = formatted("store {}", operation);
  context.elapsed_seconds = elapsed;
  throw store_error(code,
                    formatted("store {}{}{} at {} failed after {:.1f} s: {}.", operation,
                              keys.empty() ? "" : " of ", keys, where, elapsed, reason),
                    std::move(context));
}

}  // namespace parx::detail
