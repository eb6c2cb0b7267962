#include <parx/core/philox.hpp>

#include <boost/test/unit_test.hpp>

using namespace parx;

BOOST_AUTO_TEST_CASE(philox_gives_the_known_answers_of_its_authors) {
  // Random123's kat_vectors, lines "philox4x32 10".
  BOOST_TEST(
      (philox(0, philox_block{}) == philox_block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  BOOST_TEST(
      (philox(0xffffffffffffffff, philox_block{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}) ==
       philox_block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  BOOST_TEST(
      (philox(0x299f31d0a4093822, philox_block{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}) ==
       philox_block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

BOOST_AUTO_TEST_CASE(units_lie_in_zero_to_one_and_names_and_seeds_make_different_keys) {
  BOOST_TEST(to_unit(0) == 0.0F);
  BOOST_TEST(to_unit(0xFFFFFFFF) < 1.0F);
  BOOST_TEST(philox_key(1, "0.weight") != philox_key(1, "0.bias"));
  BOOST_TEST(philox_key(1, "0.weight") != philox_key(2, "0.weight"));
  static_assert(philox_key(1, "a") != philox_key(0, "a"));
}
