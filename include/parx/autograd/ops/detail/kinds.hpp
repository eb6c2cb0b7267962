// What is done alike to tensors and variables, for operations that take either.
#pragma once

#include <string_view>

#include <parx/autograd/ops/view.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI::detail {

template <typename T>
void takes_values(const variable<T>&);
template <typename T>
void takes_values(const tensor<T>&);

/// What such an operation takes; its result is of the same kind.
template <typename X>
concept tensor_or_variable = requires(const X& x) {
  takes_values(x);
};

template <typename T>
[[nodiscard]] const tensor<T>& values_of(const tensor<T>& x) {
  return x;
}
template <typename T>
[[nodiscard]] const tensor<T>& values_of(const variable<T>& x) {
  return x.value();
}

template <typename T>
[[nodiscard]] tensor<T> in_shape(const tensor<T>& x, const shape& s) {
  return x.reshape(s);
}
template <typename T>
[[nodiscard]] variable<T> in_shape(const variable<T>& x, const shape& s) {
  return reshape(x, s);
}
/// All elements along one axis.
template <tensor_or_variable X>
[[nodiscard]] auto in_a_row(const X& x) {
  return in_shape(x, {x.shape().size()});
}
template <tensor_or_variable X>
[[nodiscard]] auto without_axis(const X& x, int axis) {
  shape s = x.shape();
  s.erase(resolve_axis(axis, s));
  return in_shape(x, s);
}

/// Throws usage_error, which begins with `call`, where the rows of x are parts of logits.
template <tensor_or_variable X>
void require_uncut(const X& x, std::string_view call) {
  const cut_rows* const cut = x.cut();
  if (cut != nullptr && cut->result == cut_result::logits) [[unlikely]]
    refuse_cut_logits(call, *cut, cut->axis->cut_at());
}

}  // namespace parx::detail
