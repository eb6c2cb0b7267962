// objectives: what is minimised, as the gradient and the hessian of each row's loss by its margin.
//
// y is the label, m the margin (the sum of the trees and the base), w the row's weight; formulas
// and names are XGBoost's. A row's pair depends on this row alone, and on no C library's exp, whose
// bits depend on the processor; lambdarank's alone does.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/printable.hpp>
#include <parx/tensor/packet.hpp>
#include <parx/tensor/vector_math.hpp>
#include <parx/trees/gradient.hpp>
#include <parx/trees/lambdarank.hpp>
#include <parx/trees/table.hpp>
#include <parx/trees/tree.hpp>

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
/// Yours: fills a pair for each row and output, of margins that are rows x outputs. Weights are
/// yours to multiply by. Predictions and base_score are those of the objective `like`, in XGBoost's
/// words: "binary:logistic" makes probabilities of the margins. The model is saved as one of that.
struct custom_objective {
  std::function<void(std::span<const float> margins, const table& rows, std::span<gradient> out)>
      gradients;
  std::string like = "reg:squarederror";
  int outputs = 1;
};

namespace detail {

/// By packets, in place; an element's bits do not depend on where it stands.
template <typename Function>
void apply_in_place(std::span<float> x, const Function& function) noexcept {
  using namespace parx::detail;
  for_each_packet<float>(x.size(), [&](std::size_t at, auto... left) PARX_PACKET_BODY {
    store_packet(x.data() + at, function(load_packet(x.data() + at, left...)), left...);
  });
}
inline void sigmoid_in_place(std::span<float> x) noexcept {
  apply_in_place(x, [](auto m) PARX_PACKET_BODY { return parx::detail::vector_sigmoid(m); });
}
inline void exp_in_place(std::span<float> x) noexcept {
  apply_in_place(x, [](auto m) PARX_PACKET_BODY { return parx::detail::vector_exp(m); });
}
inline constexpr float least_hessian = 1e-16F;

/// The probabilities of one row's margins, in place; their differences to the greatest are taken
/// first, so nothing overflows.
inline void softmax_in_place(std::span<float> margins) noexcept {
  const float greatest = *std::max_element(margins.begin(), margins.end());
  for (float& each : margins) each -= greatest;
  exp_in_place(margins);
  const float sum = std::accumulate(margins.begin(), margins.end(), 0.0F);
  for (float& each : margins) each /= sum;
}

/// What the margins are of: the prediction, its logit or logarithm, or the logits of classes.
enum class margin_of { prediction, logit, logarithm, class_logits };

struct named_objective {
  std::string_view name;
  margin_of margin;
  std::string_view parameters;  ///< what a model file calls them
  std::string_view metric;      ///< by which it is judged where none is named
};
/// In XGBoost's words, in the order of the variant below.
inline constexpr named_objective objectives[] = {
    {"reg:squarederror", margin_of::prediction, "reg_loss_param", "rmse"},
    {"reg:absoluteerror", margin_of::prediction, "", "mae"},
    {"reg:quantileerror", margin_of::prediction, "quantile_loss_param", "quantile"},
    {"binary:logistic", margin_of::logit, "reg_loss_param", "logloss"},
    {"multi:softprob", margin_of::class_logits, "softmax_multiclass_param", "mlogloss"},
    {"count:poisson", margin_of::logarithm, "poisson_regression_param", "poisson-nloglik"},
    {"rank:ndcg", margin_of::prediction, "lambdarank_param", "ndcg"}};

}  // namespace detail

/// What the trees minimise: one of the structs above, by value.
class objective {
 public:
  /// Of one of the structs above. Throws usage_error for a custom_objective that is like none.
  template <typename Kind>
  requires(!std::is_same_v<std::remove_cvref_t<Kind>, objective> &&
           std::is_constructible_v<std::variant<squared_error, absolute_error, quantile, logistic,
                                                softmax, poisson, lambdarank, custom_objective>,
                                   Kind>) objective(Kind&& kind)
      : kind_(std::forward<Kind>(kind)) {  // NOLINT(google-explicit-constructor)
    const auto* const own = std::get_if<custom_objective>(&kind_);
    named_ = detail::objectives + kind_.index();
    if (own == nullptr) return;
    named_ = std::find_if(std::begin(detail::objectives), std::end(detail::objectives),
                          [own](const auto& each) { return each.name == own->like; });
    require(named_ != std::end(detail::objectives),
            "custom_objective: \"{}\" is no objective of XGBoost's whose predictions yours could "
            "have, such as reg:squarederror (the margins themselves) or binary:logistic",
            printable(own->like));
    require(own->outputs >= (named_->margin == detail::margin_of::class_logits ? 2 : 1),
            "custom_objective: outputs = {}; {} has a margin for each output, or class",
            own->outputs, own->like);
  }

  /// In XGBoost's words.
  [[nodiscard]] std::string name() const { return std::string(named_->name); }
  /// The name of parameters() in a model file; "": it has none.
  [[nodiscard]] std::string_view parameters_name() const noexcept { return named_->parameters; }
  /// Of XGBoost's metrics, the one that judges it where none is named.
  [[nodiscard]] std::string_view metric() const noexcept { return named_->metric; }
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
    if (named_->margin == detail::margin_of::class_logits) {
      return {{"num_class", formatted("{}", outputs())}};
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
    if (named_->margin == detail::margin_of::logit) return -std::log(1 / prediction - 1);
    return named_->margin == detail::margin_of::logarithm ? std::log(prediction) : prediction;
  }
  /// In place.
  void to_prediction(std::span<float> margins) const {
    if (named_->margin == detail::margin_of::logit) {
      detail::sigmoid_in_place(margins);
    } else if (named_->margin == detail::margin_of::logarithm) {
      detail::exp_in_place(margins);
    } else if (named_->margin == detail::margin_of::class_logits) {
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

    /// pair(link(margin), label) of each row; `link` changes some margins in place.
    template <typename Link, typename Pair>
    void each(const Link& link, const Pair& pair) const {
      std::array<float, 256> some;
      for (std::size_t begin = first; begin < last; begin += some.size()) {
        const auto linked = std::span(some).first(std::min(some.size(), last - begin));
        std::copy_n(margins.begin() + static_cast<std::ptrdiff_t>(begin), linked.size(),
                    linked.begin());
        link(linked);
        for (std::size_t i = 0; i < linked.size(); ++i) {
          const float w = rows.weight.empty() ? 1.0F : rows.weight[begin + i];
          const gradient made = pair(linked[i], rows.label[begin + i]);
          out[begin + i] = {made.g * w, made.h * w};
        }
      }
    }
    static void unchanged(std::span<float>) noexcept {}
    void operator()(const squared_error&) const {
      each(unchanged, [](float m, float y) { return gradient{m - y, 1}; });
    }
    void operator()(const absolute_error&) const {
      each(unchanged, [](float m, float y) {
        return gradient{m > y ? 1.0F : (m < y ? -1.0F : 0.0F), 1};
      });
    }
    void operator()(const quantile& given) const {
      const auto alpha = static_cast<float>(given.alpha);
      each(unchanged, [alpha](float m, float y) {
        return gradient{m >= y ? 1 - alpha : -alpha, 1};
      });
    }
    void operator()(const logistic& given) const {
      const auto positive = static_cast<float>(given.scale_pos_weight);
      each(detail::sigmoid_in_place, [positive](float p, float y) {
        const float scale = y == 1.0F ? positive : 1.0F;
        return gradient{(p - y) * scale, std::max(p * (1 - p), detail::least_hessian) * scale};
      });
    }
    void operator()(const poisson& given) const {
      const float later = std::exp(static_cast<float>(given.max_delta_step));
      each(detail::exp_in_place, [later](float mean, float y) {
        return gradient{mean - y, mean * later};
      });
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
  const detail::named_objective* named_ = nullptr;  ///< itself, or what a custom one is like
};

/// The objective that a model names. Throws errc::bad_data for one that is not among the above.
[[nodiscard]] inline objective objective_of(const forest& model) {
  const std::string_view name = model.objective;
  const auto parameter = [&](std::string_view key, double otherwise) {
    for (const auto& [given, text] : model.objective_parameters) {
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
    if (model.num_class >= 2) return softmax{model.num_class};
    throw_error(errc::bad_data, "{} has classes, and num_class is {}", name, model.num_class);
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
