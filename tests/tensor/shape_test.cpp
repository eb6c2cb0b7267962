#include <parx/tensor/shape.hpp>

#include <boost/test/unit_test.hpp>

#include <string>

using parx::broadcast_shapes;
using parx::infer;
using parx::shape;

BOOST_AUTO_TEST_CASE(a_scalar_has_rank_0_and_one_element) {
  BOOST_TEST(shape{}.rank() == 0U);
  BOOST_TEST(shape{}.size() == 1U);
  BOOST_TEST(to_string(shape{}) == "()");
}

BOOST_AUTO_TEST_CASE(an_axis_of_extent_0_makes_the_size_0) {
  BOOST_TEST((shape{3, 0, 2}).size() == 0U);
}

BOOST_AUTO_TEST_CASE(shapes_are_equal_when_all_extents_are) {
  BOOST_TEST((shape{2, 3} == shape{2, 3}));
  BOOST_TEST(!(shape{2, 3} == shape{2, 3, 1}));
}

BOOST_AUTO_TEST_CASE(negative_axes_count_from_the_end) {
  BOOST_TEST(parx::resolve_axis(-1, {2, 3, 4}) == 2U);
  BOOST_TEST(parx::resolve_axis(-3, {2, 3, 4}) == 0U);
  BOOST_CHECK_THROW((void)parx::resolve_axis(3, {2, 3, 4}), parx::usage_error);
  BOOST_CHECK_THROW((void)parx::resolve_axis(-4, {2, 3, 4}), parx::usage_error);
}

BOOST_AUTO_TEST_CASE(broadcasting_follows_numpy) {
  BOOST_TEST((broadcast_shapes({2, 3}, {3}) == shape{2, 3}));
  BOOST_TEST((broadcast_shapes({3}, {2, 3}) == shape{2, 3}));
  BOOST_TEST((broadcast_shapes({2, 1, 4}, {3, 1}) == shape{2, 3, 4}));
  BOOST_TEST((broadcast_shapes({}, {5}) == shape{5}));
  BOOST_TEST((broadcast_shapes({1}, {0}) == shape{0}));
}

BOOST_AUTO_TEST_CASE(a_failed_broadcast_names_both_shapes_and_the_axis) {
  BOOST_CHECK_EXCEPTION((void)broadcast_shapes({2, 3}, {4, 3}), parx::usage_error,
                        [](const auto& e) {
                          const std::string text = e.what();
                          return text.find("(2, 3)") != std::string::npos &&
                                 text.find("(4, 3)") != std::string::npos &&
                                 text.find("axis -2") != std::string::npos;
                        });
}

BOOST_AUTO_TEST_CASE(extents_are_integers_of_any_type_and_minus_one_is_inferred) {
  const int rows = 2;
  const long columns = 6;
  BOOST_TEST((shape{rows, columns, 3U} == shape{2, 6, 3}));
  BOOST_TEST((parx::resolve_reshape({rows, columns}, {3, -1}) == shape{3, 4}));
  BOOST_CHECK_THROW((shape{rows, rows - 4}), parx::usage_error);
}

BOOST_AUTO_TEST_CASE(a_reshape_can_infer_one_extent) {
  BOOST_TEST((parx::resolve_reshape({2, 6}, {3, infer}) == shape{3, 4}));
  BOOST_TEST((parx::resolve_reshape({0, 6}, {infer, 6}) == shape{0, 6}));
  BOOST_CHECK_THROW((void)parx::resolve_reshape({2, 6}, {infer, infer}), parx::usage_error);
  BOOST_CHECK_THROW((void)parx::resolve_reshape({2, 6}, {5, infer}), parx::usage_error);
  BOOST_CHECK_THROW((void)parx::resolve_reshape({0, 6}, {0, infer}), parx::usage_error);
}

BOOST_AUTO_TEST_CASE(more_than_eight_axes_are_refused) {
  BOOST_CHECK_THROW((shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), parx::usage_error);
}
