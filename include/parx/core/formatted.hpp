// formatted: fmt::format for parx's own texts, cheap to compile.
//
// fmt instantiates its checks of a format string and its argument store for every combination of
// argument types: a fifth of the compile time of a first program. Here each argument type costs one
// instantiation, and the compiler only counts arguments: a text with too few or too many does not
// compile. A specification that does not suit its argument ({:d} for a string) throws at run time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include <fmt/core.h>

#include <parx/core/abi.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// The number of arguments of a format string, including widths and precisions given as {}. 1000 or
/// more for a malformed one.
consteval std::size_t arguments_of(const char* text) {
  std::size_t automatic = 0, numbered = 0;
  int depth = 0;
  for (; *text != 0; ++text) {
    if (depth == 0 && (*text == '{' || *text == '}') && text[1] == *text) {
      ++text;
    } else if (*text == '{') {
      ++depth;
      if (text[1] >= '0' && text[1] <= '9') {
        const auto index = static_cast<std::size_t>(text[1] - '0');
        if (index + 1 > numbered) numbered = index + 1;
      } else {
        ++automatic;
      }
    } else if (*text == '}' && --depth < 0) {
      return 1000;
    }
  }
  return depth == 0 ? automatic + numbered : 1000;
}

[[nodiscard]] inline auto format_argument(const char* const& value) {
  return fmt::format_args(fmt::make_format_args(value)).get(0);
}
template <typename T>
[[nodiscard]] auto format_argument(const T& value) {
  return fmt::format_args(fmt::make_format_args(value)).get(0);
}

}  // namespace detail

/// A format string that takes `Count` arguments.
template <std::size_t Count>
class counted_text {
 public:
  consteval counted_text(const char* text) : text_(text) {  // NOLINT(google-explicit-constructor)
    if (detail::arguments_of(text) != Count) throw "the text takes another number of arguments";
  }
  [[nodiscard]] constexpr const char* get() const noexcept { return text_; }

 private:
  const char* text_;
};

template <typename... Args>
[[nodiscard, gnu::cold]] std::string formatted(counted_text<sizeof...(Args)> text,
                                               const Args&... args) {
  const fmt::basic_format_arg<fmt::format_context> list[] = {detail::format_argument(args)..., {}};
  return fmt::vformat(text.get(), {list, sizeof...(Args)});
}

}  // namespace parx::inline PARX_ABI

/// `train.cpp:88`, or "an unknown line".
template <>
struct fmt::formatter<parx::call_site> {
  constexpr auto parse(const fmt::format_parse_context& specification) {
    return specification.begin();
  }
  fmt::appender format(const parx::call_site& site, fmt::format_context& to) const {
    // vformat and not vformat_to: clang gives vformat_to<char> another name than g++ gave libfmt's.
    const std::string text = site.line > 0 ? parx::formatted("{}:{}", site.file_name(), site.line)
                                           : std::string("an unknown line");
    return std::copy(text.begin(), text.end(), to.out());
  }
};
