// Losses for real targets, probabilities and similarities, as (sum, count): see loss.hpp for
// cross_entropy and mse_loss.
//
//   auto loss = parx::nn::l1_loss(model(batch.x), batch.y, {.row_weights = batch.weights});
//   auto both = loss + 0.1F * parx::counted_as(loss.count, parx::nn::kl_div(log_p, q));
//
// mean() is PyTorch's loss with reduction='mean'. `row_weights` has a weight for each index of
// axis 0 of the prediction; it multiplies sum and count, and rows of weight 0 add exactly nothing,
// whatever their values. Targets may be variables; they get gradients, too. All throw usage_error,
// with the caller's line, for shapes that do not fit and predictions that are cut over ranks
// (naming parx::whole).
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/loss.hpp>
#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/autograd/ops/compare.hpp>
#include <parx/autograd/ops/elementary.hpp>
#include <parx/autograd/ops/loss.hpp>
#include <parx/autograd/ops/reductions.hpp>
#include <parx/autograd/ops/reduce.hpp>
#include <parx/autograd/ops/rows.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/cut_rows.hpp>
#include <parx/tensor/elementary.hpp>

namespace parx::inline PARX_ABI::nn {

struct loss_options {
  std::span<const float> row_weights = {};  ///< one per row (axis 0); empty: all 1. 0 for padding.
};

namespace detail {

using parx::detail::all_of, parx::detail::at_least, parx::detail::at_most;
using parx::detail::one_plus_product, parx::detail::packet_element, parx::detail::simd::fma;
using parx::detail::vector_abs, parx::detail::vector_exp, parx::detail::vector_log;
using parx::detail::vector_sigmoid, parx::detail::vector_sign, parx::detail::vector_softplus;

/// The weights of `rows` rows as a column (rows, 1).
template <typename T>
[[nodiscard]] tensor<T> weight_column(std::string_view call, call_site site, std::size_t rows,
                                      std::span<const float> weights) {
  require(weights.empty() || weights.size() == rows, "{} at {}: {} row weights for {} rows", call,
          site, weights.size(), rows);
  tensor<T> column = tensor<T>::ones({rows, 1});
  for (std::size_t row = 0; row < weights.size(); ++row) {
    column.data()[row] = static_cast<T>(weights[row]);
  }
  return column;
}

/// The sum of a (rows, width) tensor: of each row in lanes, of the rows in double and in order.
template <typename T>
[[nodiscard]] tensor<T> total_of(const tensor<T>& losses) {
  const std::size_t rows = losses.extent(0), width = losses.extent(1);
  const double total =
      ordered_reduce<double>(rows, rows_of_a_block(width), [&](std::size_t row, std::size_t last) {
        double sum = 0;
        for (; row < last; ++row) {
          const T* const x = losses.data() + row * width;
          sum += static_cast<double>(
              reduce_lanes(0, width, T(0), add_op{}, [=](std::size_t i) { return x[i]; }));
        }
        return sum;
      });
  return tensor<T>::scalar(static_cast<T>(total));
}

/// The loss of loss(p, t) of all elements, with derivatives of_p(p, t) and of_t(p, t); all are
/// functions of packets.
template <typename T, typename Loss, typename OfP, typename OfT>
[[nodiscard]] weighted_loss<T> element_loss(std::string_view call, call_site site,
                                            const variable<T>& prediction,
                                            const variable<T>& target,
                                            std::span<const float> row_weights, Loss loss, OfP of_p,
                                            OfT of_t) {
  require_whole_rows(prediction.value(), call, site);
  require(prediction.shape() == target.shape(),
          "{} at {}: a prediction of shape {} needs a target of the same shape, not {}{}", call,
          site, to_string(prediction.shape()), to_string(target.shape()),
          prediction.size() == target.size() ? ": reshape one of the two" : "");
  const std::size_t rows = prediction.rank() == 0 ? 1 : prediction.extent(0);
  const std::size_t width = rows == 0 ? 0 : prediction.size() / rows;
  const tensor<T> weights = weight_column<T>(call, site, rows, row_weights);
  const tensor<T> p = prediction.value().reshape({rows, width});
  const tensor<T> t = target.value().reshape({rows, width});
  const auto weighted = [](auto f) {  // exactly 0 for a weight of 0
    return on_packets([f](auto x, auto y, auto w) {
      const decltype(x) v = f(x, y) * w;
      return w == decltype(w){} ? decltype(x){} : v;
    });
  };
  const double count = static_cast<double>(width) * static_cast<double>(sum(weights).item());
  variable<T> total = differentiable(
      total_of(map(weighted(loss), p, t, weights)),
      [=](const tensor<T>& upstream, grad_sink<T> dp, grad_sink<T> dt) {
        const T u = upstream.item();
        const auto contribute = [&](const grad_sink<T>& sink, auto derivative) {
          const auto scaled = [derivative, u](auto x, auto y) { return derivative(x, y) * u; };
          sink.add(map(weighted(scaled), p, t, weights).reshape(sink.shape()));
        };
        if (dp.needed()) contribute(dp, of_p);
        if (dt.needed()) contribute(dt, of_t);
      },
      prediction, target);
  return {std::move(total), count};
}

/// The loss of one number for each row: `losses` is (rows).
template <typename T>
[[nodiscard]] weighted_loss<T> row_loss(std::string_view call, call_site site,
                                        const variable<T>& losses,
                                        std::span<const float> row_weights) {
  const tensor<T> weights =
      weight_column<T>(call, site, losses.size(), row_weights).reshape(losses.shape());
  const variable<T> kept = masked_fill(losses, eq(weights, T(0)), T(0));
  return {sum(kept * weights), static_cast<double>(sum(weights).item())};
}

template <typename V>
[[nodiscard, gnu::always_inline]] inline V number(double value) noexcept {
  return detail::all_of<V>(static_cast<typename detail::packet_element<V>::type>(value));
}

}  // namespace detail

/// A target: a variable, or a tensor, which becomes a constant.
template <typename T>
using target_of = std::type_identity_t<variable<T>>;

/// |prediction - target|; the derivative at 0 is 0.
template <typename T>
[[nodiscard]] weighted_loss<T> l1_loss(const variable<T>& prediction, const target_of<T>& target,
                                       const loss_options& options = {},
                                       call_site site = call_site::current()) {
  return detail::element_loss(
      "l1_loss", site, prediction, target, options.row_weights,
      [](auto p, auto t) { return detail::vector_abs<decltype(p)>(p - t); },
      [](auto p, auto t) { return detail::vector_sign<decltype(p)>(p - t); },
      [](auto p, auto t) { return detail::vector_sign<decltype(p)>(t - p); });
}

/// With d = prediction - target: d^2 / 2 where |d| < delta, else delta (|d| - delta / 2).
template <typename T>
[[nodiscard]] weighted_loss<T> huber_loss(const variable<T>& prediction, const target_of<T>& target,
                                          double delta = 1, const loss_options& options = {},
                                          call_site site = call_site::current()) {
  require(delta > 0, "huber_loss at {}: delta is {}, not above 0", site, delta);
  const auto slope = [delta](auto d) {
    using V = decltype(d);
    const V most = detail::number<V>(delta);
    return detail::at_least<V>(detail::at_most<V>(d, most), -most);
  };
  return detail::element_loss(
      "huber_loss", site, prediction, target, options.row_weights,
      [delta](auto p, auto t) {
        using V = decltype(p);
        const V d = detail::vector_abs<V>(p - t), most = detail::number<V>(delta);
        const V square = d * d * 0.5F, line = most * (d - most * 0.5F);
        return d < most ? square : line;
      },
      [slope](auto p, auto t) { return slope(decltype(p)(p - t)); },
      [slope](auto p, auto t) { return slope(decltype(p)(t - p)); });
}

/// huber_loss / beta. With beta = 0 the l1_loss.
template <typename T>
[[nodiscard]] weighted_loss<T> smooth_l1_loss(const variable<T>& prediction,
                                              const target_of<T>& target, double beta = 1,
                                              const loss_options& options = {},
                                              call_site site = call_site::current()) {
  if (beta == 0) return l1_loss(prediction, target, options, site);
  return huber_loss(prediction, target, beta, options, site) * static_cast<T>(1 / beta);
}

struct binary_cross_entropy_options {
  std::span<const float> row_weights = {};  ///< see loss_options
  double pos_weight = 1;                    ///< of the part -t log(p): above 1 for rare positives
};

/// -t log(sigmoid(x)) - (1 - t) log(1 - sigmoid(x)) for targets t in [0, 1], without overflow.
template <typename T>
[[nodiscard]] weighted_loss<T> binary_cross_entropy_with_logits(
    const variable<T>& logits, const target_of<T>& target,
    const binary_cross_entropy_options& options = {}, call_site site = call_site::current()) {
  const double more = options.pos_weight - 1;
  // (1 - t) x + (1 + more t) softplus(-x)
  return detail::element_loss(
      "binary_cross_entropy_with_logits", site, logits, target, options.row_weights,
      [more](auto x, auto t) {
        using V = decltype(x);
        const V factor = detail::one_plus_product<V>(t, detail::number<V>(more));
        return detail::fma(factor, detail::vector_softplus<V>(-x), V((1.0F - t) * x));
      },
      [more](auto x, auto t) {
        using V = decltype(x);
        const V factor = detail::one_plus_product<V>(t, detail::number<V>(more));
        return detail::fma(V(-factor), detail::vector_sigmoid<V>(-x), V(1.0F - t));
      },
      [more](auto x, auto) {
        using V = decltype(x);
        return detail::fma(detail::number<V>(more), detail::vector_softplus<V>(-x), V(-x));
      });
}

/// -t log(p) - (1 - t) log(1 - p) for probabilities p; logarithms are -100 at least, as in PyTorch.
/// More exact from logits: binary_cross_entropy_with_logits.
template <typename T>
[[nodiscard]] weighted_loss<T> binary_cross_entropy(const variable<T>& probabilities,
                                                    const target_of<T>& target,
                                                    const loss_options& options = {},
                                                    call_site site = call_site::current()) {
  const auto log_of = [](auto v) {
    using V = decltype(v);
    return detail::at_least<V>(detail::vector_log<V>(v), detail::number<V>(-100));
  };
  return detail::element_loss(
      "binary_cross_entropy", site, probabilities, target, options.row_weights,
      [log_of](auto p, auto t) {
        using V = decltype(p);
        return V(-t) * log_of(p) - V(1.0F - t) * log_of(V(1.0F - p));
      },
      [](auto p, auto t) {
        using V = decltype(p);
        return V(p - t) / detail::at_least<V>(V(p * V(1.0F - p)), detail::number<V>(1e-12));
      },
      [log_of](auto p, auto) {
        using V = decltype(p);
        return V(log_of(V(1.0F - p)) - log_of(p));
      });
}

/// Whether the target of kl_div has probabilities or their logarithms (log_target).
enum class kl_target { probabilities, logarithms };
enum class kl_mean {
  elements,  ///< PyTorch's reduction='mean'
  rows,      ///< its 'batchmean': the divergence of each row of axis 0, which is the definition
};
struct kl_div_options {
  std::span<const float> row_weights = {};  ///< see loss_options
  kl_target target = kl_target::probabilities;
  kl_mean mean = kl_mean::elements;
};

/// The Kullback-Leibler divergence t (log t - input) of distributions t from those whose logarithms
/// are the input; t log t is 0 at t = 0.
template <typename T>
[[nodiscard]] weighted_loss<T> kl_div(const variable<T>& input, const target_of<T>& target,
                                      const kl_div_options& options = {},
                                      call_site site = call_site::current()) {
  weighted_loss<T> loss =
      options.target == kl_target::logarithms
          ? detail::element_loss(
                "kl_div", site, input, target, options.row_weights,
                [](auto x, auto t) { return detail::vector_exp<decltype(t)>(t) * (t - x); },
                [](auto, auto t) { return -detail::vector_exp<decltype(t)>(t); },
                [](auto x, auto t) {
                  using V = decltype(t);
                  return detail::vector_exp<V>(t) * V(t - x + 1.0F);
                })
          : detail::element_loss(
                "kl_div", site, input, target, options.row_weights,
                [](auto x, auto t) {
                  using V = decltype(t);
                  const V own = t == V{} ? V{} : V(t * detail::vector_log<V>(t));
                  return own - t * x;
                },
                [](auto, auto t) { return -t; },
                [](auto x, auto t) {
                  using V = decltype(t);
                  const V own = detail::vector_log<V>(t) + 1.0F - x;
                  return t == V{} ? V{} : own;
                });
  if (options.mean == kl_mean::rows && input.size() > 0 && input.rank() > 0)
    loss.count /= static_cast<double>(input.size() / input.extent(0));
  return loss;
}

struct nll_loss_options {
  std::int64_t ignore_index = -100;           ///< rows with this label count 0
  std::span<const float> row_weights = {};    ///< one per label; empty: all 1. 0 for padding.
  std::span<const float> class_weights = {};  ///< one per class; empty: all 1
};

/// -log_probabilities[label], with the weight of the row and of the label's class; the count is
/// the sum of these weights. log_probabilities is (..., classes), as log_softmax gives them, labels
/// (...). Throws usage_error for a label outside the classes, too.
template <typename T, std::integral Label>
[[nodiscard]] weighted_loss<T> nll_loss(const variable<T>& log_probabilities,
                                        const tensor<Label>& labels,
                                        const nll_loss_options& options = {},
                                        call_site site = call_site::current()) {
  require_whole_rows(log_probabilities.value(), "nll_loss", site);
  const shape& s = log_probabilities.shape();
  require(s.rank() == labels.rank() + 1 &&
              std::equal(labels.shape().begin(), labels.shape().end(), s.begin()),
          "nll_loss at {}: log-probabilities of shape {} need labels of the same shape without the "
          "last axis, not {}",
          site, to_string(s), to_string(labels.shape()));
  const std::size_t classes = s.back(), rows = labels.size();
  require(options.class_weights.empty() || options.class_weights.size() == classes,
          "nll_loss at {}: {} class weights for {} classes", site, options.class_weights.size(),
          classes);
  const tensor<Label> label = labels.contiguous();
  const tensor<T> weights = detail::weight_column<T>("nll_loss", site, rows, options.row_weights);
  const tensor<T> input = log_probabilities.value().contiguous();
  std::vector<std::size_t> places(rows);  // of the labels' log-probabilities
  double total = 0, count = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto index = static_cast<std::int64_t>(label.data()[row]);
    T& weight = weights.data()[row];
    if (index == options.ignore_index) weight = T(0);
    if (weight == T(0)) continue;
    require(index >= 0 && static_cast<std::size_t>(index) < classes,
            "nll_loss at {}: the label of row {} is {}, but there are {} classes (the last axis), "
            "counted from 0",
            site, row, index, classes);
    const auto hit = static_cast<std::size_t>(index);
    places[row] = row * classes + hit;
    if (!options.class_weights.empty()) weight *= static_cast<T>(options.class_weights[hit]);
    count += static_cast<double>(weight);
    if (weight != T(0)) total -= static_cast<double>(weight * input.data()[places[row]]);
  }
  variable<T> sum = differentiable(
      tensor<T>::scalar(static_cast<T>(total)),
      [=, places = std::move(places)](const tensor<T>& upstream, grad_sink<T> dx) {
        T* const to = dx.zeroed().data();
        const T u = upstream.item();
        for (std::size_t row = 0; row < places.size(); ++row) {
          if (weights.data()[row] != T(0)) to[places[row]] -= u * weights.data()[row];
        }
      },
      log_probabilities);
  return {std::move(sum), count};
}

struct margin_options {
  double margin = 0;
  std::span<const float> row_weights = {};  ///< see loss_options
};

/// Of rows a and b (rows, width) and y (rows) of 1 and -1: 1 - cos(a, b) where y is 1, else
/// max(0, cos(a, b) - margin).
template <typename T>
[[nodiscard]] weighted_loss<T> cosine_embedding_loss(const variable<T>& a, const target_of<T>& b,
                                                     const tensor<T>& y,
                                                     const margin_options& options = {},
                                                     call_site site = call_site::current()) {
  require_whole_rows(a.value(), "cosine_embedding_loss", site);
  require(a.rank() == 2 && b.shape() == a.shape() && y.shape() == shape{a.extent(0)},
          "cosine_embedding_loss at {}: rows of shapes {} and {} with targets {}: (rows, width) "
          "twice and (rows) are needed",
          site, to_string(a.shape()), to_string(b.shape()), to_string(y.shape()));
  // As in PyTorch, the squares get 1e-12 before the root.
  const auto squares = [](const variable<T>& v) {
    return sum(square(v), {1}) + static_cast<T>(1e-12);
  };
  const variable<T> cosine = sum(a * b, {1}) / sqrt(squares(a) * squares(b));
  const variable<T> apart = clamp_min(cosine - static_cast<T>(options.margin), 0);
  return detail::row_loss("cosine_embedding_loss", site, where(gt(y, T(0)), T(1) - cosine, apart),
                          options.row_weights);
}

struct triplet_options {
  double margin = 1;
  double p = 2;                             ///< of the norm
  std::span<const float> row_weights = {};  ///< see loss_options
};

/// max(0, |anchor - positive| - |anchor - negative| + margin) of rows (rows, width).
template <typename T>
[[nodiscard]] weighted_loss<T> triplet_margin_loss(const variable<T>& anchor,
                                                   const target_of<T>& positive,
                                                   const target_of<T>& negative,
                                                   const triplet_options& options = {},
                                                   call_site site = call_site::current()) {
  require_whole_rows(anchor.value(), "triplet_margin_loss", site);
  require(anchor.rank() == 2 && positive.shape() == anchor.shape() &&
              negative.shape() == anchor.shape(),
          "triplet_margin_loss at {}: rows of shapes {}, {} and {}: (rows, width) is needed", site,
          to_string(anchor.shape()), to_string(positive.shape()), to_string(negative.shape()));
  // As in PyTorch's pairwise_distance, 1e-6 keeps the norm's derivative finite.
  const auto distance = [&](const variable<T>& v) {
    return norm(anchor - v + static_cast<T>(1e-6), options.p, {1});
  };
  return detail::row_loss(
      "triplet_margin_loss", site,
      clamp_min(distance(positive) - distance(negative) + static_cast<T>(options.margin), 0),
      options.row_weights);
}

/// max(0, -y (a - b) + margin) for y of 1 and -1, which says whether a should be the larger.
template <typename T>
[[nodiscard]] weighted_loss<T> margin_ranking_loss(const variable<T>& a, const target_of<T>& b,
                                                   const tensor<T>& y,
                                                   const margin_options& options = {},
                                                   call_site site = call_site::current()) {
  require_whole_rows(a.value(), "margin_ranking_loss", site);
  require(a.rank() == 1 && b.shape() == a.shape() && y.shape() == a.shape(),
          "margin_ranking_loss at {}: shapes {}, {} and {}: (rows) is needed", site,
          to_string(a.shape()), to_string(b.shape()), to_string(y.shape()));
  return detail::row_loss("margin_ranking_loss", site,
                          clamp_min((b - a) * y + static_cast<T>(options.margin), 0),
                          options.row_weights);
}

/// The negative log-likelihood of targets under Gaussians, without its constant:
/// (log(v) + (prediction - target)^2 / v) / 2 with v = max(variance, 1e-6).
template <typename T>
[[nodiscard]] weighted_loss<T> gaussian_nll_loss(const variable<T>& prediction,
                                                 const target_of<T>& target,
                                                 const target_of<T>& variance,
                                                 const loss_options& options = {},
                                                 call_site site = call_site::current()) {
  require_whole_rows(prediction.value(), "gaussian_nll_loss", site);
  require(prediction.rank() >= 1 && target.shape() == prediction.shape() &&
              variance.shape() == prediction.shape(),
          "gaussian_nll_loss at {}: shapes {}, {} and {} must be equal", site,
          to_string(prediction.shape()), to_string(target.shape()), to_string(variance.shape()));
  const variable<T> v = clamp_min(variance, 1e-6);
  const variable<T> each = (log(v) + square(prediction - target) / v) * T(0.5);
  const std::size_t rows = prediction.extent(0), width = rows == 0 ? 0 : each.size() / rows;
  weighted_loss<T> loss = detail::row_loss(
      "gaussian_nll_loss", site, sum(reshape(each, {rows, width}), {1}), options.row_weights);
  loss.count *= static_cast<double>(width);
  return loss;
}

}  // namespace parx::nn
