// einsum, and bmm, mv, dot, outer: sums of products over named axes.
//
//   einsum("bij,bjk->bik", a, b)      einsum("...d,de->...e", x, w)     einsum("ii->i", m)
//
// A letter is an axis; a letter that the result lacks is summed; `...` stands for further axes, the
// same of all operands, which come first in a result without an arrow, before the letters that
// occur once, in alphabetical order. Operands are multiplied from left to right, two at a time, as
// one matrix product each (in the order of sums of tensor/gemm/summation_order.hpp). X is a tensor
// or a variable. Throws usage_error, which quotes the equation, for shapes that do not fit it, and
// for logits that are cut over ranks, naming parx::full_logits.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/autograd/ops/detail/kinds.hpp>
#include <parx/autograd/ops/matmul.hpp>
#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/autograd/ops/reductions.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// A variable whose axes have letters.
template <typename T>
struct lettered {
  variable<T> values;
  std::string letters;

  [[nodiscard]] std::size_t extent(char letter) const {
    return values.shape()[letters.find(letter)];
  }
  [[nodiscard]] bool has(char letter) const { return letters.find(letter) != std::string::npos; }
  /// With the axes in the order of `wanted`, which are all of them.
  [[nodiscard]] lettered in_order(const std::string& wanted) const {
    std::vector<int> order;
    for (const char letter : wanted) order.push_back(static_cast<int>(letters.find(letter)));
    return {wanted == letters ? values : permute(values, std::span<const int>(order)), wanted};
  }
  /// Without the axes that are not in `kept`, which are summed.
  [[nodiscard]] lettered summed_to(const std::string& kept) const {
    lettered result = *this;
    for (std::size_t i = letters.size(); i-- > 0;) {
      if (kept.find(letters[i]) != std::string::npos) continue;
      result.values = sum(result.values, {static_cast<int>(i)});
      result.letters.erase(i, 1);
    }
    return result;
  }
};

/// The diagonal of axes i < j of equal extent, at axis i.
template <typename T>
[[nodiscard]] variable<T> diagonal_of(const variable<T>& x, int i, int j) {
  const variable<T> last = movedim(movedim(x, i, -1), j - 1, -1);  // (..., i, j)
  const std::size_t extent = last.extent(-1);
  shape s = last.shape();
  s.erase(s.rank() - 1);
  s[s.rank() - 1] = extent * extent;
  element_places from(extent);
  for (std::size_t k = 0; k < extent; ++k) from[k] = k * (extent + 1);
  return movedim(taken("einsum", reshape(last, s), -1, std::move(from)), -1, i);
}

/// The parts of an equation, `...` replaced by digits.
struct einsum_equation {
  std::vector<std::string> operands;
  std::string result;

  einsum_equation(std::string_view text, std::span<const shape> shapes) : text_(text) {
    std::string all;
    for (const char each : text) {
      if (each != ' ') all += each;
    }
    const std::size_t arrow = all.find("->");
    std::string left = all.substr(0, arrow);
    for (std::size_t begin = 0;;) {
      const std::size_t comma = left.find(',', begin);
      operands.push_back(left.substr(begin, comma - begin));
      if (comma == std::string::npos) break;
      begin = comma + 1;
    }
    check(operands.size() == shapes.size(), "as many operands as it names");
    std::size_t dots = 0;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      std::string& letters = operands[i];
      if (letters.find("...") == std::string::npos) continue;
      check(shapes[i].rank() + 3 >= letters.size(), "an axis for each letter");
      dots = std::max(dots, shapes[i].rank() + 3 - letters.size());
    }
    for (std::size_t i = 0; i < operands.size(); ++i) {
      replace_dots(operands[i], dots);
      check(shapes[i].rank() == operands[i].size(), "an axis for each letter");
      for (std::size_t axis = 0; axis < operands[i].size(); ++axis) {
        const char letter = operands[i][axis];
        check(std::isalnum(static_cast<unsigned char>(letter)) != 0, "letters for axes");
        const auto [known, is_new] = extents_.emplace(letter, shapes[i][axis]);
        require(
            is_new || known->second == shapes[i][axis],
            "einsum: \"{}\": axis {} of operand {} has extent {}, and another one called {} has {}",
            text_, axis, i + 1, shapes[i][axis], std::string_view(&operands[i][axis], 1),
            known->second);
      }
    }
    if (arrow != std::string::npos) {
      result = all.substr(arrow + 2);
      replace_dots(result, dots);
      for (const char letter : result) {
        check(extents_.contains(letter) && std::count(result.begin(), result.end(), letter) == 1,
              "letters of the operands, each once, behind the arrow");
      }
      return;
    }
    for (const auto& [letter, extent] : extents_) {  // in order, digits first
      std::ptrdiff_t times = 0;
      for (const std::string& each : operands)
        times += std::count(each.begin(), each.end(), letter);
      if (times == 1 || std::isdigit(static_cast<unsigned char>(letter)) != 0) result += letter;
    }
  }

 private:
  void check(bool holds, const char* needed) const {
    require(holds, "einsum: \"{}\" needs {}", text_, needed);
  }
  void replace_dots(std::string& letters, std::size_t count) const {
    const std::size_t at = letters.find("...");
    if (at == std::string::npos) return;
    check(count <= 9, "fewer axes for ...");
    letters.replace(at, 3, std::string_view("012345678").substr(0, count));
  }

  std::string text_;
  std::map<char, std::size_t> extents_;
};

/// The product of two operands, with the axes of `kept` alone.
template <typename T>
[[nodiscard]] lettered<T> product_of(lettered<T> a, lettered<T> b, const std::string& kept) {
  a = a.summed_to(kept + b.letters);
  b = b.summed_to(kept + a.letters);
  std::string batch, left, inner, right;
  for (const char letter : a.letters) {
    (b.has(letter) ? kept.find(letter) != std::string::npos ? batch : inner : left) += letter;
  }
  for (const char letter : b.letters) {
    if (!a.has(letter)) right += letter;
  }
  const auto size = [](const lettered<T>& of, const std::string& letters) {
    std::size_t product = 1;
    for (const char letter : letters) product *= of.extent(letter);
    return product;
  };
  shape s;
  for (const char letter : batch + left) s.push_back(a.extent(letter));
  for (const char letter : right) s.push_back(b.extent(letter));
  const std::size_t batches = size(a, batch), k = size(a, inner);
  const std::size_t rows = size(a, left), columns = size(b, right);
  const variable<T> x = reshape(a.in_order(batch + left + inner).values, {batches, rows, k});
  const variable<T> y = reshape(b.in_order(batch + inner + right).values, {batches, k, columns});
  return {reshape(matmul(x, y), s), batch + left + right};
}

}  // namespace detail

template <typename T>
[[nodiscard]] variable<T> einsum(std::string_view equation, std::span<const variable<T>> operands,
                                 call_site = call_site::current()) {
  std::vector<shape> shapes;
  for (const variable<T>& each : operands) {
    detail::require_uncut(each, "einsum");
    shapes.push_back(each.shape());
  }
  const detail::einsum_equation parts(equation, shapes);
  std::vector<detail::lettered<T>> left;
  for (std::size_t n = 0; n < operands.size(); ++n) {
    detail::lettered<T> one{operands[n], parts.operands[n]};
    for (std::size_t i = 0; i < one.letters.size(); ++i) {  // the diagonal of a repeated letter
      for (std::size_t j = one.letters.size() - 1; j > i; --j) {
        if (one.letters[j] != one.letters[i]) continue;
        one.values = detail::diagonal_of(one.values, static_cast<int>(i), static_cast<int>(j));
        one.letters.erase(j, 1);
      }
    }
    left.push_back(std::move(one));
  }
  detail::lettered<T> product = left[0];
  for (std::size_t n = 1; n < left.size(); ++n) {
    std::string kept = parts.result;
    for (std::size_t later = n + 1; later < left.size(); ++later) kept += left[later].letters;
    product = detail::product_of(product, left[n], kept);
  }
  return product.summed_to(parts.result).in_order(parts.result).values;
}
template <typename T>
[[nodiscard]] variable<T> einsum(std::string_view equation,
                                 std::initializer_list<variable<T>> operands,
                                 call_site = call_site::current()) {
  return einsum(equation, std::span<const variable<T>>(operands.begin(), operands.size()));
}
template <typename T>
[[nodiscard]] tensor<T> einsum(std::string_view equation, std::initializer_list<tensor<T>> operands,
                               call_site = call_site::current()) {
  const std::vector<variable<T>> constants(operands.begin(), operands.end());
  return einsum(equation, std::span<const variable<T>>(constants)).value();
}

/// The operands one after another, as in PyTorch.
template <detail::tensor_or_variable X, detail::tensor_or_variable... More>
[[nodiscard]] auto einsum(std::string_view equation, const X& first, const More&... more) {
  return einsum(equation, {detail::kind_of<X>(first), detail::kind_of<X>(more)...});
}

/// Matrices (batch, m, k) times (batch, k, n).
template <detail::tensor_or_variable X>
[[nodiscard]] auto bmm(const X& a, const X& b, call_site = call_site::current()) {
  require(a.rank() == 3 && b.rank() == 3 && a.extent(0) == b.extent(0),
          "bmm: shapes {} and {} are not (batch, m, k) and (batch, k, n)", to_string(a.shape()),
          to_string(b.shape()));
  return matmul(a, b);
}
/// A matrix (m, k) times a vector (k).
template <detail::tensor_or_variable X>
[[nodiscard]] auto mv(const X& a, const X& x, call_site = call_site::current()) {
  require(a.rank() == 2 && x.rank() == 1, "mv: shapes {} and {} are not (m, k) and (k)",
          to_string(a.shape()), to_string(x.shape()));
  return einsum("ij,j->i", a, x);
}
/// The sum of the products of two vectors (n), a scalar.
template <detail::tensor_or_variable X>
[[nodiscard]] auto dot(const X& a, const X& b, call_site = call_site::current()) {
  require(a.rank() == 1 && a.shape() == b.shape(), "dot: shapes {} and {} are not (n) and (n)",
          to_string(a.shape()), to_string(b.shape()));
  return einsum("i,i->", a, b);
}
/// The products of all elements of a (m) with all of b (n): (m, n).
template <detail::tensor_or_variable X>
[[nodiscard]] auto outer(const X& a, const X& b, call_site = call_site::current()) {
  require(a.rank() == 1 && b.rank() == 1, "outer: shapes {} and {} are not (m) and (n)",
          to_string(a.shape()), to_string(b.shape()));
  return einsum("i,j->ij", a, b);
}

}  // namespace parx
