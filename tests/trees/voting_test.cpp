// Voting: which columns are elected, and that the trees are about as good.
#include <parx/trees/voting.hpp>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <comm/jobs.hpp>
#include <parx/trees.hpp>
#include <trees/generated.hpp>

namespace {

namespace trees = parx::trees;
using trees::booster;
using trees::booster_options;
using trees::table;
using columns = std::vector<std::int32_t>;

/// The fingerprints of the ranks' models.
std::set<std::uint64_t> models(const booster_options& options, const table& all, int ranks,
                               int threads = 1) {
  parx::set_num_threads(threads);
  std::set<std::uint64_t> found;
  std::mutex lock;
  const std::string failure = jobs::run(jobs::kind::inproc, ranks, [&](auto& world) {
    booster model{options};
    model.fit(world, generated::even_part(all, world.rank(), ranks));
    const std::lock_guard hold(lock);
    found.insert(generated::fingerprint(model.model().trees));
  });
  parx::set_num_threads(1);
  BOOST_TEST(failure == "");
  BOOST_TEST(found.size() == 1U);
  return found;
}

booster_options voting(booster_options options, int top_k) {
  options.tree_learner = trees::tree_learner::voting;
  options.top_k = top_k;
  return options;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_columns_with_most_votes_are_elected) {
  // k = 2: three ranks name 7 and 2, one each 4 and 9, which came first; 5 and 8 came second.
  BOOST_TEST(trees::elect(columns{7, 5, 2, 7, 7, 2, 4, 2, 9, 8}, 2) == (columns{2, 4, 7, 9}),
             boost::test_tools::per_element());
  BOOST_TEST(trees::elect(columns{3, -1, -1, -1}, 2) == columns{3},
             boost::test_tools::per_element());
  // All stand equally: the lower columns.
  BOOST_TEST(trees::elect(columns{8, 6, 4, 2}, 1) == (columns{2, 4}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_rank_alone_and_a_vote_for_all_columns_give_the_trees_without_voting) {
  const table rows = generated::mixed(1501);  // of nine columns
  const booster_options plain{.objective = trees::logistic{}, .num_round = 3};
  const auto wanted = models(plain, rows, 1);
  BOOST_TEST((models(voting(plain, 1), rows, 1) == wanted));
  BOOST_TEST((models(voting(plain, 5), rows, 3) == wanted));
  BOOST_TEST((models(voting(plain, 1), rows, 3) != wanted));
}

BOOST_AUTO_TEST_CASE(the_same_division_of_the_rows_gives_the_same_bytes) {
  const table rows = generated::mixed(33001);
  for (const auto policy : {trees::grow_policy::depthwise, trees::grow_policy::lossguide}) {
    const booster_options options = voting({.objective = trees::logistic{},
                                            .num_round = 2,
                                            .max_leaves = 40,
                                            .grow_policy = policy,
                                            .colsample_bynode = 0.8},
                                           2);
    const auto once = models(options, rows, 3);
    BOOST_TEST((models(options, rows, 3, 2) == once));
  }
}

BOOST_AUTO_TEST_CASE(voting_learns_what_each_rank_alone_has_rows_of) {
  constexpr int ranks = 4;
  constexpr std::size_t width = 40;
  const table all = generated::by_rank(ranks, 1500, width, 0);
  const table held_out = generated::by_rank(ranks, 500, width, 1'000'000);
  const auto error = [&](const booster_options& options) {
    double value = 0;
    const std::string failure = jobs::run(jobs::kind::inproc, ranks, [&](auto& world) {
      const table test = generated::even_part(held_out, world.rank(), ranks);
      booster model{options};
      const auto reports = model.fit(world, generated::even_part(all, world.rank(), ranks),
                                     {.evaluate = {test}, .metrics = {trees::rmse()}});
      if (world.rank() == 0) value = reports.back().figures[0].second;
    });
    BOOST_TEST(failure == "");
    return value;
  };
  const booster_options plain{.num_round = 60, .max_depth = 4, .learning_rate = 0.2};
  const double wanted = error(plain);
  const double found = error(voting(plain, 5));
  BOOST_TEST_MESSAGE("rmse " << wanted << ", by voting " << found);
  BOOST_TEST(wanted < 1.08);  // the deviation of the labels is 1.12
  BOOST_TEST(found < wanted * 1.01);
}
