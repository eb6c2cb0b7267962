// What fit() refuses, when it stops, and that monotone columns are monotone.
#include <parx/trees/booster.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <comm/jobs.hpp>
#include <data/support.hpp>
#include <messages.hpp>
#include <trees/generated.hpp>

namespace {

namespace trees = parx::trees;
using parx_test::mentions;
using trees::booster;
using trees::table;

/// Six columns of numbers without missing values, labels at random.
table numbers(std::int64_t rows) {
  table made;
  made.rows = rows;
  made.columns = 6;
  for (std::uint64_t row = 0; row < static_cast<std::uint64_t>(rows); ++row) {
    for (std::uint64_t c = 0; c < 6; ++c) {
      made.values.push_back(static_cast<float>(generated::uniform(row, c)));
    }
    made.label.push_back(static_cast<float>(generated::uniform(row, 50)));
  }
  return made;
}

}  // namespace

BOOST_AUTO_TEST_CASE(bad_rows_are_refused_on_all_ranks_in_one_sentence) {
  const auto refusal = [](const trees::objective& loss, const auto& spoil) {
    const auto failures = jobs::run_collecting(jobs::kind::inproc, 3, [&](auto& world) {
      table rows = numbers(20);
      spoil(world.rank(), rows);
      booster model{{.objective = loss, .num_round = 1}};
      model.fit(world, rows);
    });
    for (const std::string& each : failures) BOOST_TEST(each != "");
    return failures[0];
  };
  const auto text = refusal(trees::squared_error{}, [](int rank, table& rows) {
    if (rank == 2) rows.label[7] = std::numeric_limits<float>::quiet_NaN();
  });
  BOOST_TEST(mentions(text, "rank 2: row 7: the label is NaN"));
  BOOST_TEST(mentions(refusal(trees::logistic{},
                              [](int rank, table& rows) {
                                if (rank == 1) rows.label[3] = 2;
                              }),
                      "rank 1: row 3: the label is 2, not a number from 0 to 1"));
  BOOST_TEST(mentions(refusal(trees::squared_error{},
                              [](int rank, table& rows) {
                                if (rank != 1) return;
                                rows.columns = 5;
                                rows.values.resize(100);
                              }),
                      "rank 1 has 5 columns, rank 0 has 6"));
  BOOST_TEST(mentions(refusal(trees::squared_error{},
                              [](int rank, table& rows) {
                                rows.weight.assign(20, 1);
                                if (rank == 1) rows.weight[4] = 0;
                              }),
                      "rank 1: row 4: the weight is 0, not a number above 0"));
  BOOST_TEST(mentions(refusal(trees::squared_error{},
                              [](int rank, table& rows) {
                                rows.kinds.assign(6, trees::column_kind::numeric);
                                rows.kinds[2] = trees::column_kind::categorical;
                                for (std::size_t i = 2; i < 120; i += 6) rows.values[i] = 1;
                                if (rank == 1) rows.values[6 * 9 + 2] = 1.5F;
                              }),
                      "rank 1: row 9, column 2: 1.5 is no category"));
  BOOST_TEST(mentions(
      refusal(trees::squared_error{}, [](int, table& rows) { rows = table{.columns = 6}; }),
      "no rank has a row to train on"));
}

BOOST_AUTO_TEST_CASE(options_that_are_none_are_refused_by_name) {
  BOOST_CHECK_EXCEPTION(booster({.subsample = 0}), parx::usage_error,
                        [](const auto& thrown) { return mentions(thrown.what(), "subsample"); });
  BOOST_CHECK_EXCEPTION(
      booster({.num_grad_quant_bins = 1}), parx::usage_error,
      [](const auto& thrown) { return mentions(thrown.what(), "num_grad_quant_bins"); });
  BOOST_CHECK_EXCEPTION(booster({.max_depth = 0}), parx::usage_error,
                        [](const auto& thrown) { return mentions(thrown.what(), "max_leaves"); });
}

BOOST_AUTO_TEST_CASE(training_stops_when_the_figure_has_not_become_better) {
  const std::string failure = jobs::run(jobs::kind::inproc, 2, [](parx::process_group& world) {
    const table rows = numbers(200);
    const auto calls = std::make_shared<std::size_t>(0);
    const std::vector<double> given{5, 4, 3, 3, 3.5, 2, 1};
    const trees::metric figure{
        "given", false, [calls, given](auto&, auto, const auto&) { return given[(*calls)++]; }};
    booster model{{.num_round = 7, .max_depth = 2}};
    const auto reports = model.fit(
        world, rows, {.evaluate = {rows}, .metrics = {figure}, .early_stopping_rounds = 2});
    jobs::check(reports.size() == 5, "five rounds");
    jobs::check(model.model().rounds() == 5, "five rounds of trees");
    jobs::check(model.model().best_iteration == 2, "the third is the best");
    jobs::check(reports[2].figures[0] == std::pair<std::string, double>("eval-given", 3), "figure");
  });
  BOOST_TEST(failure == "");
}

BOOST_AUTO_TEST_CASE(predictions_rise_with_a_column_that_is_constrained_to) {
  const std::string failure = jobs::run(jobs::kind::inproc, 1, [](parx::process_group& world) {
    const table rows = numbers(800);
    booster model{{.num_round = 10, .max_depth = 5, .monotone_constraints = {1, -1}}};
    model.fit(world, rows);
    for (std::size_t row = 0; row < 50; ++row) {
      std::vector<float> x(rows.values.begin() + static_cast<std::ptrdiff_t>(row * 6),
                           rows.values.begin() + static_cast<std::ptrdiff_t>(row * 6 + 6));
      for (const std::size_t column : {0U, 1U}) {
        float before = 0;
        for (int step = 0; step <= 20; ++step) {
          x[column] = static_cast<float>(step) / 20;
          const float now = trees::predict(model.model(), x).front();
          const bool holds = column == 0 ? now >= before : now <= before;
          jobs::check(step == 0 || holds, "monotone in column " + std::to_string(column));
          before = now;
        }
      }
    }
  });
  BOOST_TEST(failure == "");
}

BOOST_AUTO_TEST_CASE(an_objective_of_ones_own_trains_predicts_and_goes_on_as_the_one_it_is_like) {
  const auto gradients = [](std::span<const float> margins, const table& rows,
                            std::span<trees::gradient> out) {
    std::vector<float> p(margins.begin(), margins.end());
    trees::objective(trees::logistic{}).to_prediction(p);
    for (std::size_t row = 0; row < out.size(); ++row) {
      out[row] = {p[row] - rows.label[row], std::max(p[row] * (1 - p[row]), 1e-16F)};
    }
  };
  const trees::objective own = trees::custom_objective{gradients, "binary:logistic"};
  const parx_test::scratch_folder folder;
  const std::string failure = jobs::run(jobs::kind::inproc, 2, [&](parx::process_group& world) {
    const table all = numbers(400);
    const table rows = generated::part(all, 200 * world.rank(), 200 * world.rank() + 200);
    booster wanted{{.objective = trees::logistic{}, .num_round = 4, .base_score = 0.3}};
    wanted.fit(world, rows);
    booster model{{.objective = own, .num_round = 2, .base_score = 0.3}};
    model.fit(world, rows);
    const std::string path = folder.file("own" + std::to_string(world.rank()) + ".json");
    model.save(path);
    booster resumed{{.objective = own, .num_round = 4, .base_score = 0.3}, trees::load_model(path)};
    resumed.fit(world, rows);
    jobs::check(trees::model_text(resumed.model()) == trees::model_text(wanted.model()),
                "the model");
    jobs::check(resumed.predict(all) == wanted.predict(all), "predictions");
    const auto row = std::span(all.values).first(6);
    jobs::check(resumed.predict(row)[0] == wanted.predict(all)[0], "the prediction of one row");
    jobs::check(trees::predict(trees::load_model(path), row).size() == 1, "a loaded model");
  });
  BOOST_TEST(failure == "");
  BOOST_CHECK_EXCEPTION(trees::objective(trees::custom_objective{gradients, "mine"}),
                        parx::usage_error,
                        [](const auto& thrown) { return mentions(thrown.what(), "\"mine\""); });
}

BOOST_AUTO_TEST_CASE(a_column_without_values_is_never_split) {
  const std::string failure = jobs::run(jobs::kind::inproc, 2, [](parx::process_group& world) {
    table rows = numbers(100);
    for (std::size_t i = 4; i < rows.values.size(); i += 6) {
      rows.values[i] = std::numeric_limits<float>::quiet_NaN();
    }
    booster model{{.num_round = 3}};
    model.fit(world, rows);
    for (const trees::tree& each : model.model().trees) {
      for (std::size_t node = 0; node < each.nodes(); ++node) {
        jobs::check(each.left_children[node] < 0 || each.split_indices[node] != 4, "column 4");
      }
    }
  });
  BOOST_TEST(failure == "");
}
