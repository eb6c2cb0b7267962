// to_string and operator<< for tensors: nested brackets as NumPy prints them, long axes shortened.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>

#include <fmt/format.h>

#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

struct print_options {
  int precision = 4;  ///< significant digits of a floating-point element
  std::size_t edge_items =
      3;  ///< how many elements an axis longer than twice this shows at each end
};

namespace detail {

template <typename T>
void print_axis(std::string& text, const tensor<T>& t, const print_options& options,
                std::size_t depth) {
  if (t.rank() == 0) {
    if constexpr (std::is_floating_point_v<T>) {
      text += fmt::format("{:.{}g}", t.item(), options.precision);
    } else {
      text += fmt::format("{}", t.item());
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
