// The model does not depend on how many ranks and threads make it, nor on interruptions.
#include <parx/trees.hpp>

#include <boost/test/unit_test.hpp>

#include <sys/resource.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <comm/jobs.hpp>
#include <data/support.hpp>
#include <trees/generated.hpp>

namespace {

namespace trees = parx::trees;
using trees::booster;
using trees::booster_options;
using trees::table;

struct trained {
  std::set<std::uint64_t> models;  ///< one, if all ranks have the same
  std::size_t nodes = 0;
};

/// Each rank trains on its ragged part.
trained train(const booster_options& options, const table& all, int ranks, int threads,
              jobs::kind network = jobs::kind::inproc) {
  parx::set_num_threads(threads);
  trained result;
  std::mutex lock;
  const std::string failure = jobs::run(network, ranks, [&](parx::process_group& world) {
    booster model{options};
    model.fit(world, generated::ragged_part(all, world.rank(), world.size()));
    const std::lock_guard hold(lock);
    result.models.insert(generated::fingerprint(model.model().trees));
    result.nodes = 0;
    for (const auto& tree : model.model().trees) result.nodes += tree.nodes();
  });
  parx::set_num_threads(1);
  BOOST_TEST(failure == "");
  return result;
}

/// One model at 1, 2, 3, 4, 8 ranks and 1, 2 threads. `threaded` rows are many enough for a second
/// thread to have work.
void is_one_model(const booster_options& options, const table& few, const table& threaded) {
  std::set<std::uint64_t> models;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    const trained made = train(options, few, ranks, 1);
    models.insert(made.models.begin(), made.models.end());
    BOOST_TEST(made.nodes > 3U * static_cast<unsigned>(options.num_round));
  }
  BOOST_TEST(models.size() == 1U);
  models.clear();
  for (const auto& [ranks, threads] : {std::pair{1, 1}, {1, 2}, {2, 2}}) {
    const trained made = train(options, threaded, ranks, threads);
    models.insert(made.models.begin(), made.models.end());
  }
  BOOST_TEST(models.size() == 1U);
}

const table& few() {
  static const table rows = generated::mixed(1501);
  return rows;
}
const table& many() {
  static const table rows = generated::mixed(33001);
  return rows;
}

}  // namespace

BOOST_AUTO_TEST_CASE(depth_wise_trees_are_the_same_at_any_number_of_ranks_and_threads) {
  is_one_model({.objective = trees::logistic{.scale_pos_weight = 1.5}, .num_round = 2}, few(),
               many());
}

BOOST_AUTO_TEST_CASE(trees_over_tcp_and_shared_memory_are_those_of_one_rank) {
  const booster_options options{
      .objective = trees::logistic{}, .num_round = 3, .max_depth = 5, .subsample = 0.8};
  const trained wanted = train(options, few(), 1, 1);
  for (const jobs::kind network : {jobs::kind::tcp, jobs::kind::shm}) {
    for (const int ranks : {2, 3}) {
      BOOST_TEST((train(options, few(), ranks, 1, network).models == wanted.models));
    }
  }
}

BOOST_AUTO_TEST_CASE(sampling_goes_by_row_numbers_of_all_ranks) {
  is_one_model({.objective = trees::logistic{},
                .num_round = 2,
                .subsample = 0.6,
                .colsample_bytree = 0.8,
                .colsample_bylevel = 0.9,
                .colsample_bynode = 0.7,
                .seed = 7},
               few(), many());
}

BOOST_AUTO_TEST_CASE(leaf_wise_trees_with_monotone_columns_are_the_same) {
  is_one_model({.objective = trees::logistic{},
                .num_round = 2,
                .max_depth = 0,
                .max_leaves = 15,
                .grow_policy = trees::grow_policy::lossguide,
                .monotone_constraints = {1, -1}},
               few(), many());
}

BOOST_AUTO_TEST_CASE(two_byte_bins_are_the_same) {
  is_one_model({.num_round = 2, .max_leaves = 20, .max_bin = 1000}, few(), many());
}

BOOST_AUTO_TEST_CASE(leaves_that_are_quantiles_are_the_same) {
  is_one_model({.objective = trees::absolute_error{}, .num_round = 2, .max_depth = 4}, few(),
               few());
}

BOOST_AUTO_TEST_CASE(long_tails_are_the_same) {
  // One label is 2^30 times the others: the gradients take 16 bytes a row.
  table rows = few();
  for (std::size_t row = 0; row < rows.label.size(); ++row) {
    rows.label[row] = static_cast<float>(generated::uniform(row, 300));
  }
  rows.label[77] = 0x1p30F;
  is_one_model({.num_round = 2, .max_depth = 4}, rows, rows);
}

BOOST_AUTO_TEST_CASE(quantised_gradients_are_rounded_alike_by_row_numbers_of_all_ranks) {
  // 33,001 rows of 4 are sent in 8 bytes a cell, 1,501 in 4.
  is_one_model({.objective = trees::logistic{},
                .num_round = 3,
                .subsample = 0.8,
                .seed = 3,
                .num_grad_quant_bins = 4},
               few(), many());
}

BOOST_AUTO_TEST_CASE(trees_of_few_units_are_about_as_good) {
  const table held_out = generated::part(generated::mixed(50'000), 40'000, 50'000);
  const table rows = generated::part(generated::mixed(40'000), 0, 40'000);
  const auto logloss = [&](int bins) {
    double value = 0;
    const std::string failure = jobs::run(jobs::kind::inproc, 1, [&](parx::process_group& world) {
      booster model{{.objective = trees::logistic{},
                     .num_round = 30,
                     .learning_rate = 0.2,
                     .num_grad_quant_bins = bins}};
      const auto reports =
          model.fit(world, rows, {.evaluate = {held_out}, .metrics = {trees::logloss()}});
      value = reports.back().figures[0].second;
    });
    BOOST_TEST(failure == "");
    return value;
  };
  const double exact = logloss(0);
  for (const auto& [bins, worse] : {std::pair{4, 0.005}, {16, 0.002}}) {
    const double found = logloss(bins);
    BOOST_TEST_MESSAGE("logloss " << exact << ", of " << bins << " units " << found);
    BOOST_TEST(found < exact + worse);
  }
}

BOOST_AUTO_TEST_CASE(classes_are_the_same) {
  table rows = few();
  rows.weight.clear();
  for (std::size_t row = 0; row < rows.label.size(); ++row) {
    rows.label[row] += rows.values[row * 9] > 0.5F ? 1.0F : 0.0F;
  }
  is_one_model({.objective = trees::softmax{.num_class = 3}, .num_round = 2, .max_depth = 4}, rows,
               rows);
}

BOOST_AUTO_TEST_CASE(sparse_rows_give_the_model_of_dense_ones) {
  const auto fingerprints = [](const table& all, bool is_sparse, int ranks, int threads) {
    parx::set_num_threads(threads);
    std::set<std::uint64_t> models;
    std::mutex lock;
    const std::string failure = jobs::run(jobs::kind::inproc, ranks, [&](auto& world) {
      table rows = generated::ragged_part(all, world.rank(), ranks);
      if (is_sparse && rows.rows > 0) rows = generated::sparse(rows);
      booster model{{.objective = trees::logistic{}, .num_round = 2}};
      model.fit(world, rows);
      const std::lock_guard hold(lock);
      models.insert(generated::fingerprint(model.model().trees));
    });
    parx::set_num_threads(1);
    BOOST_TEST(failure == "");
    BOOST_TEST(models.size() == 1U);
    return models;
  };
  const auto wanted = fingerprints(few(), false, 1, 1);
  BOOST_TEST((fingerprints(few(), true, 1, 1) == wanted));
  BOOST_TEST((fingerprints(few(), true, 3, 1) == wanted));  // rank 1 has no rows
  BOOST_TEST((fingerprints(many(), true, 1, 2) == fingerprints(many(), false, 1, 1)));
}

BOOST_AUTO_TEST_CASE(a_wide_sparse_table_takes_the_memory_of_its_entries) {
  // 20,000 rows of 3 entries among 100,000 columns: 4 GB as dense codes in both layouts. The first
  // columns decide the label.
  table rows;
  rows.rows = 20'000;
  rows.columns = 100'000;
  rows.row_begin.push_back(0);
  for (std::uint64_t row = 0; row < 20'000; ++row) {
    const bool positive = generated::uniform(row, 1) < 0.5;
    if (positive) rows.column.push_back(static_cast<std::int32_t>(row % 3));
    for (const std::uint64_t draw : {2U, 3U}) {  // of one half of the columns, and of the other
      rows.column.push_back(static_cast<std::int32_t>(generated::uniform(row, draw) * 49'000 +
                                                      (draw == 2 ? 10 : 50'000)));
    }
    rows.value.resize(rows.column.size(), 1);
    rows.row_begin.push_back(static_cast<std::int64_t>(rows.column.size()));
    rows.label.push_back(positive ? 1.0F : 0.0F);
  }
  const auto peak = [] {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return used.ru_maxrss / 1024;
  };
  const long before = peak();
  const std::string failure = jobs::run(jobs::kind::inproc, 2, [&](parx::process_group& world) {
    booster model{{.objective = trees::logistic{}, .num_round = 4, .max_depth = 3}};
    const auto figures = model.fit(world, world.rank() == 0 ? rows : table{},
                                   {.evaluate = {rows}, .metrics = {trees::error()}});
    jobs::check(figures.back().figures[0].second == 0, "all labels are learned");
  });
  BOOST_TEST(failure == "");
  BOOST_TEST(peak() - before < 1000);
}

BOOST_AUTO_TEST_CASE(training_goes_on_from_the_file_that_fit_writes_in_the_same_bits) {
  booster_options options{.objective = trees::logistic{}, .num_round = 5, .subsample = 0.7};
  const trained whole = train(options, few(), 1, 1);
  const parx_test::scratch_folder folder;
  const std::string path = folder.file("model.json");
  std::mutex lock;
  std::set<std::uint64_t> models;
  std::string failure = jobs::run(jobs::kind::inproc, 2, [&](parx::process_group& world) {
    booster model{options};
    model.fit(world, generated::ragged_part(few(), world.rank(), 2),
              {.on_round =
                   [](const trees::round_report& report, const trees::forest&) {
                     return report.round == 3 ? trees::after_round::stop
                                              : trees::after_round::go_on;
                   },
               .save_to = path,
               .save_every = 3});
  });
  BOOST_TEST(failure == "");
  BOOST_TEST(trees::load_model(path).rounds() == 3U);
  failure = jobs::run(jobs::kind::inproc, 3, [&](parx::process_group& world) {
    booster model{options};
    if (world.rank() == 2) model = booster{options, trees::load_model(path)};
    model.fit(world, generated::ragged_part(few(), world.rank(), 3));
    const std::lock_guard hold(lock);
    models.insert(generated::fingerprint(model.model().trees));
  });
  BOOST_TEST(failure == "");
  BOOST_TEST((models == whole.models));
  const auto failures =
      jobs::run_collecting(jobs::kind::inproc, 2, [&](parx::process_group& world) {
        booster model{options};
        model.fit(world, generated::ragged_part(few(), world.rank(), 2),
                  {.save_to = folder.file("nowhere/model.json"), .save_every = 1});
      });
  for (const std::string& each : failures) {
    BOOST_TEST(each.find("nowhere/model.json") != each.npos, each);
  }
}

BOOST_AUTO_TEST_CASE(training_goes_on_where_a_failure_left_it_in_the_same_bits) {
  // Four rounds on three ranks. Another run fails in the third: rank 2 leaves after the second
  // round, as a process does that is killed. Two ranks hold all rows then and go on, with a third
  // that has never trained.
  const table& all = few();
  const booster_options options{
      .objective = trees::logistic{}, .num_round = 4, .max_depth = 4, .subsample = 0.8};
  const trained whole = train(options, all, 3, 1);
  std::optional<trees::forest> kept[3];
  const auto failures =
      jobs::run_collecting(jobs::kind::inproc, 3, [&](parx::process_group& world) {
        const auto rank = static_cast<std::size_t>(world.rank());
        booster model{options};
        try {
          model.fit(world, generated::ragged_part(all, world.rank(), 3),
                    {.on_round = [&](const trees::round_report& report, const trees::forest&) {
                      if (rank == 2 && report.round == 1) throw std::runtime_error("killed");
                      return trees::after_round::go_on;
                    }});
        } catch (const std::exception&) {
          kept[rank] = model.model();
          throw;
        }
      });
  for (const std::string& failure : failures) BOOST_TEST(failure.find("killed") != failure.npos);
  // A rank that hears of it while its second round is not over has kept the first alone.
  for (const int rank : {0, 1}) {
    BOOST_TEST((kept[rank]->rounds() == 1U || kept[rank]->rounds() == 2U));
  }
  std::set<std::uint64_t> models;
  std::mutex lock;
  const std::string failure = jobs::run(jobs::kind::inproc, 3, [&](parx::process_group& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    booster model = rank < 2 ? booster{options, *kept[rank]} : booster{options};
    const std::int64_t middle = all.rows / 3;
    const std::int64_t cut[] = {0, middle, all.rows, all.rows};
    model.fit(world, generated::part(all, cut[rank], cut[rank + 1]));
    const std::lock_guard hold(lock);
    models.insert(generated::fingerprint(model.model().trees));
  });
  BOOST_TEST(failure == "");
  BOOST_TEST((models == whole.models));
}
