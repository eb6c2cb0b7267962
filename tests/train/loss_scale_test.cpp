#include <parx/train/trainer.hpp>

#include <boost/test/unit_test.hpp>

#include <string>
#include <utility>

#include "runs.hpp"
#include <messages.hpp>

using namespace runs;

namespace {

// Twenty steps and more in float16 on one rank, with whatever `add` makes of logits added to the
// loss.
template <typename Add>
train::trainer_state in_half_precision(train::trainer_options options, Add add) {
  options.fp16 = true;
  train::trainer_state state;
  parx::run_threads(1, [&](parx::process_group& group) {
    const auto source = points(32);
    classifier model(0);
    model.initialize(3);
    parx::ddp ddp{model, group};
    parx::optim::sgd opt{ddp.parameters(), {.lr = 0.1}};
    const parx::data::loader loader{
        source, {.batch_size = 8, .sampler = parx::data::distributed_sampler{32, group}}};
    train::trainer trainer{ddp, opt, loader,
                           [&](auto& m, auto& batch) {
                             const auto logits = m(batch.x);
                             auto loss = parx::nn::cross_entropy(logits, batch.y);
                             loss.sum = loss.sum + add(logits);
                             return loss;
                           },
                           options};
    trainer.train();
    state = trainer.state();
  });
  return state;
}

// The gradient is NaN at any scale, though the value is 0.
parx::variable<float> bad_in_backward(const parx::variable<float>& logits) {
  return parx::sum(logits * 0.0F * 1e30F * 1e30F);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_loss_scale_that_falls_and_falls_stops_training) {
  const auto text = parx_test::message_of(
      [&] { (void)in_half_precision(quiet(100), bad_in_backward); });
  BOOST_TEST(parx_test::mentions(text, "the loss scale has fallen to", "in step 30 "), text);
}

BOOST_AUTO_TEST_CASE(gradients_that_overflow_by_the_loss_scale_are_no_anomaly) {
  auto options = quiet(20);
  options.detect_anomaly = true;
  const auto state = in_half_precision(
      options, [](const auto& logits) { return parx::sum(logits * logits) * 1e3F; });
  const auto scales = curve(state, "loss_scale");
  BOOST_REQUIRE(scales.size() == 20u);
  BOOST_TEST(scales.front() == 32768);  // the first step overflowed and was left out
  BOOST_TEST(scales.back() > 1);
}

BOOST_AUTO_TEST_CASE(what_overflows_at_any_loss_scale_is_named_once_that_has_fallen_to_one) {
  auto options = quiet(100);
  options.detect_anomaly = true;
  const auto text = parx_test::message_of(
      [&] { (void)in_half_precision(options, bad_in_backward); });
  // From 65536 = 2^16 down to 1.
  BOOST_TEST(parx_test::mentions(text, "Inf or NaN out of finite numbers", "step 17, rank 0"),
             text);
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_in_the_forward_pass_is_an_anomaly_at_any_loss_scale) {
  auto options = quiet(5);
  options.detect_anomaly = true;
  const auto text = parx_test::message_of([&] {
    (void)in_half_precision(
        options, [](const auto& logits) { return parx::sum(logits * 1e38F * 1e38F); });
  });
  BOOST_TEST(parx_test::mentions(text, "Inf or NaN out of finite numbers", "step 1, rank 0"), text);
}
