// objectives: what is minimised, as the gradient and the hessian of each row's loss by its margin.
//
// y is the label, m the margin (the sum of the trees and the base), w the row's weight; formulas
// and names are XGBoost's. A row's pair depends on this row alone. Its bits come from the C
// library's exp where there is one: nodes of unlike processors may have other bits there.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <parx/core/error.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/printable.hpp>
#include <parx/trees/gradient.hpp>
#include <parx/trees/lambdarank.hpp>
#include <parx/trees/table.hpp>

namespace parx::inline PARX_ABI::trees {

/// (m - y)^2 / 2.
struct squared_error {};
/// |m - y|; each leaf becomes the median of its residuals.
struct absolute_error {};
/// The pinball loss, whose best prediction is the quantile `alpha`; so each leaf becomes that.
struct quantile {
  double alpha = 0.5;
};
/// Log loss of labels 0 and 1, or probabilities; m is a logit. Positive rows weigh as many times as
/// much as scale_pos_weight says.
struct logistic {
  double scale_pos_weight = 1;
};
/// Log loss of num_class classes, labels from 0; a margin a class, and a tree a class and round.
struct softmax {
  int num_class = 2;
};
/// Counts; m is the logarithm of the mean. The hessian is that of m + max_delta_step, and leaves
/// are bounded by it, both for stability.
struct poisson {
  double max_delta_step = 0.7;
};
/// Yours: fills a pair for each row and output, of margins that are rows x outputs. The model is
/// saved under the name, which XGBoost must know to read it. Weights are yours to multiply by.
struct custom_objective {
  std::function<void(std::span<const float> margins, const table& rows, std::span<gradient> out)>
      gradients;
  std::string name = "reg:squarederror";
  int outputs = 1;
};

namespace detail {

[[nodiscard]] inline float sigmoid(float m) noexcept {
  return 1.0F / (1.0F + std::exp(std::min(-m, 88.7F)));
}
inline constexpr float least_hessian = 1e-16F;

/// The probabilities of one row's margins, in place; their differences to the greatest are taken
/// first, so nothing overflows.
inline void softmax_in_place(std::span<float> margins) noexcept {
  const float greatest = *std::max_element(margins.begin(), margins.end());
  float sum = 0;
  for (float& each : margins) sum += each = std::exp(each - greatest);
  for (float& each : margins) each /= sum;
}

}  // namespace detail

/// What the trees minimise: one of the structs above, by value.
class objective {
 public:
  /// Of one of the structs above.
  template <typename Kind>
  requires(!std::is_same_v<std::remove_cvref_t<Kind>, objective> &&
           std::is_constructible_v<std::variant<squared_error, absolute_error, quantile, logistic,
                                                softmax, poisson, lambdarank, custom_objective>,
                                   Kind>) objective(Kind&& kind)
      : kind_(std::forward<Kind>(kind)) {}  // NOLINT(google-explicit-constructor)

  /// In XGBoost's words.
  [[nodiscard]] std::string name() const {
    static constexpr const char* names[] = {
        "reg:squarederror", "reg:absoluteerror", "reg:quantileerror", "binary:logistic",
        "multi:softprob",   "count:poisson",     "rank:ndcg"};
    const auto* const own = std::get_if<custom_objective>(&kind_);
    return own != nullptr ? own->name : names[kind_.index()];
  }
  /// Margins of a row.
  [[nodiscard]] int outputs() const noexcept {
    if (const auto* const classes = std::get_if<softmax>(&kind_)) return classes->num_class;
    const auto* const own = std::get_if<custom_objective>(&kind_);
    return own != nullptr ? own->outputs : 1;
  }
  /// The quantile of its residuals that each leaf is to be.
  [[nodiscard]] std::optional<double> leaf_quantile() const noexcept {
    if (std::holds_alternative<absolute_error>(kind_)) return 0.5;
    const auto* const part = std::get_if<quantile>(&kind_);
    return part != nullptr ? std::optional(part->alpha) : std::nullopt;
  }
  /// The bound of a leaf's weight where the options set none; 0: no bound.
  [[nodiscard]] double max_delta_step() const noexcept {
    const auto* const counts = std::get_if<poisson>(&kind_);
    return counts != nullptr ? counts->max_delta_step : 0;
  }
  /// The members of the model file's objective, as XGBoost calls them.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> parameters() const {
    if (const auto* const given = std::get_if<logistic>(&kind_)) {
      return {{"scale_pos_weight", formatted("{}", given->scale_pos_weight)}};
    }
    if (const auto* const given = std::get_if<quantile>(&kind_)) {
      return {{"quantile_alpha", formatted("{}", given->alpha)}};
    }
    if (const auto* const given = std::get_if<softmax>(&kind_)) {
      return {{"num_class", formatted("{}", given->num_class)}};
    }
    if (const auto* const given = std::get_if<poisson>(&kind_)) {
      return {{"max_delta_step", formatted("{}", given->max_delta_step)}};
    }
    if (const auto* const given = std::get_if<lambdarank>(&kind_)) {
      return {{"lambdarank_num_pair_per_sample", formatted("{}", given->num_pair_per_sample)},
              {"lambdarank_pair_method", "topk"}};
    }
    return {};
  }

  /// Local. `margins` and `out` are rows x outputs().
  void gradients(std::span<const float> margins, const table& rows, std::span<gradient> out) const {
    if (const auto* const own = std::get_if<custom_objective>(&kind_)) {
      own->gradients(margins, rows, out);
      return;
    }
    if (const auto* const ranks = std::get_if<lambdarank>(&kind_)) {
      return lambdarank_gradients(*ranks, margins, rows, out);
    }
    const auto width = static_cast<std::size_t>(outputs());
    parallel_for(static_cast<std::size_t>(rows.rows), 8192,
                 [&](std::size_t first, std::size_t last) {
                   const row_range_gradients range{margins, rows, out, width, first, last};
                   std::visit(range, kind_);
                 });
  }

  /// Of a prediction: the logit of a probability, the logarithm of a mean.
  [[nodiscard]] double to_margin(double prediction) const noexcept {
    if (std::holds_alternative<logistic>(kind_)) return -std::log(1 / prediction - 1);
    return std::holds_alternative<poisson>(kind_) ? std::log(prediction) : prediction;
  }
  /// In place.
  void to_prediction(std::span<float> margins) const {
    if (std::holds_alternative<logistic>(kind_)) {
      for (float& each : margins) each = detail::sigmoid(each);
    } else if (std::holds_alternative<poisson>(kind_)) {
      for (float& each : margins) each = std::exp(each);
    } else if (std::holds_alternative<softmax>(kind_)) {
      const auto width = static_cast<std::size_t>(outputs());
      for (std::size_t row = 0; row < margins.size(); row += width) {
        detail::softmax_in_place(margins.subspan(row, width));
      }
    }
  }

  /// Throws errc::bad_data, which names the row, for a label that the objective cannot have.
  void check_labels(const table& rows) const {
    const auto refuse = [&rows](std::size_t row, float label, std::string_view what) {
      throw_error(errc::bad_data, "{}: the label is {}, not {}",
                  rows.row_name(static_cast<std::int64_t>(row)), label, what);
    };
    for (std::size_t row = 0; row < rows.label.size(); ++row) {
      const float y = rows.label[row];
      if (std::holds_alternative<logistic>(kind_) && !(y >= 0 && y <= 1)) {
        refuse(row, y, "a number from 0 to 1");
      }
      if (std::holds_alternative<poisson>(kind_) && !(y >= 0)) refuse(row, y, "a count from 0");
      if (std::holds_alternative<softmax>(kind_) &&
          !(y >= 0 && y < static_cast<float>(outputs()) && y == std::floor(y))) {
        refuse(row, y, formatted("a class from 0 to {}", outputs() - 1));
      }
      if (std::holds_alternative<lambdarank>(kind_) && !(y >= 0 && y <= 31 && y == std::floor(y))) {
        refuse(row, y, "a relevance: a whole number from 0 to 31");
      }
      if (!std::isfinite(y)) refuse(row, y, "a finite number");
    }
    if (std::holds_alternative<lambdarank>(kind_) && rows.rows > 0 && rows.group.empty()) {
      throw_error(errc::bad_data,
                  "rank:ndcg needs to know which rows are of one query: the rows "
                  "have no groups");
    }
  }

 private:
  /// Fills the pairs of rows first ... last - 1.
  struct row_range_gradients {
    std::span<const float> margins;
    const table& rows;
    std::span<gradient> out;
    std::size_t width;
    std::size_t first;
    std::size_t last;

    template <typename Pair>
    void each(const Pair& pair) const {
      for (std::size_t row = first; row < last; ++row) {
        const float w = rows.weight.empty() ? 1.0F : rows.weight[row];
        const gradient made = pair(margins[row], rows.label[row]);
        out[row] = {made.g * w, made.h * w};
      }
    }
    void operator()(const squared_error&) const {
      each([](float m, float y) { return gradient{m - y, 1}; });
    }
    void operator()(const absolute_error&) const {
      each([](float m, float y) { return gradient{m > y ? 1.0F : (m < y ? -1.0F : 0.0F), 1}; });
    }
    void operator()(const quantile& given) const {
      const auto alpha = static_cast<float>(given.alpha);
      each([alpha](float m, float y) { return gradient{m >= y ? 1 - alpha : -alpha, 1}; });
    }
    void operator()(const logistic& given) const {
      const auto positive = static_cast<float>(given.scale_pos_weight);
      each([positive](float m, float y) {
        const float p = detail::sigmoid(m);
        const float scale = y == 1.0F ? positive : 1.0F;
        return gradient{(p - y) * scale, std::max(p * (1 - p), detail::least_hessian) * scale};
      });
    }
    void operator()(const poisson& given) const {
      const auto step = static_cast<float>(given.max_delta_step);
      each([step](float m, float y) { return gradient{std::exp(m) - y, std::exp(m + step)}; });
    }
    void operator()(const softmax&) const {
      std::vector<float> p(width);
      for (std::size_t row = first; row < last; ++row) {
        const float w = rows.weight.empty() ? 1.0F : rows.weight[row];
        const auto of_row = margins.subspan(row * width, width);
        std::copy(of_row.begin(), of_row.end(), p.begin());
        detail::softmax_in_place(p);
        const auto label = static_cast<std::size_t>(rows.label[row]);
        for (std::size_t c = 0; c < width; ++c) {
          const float hit = c == label ? 1.0F : 0.0F;
          const float h = std::max(2 * p[c] * (1 - p[c]), detail::least_hessian);
          out[row * width + c] = {(p[c] - hit) * w, h * w};
        }
      }
    }
    void operator()(const lambdarank&) const {}
    void operator()(const custom_objective&) const {}
  };

  std::variant<squared_error, absolute_error, quantile, logistic, softmax, poisson, lambdarank,
               custom_objective>
      kind_;
};

/// The objective that a model file names, in XGBoost's words. Throws errc::bad_data for one that
/// is not among the above.
[[nodiscard]] inline objective objective_of(
    std::string_view name, const std::vector<std::pair<std::string, std::string>>& parameters) {
  const auto parameter = [&](std::string_view key, double otherwise) {
    for (const auto& [given, text] : parameters) {
      if (given != key) continue;
      std::string_view digits = text;
      if (digits.starts_with('[') && digits.ends_with(']')) {
        digits = digits.substr(1, digits.size() - 2);
      }
      const auto value = parx::detail::parse_number<double>(digits);
      if (!value) throw_error(errc::bad_data, "\"{}\" of {} is \"{}\"", key, name, printable(text));
      return *value;
    }
    return otherwise;
  };
  if (name == "reg:squarederror" || name == "reg:linear") return squared_error{};
  if (name == "reg:absoluteerror") return absolute_error{};
  if (name == "reg:quantileerror") return quantile{parameter("quantile_alpha", 0.5)};
  if (name == "binary:logistic" || name == "reg:logistic") {
    return logistic{parameter("scale_pos_weight", 1)};
  }
  if (name == "multi:softprob" || name == "multi:softmax") {
    return softmax{static_cast<int>(parameter("num_class", 2))};
  }
  if (name == "count:poisson") return poisson{parameter("max_delta_step", 0.7)};
  if (name == "rank:ndcg" || name == "rank:pairwise") {
    return lambdarank{static_cast<int>(parameter("lambdarank_num_pair_per_sample", 32))};
  }
  throw_error(errc::bad_data,
              "the objective \"{}\" is none of reg:squarederror, reg:absoluteerror, "
              "reg:quantileerror, binary:logistic, multi:softprob, count:poisson and rank:ndcg",
              printable(name));
}

}  // namespace parx::trees
