#include <comm/proof_cases.hpp>

#include <boost/test/unit_test.hpp>

#include <bit>

using parx::algorithm;
using parx::operation;
using parx::partition;
using parx::place;

namespace {

// How each element of rank 0's output (for a reduce_scatter of each rank's in turn) was combined.
std::vector<std::uint64_t> trees(operation what, algorithm use, int world, std::size_t count) {
  const auto shapes = proof::everybody({.what = what, .world = world, .count = count});
  proof::simulation run(shapes, use, proof::memory::apart, 7);
  BOOST_TEST_REQUIRE(run.run() == "");
  std::vector<std::uint64_t> found;
  for (const auto& each : run.ranks()) {
    for (std::size_t k = 0; k < each.output_size; ++k) found.push_back(each.output()[k].tree);
    if (what == operation::all_reduce) break;
  }
  return found;
}

}  // namespace

BOOST_AUTO_TEST_CASE(nobody_leaves_a_barrier_before_everybody_entered) {
  for (int world = 2; world <= 64; ++world) {
    const auto shapes = proof::everybody({.what = operation::barrier, .world = world});
    for (int late = 0; late < world; late += (world > 9 ? 7 : 1)) {
      proof::simulation run(shapes, algorithm::dissemination, proof::memory::apart, 3);
      run.silence(static_cast<std::size_t>(late));
      BOOST_TEST_REQUIRE(run.run().starts_with("deadlock"));
      for (int r = 0; r < world; ++r) {
        const bool left = run.ranks()[static_cast<std::size_t>(r)].remaining == 0;
        BOOST_TEST_REQUIRE(left == (r == late));
      }
    }
    proof::simulation run(shapes, algorithm::dissemination, proof::memory::apart, 1);
    BOOST_TEST_REQUIRE(run.run() == "");
  }
}

BOOST_AUTO_TEST_CASE(an_all_reduce_has_the_bits_of_its_relatives) {
  for (int world = 2; world <= 33; ++world) {
    const std::size_t n = 2 * static_cast<std::size_t>(world) + 1;
    const auto doubling = trees(operation::all_reduce, algorithm::doubling, world, n);
    BOOST_TEST(trees(operation::all_reduce, algorithm::halving, world, n) == doubling);
    if (std::has_single_bit(static_cast<unsigned>(world))) {
      BOOST_TEST(trees(operation::all_reduce, algorithm::tree, world, n) == doubling);
    }
    // reduce_scatter and all_gather over the same borders are an all_reduce: DDP's bits are ZeRO's.
    BOOST_TEST(trees(operation::reduce_scatter, algorithm::ring, world, n) ==
               trees(operation::all_reduce, algorithm::ring, world, n));
  }
  // The hash does tell trees apart.
  BOOST_TEST(trees(operation::all_reduce, algorithm::ring, 5, 9) !=
             trees(operation::all_reduce, algorithm::doubling, 5, 9));
}

BOOST_AUTO_TEST_CASE(a_partition_covers_the_vector_without_gap) {
  for (const int world : {1, 2, 3, 7, 64}) {
    for (const std::size_t n : {0u, 1u, 6u, 64u, 1000u}) {
      const auto even = partition::even(n, world);
      BOOST_TEST(even.offset(0) == 0u);
      BOOST_TEST(even.offset(world) == n);
      for (int i = 0; i < world; ++i) {
        BOOST_TEST(even.count(i) - n / static_cast<std::size_t>(world) <= 1u);
        BOOST_TEST(even.count(i) <= even.largest());
        BOOST_TEST(even.block(place::input, i).offset + even.count(i) == even.offset(i + 1));
      }
    }
  }
  const std::size_t counts[] = {0, 5, 0, 2};
  const auto uneven = partition::uneven(counts);
  BOOST_TEST(uneven.parts() == 4);
  BOOST_TEST(uneven.total() == 7u);
  BOOST_TEST(uneven.largest() == 5u);
  for (int i = 0; i < 4; ++i) BOOST_TEST(uneven.count(i) == counts[i]);
  BOOST_TEST(uneven.offset(3) == 5u);
  BOOST_TEST(uneven.blocks(place::input, 1, 4).count == 7u);
  BOOST_TEST((partition::even(8, 4) == partition::even(8, 4)));
  BOOST_TEST((uneven != partition::even(7, 4)));
}

BOOST_AUTO_TEST_CASE(what_an_operation_cannot_do_is_said_with_what_it_can) {
  const auto says = [](const parx::call_shape& shape, algorithm use) {
    try {
      (void)parx::make_schedule(shape, use);
    } catch (const parx::usage_error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  BOOST_TEST(says({.what = operation::scan, .world = 4}, algorithm::ring).find(
                 "scan has no algorithm \"ring\"; it has: doubling, chain") != std::string::npos);
  BOOST_TEST(says({.what = operation::all_gather, .world = 6}, algorithm::doubling).find(
                 "6 ranks") != std::string::npos);
  const auto ordered = says({.what = operation::all_reduce, .world = 4, .count = 4,
                             .order = parx::reduction_order::ranks}, algorithm::ring);
  BOOST_TEST(ordered.find("needs an operation that commutes; possible are: doubling, direct, "
                          "halving, tree") != std::string::npos,
             ordered);
}

BOOST_AUTO_TEST_CASE(the_largest_incast_of_a_windowed_schedule_is_its_window) {
  // Only ranks within the window may send to the root at once; the root's request to the next one
  // waits for the first block.
  const int world = 64;
  std::size_t uncalled = 0;
  for (int r = 1; r < world; ++r) {
    const auto plan = parx::algorithms::direct_gather(r, partition::even(640, world), 0, 5);
    uncalled += plan.actions.size() == 1 ? 1U : 0U;
  }
  BOOST_TEST(uncalled == 5u);
  // Step s of an all_to_all waits for step s - window: at most that many sends can be free to go.
  const auto even = partition::even(64 * 64, 64);
  const auto plan = parx::algorithms::direct_all_to_all(3, even, even, 5);
  const auto free =
      std::count_if(plan.actions.begin(), plan.actions.end(), [](const parx::action& each) {
        return each.kind == parx::action_kind::send && each.after[0] == parx::no_action;
      });
  BOOST_TEST(free == 5);
}
