#include <parx/autograd/border.hpp>

#include <boost/test/unit_test.hpp>

#include <stdexcept>
#include <utility>
#include <vector>

#include <parx/autograd/function.hpp>
#include <parx/autograd/loss.hpp>
#include <parx/autograd/ops.hpp>
#include <parx/autograd/parameter.hpp>

using namespace parx;

namespace {

std::vector<float> values(const tensor<float>& t) { return {t.begin(), t.end()}; }

}  // namespace

BOOST_AUTO_TEST_CASE(a_border_hands_on_the_gradient_of_the_sum_with_the_count_of_the_loss) {
  const parameter<float> w("w", tensor<float>::from({5, 7}, {2}));
  const border<float> x(tensor<float>::from({1, 2}, {2}));
  weighted_loss<float>{sum(x * w), 4}.backward();
  const auto [gradient, count] = x.gradient();
  BOOST_TEST(values(gradient) == (std::vector<float>{5, 7}));
  BOOST_TEST(count == 4);
  // What nobody observes has the gradient of the mean, as in a graph without a border.
  BOOST_TEST(values(w.grad()) == (std::vector<float>{0.25F, 0.5F}));
}

BOOST_AUTO_TEST_CASE(a_stage_goes_on_where_the_backward_of_the_next_one_left_off) {
  // d sum / d first = 3 * second * x, by hand
  const parameter<float> first("first", tensor<float>::from({2, 3}, {2}));
  const parameter<float> second("second", tensor<float>::from({5, 7}, {2}));
  const border<float> in(tensor<float>::from({1, 10}, {2}));
  const auto out = in * first * 3.0F;
  const border<float> handed(out.value().clone());
  weighted_loss<float>{sum(handed * second), 8}.backward({.of = gradient_of::sum});
  const auto next = handed.gradient();
  out.backward_from(next.sum, {.count = next.count, .of = gradient_of::sum});
  BOOST_TEST(values(second.grad()) == (std::vector<float>{6, 90}));
  BOOST_TEST(values(first.grad()) == (std::vector<float>{15, 210}));
  BOOST_TEST(values(in.gradient().sum) == (std::vector<float>{30, 63}));
  BOOST_TEST(in.gradient().count == 8);
}

BOOST_AUTO_TEST_CASE(several_losses_of_a_stage_add_up_sums_and_counts) {
  const border<float> x(tensor<float>::from({1, 2}, {2}));
  weighted_loss<float>{sum(x * 3.0F), 4}.backward();
  weighted_loss<float>{sum(x * x), 2}.backward();
  BOOST_TEST(values(x.gradient().sum) == (std::vector<float>{5, 7}));
  BOOST_TEST(x.gradient().count == 6);
  x.zero_grad();
  BOOST_CHECK_THROW((void)x.gradient(), usage_error);
  weighted_loss<float>{sum(x * 3.0F), 4}.backward();
  BOOST_TEST(x.gradient().count == 4);
}

BOOST_AUTO_TEST_CASE(a_border_has_no_gradient_before_a_backward_or_after_one_that_failed) {
  const border<float> x(tensor<float>::ones({2}));
  BOOST_CHECK_THROW((void)x.gradient(), usage_error);
  const auto fragile = differentiable(
      tensor<float>::scalar(1),
      [](const tensor<float>&, grad_sink<float> dx) {
        dx.add(tensor<float>::ones({2}));
        throw std::runtime_error("no");
      },
      x);
  BOOST_CHECK_THROW(fragile.backward(), std::runtime_error);
  BOOST_CHECK_THROW((void)x.gradient(), usage_error);
}

BOOST_AUTO_TEST_CASE(borders_move_and_may_go_before_their_graph) {
  std::vector<border<float>> borders;
  for (int i = 0; i < 5; ++i) borders.emplace_back(tensor<float>::full({1}, static_cast<float>(i)));
  std::vector<variable<float>> losses;
  for (const auto& each : borders) losses.push_back(sum(each * each));
  borders.erase(borders.begin() + 1);
  for (const auto& each : losses) each.backward();
  BOOST_TEST(borders[1].gradient().sum.item() == 4.0F);
  BOOST_TEST(borders[3].gradient().sum.item() == 8.0F);
}
