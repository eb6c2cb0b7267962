// Trains gradient-boosted trees on tables, in XGBoost's words; the model file is XGBoost's, and the
// same at any number of ranks.
//   parxrun -n 4 build/release/bin/train_trees --data higgs.csv --objective binary:logistic
//   srun -N 3 build/release/bin/train_trees --data parts/ --eval-data test.csv --save model.json
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "banner.hpp"
#include "trees_flags.hpp"
#include <parx/checkpoint/atomic_file.hpp>
#include <parx/checkpoint/writable.hpp>
#include <parx/comm.hpp>
#include <parx/trees.hpp>

namespace trees = parx::trees;
using examples::trees_settings;

struct tables {
  trees::table train, eval, test;
};

// Each rank's part of each file.
tables read_tables(parx::process_group& group, const trees_settings& s) {
  tables all;
  all.train = trees::read(group, s.data, s.read);
  trees::read_options like = s.read;
  like.like = &all.train;
  like.query_file = s.eval_queries;
  if (!s.eval_data.empty()) all.eval = trees::read(group, s.eval_data, like);
  like.query_file = s.test_queries;
  if (!s.test_data.empty()) all.test = trees::read(group, s.test_data, like);
  return all;
}

void train(parx::process_group& group, const trees_settings& s, const tables& rows,
           trees::booster& model) {
  trees::fit_options how;
  how.metrics = s.metrics;
  how.early_stopping_rounds = s.early_stopping_rounds;
  how.print_every = s.verbose_eval;
  if (!s.eval_data.empty()) how.evaluate.emplace_back(rows.eval);
  how.save_to = s.save, how.save_every = s.save_period;
  const auto reports = model.fit(group, rows.train, how);
  const double seconds = reports.empty() ? 0 : reports.back().seconds;
  parx::print0(group, "{} rounds in {:.1f} s", model.model().rounds(), seconds);
  if (const auto best = model.model().best_iteration) {
    parx::print0(group, ", the best is [{}]", *best);
  }
  parx::print0(group, "\n");
}

// The figures of the test rows, and their predictions as a file.
void test(parx::process_group& group, const trees_settings& s, const trees::table& rows,
          const trees::booster& model) {
  const std::vector<float> predictions = model.predict(rows);
  std::string line = "test";
  for (const trees::metric& each : s.metrics) {
    line += fmt::format("\t{}:{:.6f}", each.name, each.value(group, predictions, rows));
  }
  parx::print0(group, "{}\n", line);
  if (s.predictions.empty()) return;
  const std::size_t width = model.model().outputs();
  std::string text;
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    text += fmt::format("{}{}", predictions[i], (i + 1) % width == 0 ? '\n' : '\t');
  }
  std::string all;
  for (const std::string& part : parx::gather_object(group, text)) all += part;
  if (group.rank() == 0) parx::detail::write_atomically(s.predictions, all);
}

void print_importances(parx::process_group& group, const std::string& name,
                       const trees::forest& model) {
  const auto type = name == "weight"       ? trees::importance_type::weight
                    : name == "gain"       ? trees::importance_type::gain
                    : name == "cover"      ? trees::importance_type::cover
                    : name == "total_gain" ? trees::importance_type::total_gain
                                           : trees::importance_type::total_cover;
  const std::vector<double> of_column = trees::importances(model, type);
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t c = 0; c < of_column.size(); ++c) {
    if (of_column[c] > 0) order.emplace_back(-of_column[c], c);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [value, c] : order) {
    const std::string called = model.names.empty() ? fmt::format("f{}", c) : model.names[c];
    parx::print0(group, "{:>12.4f}  {}\n", -value, called);
  }
}

void run(parx::world& world, const trees_settings& s) {
  examples::print_ranks(world);
  for (const std::string& path : {s.save, s.predictions}) {
    if (!path.empty()) parx::require_writable(world, path);
  }
  trees::booster model{s.booster};
  // Rank 0 alone reads the model: fit() gives it to the others.
  if (s.resume && world.rank() == 0 && std::filesystem::exists(s.save)) {
    model = trees::booster{s.booster, trees::load_model(s.save)};
  }
  std::optional<parx::process_group> survivors;
  for (;;) {
    parx::process_group& group = survivors ? *survivors : world;
    try {
      const tables rows = read_tables(group, s);
      parx::print0(group, "{} columns; rank 0 has {} rows to train on\n", rows.train.columns,
                   rows.train.rows);
      train(group, s, rows, model);
      if (s.explain) parx::print0(group, "{}", model.explain(group.size()));
      if (!s.test_data.empty()) test(group, s, rows.test, model);
      if (!s.importance.empty()) print_importances(group, s.importance, model.model());
      if (!s.save.empty() && group.rank() == 0) model.save(s.save);
      if (!s.save.empty()) parx::print0(group, "saved to {}\n", s.save);
      return;
    } catch (const parx::error& failure) {
      const parx::errc code = failure.code_value();
      const bool is_loss = code == parx::errc::peer_lost || code == parx::errc::aborted ||
                           code == parx::errc::timeout || code == parx::errc::closed;
      if (!s.shrink || !is_loss || world.size() == 1) throw;
    }
    // The survivors read all rows anew, and go on where the model stands.
    survivors = world.shrink();
    parx::print0(*survivors, "going on with {} ranks, {} rounds are there\n", survivors->size(),
                 model.model().rounds());
  }
}

int main(int argc, char** argv) {
  cxxopts::Options options("train_trees", "Trains gradient-boosted trees, data parallel\n"
                           "Guide: examples/guide/trees.md");
  examples::add_trees_flags(options);
  return parx::run([&](parx::world& world) {
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") != 0) return parx::print0(world, "{}", options.help());
    run(world, examples::trees_flags(given));
  });
}
