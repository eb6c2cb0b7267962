#include <parx/optim.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <messages.hpp>
#include <nn/torch_oracle.hpp>

#include <parx/autograd.hpp>
#include <parx/core/log.hpp>
#include <parx/nn.hpp>

using namespace parx;

namespace {

/// The same exact numbers as in torch_optimizers.py.
tensor<float> grid(int k, int n = 20) {
  auto values = tensor<float>::empty({static_cast<std::size_t>(n)});
  for (int i = 0; i < n; ++i) {
    values.at(i) = static_cast<float>((i * 37 + k * 11) % 17 - 8) / 16.0F;
  }
  return values;
}

/// Makes `gradient` the gradient of `p`, as a backward pass would.
void set_grad(const parameter<float>& p, const tensor<float>& gradient) {
  p.zero_grad();
  p.backward_from(gradient);
}

const std::optional<parx_test::oracle_numbers>& torch_numbers() {
  static const auto numbers = parx_test::ask_torch(__FILE__, "torch_optimizers.py");
  return numbers;
}

void check_close(std::span<const double> expected, std::span<const float> found, double tolerance,
                 const std::string& what) {
  BOOST_REQUIRE_EQUAL(expected.size(), found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    BOOST_TEST(std::abs(expected[i] - static_cast<double>(found[i])) <= tolerance,
               what << ", element " << i << ": " << expected[i] << " and " << found[i]);
  }
}

/// Ten steps with one parameter that always has a gradient and one that has it in every third step.
template <typename Optimizer, typename Options>
void compare_with_torch(const std::string& name, Options options) {
  if (!torch_numbers()) return;
  const parameter<float> used("used", grid(100));
  const parameter<float> sometimes("sometimes", grid(101));
  Optimizer optimizer(std::vector{used, sometimes}, options);
  for (int step = 0; step < 10; ++step) {
    set_grad(used, grid(step));
    if (step % 3 == 1) set_grad(sometimes, grid(step + 50));
    optimizer.step();
    std::vector<float> found(used.value().begin(), used.value().end());
    found.insert(found.end(), sometimes.value().begin(), sometimes.value().end());
    check_close(torch_numbers()->at(fmt::format("{}.{}", name, step)), found, 1e-6,
                fmt::format("{} step {}", name, step));
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(ten_steps_of_sgd_are_pytorchs) {
  using optim::momentum_form;
  using sgd = optim::sgd<float>;
  compare_with_torch<sgd>("sgd", optim::sgd_options{.lr = 0.1});
  compare_with_torch<sgd>("sgd_decay", optim::sgd_options{.lr = 0.1, .weight_decay = 0.01});
  compare_with_torch<sgd>("sgd_momentum",
                          optim::sgd_options{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
  compare_with_torch<sgd>(
      "sgd_nesterov",
      optim::sgd_options{
          .lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .form = momentum_form::nesterov});
}

BOOST_AUTO_TEST_CASE(ten_steps_of_adamw_are_pytorchs) {
  using adamw = optim::adamw<float>;
  compare_with_torch<adamw>("adamw", optim::adamw_options{.lr = 0.01});
  compare_with_torch<adamw>(
      "adamw_options",
      optim::adamw_options{
          .lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.3});
}

BOOST_AUTO_TEST_CASE(clipping_and_cosine_decay_are_pytorchs) {
  if (!torch_numbers()) return;
  for (const auto& [name, limit] : {std::pair{"clip.0.5", 0.5}, std::pair{"clip.1000.0", 1000.0}}) {
    const std::vector parameters{parameter<float>("a", grid(0)), parameter<float>("b", grid(1))};
    set_grad(parameters[0], grid(2));
    set_grad(parameters[1], grid(3));
    std::vector<float> found{static_cast<float>(optim::clip_grad_norm(parameters, limit))};
    for (const auto& p : parameters) found.insert(found.end(), p.grad().begin(), p.grad().end());
    check_close(torch_numbers()->at(name), found, 1e-6, name);
  }
  const optim::lr_schedule cosine{
      .lr = 0.4, .steps = 20, .decay = optim::decay::cosine, .floor = 0.05};
  for (std::size_t step = 0; step <= 20; ++step) {
    BOOST_TEST(cosine.at(step) == torch_numbers()->at("cosine").at(step),
               boost::test_tools::tolerance(1e-9));
  }
}

BOOST_AUTO_TEST_CASE(clipping_scales_the_common_norm_down_to_the_limit) {
  const std::vector parameters{parameter<float>("a", tensor<float>::zeros({1})),
                               parameter<float>("b", tensor<float>::zeros({1})),
                               parameter<float>("unused", tensor<float>::zeros({1}))};
  set_grad(parameters[0], tensor<float>::full({1}, 3.0F));
  set_grad(parameters[1], tensor<float>::full({1}, -4.0F));
  BOOST_TEST(optim::clip_grad_norm(parameters, 1.0) == 5.0);
  BOOST_TEST(parameters[0].grad().item() == 0.6F, boost::test_tools::tolerance(1e-6F));
  BOOST_TEST(parameters[1].grad().item() == -0.8F, boost::test_tools::tolerance(1e-6F));
  // The 1e-6 beside the norm halves this one.
  set_grad(parameters[0], tensor<float>::full({1}, 1e-6F));
  parameters[1].zero_grad();
  optim::clip_grad_norm(parameters, 1e-6);
  BOOST_TEST(parameters[0].grad().item() == 5e-7F, boost::test_tools::tolerance(1e-5F));
}

BOOST_AUTO_TEST_CASE(the_first_steps_follow_the_formulas_by_hand) {
  // Without PyTorch at hand, too. SGD: v = 2, w = 1 - 0.5 * 2; then v = 0.5 * 2 + 4, w = 0 - 0.5
  // * 5.
  const parameter<float> p("p", tensor<float>::full({1}, 1.0F));
  optim::sgd sgd(std::vector{p}, {.lr = 0.5, .momentum = 0.5});
  set_grad(p, tensor<float>::full({1}, 2.0F));
  sgd.step();
  BOOST_TEST(p.item() == 0.0F);
  set_grad(p, tensor<float>::full({1}, 4.0F));
  sgd.step();
  BOOST_TEST(p.item() == -2.5F);
  // AdamW's first step is lr in the direction of the gradient's sign, after the decay.
  const parameter<float> q("q", tensor<float>::from({1.0F, -1.0F}, {2}));
  optim::adamw adamw(std::vector{q}, {.lr = 0.25, .weight_decay = 0.5});
  set_grad(q, tensor<float>::from({3.0F, -7.0F}, {2}));
  adamw.step();
  BOOST_TEST(q.value().at(0) == 0.875F - 0.25F, boost::test_tools::tolerance(1e-6F));
  BOOST_TEST(q.value().at(1) == -0.875F + 0.25F, boost::test_tools::tolerance(1e-6F));
  // Epsilon stands beside the root: a gradient of its size makes half a step.
  const parameter<float> r("r", tensor<float>::full({1}, 1.0F));
  optim::adamw beside(std::vector{r}, {.lr = 0.25, .epsilon = 0.5, .weight_decay = 0});
  set_grad(r, tensor<float>::full({1}, 0.5F));
  beside.step();
  BOOST_TEST(r.item() == 1 - 0.125F, boost::test_tools::tolerance(1e-6F));
}

BOOST_AUTO_TEST_CASE(set_lr_reaches_every_group) {
  const parameter<float> a("a", tensor<float>::full({1}, 1.0F)),
      b("b", tensor<float>::full({1}, 1));
  using group = optim::parameter_group<float, optim::sgd_options>;
  optim::sgd opt(std::vector<group>{{std::vector{a}, {.lr = 0.125}}, {std::vector{b}, {.lr = 4}}});
  opt.set_lr(0.5);
  for (const auto& each : {a, b}) set_grad(each, tensor<float>::full({1}, 1.0F));
  opt.step();
  BOOST_TEST(a.item() == 0.5F);
  BOOST_TEST(b.item() == 0.5F);
}

// PyTorch's formula, each element by itself. An epsilon as large as the gradients tells where it is
// added: to the root, after the correction of the bias.
BOOST_AUTO_TEST_CASE(adamw_adds_epsilon_outside_of_the_corrected_root) {
  const optim::adamw_options options{
      .lr = 0.1, .beta1 = 0.8, .beta2 = 0.9, .epsilon = 0.5, .weight_decay = 0.3};
  const parameter<double> p("p", tensor<double>::from({1.0, -2.0, 0.25}, {3}));
  optim::adamw optimizer(std::vector{p}, options);
  std::array<double, 3> w{1.0, -2.0, 0.25}, m{}, v{};
  for (int step = 1; step <= 6; ++step) {
    p.zero_grad();
    const auto gradient = tensor<double>::from({0.5, -1.5 * step, step % 2 == 0 ? 0.0 : 1.0}, {3});
    p.backward_from(gradient);
    optimizer.step();
    for (std::size_t i = 0; i < 3; ++i) {
      const double g = gradient.data()[i];
      m[i] = 0.8 * m[i] + 0.2 * g;
      v[i] = 0.9 * v[i] + 0.1 * g * g;
      const double mean = m[i] / (1 - std::pow(0.8, step));
      const double root = std::sqrt(v[i] / (1 - std::pow(0.9, step)));
      w[i] = w[i] * (1 - 0.1 * 0.3) - 0.1 * mean / (root + 0.5);
      BOOST_TEST(p.value().data()[i] == w[i], boost::test_tools::tolerance(1e-12));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_step_consumes_the_gradients_and_skips_parameters_without) {
  const parameter<float> used("used", tensor<float>::ones({2}));
  const parameter<float> unused("unused", tensor<float>::ones({2}));
  optim::adamw optimizer(std::vector{used, unused}, {.lr = 0.1, .weight_decay = 0.1});
  set_grad(used, tensor<float>::ones({2}));
  optimizer.step();
  BOOST_TEST(unused.value().at(0) == 1.0F);  // not even decayed
  BOOST_TEST(!used.has_grad());
  const float after = used.value().at(0);
  optimizer.step();
  BOOST_TEST(used.value().at(0) == after);
}

BOOST_AUTO_TEST_CASE(a_loss_from_before_a_step_is_refused) {
  nn::sequential model{nn::linear{3, 4}, nn::relu{}, nn::linear{4, 2}, nn::linear{2, 2}};
  model.initialize(1);
  optim::sgd opt{model.parameters(), {.lr = 0.1F}};
  const auto loss = [&] { return sum(model(variable<float>(tensor<float>::ones({2, 3})))); };
  const auto pass = [&](auto old, std::string_view named) {
    loss().backward({.graph = graph_after::retained});
    opt.step();
    const std::string said = parx_test::message_of([&] { old.backward(); });
    BOOST_TEST(parx_test::mentions(said, "usage: backward at optim_test.cpp:", named,
                                   "Call backward() before step(), or run the forward pass again"),
               said);
  };
  pass(loss(), "parameter \"");
  pass(checkpoint([&](const variable<float>& x) { return sum(model(x)); },
                  variable<float>(tensor<float>::ones({2, 3}))),
       "parameter \"");
  // Only what a step has changed: a layer that had no gradient keeps its value.
  for (const auto& each : model.parameters()) {
    if (!each.name().starts_with("3.")) each.freeze();
  }
  loss().backward();
  for (const auto& each : model.parameters()) each.unfreeze();
  const auto penalty = sum(model.parameters().front() * model.parameters().front());
  opt.step();
  penalty.backward();
  BOOST_TEST(model.parameters().front().has_grad());
}

BOOST_AUTO_TEST_CASE(plain_spans_are_optimized_like_parameters) {
  const parameter<float> p("p", grid(7, 3000));
  tensor<float> value = grid(7, 3000);
  tensor<float> gradient = tensor<float>::zeros({3000});
  optim::adamw by_parameter(std::vector{p}, {.lr = 0.1});
  optim::adamw by_span(std::vector{optim::target<float>("p", value.span(), gradient.span())},
                       {.lr = 0.1});
  for (int step = 0; step < 5; ++step) {
    set_grad(p, grid(step, 3000));
    gradient.copy_from(grid(step, 3000));
    by_parameter.step();
    by_span.step();
  }
  BOOST_TEST(p.value().span() == value.span(), boost::test_tools::per_element());
  std::vector<float> few(2);
  std::vector<float> more(3);
  BOOST_CHECK_THROW(optim::target<float>("w", few, more), usage_error);
}

BOOST_AUTO_TEST_CASE(a_parameter_that_moves_to_other_memory_is_updated_there) {
  std::vector<float> bucket(2);
  const parameter<float> p("p", tensor<float>::ones({2}));
  optim::sgd optimizer(std::vector{p}, {.lr = 1});
  set_grad(p, tensor<float>::ones({2}));
  p.bind_value(bucket);
  optimizer.step();
  BOOST_TEST(bucket[0] == 0.0F);
}

BOOST_AUTO_TEST_CASE(state_carried_to_a_new_optimizer_continues_the_run) {
  const auto run = [](optim::adamw<float>& optimizer, const parameter<float>& p, int from, int to) {
    for (int step = from; step < to; ++step) {
      set_grad(p, grid(step));
      optimizer.step();
    }
  };
  const parameter<float> whole("w", grid(100));
  optim::adamw uninterrupted(std::vector{whole}, {.lr = 0.1});
  run(uninterrupted, whole, 0, 8);

  const parameter<float> first("w", grid(100));
  optim::adamw before(std::vector{first}, {.lr = 0.1});
  run(before, first, 0, 5);
  std::map<std::string, tensor<float>> tensors;
  std::map<std::string, std::uint64_t> counts;
  const auto keep = [&](const std::string& name, auto& state) {
    if constexpr (std::is_same_v<std::decay_t<decltype(state)>, std::uint64_t>) {
      counts[name] = state;
    } else {
      tensors[name] = state.clone();
    }
  };
  before.for_each_state(keep);
  BOOST_TEST(tensors.count("w.exp_avg") == 1U);
  BOOST_TEST(counts.at("w.step") == 5U);
  const parameter<float> second("w", first.value().clone());
  optim::adamw after(std::vector{second}, {.lr = 0.1});
  after.for_each_state([&](const std::string& name, auto& state) {
    if constexpr (std::is_same_v<std::decay_t<decltype(state)>, std::uint64_t>) {
      state = counts.at(name);
    } else {
      state.copy_from(tensors.at(name));
    }
  });
  run(after, second, 5, 8);
  BOOST_TEST(second.value().span() == whole.value().span(), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(schedules_rise_linearly_and_fall_to_their_floor) {
  using optim::decay;
  const optim::lr_schedule constant{.lr = 2, .warmup = 4};
  BOOST_TEST(constant.at(0) == 0.5);
  BOOST_TEST(constant.at(3) == 2.0);
  BOOST_TEST(constant.at(1'000'000) == 2.0);
  const optim::lr_schedule linear{
      .lr = 1, .warmup = 2, .steps = 6, .decay = decay::linear, .floor = 0.2};
  BOOST_TEST(linear.at(0) == 0.5);
  BOOST_TEST(linear.at(2) == 1.0);
  BOOST_TEST(linear.at(4) == 0.6, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(linear.at(6) == 0.2, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(linear.at(60) == 0.2, boost::test_tools::tolerance(1e-12));
  const optim::lr_schedule cosine{.lr = 1, .warmup = 10, .steps = 110, .decay = decay::cosine};
  BOOST_TEST(cosine.at(60) == 0.5, boost::test_tools::tolerance(1e-12));
  BOOST_CHECK_THROW((void)(optim::lr_schedule{.decay = decay::cosine}.at(0)), usage_error);
}

BOOST_AUTO_TEST_CASE(a_rate_that_falls_in_steps_stops_at_its_floor) {
  const optim::lr_schedule steps{
      .lr = 8, .warmup = 2, .decay = optim::decay::step, .floor = 1.5, .every = 3, .gamma = 0.5};
  const std::vector<double> expected{4, 8, 8, 8, 8, 4, 4, 4, 2, 2, 2, 1.5, 1.5, 1.5, 1.5, 1.5};
  for (std::size_t step = 0; step < expected.size(); ++step)
    BOOST_TEST(steps.at(step) == expected[step], "step " << step);
  BOOST_TEST(steps.at(1'000'000) == 1.5);
}

BOOST_AUTO_TEST_CASE(wrong_options_and_empty_lists_are_refused) {
  const std::vector<parameter<float>> none;
  BOOST_CHECK_THROW(optim::sgd<float>{none}, usage_error);
  const std::vector some{parameter<float>("p", grid(0))};
  BOOST_CHECK_THROW(optim::sgd(some, {.lr = -1}), usage_error);
  BOOST_CHECK_THROW(optim::sgd(some, {.form = optim::momentum_form::nesterov}), usage_error);
  BOOST_CHECK_THROW(optim::adamw(some, {.beta2 = 1}), usage_error);
  // Where the optimizer is made inside of the standard library, the list still has the user's line.
  std::optional<optim::adamw<float>> made;
  const int asked = __LINE__ + 1;
  const parameter_list<float> of_model(call_site::current());
  const std::string told = parx_test::message_of([&] { made.emplace(of_model); });
  BOOST_TEST(parx_test::mentions(told, "needs at least one parameter", "members()",
                                 "parameters() at optim_test.cpp:" + std::to_string(asked)),
             told);
  BOOST_CHECK_THROW(optim::sgd{optim::decay_groups(of_model, optim::sgd_options{})}, usage_error);
  made.emplace(parameter_list<float>(call_site::current(), parameter_scope::share));
  BOOST_TEST(made->targets().empty());
  const int line = __LINE__ + 2;
  try {
    const optim::sgd opt{some, {.lr = -1}};
    BOOST_ERROR("not refused");
  } catch (const usage_error& e) {
    BOOST_TEST(std::string(e.what()).find("sgd at optim_test.cpp:" + std::to_string(line)) == 0U);
  }
  const std::vector<parameter<float>> twice{some[0], some[0]};
  BOOST_CHECK_EXCEPTION(optim::adamw{twice}, usage_error, [](const usage_error& e) {
    return std::string(e.what()).find("is given twice") != std::string::npos;
  });
  BOOST_CHECK_THROW(optim::clip_grad_norm(some, 0), usage_error);
}

BOOST_AUTO_TEST_CASE(a_gradient_is_clipped_once) {
  const std::vector both{parameter<float>("a", tensor<float>::zeros({2})),
                         parameter<float>("b", tensor<float>::zeros({2}))};
  const auto backward = [&] {
    for (const auto& each : both) each.backward_from(tensor<float>::full({2}, 3));
  };
  const auto clip_again = [&] { optim::clip_grad_norm(std::vector{both[1]}, 0.5); };
  const auto message = [&] { return parx_test::message_of(clip_again); };
  backward();
  BOOST_TEST(optim::clip_grad_norm(both, std::numeric_limits<double>::infinity()) == 6);
  optim::clip_grad_norm(both, 1.0);
  const int line = __LINE__ - 1;
  const float clipped = both[1].grad().at(0);
  const std::string told = message();
  BOOST_TEST(parx_test::mentions(told, "usage: ", "the gradient of \"b\" was clipped at",
                                 "optim_test.cpp:" + std::to_string(line), "clip once"),
             told);
  BOOST_TEST(both[1].grad().at(0) == clipped);  // as it was
  BOOST_TEST(optim::grad_norm(optim::targets_of(both)) == 1, boost::test_tools::tolerance(1e-5));
  // Something new makes it clippable again: more of a gradient, another one, or none.
  backward();
  BOOST_TEST(message() == "nothing was thrown");
  optim::sgd opt{both, {.lr = 0}};
  opt.step();
  backward();
  BOOST_TEST(message() == "nothing was thrown");
  both[1].zero_grad();
  BOOST_TEST(message() == "nothing was thrown");
}

BOOST_AUTO_TEST_CASE(a_part_of_a_parameter_has_no_norm_of_its_own) {
  const parameter<float> whole("whole", tensor<float>::ones({2})), part("part", {4, 2});
  part.keep_part(part.spec().chunk(0, 1, 2));
  set_grad(whole, tensor<float>::full({2}, 3));
  part.allocate().fill(1);
  set_grad(part, tensor<float>::full({2, 2}, 5));
  const std::vector both{whole, part};
  for (const std::string& told :
       {parx_test::message_of([&] { optim::clip_grad_norm(both, 1.0); }),
        parx_test::message_of([&] { (void)optim::grad_norm(optim::targets_of(both)); })})
    BOOST_TEST(parx_test::mentions(told, "usage: ", "4 of the 8 elements of parameter \"part\"",
                                   "optim::grad_squares"),
               told);
  BOOST_TEST(whole.grad().at(0) == 3.0F);  // as it was
  BOOST_TEST(part.grad().at(0, 0) == 5.0F);
  BOOST_TEST(optim::grad_squares(optim::targets_of(both)).norm() ==
             std::sqrt(2 * 9.0 + 4 * 25.0));
  optim::clip_grad_norm(std::vector{whole}, 1.0);
  BOOST_TEST(whole.grad().at(0) < 3.0F);
}

BOOST_AUTO_TEST_CASE(a_gradient_of_some_ranks_has_no_norm_of_the_model) {
  const parameter<float> expert("expert", tensor<float>::ones({2}));
  expert.reduce_over("expert ranks");
  const std::string told =
      parx_test::message_of([&] { optim::clip_grad_norm(std::vector{expert}, 0.5); });
  BOOST_TEST(parx_test::mentions(told, "usage: ", "\"expert\"", "of \"expert ranks\" alone",
                                 "optim::grad_squares"),
             told);
}

BOOST_AUTO_TEST_CASE(a_step_without_a_backward_pass_is_told_of_once_with_its_line) {
  std::vector<std::string> lines;
  logger::instance().set_sink([&](log_level, std::string_view line) { lines.emplace_back(line); });
  const parameter<float> p("p", grid(1));
  optim::sgd optimizer(std::vector{p}, {.lr = 0.1});
  set_grad(p, grid(2));
  optimizer.step();
  BOOST_TEST(lines.empty());
  for (int step = 0; step < 3; ++step) optimizer.step();
  logger::instance().set_sink({});
  BOOST_TEST_REQUIRE(lines.size() == 1U);
  BOOST_TEST(lines[0].find("optim_test.cpp:") != std::string::npos, lines[0]);
  BOOST_TEST(lines[0].find("no parameter has a gradient, so nothing changes: call backward()") !=
                 std::string::npos,
             lines[0]);
}
