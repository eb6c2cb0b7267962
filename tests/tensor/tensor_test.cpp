#include <parx/tensor/tensor.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <ranges>
#include <string>
#include <vector>

#include <messages.hpp>

#include <parx/core/parallel_for.hpp>

using parx::infer;
using parx::shape;
using parx::tensor;
using parx_test::mentions;

namespace {
std::vector<int> elements(const tensor<int>& t) {
  const auto dense = t.contiguous();
  return {dense.begin(), dense.end()};
}
}  // namespace

static_assert(std::ranges::contiguous_range<const tensor<float>>);

BOOST_AUTO_TEST_CASE(a_shape_whose_size_does_not_fit_a_number_makes_no_small_tensor) {
  const std::size_t large = std::size_t{1} << 33U;
  BOOST_CHECK_THROW((void)parx::tensor<float>::empty({large, large}), parx::usage_error);
  BOOST_CHECK_THROW((void)parx::tensor<double>::empty({(std::size_t{1} << 61U) - 1}),
                    parx::usage_error);
  BOOST_TEST(parx::tensor<float>::empty({0, large, large}).size() == 0U);
}

BOOST_AUTO_TEST_CASE(factories_fill_row_by_row) {
  BOOST_TEST(elements(tensor<int>::iota({2, 3})) == (std::vector{0, 1, 2, 3, 4, 5}));
  BOOST_TEST(elements(tensor<int>::full({2}, 7)) == (std::vector{7, 7}));
  BOOST_TEST(elements(tensor<int>::zeros({2})) == (std::vector{0, 0}));
  BOOST_TEST(elements(tensor<int>::from({4, 5, 6}, {3})) == (std::vector{4, 5, 6}));
  BOOST_TEST(tensor<int>::scalar(9).item() == 9);
}

BOOST_AUTO_TEST_CASE(values_that_do_not_fill_a_tensor_are_refused_by_the_place_of_the_call) {
  std::vector<int> two{1, 2};
  const auto says = [](int line) {
    return [line](const parx::usage_error& e) {
      return e.what() == "tensor at tensor_test.cpp:" + std::to_string(line) +
                             ": 2 values do not fill a tensor of shape (3), which has 3";
    };
  };
  BOOST_CHECK_EXCEPTION((void)tensor<int>::from({1, 2}, {3}), parx::usage_error, says(__LINE__));
  BOOST_CHECK_EXCEPTION((void)tensor<int>::from(two, {3}), parx::usage_error, says(__LINE__));
  BOOST_CHECK_EXCEPTION((void)tensor<float>::from(two, {3}), parx::usage_error, says(__LINE__));
  BOOST_CHECK_EXCEPTION((void)tensor<int>::wrap(two, {3}), parx::usage_error, says(__LINE__));
}

BOOST_AUTO_TEST_CASE(numbers_of_another_type_are_converted) {
  const std::vector<int> labels{3, -1, 2};
  const auto wide = tensor<std::int64_t>::from(labels, {3});
  BOOST_TEST((std::vector<std::int64_t>(wide.begin(), wide.end()) ==
              std::vector<std::int64_t>{3, -1, 2}));
  const std::vector<double> half{0.5, 1.5};
  BOOST_TEST(tensor<float>::from(half, {2, 1}).at(1, 0) == 1.5F);
  BOOST_TEST(tensor<float>::from(std::vector<bool>{false, true}, {2}).at(1) == 1);
  BOOST_CHECK_THROW((void)tensor<float>::from(half, {3}), parx::usage_error);
}

BOOST_AUTO_TEST_CASE(a_default_tensor_is_not_defined_and_has_no_elements) {
  BOOST_TEST(!tensor<int>().defined());
  BOOST_TEST(tensor<int>().size() == 0U);
}

BOOST_AUTO_TEST_CASE(data_are_aligned_to_cache_lines) {
  BOOST_TEST(reinterpret_cast<std::uintptr_t>(tensor<char>::zeros({3}).data()) % 64 == 0U);
}

BOOST_AUTO_TEST_CASE(views_share_memory_with_what_they_view) {
  const auto t = tensor<int>::iota({2, 3, 4});
  for (const auto& view :
       {t.slice(1, 1, 3), t.select(0, 1), t.transpose(0, 2), t.permute({2, 0, 1}),
        t.reshape({6, 4}), t.unsqueeze(0), t.expand({5, 2, 3, 4}), t.flatten(1)}) {
    BOOST_TEST(view.shares_memory_with(t));
  }
  t.select(0, 1).select(0, 2).at(3) = 99;
  BOOST_TEST(t.at(1, 2, 3) == 99);
}

BOOST_AUTO_TEST_CASE(every_view_has_the_elements_that_its_indices_say) {
  const auto t = tensor<int>::iota({2, 3, 4});
  const auto sliced = t.slice(-1, 1, 3);
  const auto permuted = t.permute({2, 0, 1});
  const auto picked = t.select(1, 2);
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      for (std::size_t k = 0; k < 4; ++k) {
        BOOST_TEST(permuted.at(k, i, j) == t.at(i, j, k));
        BOOST_TEST(t.transpose(0, 1).at(j, i, k) == t.at(i, j, k));
        BOOST_TEST(t.expand({7, 2, 3, 4}).at(6, i, j, k) == t.at(i, j, k));
        BOOST_TEST(t.unsqueeze(1).at(i, 0, j, k) == t.at(i, j, k));
        BOOST_TEST(t.unsqueeze(-1).at(i, j, k, 0) == t.at(i, j, k));
        if (k < 2) BOOST_TEST(sliced.at(i, j, k) == t.at(i, j, k + 1));
      }
      BOOST_TEST(picked.at(i, j) == t.at(i, 2, j));
    }
  }
  BOOST_TEST((t.unsqueeze(1).squeeze(1).shape() == t.shape()));
}

BOOST_AUTO_TEST_CASE(contiguous_copies_strided_views_in_row_order) {
  const auto t = tensor<int>::iota({2, 3});
  BOOST_TEST(elements(t.transpose()) == (std::vector{0, 3, 1, 4, 2, 5}));
  BOOST_TEST(elements(t.slice(1, 1, 3)) == (std::vector{1, 2, 4, 5}));
  BOOST_TEST(!t.transpose().contiguous().shares_memory_with(t));
  BOOST_TEST(t.contiguous().shares_memory_with(t));
}

BOOST_AUTO_TEST_CASE(reshaping_a_strided_view_copies_and_keeps_the_order) {
  const auto t = tensor<int>::iota({2, 3}).transpose();
  const auto flat = t.reshape({infer});
  BOOST_TEST(elements(flat) == (std::vector{0, 3, 1, 4, 2, 5}));
  BOOST_TEST(!flat.shares_memory_with(t));
}

BOOST_AUTO_TEST_CASE(a_view_without_gaps_is_contiguous_whatever_the_strides_of_its_unit_axes) {
  const auto t = tensor<int>::iota({4, 3});
  BOOST_TEST(t.slice(0, 1, 3).is_contiguous());
  BOOST_TEST(t.slice(0, 1, 2).transpose().is_contiguous());
  BOOST_TEST(!t.slice(1, 0, 2).is_contiguous());
  BOOST_TEST(!t.transpose().is_contiguous());
}

BOOST_AUTO_TEST_CASE(copy_from_and_fill_write_through_views) {
  const auto t = tensor<int>::zeros({3, 3});
  t.slice(1, 1, 2).fill(5);
  t.transpose().select(0, 0).copy_from(tensor<int>::from({1, 2, 3}, {3}));
  BOOST_TEST(elements(t) == (std::vector{1, 5, 0, 2, 5, 0, 3, 5, 0}));
  BOOST_CHECK_EXCEPTION(t.copy_from(tensor<int>::zeros({3})), parx::usage_error,
                        [](const auto& e) { return mentions(e.what(), "(3, 3)", "(3)"); });
}

BOOST_AUTO_TEST_CASE(wrapped_memory_is_read_and_written_in_place) {
  std::vector<int> mine{1, 2, 3, 4};
  const auto t = tensor<int>::wrap(mine, {2, 2});
  t.at(1, 0) = 30;
  BOOST_TEST(mine[2] == 30);
  BOOST_CHECK_THROW((void)tensor<int>::wrap(mine, {5}), parx::usage_error);
}

BOOST_AUTO_TEST_CASE(cast_converts_every_element_of_a_view) {
  const auto t = tensor<float>::from({1.5F, 2.5F, 3.5F, 4.5F}, {2, 2}).transpose().cast<int>();
  BOOST_TEST(elements(t) == (std::vector{1, 3, 2, 4}));
}

BOOST_AUTO_TEST_CASE(uniqueness_is_lost_with_the_second_handle_and_comes_back) {
  const auto t = tensor<int>::zeros({2});
  BOOST_TEST(t.is_unique());
  {
    const auto view = t.slice(0, 0, 1);
    BOOST_TEST(!t.is_unique());
  }
  BOOST_TEST(t.is_unique());
}

BOOST_AUTO_TEST_CASE(misuse_is_a_usage_error_that_names_the_shape) {
  const auto t = tensor<int>::iota({2, 3});
  const auto names_shape = [](const auto& e) { return mentions(e.what(), "(2, 3)"); };
  BOOST_CHECK_EXCEPTION((void)t.at(2, 0), parx::usage_error, names_shape);
  BOOST_CHECK_EXCEPTION((void)t.at(0), parx::usage_error, names_shape);
  BOOST_CHECK_EXCEPTION((void)t.slice(1, 2, 4), parx::usage_error, names_shape);
  BOOST_CHECK_EXCEPTION(tensor<int>::without_memory(t.shape()).fill(1), parx::usage_error,
                        names_shape);
  BOOST_CHECK_THROW(tensor<int>().fill(1), parx::usage_error);
  BOOST_CHECK_EXCEPTION((void)t.select(0, 2), parx::usage_error, names_shape);
  BOOST_CHECK_EXCEPTION((void)t.reshape({4}), parx::usage_error, names_shape);
  BOOST_CHECK_EXCEPTION((void)t.permute({0, 0}), parx::usage_error, names_shape);
  BOOST_CHECK_EXCEPTION((void)t.squeeze(0), parx::usage_error, names_shape);
  BOOST_CHECK_EXCEPTION((void)t.expand({4, 3}), parx::usage_error, names_shape);
  BOOST_CHECK_EXCEPTION((void)t.item(), parx::usage_error, names_shape);
  BOOST_CHECK_THROW((void)t.transpose().span(), parx::usage_error);
}

BOOST_AUTO_TEST_CASE(empty_tensors_pass_through_every_view) {
  const auto t = tensor<int>::zeros({0, 3});
  BOOST_TEST(t.size() == 0U);
  BOOST_TEST(t.transpose().contiguous().size() == 0U);
  BOOST_TEST((t.reshape({3, 0}).shape() == shape{3, 0}));
  t.fill(1);
}

BOOST_AUTO_TEST_CASE(a_large_tensor_is_converted_as_each_of_its_elements_is) {
  parx::set_num_threads(4);
  const auto large = tensor<double>::iota({300, 301});
  for (const auto& each : {large, large.transpose(0, 1)}) {  // contiguous, and by columns
    const auto whole = each.cast<std::int32_t>();
    const auto rounded = each.cast<float>();
    bool same = whole.shape() == each.shape() && whole.is_contiguous();
    for (std::size_t i = 0; i < each.extent(0); ++i) {
      for (std::size_t j = 0; j < each.extent(1); ++j) {
        same &= whole.at(i, j) == static_cast<std::int32_t>(each.at(i, j)) &&
                rounded.at(i, j) == static_cast<float>(each.at(i, j));
      }
    }
    BOOST_TEST(same);
  }
  parx::set_num_threads(1);
}
