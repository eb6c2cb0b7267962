// cross_entropy and mse, as weighted losses: (sum, count); and a loss of several parts.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <parx/autograd/function.hpp>
#include <parx/autograd/loss.hpp>
#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/autograd/ops/rows.hpp>
#include <parx/autograd/ops/vocabulary.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/cut_rows.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// A loss summed over rows, and the sum of their weights.
struct summed_loss {
  double total = 0, count = 0;
  summed_loss& operator+=(const summed_loss& other) noexcept {
    total += other.total;
    count += other.count;
    return *this;
  }
};

enum class row_result { loss, loss_and_gradient };

/// The labels and weights of rows of logits, and the loss of a row.
template <typename T, std::integral Label>
class labelled_rows {
 public:
  /// `call` begins the messages. Borrows options.row_weights. Throws usage_error for options that
  /// do not fit.
  labelled_rows(const char* call, call_site site, const tensor<Label>& labels, std::size_t classes,
                const cross_entropy_options& options)
      : call_(call), site_(site), label_(labels.contiguous()), classes_(classes), options_(options),
        smoothing_(static_cast<T>(options.label_smoothing)),
        everywhere_(classes == 0 ? T(0) : smoothing_ / static_cast<T>(classes)) {
    require(options.row_weights.empty() || options.row_weights.size() == labels.size(),
            "{} at {}: {} row weights for {} rows", call, site, options.row_weights.size(),
            labels.size());
    require(options.label_smoothing >= 0 && options.label_smoothing <= 1,
            "{} at {}: a label smoothing of {} is not in [0, 1]", call, site,
            options.label_smoothing);
  }

  [[nodiscard]] std::size_t size() const noexcept { return label_.size(); }
  [[nodiscard]] std::size_t classes() const noexcept { return classes_; }
  /// Replaces the borrowed weights by equal ones.
  void set_row_weights(std::span<const float> weights) noexcept { options_.row_weights = weights; }

  /// The loss of row `row`, whose logits are x. e has room for as many elements, and gets the
  /// loss's gradient if it is wanted; it may be x. Throws usage_error for a label outside the
  /// classes.
  summed_loss loss_of(std::size_t row, const T* x, T* e, row_result wanted) const {
    const auto index = static_cast<std::int64_t>(label_.data()[row]);
    const bool ignored = index == options_.ignore_index;
    const T weight = ignored                        ? T(0)
                     : options_.row_weights.empty() ? T(1)
                                                    : static_cast<T>(options_.row_weights[row]);
    if (weight == T(0)) {
      if (wanted == row_result::loss_and_gradient) std::fill_n(e, classes_, T(0));
      return {};
    }
    if (index < 0 || static_cast<std::size_t>(index) >= classes_) [[unlikely]] {
      throw_usage(
          "{} at {}: the label of row {} is {}, but the logits have {} classes (the last axis), "
          "counted from 0",
          call_, site_, row, index, classes_);
    }
    const auto hit = static_cast<std::size_t>(index);
    const T highest = row_max(x, classes_);
    // Differences to the highest logit, so that large logits lose no digits.
    const T of_label = x[hit] - highest;
    const T below = smoothing_ == T(0)
                        ? T(0)
                        : reduce_lanes(0, classes_, T(0), add_op{},
                                       [=](std::size_t i) { return highest - x[i]; });
    const T sum = row_exp(x, highest, classes_, e);
    const T log_sum = std::log(sum);
    T loss = log_sum - of_label;
    if (smoothing_ != T(0)) {
      loss = (T(1) - smoothing_) * loss + smoothing_ * log_sum + everywhere_ * below;
    }
    if (wanted == row_result::loss_and_gradient) {
      const T scale = weight / sum;
      const T shift = weight * everywhere_;
      for (std::size_t i = 0; i < classes_; ++i) e[i] = e[i] * scale - shift;
      e[hit] -= weight * (T(1) - smoothing_);
    }
    return {static_cast<double>(weight) * static_cast<double>(loss), static_cast<double>(weight)};
  }

 private:
  const char* call_;
  call_site site_;
  tensor<Label> label_;
  std::size_t classes_;
  cross_entropy_options options_;
  T smoothing_, everywhere_;  // everywhere_: of each class
};

template <typename T>
void takes_logits(const variable<T>&);
template <std::integral Label>
void takes_classes(const tensor<Label>&);
template <typename V>
concept is_logits = requires(const V& v) { takes_logits(v); };
template <typename L>
concept is_classes = requires(const L& labels) { takes_classes(labels); };

}  // namespace detail

/// -log softmax(logits)[label], summed over the rows with their weights; the count is the sum of
/// the weights of the rows that are not ignored. logits is (..., classes), labels (...). Rows of
/// weight 0 add exactly nothing, whatever their logits. With label smoothing a row's loss is (1 -
/// smoothing) * -log softmax(logits)[label] + smoothing * the mean of -log softmax(logits); mean()
/// is PyTorch's cross_entropy. Logits that are cut by classes over ranks (tensor parallelism) have
/// the loss of all classes, on all ranks: see vocab_cross_entropy. Throws usage_error, with the
/// caller's line, for shapes that do not fit and a label outside the classes.
template <typename T, std::integral Label>
[[nodiscard]] weighted_loss<T> cross_entropy(const variable<T>& logits, const tensor<Label>& labels,
                                             const cross_entropy_options& options = {},
                                             call_site site = call_site::current()) {
  if (const cut_rows* const cut = cut_classes(logits.value(), "cross_entropy", site);
      cut != nullptr) [[unlikely]] {
    return vocab_cross_entropy(*cut->axis, logits, cut->whole, labels, options, site);
  }
  require(logits.rank() >= 1 && labels.size() * logits.extent(-1) == logits.size() &&
              (labels.rank() + 1 == logits.rank()),
          "cross_entropy at {}: logits of shape {} need labels of the same shape without the last "
          "axis, not {}",
          site, to_string(logits.shape()), to_string(labels.shape()));
  const std::size_t classes = logits.extent(-1);
  const detail::labelled_rows<T, Label> rows("cross_entropy", site, labels, classes, options);
  const tensor<T> input = logits.value().contiguous();
  // The gradient is a by-product of the exponentials: it is computed here, and backward only scales
  // it.
  const bool record = records(logits);
  const tensor<T> gradient = record ? tensor<T>::empty(logits.shape()) : tensor<T>();
  const auto wanted = record ? detail::row_result::loss_and_gradient : detail::row_result::loss;
  const auto all = ordered_reduce<detail::summed_loss>(
      rows.size(), rows_of_a_block(classes), [&](std::size_t row, std::size_t last) {
        const tensor<T> scratch = record ? tensor<T>() : tensor<T>::empty({classes});
        detail::summed_loss sum;
        for (; row < last; ++row) {
          sum += rows.loss_of(row, input.data() + row * classes,
                              record ? gradient.data() + row * classes : scratch.data(), wanted);
        }
        return sum;
      });
  variable<T> sum = differentiable(
      tensor<T>::scalar(static_cast<T>(all.total)),
      [gradient](const tensor<T>& upstream, grad_sink<T> dx) {
        const T u = upstream.item();
        if (u == T(1)) {
          dx.add(gradient);
        } else {
          dx.map([=](T g) { return u * g; }, gradient);
        }
      },
      logits);
  return {std::move(sum), all.count};
}

/// For other arguments: a compile-time error that says what to do.
template <typename Logits, typename Labels, typename Options = cross_entropy_options>
  requires(!detail::is_logits<Logits> || !detail::is_classes<Labels> ||
           !std::is_same_v<Options, cross_entropy_options>)
weighted_loss<float> cross_entropy(const Logits&, const Labels&, const Options& = {}) {
  constexpr bool logits = detail::is_logits<Logits>, classes = detail::is_classes<Labels>;
  static_assert(logits,
                "the logits are what a model returns, a variable: parx::variable<float>(tensor)");
  static_assert(classes,
                "labels are numbers of classes, counted from 0, in a tensor<std::int64_t> (or of "
                "int): tensor<int>::from(labels, {n}); targets that are no classes are for "
                "mse_loss");
  static_assert(!logits || !classes || std::is_same_v<Options, cross_entropy_options>,
                "options go in braces: cross_entropy(logits, y, {.row_weights = batch.weights})");
  return {};
}

/// The squared differences, summed; the count is their number. `row_weights`, one for each index of
/// axis 0, multiplies both. Throws usage_error, with the caller's line, when the shapes differ or
/// the prediction is cut over ranks.
template <typename T>
[[nodiscard]] weighted_loss<T> mse(const variable<T>& prediction, const variable<T>& target,
                                   std::span<const float> row_weights = {},
                                   call_site site = call_site::current()) {
  require_whole_rows(prediction.value(), "mse_loss", site);
  require(prediction.shape() == target.shape(),
          "mse_loss at {}: a prediction of shape {} needs a target of the same shape, not {}{}",
          site, to_string(prediction.shape()), to_string(target.shape()),
          prediction.size() == target.size() ? ": reshape one of the two" : "");
  const std::size_t rows = prediction.rank() == 0 ? 1 : prediction.extent(0);
  require(row_weights.empty() || row_weights.size() == rows,
          "mse_loss at {}: {} row weights for {} rows", site, row_weights.size(), rows);
  const std::size_t width = rows == 0 ? 0 : prediction.size() / rows;
  const tensor<T> difference =
      map([](T p, T t) { return p - t; }, prediction.value(), target.value());
  const tensor<T> weights = tensor<T>::ones({rows});
  for (std::size_t row = 0; row < row_weights.size(); ++row) {
    weights.data()[row] = static_cast<T>(row_weights[row]);
  }
  const auto all = ordered_reduce<detail::summed_loss>(
      rows, rows_of_a_block(width), [&](std::size_t row, std::size_t last) {
        detail::summed_loss sum;
        for (; row < last; ++row) {
          T* const d = difference.data() + row * width;
          const T weight = weights.data()[row];
          if (weight == T(0)) {
            std::fill_n(d, width, T(0));
            continue;
          }
          sum += {static_cast<double>(weight * detail::row_dot(d, d, width)),
                  static_cast<double>(weight) * static_cast<double>(width)};
        }
        return sum;
      });
  variable<T> sum = differentiable(
      tensor<T>::scalar(static_cast<T>(all.total)),
      [=](const tensor<T>& upstream, grad_sink<T> dp, grad_sink<T> dt) {
        const T u = T(2) * upstream.item();
        const tensor<T> flat = difference.reshape({rows, width});
        const tensor<T> column = weights.reshape({rows, 1});
        const auto contribute = [&](const grad_sink<T>& sink, T factor) {
          const tensor<T> whole = map([=](T d, T w) { return factor * w * d; }, flat, column);
          sink.add(whole.reshape(sink.shape()));
        };
        if (dp.needed()) contribute(dp, u);
        if (dt.needed()) contribute(dt, -u);
      },
      prediction, target);
  return {std::move(sum), all.count};
}

/// A loss of two parts: its mean is the sum of their means, also over micro-batches and ranks. Both
/// count the same elements of the batch. Throws usage_error where their counts differ: see
/// counted_as().
template <typename T>
[[nodiscard]] weighted_loss<T> operator+(const weighted_loss<T>& a, const weighted_loss<T>& b) {
  require(a.count == b.count,
          "a loss that counts {} elements is added to one that counts {}, and there is one count "
          "for both means: give one of them the other's by counted_as(count)",
          b.count, a.count);
  return {a.sum + b.sum, a.count};
}
/// A part's weight.
template <typename T>
[[nodiscard]] weighted_loss<T> operator*(const weighted_loss<T>& loss,
                                         std::type_identity_t<T> weight) {
  return {loss.sum * weight, loss.count};
}
template <typename T>
[[nodiscard]] weighted_loss<T> operator*(std::type_identity_t<T> weight,
                                         const weighted_loss<T>& loss) {
  return loss * weight;
}
/// The loss with the same mean and another count: the squared errors of all logits, counted by
/// tokens. Of several micro-batches or ranks it is still their mean if each has as many elements
/// of the loss for one of `count` as the others; otherwise each part's mean weighs by `count`.
template <typename T>
[[nodiscard]] weighted_loss<T> counted_as(double count, const weighted_loss<T>& loss) {
  if (loss.count == 0) return {loss.sum, count};
  return {loss.sum * static_cast<T>(count / loss.count), count};
}

}  // namespace parx
