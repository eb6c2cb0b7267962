// Flags of train_trees, in XGBoost's words, read into the options of parx::trees. --max_depth and
// --max-depth are the same flag. A wrong value is a parx::usage_error that names the flag.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/options.hpp"
#include <parx/core/parse_number.hpp>
#include <parx/core/split.hpp>
#include <parx/core/without_blanks.hpp>
#include <parx/trees.hpp>

namespace examples {

struct trees_settings {
  parx::trees::read_options read = {};
  parx::trees::booster_options booster = {};
  std::vector<parx::trees::metric> metrics = {};
  std::string data, eval_data, test_data, eval_queries, test_queries;
  std::string save, predictions, importance;
  int save_period = 0, early_stopping_rounds = 0, verbose_eval = 1;
  bool resume = false, explain = false, shrink = false;
};

namespace detail {

/// The parts between commas, without the blanks around them; none of "".
inline std::vector<std::string> parts(std::string_view text) {
  std::vector<std::string> all;
  for (const std::string_view part : parx::detail::split_at(text, ',')) {
    all.emplace_back(parx::detail::without_blanks(part, " "));
  }
  return all;
}

/// A number, or else a name.
inline parx::trees::file_column column_of(const std::string& text) {
  const auto number = parx::detail::parse_number<int>(text);
  return number && *number >= 0 ? parx::trees::file_column(*number)
                                : parx::trees::file_column(text);
}
inline std::vector<parx::trees::file_column> columns_of(const std::string& text) {
  std::vector<parx::trees::file_column> all;
  for (const std::string& part : parts(text)) all.push_back(column_of(part));
  return all;
}

inline parx::trees::objective objective_flag(const cxxopts::ParseResult& given) {
  namespace trees = parx::trees;
  constexpr double any = std::numeric_limits<double>::max();
  const std::string name =
      choice(given, "objective",
             {"reg:squarederror", "reg:absoluteerror", "reg:quantileerror", "binary:logistic",
              "multi:softprob", "count:poisson", "rank:ndcg"});
  const double alpha = number(given, "quantile-alpha", 0.0, 1.0);
  const double positive = number(given, "scale-pos-weight", 0.0, any);
  const int classes = number(given, "num-class", 2, 100'000);
  if (name == "reg:absoluteerror") return trees::absolute_error{};
  if (name == "reg:quantileerror") return trees::quantile{alpha};
  if (name == "binary:logistic") return trees::logistic{positive};
  if (name == "multi:softprob") return trees::softmax{classes};
  if (name == "count:poisson") return trees::poisson{};
  if (name == "rank:ndcg") return trees::lambdarank{};
  return trees::squared_error{};
}

}  // namespace detail

inline void add_trees_flags(cxxopts::Options& options) {
  const parx::trees::booster_options d;
  const auto yes = cxxopts::value<bool>();
  options.add_options("Data")
      ("data", "CSV or LibSVM file to train on, or a folder of them; .gz too", text(""))
      ("eval-data", "rows to judge each round by", text(""))
      ("test-data", "rows to judge the finished model by", text(""))
      ("format", "csv, libsvm, or automatic: by the first line", text("automatic"))
      ("delimiter", "of a CSV; without it a tab or a comma, by the first line", text(""))
      ("header", "whether the first line of a CSV names the columns: present, absent, automatic",
       text("automatic"))
      ("label", "column of the label, by number from 0 or by name", text("0"))
      ("classes", "texts of the label, class 0 first: no,yes", text(""))
      ("weight", "column of the rows' weights", text(""))
      ("query", "column that says of which query a row is", text(""))
      ("query-file", "file with the number of rows of each query", text(""))
      ("eval-query-file", "the same of --eval-data", text(""))
      ("test-query-file", "the same of --test-data", text(""))
      ("ignore", "columns to leave out: 3,id", text(""))
      ("categorical", "columns of categories: 1,3,job", text(""))
      ("missing", "texts of a missing value, besides an empty one", text("NA,N/A,NaN,nan,NULL,?"));
  options.add_options("Training")
      ("objective", "reg:squarederror, reg:absoluteerror, reg:quantileerror, binary:logistic, "
       "multi:softprob, count:poisson or rank:ndcg", text("reg:squarederror"))
      ("num-class", "of multi:softprob", text(2))
      ("scale-pos-weight", "of binary:logistic: how much a positive row weighs", text(1))
      ("quantile-alpha", "of reg:quantileerror", text(0.5))
      ("num-round", "trees for each output", text(d.num_round))
      ("learning-rate,eta", "what part of a tree is added", text(d.learning_rate))
      ("max-depth", "levels of a tree; 0: no bound", text(d.max_depth))
      ("max-leaves", "leaves of a tree; 0: no bound", text(d.max_leaves))
      ("grow-policy", "depthwise, or lossguide: the best split first", text("depthwise"))
      ("min-child-weight", "least sum of hessians of a leaf", text(d.min_child_weight))
      ("gamma", "least gain of a split", text(d.gamma))
      ("lambda", "penalty of squared weights", text(d.lambda))
      ("alpha", "penalty of absolute weights", text(d.alpha))
      ("max-delta-step", "greatest weight of a leaf; 0: no bound", text(d.max_delta_step))
      ("subsample", "part of the rows of a tree", text(d.subsample))
      ("colsample-bytree", "part of the columns of a tree", text(d.colsample_bytree))
      ("colsample-bylevel", "part of those at a depth", text(d.colsample_bylevel))
      ("colsample-bynode", "part of those at a node", text(d.colsample_bynode))
      ("max-bin", "bins of a column", text(d.max_bin))
      ("max-cat-to-onehot", "with fewer categories, each is split from the rest",
       text(d.max_cat_to_onehot))
      ("max-cat-threshold", "categories on the smaller side of a split", text(d.max_cat_threshold))
      ("monotone-constraints", "by column: 1 rising, -1 falling, 0 free: (0,1,-1)", text(""))
      ("base-score", "prediction before the first tree; without it the objective's", text(""))
      ("seed", "of sampling", text(d.seed))
      ("tree-learner", "data, or voting: few columns are sent, but another number of ranks gives "
       "other trees", text("data"))
      ("num-grad-quant-bins", "units that gradients are rounded to at random, which sends less; 0: "
       "exact sums", text(d.num_grad_quant_bins))
      ("top-k", "columns of a node that each rank votes for", text(d.top_k))
      ("eval-metric", "rmse, mae, logloss, error, auc, mlogloss, merror, ndcg@5 ...; several by "
       "commas; without it the objective's", text(""))
      ("early-stopping-rounds", "stop after so many rounds without progress; 0: never", text(0))
      ("verbose-eval", "rounds between two lines; 0: none", text(1));
  options.add_options("Model")
      ("save", "write the model to this file, as XGBoost's JSON", text(""))
      ("save-period", "rounds between two writings of it; 0: at the end alone", text(0))
      ("resume", "go on from the model in --save, if it is there", yes)
      ("on-loss", "if a rank is lost: end, or shrink and go on with the others", text("end"))
      ("predictions", "write the predictions of --test-data to this file, a line a row", text(""))
      ("importance", "print the columns by weight, gain, cover, total_gain or total_cover",
       text(""))
      ("explain", "print what a tree sends between the ranks", yes)
      ("h,help", "print this");
}

inline trees_settings trees_flags(const cxxopts::ParseResult& given) {
  namespace trees = parx::trees;
  constexpr double any = std::numeric_limits<double>::max();
  const auto string = [&](const char* flag) { return given[flag].as<std::string>(); };
  const auto positive = [&](const char* flag) { return number(given, flag, 0.0, any); };
  const auto count = [&](const char* flag) { return number(given, flag, 0, 1'000'000'000); };
  const auto column = [&](const char* flag) -> std::optional<trees::file_column> {
    if (string(flag).empty()) return std::nullopt;
    return detail::column_of(string(flag));
  };
  trees_settings s;
  s.data = string("data"), s.eval_data = string("eval-data"), s.test_data = string("test-data");
  trees::read_options& read = s.read;
  const std::string format = choice(given, "format", {"automatic", "csv", "libsvm"});
  read.format = format == "csv"      ? trees::file_format::csv
                : format == "libsvm" ? trees::file_format::libsvm
                                     : trees::file_format::automatic;
  const std::string header = choice(given, "header", {"automatic", "present", "absent"});
  read.header = header == "present"  ? trees::header_line::present
                : header == "absent" ? trees::header_line::absent
                                     : trees::header_line::automatic;
  const std::string delimiter = string("delimiter") == "\\t" ? "\t" : string("delimiter");
  parx::require(delimiter.size() < 2, "--delimiter \"{}\": give one character", delimiter);
  if (!delimiter.empty()) read.delimiter = delimiter[0];
  read.label = column("label"), read.weight = column("weight"), read.query = column("query");
  read.classes = detail::parts(string("classes"));
  read.query_file = string("query-file");
  s.eval_queries = string("eval-query-file"), s.test_queries = string("test-query-file");
  read.ignore = detail::columns_of(string("ignore"));
  read.categorical = detail::columns_of(string("categorical"));
  read.missing = detail::parts(string("missing"));
  read.missing.emplace_back();

  trees::booster_options& b = s.booster;
  b.objective = detail::objective_flag(given);
  b.num_round = count("num-round");
  b.learning_rate = positive("learning-rate");
  b.max_depth = count("max-depth"), b.max_leaves = count("max-leaves");
  b.grow_policy = choice(given, "grow-policy", {"depthwise", "lossguide"}) == "depthwise"
                      ? trees::grow_policy::depthwise
                      : trees::grow_policy::lossguide;
  b.min_child_weight = positive("min-child-weight");
  b.gamma = positive("gamma"), b.lambda = positive("lambda"), b.alpha = positive("alpha");
  b.max_delta_step = positive("max-delta-step");
  b.subsample = positive("subsample");
  b.colsample_bytree = positive("colsample-bytree");
  b.colsample_bylevel = positive("colsample-bylevel");
  b.colsample_bynode = positive("colsample-bynode");
  b.max_bin = count("max-bin");
  b.max_cat_to_onehot = count("max-cat-to-onehot");
  b.max_cat_threshold = count("max-cat-threshold");
  std::string signs = string("monotone-constraints");
  if (signs.starts_with('(') && signs.ends_with(')')) signs = signs.substr(1, signs.size() - 2);
  for (const std::string& sign : detail::parts(signs)) {
    const auto value = parx::detail::parse_number<int>(sign);
    parx::require(value.has_value(), "--monotone-constraints \"{}\": give 1, 0 or -1 by column",
                  signs);
    b.monotone_constraints.push_back(*value);
  }
  if (!string("base-score").empty()) b.base_score = number(given, "base-score", -any, any);
  b.seed = number<std::uint64_t>(given, "seed", 0, UINT64_MAX);
  b.tree_learner = choice(given, "tree-learner", {"data", "voting"}) == "data"
                       ? trees::tree_learner::data
                       : trees::tree_learner::voting;
  b.top_k = count("top-k"), b.num_grad_quant_bins = count("num-grad-quant-bins");

  for (const std::string& name : detail::parts(string("eval-metric"))) {
    s.metrics.push_back(trees::find_metric(name));
  }
  if (s.metrics.empty()) s.metrics.push_back(trees::default_metric(b.objective));
  s.early_stopping_rounds = count("early-stopping-rounds");
  parx::require(s.early_stopping_rounds == 0 || !s.eval_data.empty(),
                "--early-stopping-rounds {}: needs --eval-data to stop by",
                s.early_stopping_rounds);
  s.verbose_eval = count("verbose-eval");
  s.save = string("save"), s.save_period = count("save-period");
  s.resume = given.count("resume") != 0, s.explain = given.count("explain") != 0;
  parx::require(!s.save.empty() || (!s.resume && s.save_period == 0),
                "--resume and --save-period need --save, the model's file");
  s.shrink = choice(given, "on-loss", {"end", "shrink"}) == "shrink";
  s.predictions = string("predictions");
  parx::require(s.predictions.empty() || !s.test_data.empty(),
                "--predictions \"{}\": needs --test-data to predict", s.predictions);
  if (!string("importance").empty()) {
    s.importance =
        choice(given, "importance", {"weight", "gain", "cover", "total_gain", "total_cover"});
  }
  parx::require(!s.data.empty(), "--data: give the file to train on. --help lists the flags");
  (void)trees::booster(b);  // refuses what is out of range, before data are read
  return s;
}

}  // namespace examples
