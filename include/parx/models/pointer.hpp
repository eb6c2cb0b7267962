// pointer: lets a decoder copy tokens of its source: names, numbers and rare words that a small
// model never learns to spell.
//
// At each position one head of attention from the decoder's states to the encoder's weights the
// source tokens, and a gate mixes this distribution with the generated one.
// See, Liu, Manning: Get To The Point (arXiv 1704.04368), with dot products instead of their
// additive attention.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>

#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/autograd/ops/matmul.hpp>
#include <parx/autograd/ops/pointer.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/nn/linear.hpp>

namespace parx::inline PARX_ABI::models {

template <typename T = float>
class pointer : public nn::module<pointer<T>> {
 public:
  using value_type = T;

  explicit pointer(std::size_t width)
      : scale_(static_cast<T>(1 / std::sqrt(static_cast<double>(width)))),
        query_(width, width, {.bias = nn::bias::none}),
        key_(width, width, {.bias = nn::bias::none}),
        gate_(width, 1) {}

  /// The log-probabilities (batch, positions, vocabulary) of the mixture of what `logits` generate
  /// and what is copied from the source's ids (batch, keys), where mask is not 0: see
  /// parx::pointer_mixture. states (batch, positions, width) is the decoder's result, memory
  /// (batch, keys, width) the encoder's.
  template <std::integral Id, std::integral Mask>
  [[nodiscard]] variable<T> forward(const variable<T>& logits, const variable<T>& states,
                                    const variable<T>& memory, const tensor<Id>& ids,
                                    const tensor<Mask>& mask) {
    return point(logits, states, keys(memory), ids, mask);
  }
  /// The two halves of forward, for generating: the keys of a memory are the same for every token.
  [[nodiscard]] variable<T> keys(const variable<T>& memory) {
    return transpose(key_(memory), 1, 2);
  }
  template <std::integral Id, std::integral Mask>
  [[nodiscard]] variable<T> point(const variable<T>& logits, const variable<T>& states,
                                  const variable<T>& keys, const tensor<Id>& ids,
                                  const tensor<Mask>& mask) {
    const variable<T> scores = matmul(query_(states) * scale_, keys);
    return pointer_mixture(logits, scores, gate_(states), ids, mask);
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("query", query_);
    visit("key", key_);
    visit("gate", gate_);
  }

 private:
  T scale_;
  nn::linear<T> query_, key_, gate_;
};

}  // namespace parx::models
