// autocast<T>: a scope in which matrix products on this thread use the lower precision T.
//
//   parx::weighted_loss<float> loss;
//   {
//     const parx::autocast<parx::bfloat16> scope;
//     loss = parx::nn::cross_entropy(model(x), y);
//   }
//   loss.backward();
//
// Tensors and parameters stay float; a product rounds its operands to T, accumulates in float and
// rounds its result to T, in backward too (where the gradients that it returns are float,
// unrounded). Products of bfloat16 are those of AMX, with the same bits on processors without it
// (tensor/gemm/bf16_order.hpp); those of float16, and convolutions, compute in float what was
// rounded. Tensors saved for backward are kept in 16 bits wherever that loses nothing.
//
//   in T:             linear, matmul, conv2d, scaled_dot_product_attention (its scores and
//                     probabilities are float, rounded as operands of products of bfloat16)
//   in float:         softmax, losses, norms, reductions, embedding, optimizers
//   unchanged:        element-wise operations (relu, gelu, dropout, +, *), views
//
// bfloat16 has float's range and needs nothing else; float16 needs amp::grad_scaler. Double is
// never rounded. Source: PyTorch's torch.autocast. Scopes nest; an inner autocast<float> restores
// full precision. A scope of this thread; backward need not be inside.
#pragma once

#include <concepts>
#include <utility>

#include <parx/types/dtype.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI {

namespace detail {
/// The type to which matrix products are rounded; float32: not at all.
inline dtype& autocast_type() noexcept {
  thread_local dtype type = dtype::float32;
  return type;
}

}  // namespace detail

/// A scope with a type known only at run time: recomputation restores that of the first run.
class autocast_scope {
 public:
  explicit autocast_scope(dtype type) noexcept
      : outer_(std::exchange(detail::autocast_type(), type)) {}
  ~autocast_scope() { detail::autocast_type() = outer_; }
  autocast_scope(const autocast_scope&) = delete;
  autocast_scope& operator=(const autocast_scope&) = delete;

 private:
  dtype outer_;
};

template <typename T>
concept autocast_target = is_half<T> || std::same_as<T, float>;

template <autocast_target T>
class [[nodiscard]] autocast : autocast_scope {
 public:
  autocast() noexcept : autocast_scope(dtype_of<T>) {}
};

}  // namespace parx
