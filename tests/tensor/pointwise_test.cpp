#include <parx/tensor/pointwise.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <vector>

#include <parx/tensor/arithmetic.hpp>

using parx::map;
using parx::shape;
using parx::tensor;

namespace {
// The definition of broadcasting, one element at a time.
tensor<int> add_by_definition(const tensor<int>& a, const tensor<int>& b) {
  const shape s = parx::broadcast_shapes(a.shape(), b.shape());
  const auto x = a.expand(s), y = b.expand(s);
  const auto result = tensor<int>::empty(s);
  for (std::size_t n = 0; n < s.size(); ++n) {
    std::size_t rest = n, ia = 0, ib = 0;
    for (std::size_t axis = s.rank(); axis-- > 0;) {
      ia += rest % s[axis] * x.strides()[axis];
      ib += rest % s[axis] * y.strides()[axis];
      rest /= s[axis];
    }
    result.data()[n] = x.data()[ia] + y.data()[ib];
  }
  return result;
}
}  // namespace

BOOST_AUTO_TEST_CASE(map_broadcasts_as_the_definition_says_for_every_pair_of_layouts) {
  const std::vector<tensor<int>> operands{
      tensor<int>::scalar(3),
      tensor<int>::iota({4}, 10),
      tensor<int>::iota({1}, 20),
      tensor<int>::iota({3, 1}, 30),
      tensor<int>::iota({3, 4}, 40),
      tensor<int>::iota({4, 3}, 50).transpose(),
      tensor<int>::iota({2, 3, 4}, 60),
      tensor<int>::iota({2, 1, 4}, 70),
      tensor<int>::iota({2, 3, 1}, 80),
      tensor<int>::iota({4, 3, 2}, 90).permute({2, 1, 0}),
      tensor<int>::iota({2, 3, 9}, 100).slice(2, 1, 5),
  };
  for (const auto& a : operands) {
    for (const auto& b : operands) {
      const auto got = map([](int x, int y) { return x + y; }, a, b);
      const auto expected = add_by_definition(a, b);
      BOOST_TEST((got.shape() == expected.shape()));
      BOOST_TEST(got.span() == expected.span(), boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(map_takes_three_operands_and_changes_the_type) {
  const auto result =
      map([](int a, float b, double c) { return a + static_cast<double>(b) + c > 10; },
          tensor<int>::from({1, 9}, {2}), tensor<float>::scalar(2),
          tensor<double>::from({1, 1}, {2, 1}));
  BOOST_TEST((result.shape() == shape{2, 2}));
  BOOST_TEST(!result.at(0, 0));
  BOOST_TEST(result.at(1, 1));
}

BOOST_AUTO_TEST_CASE(map_into_writes_a_strided_target_and_may_read_it) {
  const auto whole = tensor<int>::zeros({2, 4});
  const auto middle = whole.slice(1, 1, 3);
  map_into(
      middle, [](int old, int add) { return old + add; }, middle, tensor<int>::from({1, 2}, {2}));
  map_into(
      middle, [](int old, int add) { return old + add; }, middle, tensor<int>::scalar(10));
  const std::vector<int> expected{0, 11, 12, 0, 0, 11, 12, 0};
  BOOST_TEST(whole.span() == expected, boost::test_tools::per_element());
  BOOST_CHECK_THROW(map_into(
                        middle, [](int x) { return x; }, tensor<int>::zeros({3, 2, 2})),
                    parx::usage_error);
}

BOOST_AUTO_TEST_CASE(empty_operands_give_an_empty_result) {
  BOOST_TEST(
      map([](int x, int y) { return x + y; }, tensor<int>::zeros({0, 3}), tensor<int>::zeros({3}))
          .size() == 0U);
}

BOOST_AUTO_TEST_CASE(operators_that_assign_write_in_place_what_the_others_return) {
  const auto are_equal = [](const tensor<float>& a, const tensor<float>& b) {
    const tensor<float> x = a.contiguous(), y = b.contiguous();
    return std::equal(x.begin(), x.end(), y.begin(), y.end());
  };
  const auto all = tensor<float>::iota({3, 3});
  tensor<float> x = all.clone(), row = x.select(0, 1);
  const tensor<float> before = x.clone(), added = tensor<float>::iota({3});
  row += added;  // seen by x
  BOOST_TEST(are_equal(x.select(0, 1), before.select(0, 1) + added));
  BOOST_TEST(are_equal(x.select(0, 0), before.select(0, 0)));
  x = all.clone();
  x += x.transpose(0, 1);  // overlaps
  BOOST_TEST(are_equal(x, all + all.transpose(0, 1)));
  x -= 1;
  x *= added;
  x /= 4;
  BOOST_TEST(are_equal(x, (all + all.transpose(0, 1) - 1) * added / 4));
  x *= x;
  tensor<int> whole = tensor<int>::full({2}, 7);
  whole /= 2;
  BOOST_TEST(whole.at(0) == 3);
  BOOST_CHECK_THROW(whole /= 0, parx::usage_error);
  BOOST_CHECK_THROW((row += tensor<float>::zeros({2, 3})), parx::usage_error);
}
