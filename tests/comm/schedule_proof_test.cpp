#include <comm/departures.hpp>
#include <comm/proof_cases.hpp>

#include <boost/test/unit_test.hpp>

using parx::operation;

// For each algorithm: every rank contributes exactly once, every block is in the right place, no
// rank deadlocks in any order of delivery, and no more is sent or stored than the formula says, in
// place and out of place. On all small worlds, and of larger ones on those beside a power of two;
// every_world tries all of up to 64 ranks.
namespace {

std::string prove(std::initializer_list<operation> operations) {
  return proof::prove_all(operations, {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                       13, 14, 15, 16, 17, 24, 31, 32, 33, 64});
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_all_reduce_is_exact_and_combines_alike_on_all_ranks) {
  BOOST_TEST(prove({operation::all_reduce}) == "");
}

BOOST_AUTO_TEST_CASE(every_reduction_to_one_place_is_exact) {
  BOOST_TEST(prove({operation::reduce_scatter, operation::reduce}) == "");
}

BOOST_AUTO_TEST_CASE(every_scan_ends_at_its_rank_in_rank_order) {
  BOOST_TEST(prove({operation::scan, operation::exscan}) == "");
}

BOOST_AUTO_TEST_CASE(every_broadcast_and_all_gather_brings_every_element_once) {
  BOOST_TEST(prove({operation::broadcast, operation::all_gather}) == "");
}

BOOST_AUTO_TEST_CASE(every_barrier_sends_what_it_says) {
  BOOST_TEST(prove({operation::barrier}) == "");
}

BOOST_AUTO_TEST_CASE(every_gather_scatter_and_all_to_all_puts_each_block_in_its_place) {
  BOOST_TEST(prove({operation::gather, operation::scatter, operation::all_to_all}) == "");
}

BOOST_AUTO_TEST_CASE(no_rank_of_any_algorithm_takes_one_that_has_left_after_its_part_for_lost) {
  std::size_t runs = 0;
  BOOST_TEST(departures::run_all({2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 20}, runs) == "");
  BOOST_TEST(runs > 5'000u);
}
