#include <parx/tensor/reduction.hpp>

#include <boost/test/unit_test.hpp>

#include <limits>
#include <vector>

using parx::reduced_axes;
using parx::shape;
using parx::tensor;

BOOST_AUTO_TEST_CASE(sums_over_every_set_of_axes_agree_with_loops) {
  const auto t = tensor<int>::iota({3, 37, 5});
  for (const auto& view : {t, tensor<int>::iota({5, 37, 3}).permute({2, 1, 0})}) {
    for (unsigned set = 0; set < 8; ++set) {
      std::vector<int> axes;
      for (int axis = 0; axis < 3; ++axis) {
        if ((set >> axis & 1U) != 0) axes.push_back(axis);
      }
      const auto got = sum(view, axes, reduced_axes::kept);
      const auto expected = tensor<int>::zeros(got.shape());
      for (std::size_t i = 0; i < 3; ++i) {
        for (std::size_t j = 0; j < 37; ++j) {
          for (std::size_t k = 0; k < 5; ++k) {
            expected.at((set & 1U) != 0 ? 0 : i, (set & 2U) != 0 ? 0 : j,
                        (set & 4U) != 0 ? 0 : k) += view.at(i, j, k);
          }
        }
      }
      BOOST_TEST(got.span() == expected.span(), boost::test_tools::per_element());
      BOOST_TEST(sum(view, axes).rank() == 3 - axes.size());
    }
  }
}

BOOST_AUTO_TEST_CASE(the_sum_of_everything_is_a_scalar) {
  BOOST_TEST(sum(tensor<int>::iota({10, 10})).item() == 4950);
  BOOST_TEST(sum(tensor<int>::iota({10, 10})).rank() == 0U);
  BOOST_TEST(sum(tensor<int>::zeros({0, 4})).item() == 0);
}

BOOST_AUTO_TEST_CASE(a_float_sum_of_a_million_elements_keeps_six_digits) {
  const auto t = tensor<float>::full({1'000'000}, 0.1F);
  BOOST_TEST(sum(t).item() == 100'000.0F, boost::test_tools::tolerance(1e-6F));
}

BOOST_AUTO_TEST_CASE(max_and_min_find_the_extremes_of_negative_numbers_too) {
  const auto t = tensor<float>::from({-5, -1, -3, -2, -9, -4}, {2, 3});
  BOOST_TEST(max(t, {1}).at(0) == -1.0F);
  BOOST_TEST(max(t, {1}).at(1) == -2.0F);
  BOOST_TEST(min(t, {0, 1}).item() == -9.0F);
  BOOST_TEST((max(t, {0}, reduced_axes::kept).shape() == shape{1, 3}));
  BOOST_CHECK_THROW((void)max(tensor<float>::zeros({0}), {0}), parx::usage_error);
}

BOOST_AUTO_TEST_CASE(argmax_is_the_first_largest_of_each_row) {
  const auto rows = argmax(tensor<float>::from({1, 3, 3, 5, 4, 0}, {2, 3}));
  BOOST_TEST(rows.at(0) == 1);
  BOOST_TEST(rows.at(1) == 0);
}

BOOST_AUTO_TEST_CASE(sum_into_adds_or_overwrites_over_the_repeated_axes) {
  const auto t = tensor<int>::iota({2, 3});
  const auto target = tensor<int>::full({3}, 100);
  sum_into(t, target, parx::accumulate::add);
  BOOST_TEST(target.at(0) == 103);
  sum_into(t, target, parx::accumulate::overwrite);
  BOOST_TEST(target.at(2) == 7);
  BOOST_CHECK_THROW(sum_into(t, tensor<int>::zeros({2}), parx::accumulate::add), parx::usage_error);
}
