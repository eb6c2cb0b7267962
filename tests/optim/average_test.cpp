// Averages, groups and schedules around the optimizers.
#include <parx/optim/ema.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/nn.hpp>
#include <parx/optim.hpp>

using namespace parx;

BOOST_AUTO_TEST_CASE(averages_follow_the_values_with_a_decay_that_warms_up) {
  const parameter<double> p("p", tensor<double>::full({2}, 1.0));
  optim::ema<double> average(std::vector{p}, {.decay = 0.5});
  BOOST_TEST(average.decay_at(0) == 2.0 / 11);
  BOOST_TEST(average.decay_at(100) == 0.5);
  double expected = 1;
  for (int update = 0; update < 20; ++update) {
    p.value().fill(static_cast<double>(update));
    average.update();
    const double keep = std::min(0.5, (2.0 + update) / (11.0 + update));
    expected = keep * expected + (1 - keep) * update;
  }
  {
    const auto swapped = average.swap();
    BOOST_TEST(p.value().at(1) == expected, boost::test_tools::tolerance(1e-12));
    BOOST_CHECK_THROW(average.update(), usage_error);
    BOOST_CHECK_THROW((void)average.swap(), usage_error);
  }
  BOOST_TEST(p.value().at(1) == 19.0);
  BOOST_CHECK_THROW(optim::ema<double>(std::vector{p}, {.decay = 1.5}), usage_error);
}

BOOST_AUTO_TEST_CASE(averages_see_rows_that_an_optimizer_has_put_off) {
  const parameter<float> table("table", tensor<float>::ones({50, 4}));
  optim::adamw optimizer(std::vector{table}, {.lr = 0.1, .weight_decay = 1});
  optim::ema<float> average(std::vector{table}, {.decay = 0, .warmup = optim::decay_warmup::off});
  for (int step = 0; step < 3; ++step) {
    sum(embedding<float>(table, tensor<int>::full({2}, 1))).backward();
    optimizer.step();
  }
  average.update();
  const auto swapped = average.swap();
  BOOST_TEST(table.value().at(40, 0) == 0.9F * 0.9F * 0.9F, boost::test_tools::tolerance(1e-6F));
}

BOOST_AUTO_TEST_CASE(an_average_is_saved_and_continues) {
  const parameter<float> p("w", tensor<float>::ones({3}));
  optim::ema<float> one(std::vector{p}), other(std::vector{p});
  p.value().fill(5);
  for (int i = 0; i < 4; ++i) one.update();
  std::vector<float> shadow;
  std::uint64_t updates = 0;
  one.for_each_state([&]<typename S>(const std::string& name, S& state) {
    if constexpr (std::is_same_v<S, std::uint64_t>) {
      BOOST_TEST(name == "ema.updates");
      updates = state;
    } else {
      BOOST_TEST(name == "w.ema");
      shadow.assign(state.begin(), state.end());
    }
  });
  other.for_each_state([&]<typename S>(const std::string&, S& state) {
    if constexpr (std::is_same_v<S, std::uint64_t>) {
      state = updates;
    } else {
      std::copy(shadow.begin(), shadow.end(), state.begin());
    }
  });
  one.update();
  other.update();
  std::vector<float> a, b;
  {
    const auto swapped = one.swap();
    a.assign(p.value().begin(), p.value().end());
  }
  {
    const auto swapped = other.swap();
    b.assign(p.value().begin(), p.value().end());
  }
  BOOST_TEST(a == b, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(biases_and_norms_are_in_a_group_without_weight_decay) {
  const auto one = [] { return tensor<float>::ones({1, 1}); };
  const std::vector all{parameter<float>("encoder.normalizer.weight", one()),
                        parameter<float>("encoder.0.bias", one()),
                        parameter<float>("encoder.scale", one())};
  all[2].exempt_from_decay();
  const auto groups =
      optim::decay_groups(all, optim::adamw_options{.lr = 0.5, .weight_decay = 0.5});
  BOOST_REQUIRE(groups.size() == 2U);
  optim::adamw<float> optimizer(groups);
  BOOST_TEST(optimizer.options(0).weight_decay == 0.5);
  BOOST_TEST(optimizer.options(1).weight_decay == 0.0);
  optimizer.set_lr(0.25);
  for (const auto& p : all) {
    p.zero_grad();
    p.backward_from(tensor<float>::zeros({1, 1}));
  }
  optimizer.step();
  BOOST_TEST(all[0].item() == 0.875F);  // 1 - 0.25 * 0.5
  BOOST_TEST(all[1].item() == 1.0F);
  BOOST_TEST(all[2].item() == 1.0F);
  // A rate that is set is that of every group.
  for (const auto& p : all) {
    p.value().fill(1.0F);
    p.zero_grad();
    p.backward_from(tensor<float>::ones({1, 1}));
  }
  optim::sgd<float> descent(optim::decay_groups(all, optim::sgd_options{.lr = 3}));
  descent.set_lr(0.25);
  BOOST_TEST(descent.options(0).lr == 0.25);
  BOOST_TEST(descent.options(1).lr == 0.25);
  descent.step();
  for (const auto& p : all) BOOST_TEST(p.item() == 0.75F);
  const auto none =
      optim::decay_groups(all, optim::sgd_options{}, [](std::string_view) { return true; });
  BOOST_TEST(none.size() == 1U);
}

BOOST_AUTO_TEST_CASE(schedules_are_hugging_faces) {
  // transformers/optimization.py: step / warmup, then what the name says, of the rate.
  const auto constant = optim::constant_with_warmup(2, 10);
  const auto linear = optim::linear_with_warmup(2, 10, 110);
  const auto cosine = optim::cosine_with_warmup(2, 10, 110);
  const auto polynomial = optim::polynomial_with_warmup(2, 10, 110, 2, 0.5);
  for (const auto& each : {constant, linear, cosine, polynomial}) {
    BOOST_TEST(each.at(0) == 0.0);
    BOOST_TEST(each.at(5) == 1.0);
    BOOST_TEST(each.at(10) == 2.0);
  }
  BOOST_TEST(constant.at(1000) == 2.0);
  BOOST_TEST(linear.at(35) == 1.5);
  BOOST_TEST(cosine.at(35) == 1 + std::sqrt(0.5), boost::test_tools::tolerance(1e-12));
  BOOST_TEST(polynomial.at(60) == 0.5 + 1.5 * 0.25);
  BOOST_TEST(linear.at(200) == 0.0);
  BOOST_TEST(polynomial.at(200) == 0.5);
  const optim::lr_schedule step{.lr = 1, .decay = optim::decay::step, .every = 30, .gamma = 0.5};
  BOOST_TEST(step.at(29) == 1.0);
  BOOST_TEST(step.at(30) == 0.5);
  BOOST_TEST(step.at(95) == 0.125);
}

BOOST_AUTO_TEST_CASE(clipping_by_value_and_refusing_a_norm_that_is_not_finite) {
  const std::vector parameters{parameter<float>("p", tensor<float>::zeros({3}))};
  const auto set = [&](float a, float b, float c) {
    parameters[0].zero_grad();
    parameters[0].backward_from(tensor<float>::from({a, b, c}, {3}));
  };
  set(-3, 0.25F, 7);
  optim::clip_grad_value(parameters, 0.5);
  BOOST_TEST(parameters[0].grad().at(0) == -0.5F);
  BOOST_TEST(parameters[0].grad().at(1) == 0.25F);
  BOOST_TEST(parameters[0].grad().at(2) == 0.5F);
  set(1, std::numeric_limits<float>::infinity(), 2);
  BOOST_CHECK_THROW(optim::clip_grad_norm(parameters, 1.0, optim::nonfinite::error), error);
  BOOST_TEST(parameters[0].grad().at(2) == 2.0F);  // as it was
  BOOST_TEST(std::isinf(optim::clip_grad_norm(parameters, 1.0)));
  BOOST_CHECK_THROW(optim::clip_grad_value(parameters, 0), usage_error);
}
