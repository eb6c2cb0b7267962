// linear_passes: what the linear operation does to rows besides its products: the activation on a
// product's result, its derivative, and the bias's gradient.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <variant>

#include <parx/autograd/detail/saved.hpp>
#include <parx/autograd/ops/detail/activations.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/tensor/matmul.hpp>

namespace parx::inline PARX_ABI::detail {

/// What backward needs besides the result of the activation.
enum class kept_values {
  none,
  arguments,   ///< the activation's arguments, which autocast has rounded to 16 bits
  derivatives  ///< its derivatives, which cost little beside its values
};

/// Where a product's parts leave what backward needs.
template <typename T>
struct activation_memory {
  kept_values keeps = kept_values::none;
  std::size_t width = 0;       ///< of a row
  tensor<T> derivatives = {};  ///< with kept_values::derivatives
  half_tensor arguments = {};  ///< with kept_values::arguments

  /// For results of this shape; `type` is that of the arguments.
  activation_memory(kept_values what, const shape& s, dtype type) : keeps(what), width(s.back()) {
    if (keeps == kept_values::derivatives) derivatives = tensor<T>::empty(s);
    if (keeps != kept_values::arguments) return;
    with_half(type, [&]<typename Half>(Half) { arguments = tensor<Half>::empty(s); });
  }

  /// For backward, where it is not the result that is kept.
  [[nodiscard]] saved<T> kept() const {
    if constexpr (std::is_same_v<T, float>) {
      if (keeps == kept_values::arguments) return saved<T>(arguments);
    }
    return saved<T>(derivatives);
  }
};

/// For activation_backward, where the derivative itself was kept.
struct saved_slope {
  template <typename V>
  [[gnu::always_inline]] static value_and_slope<V> both(V saved) {
    return {saved, saved};
  }
};

/// y = f(y) for a part of a product's result y, and what is kept of it. Under autocast the
/// arguments are rounded first, to `type`.
template <typename Function, typename T>
void activate_part(const result_tile<T>& part, const activation_memory<T>& memory, dtype type) {
  for (std::size_t r = 0; r < part.rows; ++r) {
    T* const y = part.values + r * part.step;
    const std::size_t at = (part.row + r) * memory.width + part.column;
    if (memory.keeps == kept_values::derivatives) {
      activate_and_derive<Function>(part.columns, y, memory.derivatives.data() + at);
      continue;
    }
    if constexpr (std::is_same_v<T, float>) {
      if (memory.keeps == kept_values::arguments) {
        std::visit([&](const auto& to) { round_and_keep(y, to.data() + at, part.columns); },
                   memory.arguments);
      } else if (type != dtype::float32) {
        round_values(y, y, part.columns, type);
      }
    }
    if constexpr (!std::is_same_v<Function, identity_function<T>>) {
      activate_values<Function>(part.columns, y, y);
    }
  }
}

/// Calls make(row) for each row; it returns the row's `width` elements, which are added to `sum`
/// (may be null). The sums of blocks of 64 rows are added in order, so that rounding errors of many
/// rows do not accumulate and no bit depends on the number of threads.
template <typename T, typename Make>
void sum_rows(std::size_t rows, std::size_t width, T* sum, const Make& make) {
  constexpr std::size_t block = 64, elements = std::size_t{1} << 16U;  // of about 20 us
  const std::size_t blocks = (rows + block - 1) / block;
  const tensor<T> partial = tensor<T>::zeros({sum != nullptr ? blocks : 0, width});
  const std::size_t grain = elements / std::max<std::size_t>(block * width, 1);
  parallel_for(blocks, grain, [&](std::size_t at, std::size_t last) {
    for (; at < last; ++at) {
      for (std::size_t row = at * block; row < std::min(rows, (at + 1) * block); ++row) {
        const T* const made = make(row);
        if (sum != nullptr) add_values(width, made, partial.data() + at * width);
      }
    }
  });
  for (std::size_t at = 0; sum != nullptr && at < blocks; ++at) {
    add_values(width, partial.data() + at * width, sum);
  }
}

/// dz = upstream f'(kept), and the sum of its rows is added to bias_sum (may be null).
template <typename Function, typename T>
void activation_backward(std::size_t rows, std::size_t width, const T* upstream,
                         const saved<T>& kept, T* dz, T* bias_sum) {
  sum_rows(rows, width, bias_sum, [&](std::size_t row) {
    T* const to = dz + row * width;
    for (std::size_t i = 0; i < width; i += converted_at_once) {
      const std::size_t at = row * width + i, count = std::min(converted_at_once, width - i);
      std::array<T, converted_at_once> made;
      multiply_by_slope<Function>(count, upstream + at, kept.read(at, count, made.data()), to + i);
    }
    return to;
  });
}

}  // namespace parx::detail
