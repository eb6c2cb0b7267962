// booster: gradient-boosted trees, trained by all ranks of a group, each on its rows.
//
//   parx::trees::booster model{{.objective = parx::trees::logistic{}, .num_round = 100}};
//   model.fit(world, rows);  // the same model, bit for bit, at any number of ranks and threads;
//                            // of tree_learner::voting at the same division of rows alone
//
// fit() adds rounds until there are num_round, so a booster that has some goes on where it stands:
// after a failure, with the group that is left once its ranks hold the lost rows, too; and from a
// saved model. Ranks may have finished unequally many rounds: those who have most tell the others.
// The bits are those of an uninterrupted run, because all that a round depends on is the trees
// before it, the rows, the seed and the round's number.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include <parx/checkpoint/agreement.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/core/check.hpp>
#include <parx/trees/boosting.hpp>
#include <parx/trees/forest_exchange.hpp>
#include <parx/trees/metrics.hpp>
#include <parx/trees/model_file.hpp>
#include <parx/trees/options.hpp>
#include <parx/trees/predict.hpp>
#include <parx/trees/traffic.hpp>
#include <parx/trees/training_rows.hpp>
#include <parx/trees/tree.hpp>
#include <parx/trees/voting.hpp>

namespace parx::inline PARX_ABI::trees {

/// A table to judge the model by; it is not copied. Each rank passes its part, which may be empty.
struct evaluation {
  evaluation(const table& given,
             std::string called = "eval")  // NOLINT(google-explicit-constructor)
      : rows(&given), name(std::move(called)) {}
  evaluation(table&&, std::string = "") = delete;

  const table* rows;
  std::string name;
};

/// After a round, equal on all ranks.
struct round_report {
  int round = 0;                                          ///< from 0
  std::vector<std::pair<std::string, double>> figures{};  ///< "eval-logloss" and its value
  double seconds = 0;                                     ///< since fit() began, of this rank
};

/// What a callback after a round wants.
enum class after_round { go_on, stop };

struct fit_options {
  std::vector<evaluation> evaluate{};
  std::vector<metric> metrics{};  ///< of each evaluation
  /// Stop when the last metric of the last evaluation has not become better for so many rounds;
  /// 0: never. The forest's best_iteration is the best round then.
  int early_stopping_rounds = 0;
  /// Called on every rank after each round; stops all ranks where it says so on any.
  std::function<after_round(const round_report&, const forest&)> on_round{};
  int print_every = 0;  ///< rounds from one line of rank 0 to the next; 0: none
  /// The model's file, which rank 0 writes anew each so many rounds; 0: never. A booster made from
  /// it goes on to the bytes of an uninterrupted run.
  std::string save_to{};
  int save_every = 0;
};

class booster {
 public:
  /// Throws usage_error for options that are none.
  explicit booster(booster_options options) : options_(std::move(options)) {
    if (options_.max_delta_step == 0) options_.max_delta_step = options_.objective.max_delta_step();
    check_options(options_);
  }
  /// Goes on from `model`, made by the same options and rows.
  booster(booster_options options, forest model) : booster(std::move(options)) {
    model_ = std::move(model);
    require(model_.objective == options_.objective.name(),
            "booster: the model was made for {}, the options ask for {}", model_.objective,
            options_.objective.name());
  }

  /// Collective. `rows` are this rank's. Returns the rounds' figures, those of earlier fits too.
  /// Throws errc::bad_data on all ranks for bad rows, errc::io where save_to cannot be written, and
  /// parx::error when communication fails; the rounds finished before that are kept.
  std::vector<round_report> fit(process_group& group, const table& rows,
                                const fit_options& how = {});

  [[nodiscard]] const forest& model() const noexcept { return model_; }
  /// Local. Rows x outputs, by the rounds up to the best where early stopping has found one.
  [[nodiscard]] std::vector<float> predict(const table& rows) const {
    return trees::predict(model_, rows);
  }
  /// The same of one row: a value a column, NaN where it is missing.
  [[nodiscard]] std::vector<float> predict(std::span<const float> row) const {
    return trees::predict(model_, row);
  }
  /// Local; of many ranks let one call it. Writes XGBoost's JSON (model_file.hpp). Throws errc::io.
  void save(const std::string& path) const { save_model(model_, path); }
  [[nodiscard]] const booster_options& options() const noexcept { return options_; }

  /// Local. What making a tree sends over `ranks` ranks, for the columns of the last fit().
  [[nodiscard]] std::string explain(int ranks) const;

 private:
  /// The margins of one evaluation.
  struct judged {
    const evaluation* set;
    table_margins margins;
  };
  /// The best round so far.
  struct best_round {
    int round = -1;
    double value = 0;
  };

  void begin(process_group& group, const table& rows, boosting& rounds, const row_numbers& numbers);
  [[nodiscard]] round_report judge(process_group& group, const fit_options& how, int round,
                                   std::vector<judged>& sets) const;
  void add_round(int round, std::vector<judged>& sets, table_margins* training) const;
  /// Whether early stopping ends training after this round.
  [[nodiscard]] bool notes_no_progress(const fit_options& how, const round_report& report,
                                       best_round& best);
  [[nodiscard]] std::size_t outputs() const noexcept {
    return static_cast<std::size_t>(options_.objective.outputs());
  }

  booster_options options_;
  forest model_;
  std::vector<std::size_t> cells_;  ///< of a histogram, by column
  std::int64_t rows_ = 0;           ///< of all ranks
};

inline std::vector<round_report> booster::fit(process_group& group, const table& rows,
                                              const fit_options& how) {
  using clock = std::chrono::steady_clock;
  const auto began = clock::now();
  require(how.early_stopping_rounds == 0 || (!how.evaluate.empty() && !how.metrics.empty()),
          "fit: early_stopping_rounds = {} needs an evaluation and a metric",
          how.early_stopping_rounds);
  require(how.save_every == 0 || !how.save_to.empty(),
          "fit: save_every = {} needs save_to, the model's file", how.save_every);
  const row_numbers numbers = number_rows(group, rows, options_.objective);
  const auto constraints = options_.monotone_constraints.size();
  require(constraints <= numbers.columns, "fit: there are {} monotone constraints and {} columns",
          constraints, numbers.columns);
  parx::detail::agree(&group, call_site::current(), [&] {
    for (const evaluation& each : how.evaluate) {
      const auto columns = static_cast<std::size_t>(each.rows->columns);
      if (each.rows->sparse() || each.rows->rows == 0 || columns == numbers.columns) continue;
      throw_error(errc::bad_data, "fit: the rows of \"{}\" have {} columns, those to train on {}",
                  each.name, columns, numbers.columns);
    }
  });
  agree_on_forest(group, model_);
  model_.best_iteration.reset();
  boosting rounds(group, rows, options_, numbers);
  begin(group, rows, rounds, numbers);

  const auto base = static_cast<float>(options_.objective.to_margin(model_.base_score));
  table_margins margins(rows, outputs(), base);
  std::vector<judged> sets;
  for (const evaluation& each : how.evaluate) {
    sets.push_back({&each, table_margins(*each.rows, outputs(), base)});
  }
  std::vector<round_report> reports;
  best_round best;
  const auto finish = [&](int round) {
    reports.push_back(judge(group, how, round, sets));
    reports.back().seconds = std::chrono::duration<double>(clock::now() - began).count();
    return notes_no_progress(how, reports.back(), best);
  };
  const auto held = static_cast<int>(model_.rounds());
  bool stops = false;
  for (int round = 0; round < held && !stops; ++round) {
    add_round(round, sets, &margins);
    stops = finish(round);
  }
  for (int round = held; round < options_.num_round && !stops; ++round) {
    for (tree& each : rounds.make_round(round, margins)) {
      const std::size_t output = model_.trees.size() % outputs();
      model_.trees.push_back(std::move(each));
      model_.tree_info.push_back(static_cast<std::int32_t>(output));
    }
    add_round(round, sets, nullptr);
    stops = finish(round);
    const round_report& report = reports.back();
    if (how.print_every > 0 && round % how.print_every == 0 && group.rank() == 0) {
      std::string line = formatted("[{}]", round);
      for (const auto& [name, value] : report.figures)
        line += formatted("\t{}:{:.5f}", name, value);
      fmt::print("{}\n", line);
      std::fflush(stdout);
    }
    if (how.save_every > 0 && (round + 1) % how.save_every == 0) {
      parx::detail::agree_on_rank0(&group, call_site::current(), [&] { save(how.save_to); });
    }
    if (how.on_round) {
      const bool stop_here = how.on_round(report, model_) == after_round::stop;
      stops = on_any_rank(group, stop_here) || stops;
    }
  }
  return reports;
}

/// The parts of the model that are there before the first tree.
inline void booster::begin(process_group& group, const table& rows, boosting& rounds,
                           const row_numbers& numbers) {
  rows_ = numbers.rows;
  cells_.clear();
  for (const column_cuts& each : rounds.cuts()) {
    cells_.push_back(static_cast<std::size_t>(each.codes()));
  }
  if (model_.rounds() > 0) {
    const auto columns = static_cast<std::size_t>(model_.num_feature);
    if (columns != numbers.columns) {
      throw_error(errc::bad_data, "fit: the model has {} columns, the rows have {}", columns,
                  numbers.columns);
    }
    return;
  }
  const std::optional<double> part = options_.objective.leaf_quantile();
  const double preset = options_.base_score.value_or(0.5);
  model_.base_score = part && !options_.base_score
                          ? static_cast<double>(rounds.label_quantile(rows, *part))
                          : preset;
  model_.objective = options_.objective.name();
  model_.objective_parameters = options_.objective.parameters();
  model_.num_class = outputs() > 1 ? static_cast<int>(outputs()) : 0;
  model_.num_feature = static_cast<std::int64_t>(numbers.columns);
  model_.kinds.clear();
  for (const column_cuts& each : rounds.cuts()) {
    model_.kinds.push_back(each.categories > 0 ? column_kind::categorical : column_kind::numeric);
  }
  share_words(group, rows, model_);
}

inline void booster::add_round(int round, std::vector<judged>& sets,
                               table_margins* training) const {
  for (std::size_t output = 0; output < outputs(); ++output) {
    const tree& each = model_.trees[static_cast<std::size_t>(round) * outputs() + output];
    for (judged& set : sets) set.margins.add(each, output);
    if (training != nullptr) training->add(each, output);
  }
}

inline round_report booster::judge(process_group& group, const fit_options& how, int round,
                                   std::vector<judged>& sets) const {
  round_report report{.round = round};
  if (how.metrics.empty()) return report;
  for (const judged& set : sets) {
    const auto margins = set.margins.values();
    std::vector<float> predictions(margins.begin(), margins.end());
    options_.objective.to_prediction(predictions);
    for (const metric& each : how.metrics) {
      report.figures.emplace_back(formatted("{}-{}", set.set->name, each.name),
                                  each.value(group, predictions, *set.set->rows));
    }
  }
  return report;
}

inline std::string booster::explain(int ranks) const {
  require(!cells_.empty(), "booster::explain: no fit() yet, so the number of bins is not known");
  require(options_.max_depth > 0, "booster::explain: the formula is for a max_depth");
  std::vector<std::size_t> sent = cells_;
  tree_shape shape{.depth = options_.max_depth, .ranks = ranks};
  const std::int64_t bins = options_.num_grad_quant_bins;
  if (bins > 0) shape.cell_bytes = bytes_of_cell(rows_ * bins);
  std::string remark;
  if (options_.tree_learner == tree_learner::voting) {
    const auto k = static_cast<std::size_t>(options_.top_k);
    if (votes(options_, sent.size())) {
      shape.top_k = options_.top_k;
      std::sort(sent.begin(), sent.end(), std::greater<>());
      sent.resize(2 * k);
    }
    if (4 * k >= cells_.size()) {
      remark = formatted("voting sends no less than data: 4 x top_k = {}, and {} columns\n", 4 * k,
                         cells_.size());
    }
  }
  shape.cells = std::accumulate(sent.begin(), sent.end(), std::uint64_t{0});
  return explain_traffic(shape) + remark;
}

inline bool booster::notes_no_progress(const fit_options& how, const round_report& report,
                                       best_round& best) {
  if (how.early_stopping_rounds == 0) return false;
  const double value = report.figures.back().second;
  const bool is_better =
      how.metrics.back().higher_is_better ? value > best.value : value < best.value;
  if (best.round < 0 || is_better) best = {report.round, value};
  model_.best_iteration = best.round;
  return report.round - best.round >= how.early_stopping_rounds;
}

}  // namespace parx::trees
