#include <parx/amp.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <parx/autograd.hpp>
#include <parx/comm.hpp>
#include <parx/comm/threads.hpp>
#include <parx/reduction/group_axis.hpp>
#include <parx/ddp.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using parx::tensor;

constexpr float infinity = std::numeric_limits<float>::infinity();

parx::parameter<float> parameter_of(std::initializer_list<float> values, const char* name = "w") {
  return {name, tensor<float>::from(values, {values.size()})};
}
// A loss whose gradient is `slope`.
parx::variable<float> linear_loss(const parx::parameter<float>& w,
                                  std::initializer_list<float> slope) {
  return parx::sum(w * parx::variable<float>(tensor<float>::from(slope, {slope.size()})));
}
std::vector<float> values(const tensor<float>& t) { return {t.begin(), t.end()}; }

}  // namespace

BOOST_AUTO_TEST_CASE(a_scaled_step_is_the_plain_step) {
  const auto w = parameter_of({1, 2});
  parx::optim::sgd<float> opt(std::vector{w}, {.lr = 0.5});
  parx::amp::grad_scaler scaler;
  scaler.scale(linear_loss(w, {4, -2})).backward();
  BOOST_TEST(values(w.grad()) == (std::vector<float>{4 * 65536.F, -2 * 65536.F}));
  BOOST_TEST(scaler.step(opt));
  scaler.update();
  BOOST_TEST(values(w.value()) == (std::vector<float>{-1, 3}));
  BOOST_TEST(scaler.get_scale() == 65536);
}

BOOST_AUTO_TEST_CASE(the_scale_halves_after_an_overflow_and_doubles_after_an_interval) {
  const auto w = parameter_of({1, 2});
  parx::optim::sgd<float> opt(std::vector{w}, {.lr = 0.5});
  parx::amp::grad_scaler scaler({.init_scale = 8, .growth_interval = 3});
  const auto train = [&](float slope) {
    scaler.scale(linear_loss(w, {slope, 0})).backward();
    const bool taken = scaler.step(opt);
    scaler.update();
    return taken;
  };
  const auto before = values(w.value());
  for (const float bad : {infinity, -infinity, std::nanf("")}) BOOST_TEST(!train(bad));
  BOOST_TEST(values(w.value()) == before);
  BOOST_TEST(!w.has_grad());
  BOOST_TEST(scaler.get_scale() == 1);
  BOOST_TEST(scaler.skipped_steps() == 3U);
  // An overflow starts the interval anew.
  std::vector<double> scales;
  for (const float slope : {1.F, 1.F, infinity, 1.F, 1.F, 1.F, 1.F, 1.F, 1.F}) {
    train(slope);
    scales.push_back(scaler.get_scale());
  }
  BOOST_TEST(scales == (std::vector<double>{1, 1, 0.5, 0.5, 0.5, 1, 1, 1, 2}));
}

BOOST_AUTO_TEST_CASE(a_scale_does_not_grow_beyond_what_a_float_loss_can_have) {
  const auto w = parameter_of({1, 2});
  parx::optim::sgd<float> opt(std::vector{w}, {.lr = 0});
  parx::amp::grad_scaler scaler({.init_scale = 0x1p126, .growth_interval = 1});
  for (const double expected : {0x1p127, 0x1p127}) {
    scaler.scale(linear_loss(w, {0, 0})).backward();
    BOOST_TEST(scaler.step(opt));
    scaler.update();
    BOOST_TEST(scaler.get_scale() == expected);
  }
}

BOOST_AUTO_TEST_CASE(clipping_between_unscale_and_step_sees_the_true_norm) {
  const auto w = parameter_of({0, 0});
  parx::optim::sgd<float> opt(std::vector{w}, {.lr = 1});
  parx::amp::grad_scaler scaler;
  scaler.scale(linear_loss(w, {3, 4})).backward();
  scaler.unscale_(opt);
  BOOST_TEST(parx::optim::clip_grad_norm(std::vector{w}, 1.0) == 5);
  scaler.step(opt);
  scaler.update();
  BOOST_TEST(w.value().data()[0] == -0.6F, boost::test_tools::tolerance(1e-5F));
  BOOST_TEST(w.value().data()[1] == -0.8F, boost::test_tools::tolerance(1e-5F));
}

BOOST_AUTO_TEST_CASE(
    an_overflow_in_one_optimizer_skips_only_its_step_but_lowers_the_scale_for_all) {
  const auto a = parameter_of({1}, "a"), b = parameter_of({1}, "b");
  parx::optim::sgd<float> first(std::vector{a}, {.lr = 1});
  parx::optim::sgd<float> second(std::vector{b}, {.lr = 1});
  parx::amp::grad_scaler scaler({.init_scale = 16});
  (scaler.scale(linear_loss(a, {infinity})) + scaler.scale(linear_loss(b, {1}))).backward();
  BOOST_TEST(!scaler.step(first));
  BOOST_TEST(scaler.step(second));
  scaler.update();
  BOOST_TEST(a.value().item() == 1);
  BOOST_TEST(b.value().item() == 0);
  BOOST_TEST(scaler.get_scale() == 8);
}

BOOST_AUTO_TEST_CASE(calls_in_a_wrong_order_are_refused) {
  const auto w = parameter_of({1});
  parx::optim::sgd<float> opt(std::vector{w}, {.lr = 1});
  parx::amp::grad_scaler scaler;
  BOOST_CHECK_THROW(scaler.update(), parx::usage_error);
  scaler.scale(linear_loss(w, {1})).backward();
  scaler.unscale_(opt);
  BOOST_CHECK_THROW(scaler.unscale_(opt), parx::usage_error);
  scaler.step(opt);
  BOOST_CHECK_THROW(scaler.step(opt), parx::usage_error);
  BOOST_CHECK_THROW(scaler.unscale_(opt), parx::usage_error);
  scaler.update();
  BOOST_CHECK_THROW(parx::amp::grad_scaler({.growth_factor = 1}), parx::usage_error);
  BOOST_CHECK_THROW(parx::amp::grad_scaler({.backoff_factor = 1}), parx::usage_error);
}

BOOST_AUTO_TEST_CASE(a_row_sparse_gradient_stays_sparse_and_its_overflow_is_found) {
  const parx::parameter<float> table("table", tensor<float>::ones({5, 2}));
  parx::optim::sgd<float> opt(std::vector{table}, {.lr = 1});
  parx::amp::grad_scaler scaler({.init_scale = 4});
  const auto look_up = [&](float slope) {
    const tensor<std::int64_t> ids = tensor<std::int64_t>::from({3, 1}, {2});
    return parx::sum(parx::embedding<float>(table, ids)) * slope;
  };
  scaler.scale(look_up(2)).backward();
  scaler.unscale_(opt);
  BOOST_REQUIRE(table.touched_rows().has_value());
  BOOST_TEST(table.touched_rows()->size() == 2U);
  scaler.step(opt);
  scaler.update();
  BOOST_TEST(values(table.value()) == (std::vector<float>{1, 1, -1, -1, 1, 1, -1, -1, 1, 1}));
  scaler.scale(look_up(infinity)).backward();
  BOOST_TEST(!scaler.step(opt));
}

BOOST_AUTO_TEST_CASE(ranks_that_share_gradients_decide_alike_without_a_message) {
  for (const int world : {1, 2, 3}) {
    std::vector<double> scales(static_cast<std::size_t>(world));
    std::vector<unsigned> equal(static_cast<std::size_t>(world));
    parx::run_threads(world, [&](parx::process_group& group) {
      parx::nn::linear<> model{3, 2};
      parx::ddp ddp{model, group};
      parx::optim::sgd<float> opt(model.parameters(), {.lr = 0.1});
      parx::amp::grad_scaler scaler({.init_scale = 1024});
      for (int step = 0; step < 4; ++step) {
        // The last rank alone overflows, in step 2.
        tensor<float> x = tensor<float>::ones({2, 3});
        if (step == 2 && group.rank() == world - 1) x.fill(infinity);
        scaler.scale(parx::sum(ddp(x))).backward();
        const auto sent = group.bytes_sent();
        scaler.step(opt);
        scaler.update();
        if (group.bytes_sent() != sent) throw std::runtime_error("the scaler has sent something");
      }
      const auto rank = static_cast<std::size_t>(group.rank());
      scales[rank] = scaler.get_scale();
      equal[rank] = ddp.replicas_equal() && scaler.skipped_steps() == 1 ? 1 : 0;
    });
    BOOST_TEST(scales == std::vector<double>(scales.size(), 512));
    BOOST_TEST(equal == std::vector<unsigned>(equal.size(), 1));
  }
}

BOOST_AUTO_TEST_CASE(ranks_with_shards_of_the_gradients_skip_together) {
  std::vector<float> after(2);
  parx::run_threads(2, [&](parx::process_group& group) {
    const auto shard = parameter_of({1});
    shard.set_places({{std::make_shared<parx::group_axis>(group)}});
    parx::optim::sgd<float> opt(std::vector{shard}, {.lr = 1});
    parx::amp::grad_scaler scaler;
    scaler.scale(linear_loss(shard, {group.rank() == 0 ? 1 : infinity})).backward();
    scaler.step(opt);
    scaler.update();
    after[static_cast<std::size_t>(group.rank())] = shard.value().item();
  });
  BOOST_TEST(after == (std::vector<float>{1, 1}));
}
