// linear_cross_entropy: the loss of a model's last layer without its whole logits.
//
//   auto loss = parx::nn::linear_cross_entropy(features, head, labels);
//
// The same bits as nn::cross_entropy(head(features), labels), where head is an nn::linear, or the
// nn::embedding of a tied output; see autograd/ops/linear_cross_entropy.hpp for what it saves.
#pragma once

#include <concepts>

#include <parx/autograd/ops/cast.hpp>
#include <parx/autograd/ops/linear_cross_entropy.hpp>
#include <parx/nn/embedding.hpp>
#include <parx/nn/linear.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::nn {

using parx::linear_cross_entropy;

/// x is (..., in), labels (...). Throws usage_error, with the caller's line, as nn::cross_entropy
/// does, for a head with an activation, and for one that is cut over ranks.
template <typename P, std::integral Label>
[[nodiscard]] auto linear_cross_entropy(const variable<arithmetic_type<P>>& x,
                                        const linear<P>& head, const tensor<Label>& labels,
                                        const cross_entropy_options& options = {},
                                        call_site site = call_site::current()) {
  require(head.activation() == parx::activation::none,
          "linear_cross_entropy at {}: the head applies an activation, and logits have none", site);
  parx::refuse_cut_classes<P>(head.weight(), site);
  using A = arithmetic_type<P>;
  return parx::linear_cross_entropy<A>(x, cast<A>(head.weight()), cast<A>(head.bias_values()),
                                       labels, options, head.layout(), site);
}
/// For a tied output: the classes are the embedding's rows.
template <typename P, std::integral Label>
[[nodiscard]] auto linear_cross_entropy(const variable<arithmetic_type<P>>& x,
                                        const embedding<P>& head, const tensor<Label>& labels,
                                        const cross_entropy_options& options = {},
                                        call_site site = call_site::current()) {
  parx::refuse_cut_classes<P>(head.weight(), site);
  using A = arithmetic_type<P>;
  return parx::linear_cross_entropy<A>(x, cast<A>(head.weight()), {}, labels, options,
                                       weight_layout::out_in, site);
}

}  // namespace parx::nn
