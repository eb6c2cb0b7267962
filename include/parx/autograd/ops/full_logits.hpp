// full_logits: logits of which each rank has some classes (tensor parallelism), with all classes.
//
//   const auto p = parx::softmax(parx::full_logits(model(x)));    // the same in every layout
//
// For what has no form of its own for cut logits: cross_entropy, argmax and nn::accuracy need no
// gathering (tensor/cut_rows.hpp).
#pragma once

#include <memory>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/across.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

/// The logits of all classes, on all ranks; logits that are not cut unchanged. Collective over the
/// ranks of the cut, which must go on alike with the result: one all-gather, none in backward.
/// Throws usage_error, with the caller's line, for the result of another cut layer.
template <typename T>
[[nodiscard]] variable<T> full_logits(const variable<T>& logits,
                                      call_site site = call_site::current()) {
  if (cut_classes(logits.value(), "whole", site) == nullptr) return logits;
  const std::shared_ptr<const cut_rows> cut = logits.value().shared_cut();
  return differentiable_of_cut(
      detail::once(
          [&] { return across::detail::gathered(*cut->axis, logits.value(), -1, cut->whole); }),
      [cut](const tensor<T>& upstream, grad_sink<T> dx) {
        dx.add(across::detail::own_chunk(*cut->axis, upstream, -1));
      },
      logits);
}
/// The same without gradients.
template <typename T>
[[nodiscard]] tensor<T> full_logits(const tensor<T>& logits,
                                    call_site site = call_site::current()) {
  const cut_rows* const cut = cut_classes(logits, "whole", site);
  return cut == nullptr ? logits : across::detail::gathered(*cut->axis, logits, -1, cut->whole);
}

}  // namespace parx
