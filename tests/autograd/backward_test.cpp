#include <parx/autograd/variable.hpp>

#include <boost/test/unit_test.hpp>

#include <pthread.h>

#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <messages.hpp>
#include <parx/autograd/function.hpp>
#include <parx/autograd/ops.hpp>
#include <parx/autograd/parameter.hpp>

using namespace parx;

namespace {

struct recorder : backward_observer {
  [[nodiscard]] gradient_of wanted() const override { return wish; }
  void begin_backward(const backward_start& start) override {
    log.push_back("begin " + std::to_string(static_cast<int>(start.count)) + ":");
    for (const std::size_t index : start.reached) log.back() += " " + std::to_string(index);
    given = start.of;
  }
  void leaf_ready(std::size_t index) override {
    log.push_back("ready " + std::to_string(index));
    if (on_ready) on_ready(index);
  }
  void end_backward() override { log.emplace_back("end"); }
  void abandon_backward() noexcept override { log.emplace_back("abandon"); }

  gradient_of wish = gradient_of::sum, given = gradient_of::sum;
  std::vector<std::string> log;
  std::function<void(std::size_t)> on_ready;
};

using text = std::vector<std::string>;

void on_a_stack_of(std::size_t bytes, std::function<void()> work) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, bytes);
  pthread_t thread{};
  const auto run = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  BOOST_REQUIRE(pthread_create(&thread, &attributes, run, &work) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

parameter<float> scalar_parameter(const char* name, float value) {
  return {name, tensor<float>::scalar(value)};
}

}  // namespace

BOOST_AUTO_TEST_CASE(gradients_add_up_until_zero_grad) {
  const auto w = scalar_parameter("w", 3);
  BOOST_TEST(!w.grad().defined());
  (w * w).backward();
  BOOST_TEST(w.grad().item() == 6.0F);
  (w * 2.0F).backward();
  BOOST_TEST(w.grad().item() == 8.0F);
  w.zero_grad();
  BOOST_TEST(!w.grad().defined());
  (w * 5.0F).backward();
  BOOST_TEST(w.grad().item() == 5.0F);
}

BOOST_AUTO_TEST_CASE(a_leaf_can_be_the_loss_itself) {
  const auto w = scalar_parameter("w", 3);
  recorder observer;
  w.attach(&observer, 4);
  w.backward({.seed = 2});
  BOOST_TEST(w.grad().item() == 2.0F);
  BOOST_TEST((observer.log == text{"begin 1: 4", "ready 4", "end"}));
}

BOOST_AUTO_TEST_CASE(observers_hear_of_leaves_in_the_reverse_order_of_use) {
  const auto a = scalar_parameter("a", 2), b = scalar_parameter("b", 3),
             c = scalar_parameter("c", 4);
  recorder observer;
  a.attach(&observer, 0);
  b.attach(&observer, 1);
  c.attach(&observer, 2);
  const variable<float> x = tensor<float>::scalar(1);
  (((x * a) * b) * c).backward();
  BOOST_TEST((observer.log == text{"begin 1: 0 1 2", "ready 2", "ready 1", "ready 0", "end"}));
  // Construction order does not matter, use does.
  observer.log.clear();
  (((x * c) * a) * b).backward();
  BOOST_TEST((observer.log == text{"begin 1: 0 1 2", "ready 1", "ready 0", "ready 2", "end"}));
}

BOOST_AUTO_TEST_CASE(a_shared_parameter_is_ready_once_after_its_last_contribution) {
  const auto shared = scalar_parameter("shared", 2), last = scalar_parameter("last", 5);
  recorder observer;
  shared.attach(&observer, 0);
  last.attach(&observer, 1);
  float gradient_when_ready = 0;
  observer.on_ready = [&](std::size_t index) {
    if (index == 0) gradient_when_ready = shared.grad().item();
  };
  const variable<float> x = tensor<float>::scalar(1);
  (((x * shared) * shared) * last).backward();  // 5 s^2
  BOOST_TEST((observer.log == text{"begin 1: 0 1", "ready 1", "ready 0", "end"}));
  BOOST_TEST(gradient_when_ready == 20.0F);
}

BOOST_AUTO_TEST_CASE(an_operation_may_say_that_a_parameter_is_ready_before_it_computes_the_rest) {
  const auto w = scalar_parameter("w", 2), input = scalar_parameter("input", 3);
  recorder observer;
  w.attach(&observer, 0);
  input.attach(&observer, 1);
  const auto product = [&](const variable<float>& x, const variable<float>& y) {
    return differentiable(
        map([](float a, float b) { return a * b; }, x.value(), y.value()),
        [&observer, x = x.value(), y = y.value()](const tensor<float>& upstream,
                                                  grad_sink<float> dx, grad_sink<float> dy) {
          dy.map([](float v, float u) { return v * u; }, x, upstream);
          dy.done();
          observer.log.emplace_back("computing dx");
          if (dx.needed()) dx.map([](float v, float u) { return v * u; }, y, upstream);
        },
        x, y);
  };
  product(input, w).backward();
  BOOST_TEST(
      (observer.log == text{"begin 1: 0 1", "ready 0", "computing dx", "ready 1", "end"}));
  // Of two uses only the last one can say so, and of both inputs of one operation neither.
  observer.log.clear();
  product(product(input, w), w).backward();
  BOOST_TEST((observer.log == text{"begin 1: 0 1", "computing dx", "ready 0", "computing dx",
                                   "ready 1", "end"}));
  observer.log.clear();
  w.zero_grad();
  product(w, w).backward();
  BOOST_TEST((observer.log == text{"begin 1: 0", "computing dx", "ready 0", "end"}));
  BOOST_TEST(w.grad().item() == 4.0F);
}

BOOST_AUTO_TEST_CASE(a_backward_function_need_not_ask_which_inputs_want_a_gradient) {
  const auto product = [](const variable<float>& x, const variable<float>& y) {
    return differentiable(
        map([](float a, float b) { return a * b; }, x.value(), y.value()),
        [x = x.value(), y = y.value()](const tensor<float>& upstream, grad_sink<float> dx,
                                       grad_sink<float> dy) {
          const auto times = [](float v, float u) { return v * u; };
          dx.map(times, y, upstream);
          dx.add(tensor<float>::zeros({2}));
          dx.add_broadcast(tensor<float>::zeros({3, 2}));
          dx.done();
          dy.map(times, x, upstream);
          dy.add(tensor<float>::zeros({2}));
          dy.add_broadcast(tensor<float>::zeros({3, 2}));
          dy.done();
        },
        x, y);
  };
  const variable<float> constant = tensor<float>::from({2, 3}, {2});
  const variable<float> w(tensor<float>::from({5, 7}, {2}), gradient::wanted);
  parx::sum(product(constant, w)).backward();
  parx::sum(product(w, constant)).backward();
  BOOST_TEST(w.grad().at(0) == 4.0F);
  BOOST_TEST(w.grad().at(1) == 6.0F);
}

BOOST_AUTO_TEST_CASE(a_gradient_of_another_shape_than_its_input_is_refused) {
  const variable<float> w(tensor<float>::ones({3}), gradient::wanted);
  const auto y = differentiable(
      w.value().clone(),
      [](const tensor<float>&, grad_sink<float> dw) { dw.add(tensor<float>::ones({1, 2})); }, w);
  BOOST_CHECK_EXCEPTION(parx::sum(y).backward(), parx::usage_error, [](const auto& e) {
    return std::string(e.what()).find(
               "a backward function gives an input of shape (3) a gradient of shape (1, 2)") !=
           std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(a_leaf_used_in_two_branches_waits_for_both) {
  const auto w = scalar_parameter("w", 2), u = scalar_parameter("u", 3);
  recorder observer;
  w.attach(&observer, 0);
  u.attach(&observer, 1);
  const variable<float> left = w * 3.0F;
  const variable<float> right = u * w;
  (left + right).backward();
  BOOST_TEST(w.grad().item() == 6.0F);
  BOOST_TEST((observer.log == text{"begin 1: 0 1", "ready 1", "ready 0", "end"}));
}

BOOST_AUTO_TEST_CASE(unused_parameters_are_missing_from_the_announcement_and_keep_no_gradient) {
  const auto used = scalar_parameter("used", 2), unused = scalar_parameter("unused", 3);
  recorder observer;
  used.attach(&observer, 0);
  unused.attach(&observer, 1);
  (used * 2.0F).backward();
  BOOST_TEST((observer.log == text{"begin 1: 0", "ready 0", "end"}));
  BOOST_TEST(used.has_grad());
  BOOST_TEST(!unused.has_grad());
}

BOOST_AUTO_TEST_CASE(a_reached_leaf_to_which_nothing_is_contributed_gets_zeros) {
  const parameter<float> w("w", tensor<float>::ones({3}));
  recorder observer;
  w.attach(&observer, 0);
  const auto silent = differentiable(
      tensor<float>::scalar(0), [](const tensor<float>&, grad_sink<float>) {}, w);
  silent.backward();
  BOOST_TEST((observer.log == text{"begin 1: 0", "ready 0", "end"}));
  BOOST_TEST(w.grad().at(2) == 0.0F);
}

BOOST_AUTO_TEST_CASE(an_observer_sees_the_count_and_gets_the_sum_or_leaves_the_mean_to_backward) {
  const auto w = scalar_parameter("w", 2);
  recorder observer;
  w.attach(&observer, 0);
  (w * 8.0F).backward({.count = 4});
  BOOST_TEST(w.grad().item() == 8.0F);
  BOOST_TEST(observer.log[0] == "begin 4: 0");
  w.zero_grad();
  observer.wish = gradient_of::mean;
  (w * 8.0F).backward({.count = 4});
  BOOST_TEST(w.grad().item() == 2.0F);
  BOOST_TEST((observer.given == gradient_of::mean));
  w.detach_observer();
  w.zero_grad();
  (w * 8.0F).backward({.count = 4});
  BOOST_TEST(w.grad().item() == 2.0F);
  (w * 8.0F).backward({.count = 3, .of = gradient_of::sum});
  BOOST_TEST(w.grad().item() == 10.0F);
}

BOOST_AUTO_TEST_CASE(one_observer_that_wants_the_sum_makes_it_the_sum_for_all_observers) {
  const auto a = scalar_parameter("a", 2), b = scalar_parameter("b", 3),
             c = scalar_parameter("c", 5);
  recorder first, second;
  first.wish = gradient_of::mean;
  a.attach(&first, 0);
  b.attach(&second, 0);
  (a * b * c).backward({.count = 4});
  BOOST_TEST((first.given == gradient_of::sum));
  BOOST_TEST(a.grad().item() == 15.0F);
  BOOST_TEST(b.grad().item() == 10.0F);
  BOOST_TEST(c.grad().item() == 1.5F);  // nobody's: the mean
}

BOOST_AUTO_TEST_CASE(observers_begin_in_the_order_of_their_oldest_leaves_and_end_in_the_opposite) {
  std::vector<std::string> order;
  struct named final : recorder {
    void begin_backward(const backward_start&) override { order->push_back("begin " + name); }
    void end_backward() override { order->push_back("end " + name); }
    std::vector<std::string>* order = nullptr;
    std::string name;
  };
  std::vector<named> observers(6);  // in memory, and so by address, ascending
  std::vector<parameter<float>> leaves;
  variable<float> product = tensor<float>::scalar(1);
  text expected;
  for (std::size_t i = 0; i < 6; ++i) {
    named& each = observers[(i * 5 + 3) % 6];
    each.order = &order;
    each.name = std::to_string(i);
    leaves.push_back(scalar_parameter("w", 2));
    leaves.back().attach(&each, 0);
    product = product * leaves.back();
    expected.push_back("begin " + each.name);
  }
  for (std::size_t i = 6; i-- > 0;) expected.push_back("end " + std::to_string(i));
  product.backward();
  BOOST_TEST((order == expected));
}

BOOST_AUTO_TEST_CASE(where_one_observer_refuses_a_pass_those_that_have_begun_are_abandoned) {
  struct refusing final : recorder {
    void begin_backward(const backward_start&) override {
      if (refuses) throw usage_error("not twice");
    }
    bool refuses = true;
  };
  const auto a = scalar_parameter("a", 2), b = scalar_parameter("b", 2);
  recorder first;
  refusing second;
  a.attach(&first, 0);
  b.attach(&second, 0);
  const auto loss = a * b;
  BOOST_CHECK_THROW(loss.backward(), usage_error);
  BOOST_TEST(first.log.back() == "abandon");
  BOOST_TEST(second.log.empty());  // one that refuses knows of it
  BOOST_TEST(!a.has_grad());
  second.refuses = false;
  loss.backward();
  BOOST_TEST(a.grad().item() == 2.0F);
}

BOOST_AUTO_TEST_CASE(an_exception_in_an_operation_abandons_the_pass_and_the_next_one_is_whole) {
  const auto w = scalar_parameter("w", 2);
  recorder observer;
  w.attach(&observer, 0);
  bool fail = true;
  const auto product = w * 3.0F;
  const auto fragile = differentiable(
      product.value().clone(),
      [&fail](const tensor<float>& upstream, grad_sink<float> dx) {
        if (fail) throw std::runtime_error("no");
        dx.add(upstream);
      },
      product);
  BOOST_CHECK_THROW((fragile + w).backward({.graph = graph_after::retained}), std::runtime_error);
  BOOST_TEST((observer.log == text{"begin 1: 0", "abandon"}));
  observer.log.clear();
  fail = false;
  w.zero_grad();
  (fragile + w).backward();
  BOOST_TEST(w.grad().item() == 4.0F);
  BOOST_TEST((observer.log == text{"begin 1: 0", "ready 0", "end"}));
}

BOOST_AUTO_TEST_CASE(an_exception_of_the_observer_leaves_backward) {
  const auto w = scalar_parameter("w", 2);
  recorder observer;
  observer.on_ready = [](std::size_t) { throw std::runtime_error("lost a peer"); };
  w.attach(&observer, 0);
  BOOST_CHECK_THROW((w * 3.0F).backward(), std::runtime_error);
  BOOST_TEST(observer.log.back() == "abandon");
}

BOOST_AUTO_TEST_CASE(
    a_second_backward_through_a_freed_graph_is_a_usage_error_that_says_what_to_do) {
  const auto w = scalar_parameter("w", 2);
  const auto middle = w * 3.0F;
  (middle * 1.0F).backward();
  const auto says = [](const usage_error& e) {
    return std::string(e.what()).find("backward({.graph = parx::graph_after::retained})") !=
           std::string::npos;
  };
  BOOST_CHECK_EXCEPTION((middle * 2.0F).backward(), usage_error, says);
  BOOST_TEST(w.grad().item() == 3.0F);
}

BOOST_AUTO_TEST_CASE(a_retained_graph_gives_the_same_gradients_again) {
  const auto w = scalar_parameter("w", 2);
  const auto loss = w * w * w;
  loss.backward({.graph = graph_after::retained});
  loss.backward();
  BOOST_TEST(w.grad().item() == 24.0F);
  BOOST_CHECK_THROW(loss.backward(), usage_error);
}

BOOST_AUTO_TEST_CASE(gradients_shared_by_branches_are_not_corrupted_by_later_contributions) {
  // y + z hands one tensor to both inputs; y gets its second contribution after that.
  const parameter<float> w("w", tensor<float>::iota({3}));
  const auto y = w * 1.0F;
  const auto z = w * 1.0F;
  const auto earlier = y * 10.0F;
  const auto both = y + z;
  sum(both + earlier).backward();
  for (std::size_t i = 0; i < 3; ++i) BOOST_TEST(w.grad().at(i) == 12.0F);
}

BOOST_AUTO_TEST_CASE(no_grad_and_detach_record_nothing) {
  const auto w = scalar_parameter("w", 2);
  {
    const no_grad guard;
    const auto y = w * 3.0F;
    BOOST_TEST(!y.requires_grad());
    BOOST_CHECK_THROW(y.backward(), usage_error);
  }
  BOOST_TEST((w * 3.0F).requires_grad());
  const auto cut = (w * 3.0F).detach();
  BOOST_TEST(!cut.requires_grad());
  (cut * w).backward();
  BOOST_TEST(w.grad().item() == 6.0F);
}

BOOST_AUTO_TEST_CASE(only_scalars_start_a_backward_and_gradients_must_have_the_right_shape) {
  const parameter<float> w("w", tensor<float>::ones({2}));
  BOOST_CHECK_THROW((w * 2.0F).backward(), usage_error);
  BOOST_CHECK_THROW((w * 2.0F).backward_from(tensor<float>::ones({3})), usage_error);
  BOOST_CHECK_THROW(sum(w * 2.0F).backward({.count = -1}), usage_error);
  BOOST_CHECK_THROW((void)variable<float>(tensor<float>::ones({2})).grad(), usage_error);
}

BOOST_AUTO_TEST_CASE(a_stage_continues_from_the_gradient_of_the_next_stage) {
  const parameter<float> w("w", tensor<float>::ones({2}));
  (w * 3.0F).backward_from(tensor<float>::from({1, 10}, {2}), {.seed = 2});
  BOOST_TEST(w.grad().at(0) == 6.0F);
  BOOST_TEST(w.grad().at(1) == 60.0F);
}

BOOST_AUTO_TEST_CASE(graph_memory_goes_with_the_handles_when_backward_never_runs) {
  const parameter<float> w("w", tensor<float>::ones({1000}));
  const std::size_t before = memory_pool::instance().stats().live_bytes;
  {
    variable<float> x = w;
    for (int i = 0; i < 50; ++i) x = gelu(x * 2.0F);
    BOOST_TEST(memory_pool::instance().stats().live_bytes > before + 50 * 4000);
  }
  BOOST_TEST(memory_pool::instance().stats().live_bytes == before);
}

BOOST_AUTO_TEST_CASE(backward_frees_what_it_has_used_while_the_loss_is_still_held) {
  const parameter<float> w("w", tensor<float>::ones({1000}));
  sum(w * 1.0F).backward();
  const std::size_t before = memory_pool::instance().stats().live_bytes;
  const auto loss = [&] {
    variable<float> x = w;
    for (int i = 0; i < 50; ++i) x = gelu(x * 2.0F);
    return sum(x);
  }();
  loss.backward();
  BOOST_TEST(memory_pool::instance().stats().live_bytes < before + 4000);
}

BOOST_AUTO_TEST_CASE(a_graph_of_a_hundred_thousand_nodes_runs_and_goes_away_on_a_small_stack) {
  const auto w = scalar_parameter("w", 1);
  const auto deep = [&w] {
    variable<float> x = w;
    for (int i = 0; i < 100'000; ++i) x = x + 0.0F;
    return x;
  };
  on_a_stack_of(256 * 1024, [&] { (void)deep(); });
  on_a_stack_of(256 * 1024, [&] { deep().backward(); });
  BOOST_TEST(w.grad().item() == 1.0F);
}

BOOST_AUTO_TEST_CASE(frozen_parameters_are_constants) {
  const auto w = scalar_parameter("w", 2), v = scalar_parameter("v", 3);
  v.freeze();
  (w * v).backward();
  BOOST_TEST(w.has_grad());
  BOOST_TEST(!v.has_grad());
  v.unfreeze();
  (w * v).backward();
  BOOST_TEST(v.grad().item() == 2.0F);
}

BOOST_AUTO_TEST_CASE(backward_takes_denormal_gradients_as_zero_and_the_thread_keeps_its_own_ways) {
  const auto product = [](float a, float b) {
    volatile float x = a, y = b;
    return x * y;
  };
  const variable<float> x(tensor<float>::ones({3}), gradient::wanted);
  sum(x * 1e-30F).backward({.seed = 1e-12});
  BOOST_TEST(x.grad().at(0) == 0.0F);
  BOOST_TEST(product(1e-30F, 1e-12F) > 0.0F);
  {
    const flush_denormals outer;
    { const flush_denormals inner; }
    BOOST_TEST(product(1e-30F, 1e-12F) == 0.0F);
  }
  BOOST_TEST(product(1e-30F, 1e-12F) > 0.0F);
}

BOOST_AUTO_TEST_CASE(a_loss_that_is_no_number_is_told_once_with_the_line) {
  const variable<float> x(tensor<float>::ones({3}), gradient::wanted);
  const parx_test::captured_log log;
  sum(x).backward();
  BOOST_TEST(log.text() == "");
  {
    const parx::detail::loss_is_watched by_another;
    (sum(x) * std::numeric_limits<float>::quiet_NaN()).backward();
    BOOST_TEST(log.text() == "");
  }
  for (int i = 0; i < 2; ++i) (sum(x) * std::numeric_limits<float>::infinity()).backward();
  BOOST_TEST(log.lines().size() == 1U);
  BOOST_TEST(parx_test::mentions(log.text(), "backward at backward_test.cpp:", "the loss is inf"));
}
