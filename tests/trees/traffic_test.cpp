// A tree sends the bytes of the formula, to the byte.
#include <parx/trees/traffic.hpp>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include <comm/jobs.hpp>
#include <messages.hpp>
#include <parx/trees.hpp>
#include <trees/generated.hpp>

namespace {

namespace trees = parx::trees;
using parx_test::mentions;
using trees::booster;
using trees::table;
using trees::tree_learner;

constexpr int depth = 3;

struct sent {
  std::size_t bytes = 0;  ///< by two ranks, for the second tree, without messages' headers
  std::string explained;
};

sent by_a_tree(trees::booster_options options, const table& all) {
  options.max_depth = depth;
  options.min_child_weight = 0;
  std::string explained;
  const auto by_rounds = [&](int rounds) {
    options.num_round = rounds;
    std::size_t bytes = 0;
    std::mutex lock;
    const std::string failure = jobs::run(jobs::kind::inproc, 2, [&](parx::process_group& world) {
      booster model{options};
      model.fit(world, generated::even_part(all, world.rank(), 2));
      for (const trees::tree& each : model.model().trees) {
        jobs::check(each.nodes() == 15, "a full tree");
      }
      const std::lock_guard hold(lock);
      bytes += world.bytes_sent();
      explained = model.explain(2);
    });
    BOOST_TEST(failure == "");
    return bytes;
  };
  const std::size_t one = by_rounds(1);
  return {by_rounds(2) - one, explained};
}

/// With the headers of both ranks' messages.
std::size_t with_headers(const trees::tree_traffic& formula) {
  return formula.bytes() + std::size_t{2} * 64 * static_cast<std::size_t>(formula.messages);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_tree_sends_the_bytes_of_the_formula) {
  const sent found = by_a_tree({}, generated::by_rank(1, 600, 6, 0));
  const auto formula = trees::traffic_of_tree({.cells = 6 * 256, .depth = depth, .ranks = 2});
  BOOST_TEST(formula.histogram_bytes == 4U * 6 * 256 * 16);
  BOOST_TEST(formula.split_bytes == 2U * 7 * 40);
  BOOST_TEST(found.bytes == with_headers(formula));
  BOOST_TEST(mentions(found.explained, "98304 B"));
}

BOOST_AUTO_TEST_CASE(a_tree_by_voting_sends_the_bytes_of_the_formula) {
  // Each rank has five columns of its own to vote for, so four are elected at each node.
  constexpr int k = 2;
  constexpr std::size_t width = 12;
  const sent found = by_a_tree({.tree_learner = tree_learner::voting, .top_k = k},
                               generated::by_rank(2, 4000, width, 0));
  const auto formula =
      trees::traffic_of_tree({.cells = 2 * k * 256, .depth = depth, .ranks = 2, .top_k = k});
  BOOST_TEST(formula.histogram_bytes == 7U * 4 * 256 * 16);
  BOOST_TEST(formula.vote_bytes == 2U * 7 * k * 4);
  BOOST_TEST(found.bytes == with_headers(formula));
  BOOST_TEST(formula.bytes() <
             trees::traffic_of_tree({.cells = width * 256, .depth = depth, .ranks = 2}).bytes());
  BOOST_TEST(mentions(found.explained, "114688 B"));
  BOOST_TEST(!mentions(found.explained, "no less"));
}

BOOST_AUTO_TEST_CASE(explain_says_where_voting_sends_no_less) {
  for (const int k : {3, 5}) {  // of ten columns: some of them, and all
    const sent found = by_a_tree({.tree_learner = tree_learner::voting, .top_k = k},
                                 generated::by_rank(2, 1000, 10, 0));
    BOOST_TEST(mentions(found.explained, "voting sends no less than data"));
  }
}

BOOST_AUTO_TEST_CASE(quantised_histograms_are_sent_in_four_or_eight_bytes_a_cell) {
  const auto formula = [](int cell_bytes) {
    return trees::traffic_of_tree(
        {.cells = 6 * 256, .depth = depth, .ranks = 2, .cell_bytes = cell_bytes});
  };
  const sent few = by_a_tree({.num_grad_quant_bins = 16}, generated::by_rank(1, 600, 6, 0));
  BOOST_TEST(few.bytes == with_headers(formula(4)));
  BOOST_TEST(mentions(few.explained, "1536 cells x 4 B x 1 = 24576 B"));
  const sent many = by_a_tree({.num_grad_quant_bins = 254}, generated::by_rank(1, 4000, 6, 0));
  BOOST_TEST(many.bytes == with_headers(formula(8)));
  // 600 rows x 64 do not fit into 16 bits, half of them do: the root alone is sent in 8 bytes.
  const sent both = by_a_tree({.num_grad_quant_bins = 64}, generated::by_rank(1, 600, 6, 0));
  BOOST_TEST(both.bytes == with_headers(formula(4)) + std::size_t{6} * 256 * 4);
  const sent votes =
      by_a_tree({.tree_learner = tree_learner::voting, .top_k = 2, .num_grad_quant_bins = 254},
                generated::by_rank(2, 4000, 12, 0));
  BOOST_TEST(votes.bytes ==
             with_headers(trees::traffic_of_tree(
                 {.cells = 4 * 256, .depth = depth, .ranks = 2, .top_k = 2, .cell_bytes = 8})));
}
