// to_string, operator<< and fmt for tensors and shapes: nested brackets as NumPy prints them, long
// axes shortened.
#pragma once

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>

#include <fmt/core.h>

#include <parx/core/formatted.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

struct print_options {
  int precision = 4;           ///< significant digits of a floating-point element
  std::size_t edge_items = 3;  ///< shown at each end of an axis that is longer than twice this
};

namespace detail {

template <typename T>
void print_axis(std::string& text, const tensor<T>& t, const print_options& options,
                std::size_t depth) {
  if (t.rank() == 0) {
    if constexpr (std::is_floating_point_v<T>) {
      text += formatted("{:.{}g}", t.item(), options.precision);
    } else {
      text += formatted("{}", t.item());
    }
    return;
  }
  const std::size_t count = t.shape()[0];
  text += '[';
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) text += t.rank() == 1 ? ", " : ",\n" + std::string(depth + 1, ' ');
    if (count > 2 * options.edge_items && i == options.edge_items) {
      text += "...";
      i = count - options.edge_items - 1;
      continue;
    }
    print_axis(text, t.select(0, i), options, depth + 1);
  }
  text += ']';
}

/// What to_string() gives as a text with its specification, "{:>8}", without fmt/format.h, which
/// takes as long to read as a chapter of parx.
class text_formatter {
 public:
  constexpr auto parse(fmt::format_parse_context& context) {
    const auto begin = context.begin();
    const auto end = fmt::formatter<fmt::string_view>().parse(context);
    specification_ = {begin, static_cast<std::size_t>(end - begin)};
    return end;
  }
  fmt::appender write(std::string text, fmt::format_context& to) const {
    if (!specification_.empty()) {
      const fmt::string_view plain = text;
      text = fmt::vformat("{:" + std::string(specification_) + "}", fmt::make_format_args(plain));
    }
    return std::copy(text.begin(), text.end(), to.out());
  }

 private:
  std::string_view specification_;  ///< within the format, which outlives this
};

}  // namespace detail

template <typename T>
[[nodiscard]] std::string to_string(const tensor<T>& t, const print_options& options = {}) {
  if (!t.defined()) return "(no tensor)";
  std::string text;
  detail::print_axis(text, t, options, 0);
  return text;
}

template <typename T>
std::ostream& operator<<(std::ostream& out, const tensor<T>& t) {
  return out << to_string(t);
}

inline std::ostream& operator<<(std::ostream& out, const shape& s) { return out << to_string(s); }

}  // namespace parx

FMT_BEGIN_NAMESPACE
// fmt/ranges.h would print a tensor as the plain list of its elements.
template <typename T, typename Char>
struct is_range;
template <typename T, typename Char>
struct is_range<parx::tensor<T>, Char> : std::false_type {};
FMT_END_NAMESPACE

template <typename T>
struct fmt::formatter<parx::tensor<T>> : parx::detail::text_formatter {
  fmt::appender format(const parx::tensor<T>& t, fmt::format_context& to) const {
    return write(parx::to_string(t), to);
  }
};
template <>
struct fmt::formatter<parx::shape> : parx::detail::text_formatter {
  fmt::appender format(const parx::shape& s, fmt::format_context& to) const {
    return write(parx::to_string(s), to);
  }
};
