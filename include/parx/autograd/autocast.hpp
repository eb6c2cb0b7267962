// autocast<T>: while one lives, matrix products on this thread work in the lower precision T.
//
//   parx::weighted_loss<float> loss;
//   {
//     const parx::autocast<parx::bfloat16> scope;
//     loss = parx::nn::cross_entropy(model(x), y);
//   }
//   loss.backward();
//
// Tensors and parameters stay float; a product takes operands rounded to T, adds up in float and
// rounds its result to T, in backward too (gradients leave it in float, unrounded). That gives the
// figures of hardware with such products. A CPU without them gains memory, not time: what backward
// needs is kept in 16 bits wherever that loses nothing.
//
//   in T:             linear, matmul, conv2d, scaled_dot_product_attention (its scores, and all
//                     that is computed between its operands and its result, in float)
//   in float:         softmax, losses, norms, reductions, embedding, optimizers
//   as it comes:      everything element by element (relu, gelu, dropout, +, *), views
//
// bfloat16 has float's range and needs nothing else; float16 needs amp::grad_scaler. Double is
// never rounded. Source: PyTorch's torch.autocast. Scopes nest, and autocast<float> is a part in
// full precision within one. A scope of this thread; backward need not be inside.
#pragma once

#include <concepts>
#include <utility>

#include <parx/types/dtype.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI {

namespace detail {
/// What matrix products are rounded to; float32: nothing.
inline dtype& autocast_type() noexcept {
  thread_local dtype type = dtype::float32;
  return type;
}

/// A scope with a type that is known only when it runs: recomputation restores it.
class autocast_scope {
 public:
  explicit autocast_scope(dtype type) noexcept : outer_(std::exchange(autocast_type(), type)) {}
  ~autocast_scope() { autocast_type() = outer_; }
  autocast_scope(const autocast_scope&) = delete;
  autocast_scope& operator=(const autocast_scope&) = delete;

 private:
  dtype outer_;
};
}  // namespace detail

template <typename T>
concept autocast_target = is_half<T> || std::same_as<T, float>;

template <autocast_target T>
class [[nodiscard]] autocast : detail::autocast_scope {
 public:
  autocast() noexcept : autocast_scope(dtype_of<T>) {}
};

}  // namespace parx
