#include <parx/tensor/print.hpp>

#include <boost/test/unit_test.hpp>

#include <sstream>

#include <fmt/ranges.h>

using parx::tensor;

BOOST_AUTO_TEST_CASE(matrices_are_printed_in_nested_brackets) {
  BOOST_TEST(to_string(tensor<int>::iota({2, 3})) == "[[0, 1, 2],\n [3, 4, 5]]");
  BOOST_TEST(to_string(tensor<float>::from({0.5F, 1.0F / 3}, {2})) == "[0.5, 0.3333]");
  BOOST_TEST(to_string(tensor<float>::scalar(2.5F)) == "2.5");
  BOOST_TEST(to_string(tensor<int>()) == "(no tensor)");
  BOOST_TEST(to_string(tensor<int>::zeros({0})) == "[]");
}

BOOST_AUTO_TEST_CASE(long_axes_show_their_ends) {
  BOOST_TEST(to_string(tensor<int>::iota({100})) == "[0, 1, 2, ..., 97, 98, 99]");
  BOOST_TEST(to_string(tensor<int>::iota({6})) == "[0, 1, 2, 3, 4, 5]");
  BOOST_TEST(to_string(tensor<int>::iota({7}), {.edge_items = 1}) == "[0, ..., 6]");
}

BOOST_AUTO_TEST_CASE(tensors_go_to_streams) {
  std::ostringstream out;
  out << tensor<int>::iota({2}) << parx::shape{2};
  BOOST_TEST(out.str() == "[0, 1](2)");
}

BOOST_AUTO_TEST_CASE(fmt_prints_tensors_and_shapes_also_beside_its_own_ranges) {
  BOOST_TEST(fmt::format("{} of shape {}", tensor<int>::iota({2, 2}), parx::shape{2, 2}) ==
             "[[0, 1],\n [2, 3]] of shape (2, 2)");
  BOOST_TEST(fmt::format("{:>8}", tensor<int>::iota({2})) == "  [0, 1]");
}
