#include <parx/optim/adamw.hpp>
#include <parx/optim/sgd.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <parx/autograd/ops/cast.hpp>
#include <parx/autograd/ops/embedding.hpp>
#include <parx/checkpoint/state.hpp>
#include <parx/checkpoint/state_dict.hpp>
#include <parx/comm.hpp>
#include <parx/comm/threads.hpp>
#include <parx/ddp.hpp>
#include <parx/nn.hpp>
#include <parx/optim/clip.hpp>
#include <parx/optim/ema.hpp>

#include <data/support.hpp>

using namespace parx;

namespace {

constexpr std::size_t size = 1500;

tensor<float> random_values(const std::string& what, const shape& of) {
  auto values = tensor<float>::empty(of);
  random_stream(7, what).normal(values, 0.0F, 1.0F);
  return values;
}

/// Makes `gradient`, rounded, the gradient of `p`; returns it as it was rounded.
template <typename Half>
tensor<float> set_grad(const parameter<Half>& p, const tensor<float>& gradient) {
  p.zero_grad();
  p.backward_from(gradient.cast<Half>());
  return p.grad().template cast<float>();
}

/// How many elements of a 16-bit parameter are not the rounded ones of a float parameter.
template <typename Half>
std::size_t unlike(const parameter<Half>& p, const parameter<float>& exact) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < p.size(); ++i)
    count += p.value().data()[i].bits != Half(exact.value().data()[i]).bits;
  return count;
}

using sgd16 = std::pair<optim::sgd<bfloat16>, optim::sgd<float>>;
using adamw16 = std::pair<optim::adamw<bfloat16>, optim::adamw<float>>;
using sgd_fp16 = std::pair<optim::sgd<float16>, optim::sgd<float>>;
using adamw_fp16 = std::pair<optim::adamw<float16>, optim::adamw<float>>;

template <typename Optimizer>
auto options_of(const Optimizer* /*which*/) {
  typename Optimizer::options_type o{.lr = 0.01, .weight_decay = 0.1};
  if constexpr (requires { o.momentum; }) o.momentum = 0.9;
  return o;
}

}  // namespace

BOOST_AUTO_TEST_CASE(steps_below_the_last_bit_of_16_add_up) {
  const parameter<bfloat16> p("p", tensor<bfloat16>::ones({3}));
  optim::sgd<bfloat16> optimizer(std::vector{p}, {.lr = 1e-4});
  for (int step = 0; step < 1000; ++step) {
    (void)set_grad(p, tensor<float>::ones({3}));
    optimizer.step();
  }
  // One step alone is lost: 1 - 1e-4 rounds to 1.
  BOOST_TEST(static_cast<float>(bfloat16(1 - 1e-4F)) == 1.0F);
  BOOST_TEST(std::abs(static_cast<float>(p.value().at(1)) - 0.9F) <= 0.9F / 256);
}

using pairs = std::tuple<sgd16, adamw16, sgd_fp16, adamw_fp16>;
BOOST_AUTO_TEST_CASE_TEMPLATE(the_values_are_a_float_optimizers_rounded, Pair, pairs) {
  using Low = typename Pair::first_type;
  using Half = typename Low::value_type;
  const parameter<Half> p("p", random_values("start", {size}).cast<Half>());
  const parameter<float> exact("p", p.value().template cast<float>());
  const auto options = options_of(static_cast<const typename Pair::second_type*>(nullptr));
  Low low(std::vector{p}, options);
  typename Pair::second_type full(std::vector{exact}, options);
  for (int step = 0; step < 20; ++step) {
    exact.zero_grad();
    exact.backward_from(set_grad(p, random_values("g" + std::to_string(step), {size})));
    low.step();
    full.step();
    BOOST_TEST(unlike(p, exact) == 0U);
  }
}

BOOST_AUTO_TEST_CASE(masters_are_saved_and_a_resumed_run_has_the_same_bits) {
  const parx_test::scratch_folder folder;
  const auto steps = [](const parameter<bfloat16>& p, auto& optimizer, int begin, int end) {
    for (int step = begin; step < end; ++step) {
      (void)set_grad(p, random_values("g" + std::to_string(step), {size}));
      optimizer.step();
    }
  };
  const parameter<bfloat16> p("p", random_values("start", {size}).cast<bfloat16>());
  optim::adamw<bfloat16> optimizer(std::vector{p}, {.lr = 1e-3});
  steps(p, optimizer, 0, 10);
  const tensor<bfloat16> value = p.value().clone();
  save_state(optimizer, folder.file("optimizer.safetensors"));
  steps(p, optimizer, 10, 20);

  const parameter<bfloat16> q("p", value);
  optim::adamw<bfloat16> other(std::vector{q}, {.lr = 1e-3});
  load_state(other, folder.file("optimizer.safetensors"));
  steps(q, other, 10, 20);
  std::size_t differing = 0;
  for (std::size_t i = 0; i < size; ++i)
    differing += q.value().data()[i].bits != p.value().data()[i].bits;
  BOOST_TEST(differing == 0U);
  // The file has what 16 bits do not.
  const state_dict state(other);
  const tensor<float> master = state.at<float>("p.master");
  const auto is_round = [](float x) { return static_cast<float>(bfloat16(x)) == x; };
  BOOST_TEST(std::count_if(master.begin(), master.end(), is_round) < 100);
}

BOOST_AUTO_TEST_CASE(a_value_that_somebody_else_has_written_counts) {
  const parameter<bfloat16> p("p", tensor<bfloat16>::ones({2}));
  optim::sgd<bfloat16> optimizer(std::vector{p}, {.lr = 1e-4});
  (void)set_grad(p, tensor<float>::ones({2}));
  optimizer.step();
  p.value().at(1) = 3.0F;
  (void)set_grad(p, tensor<float>::zeros({2}));
  optimizer.step();
  const auto master = state_dict(optimizer).at<float>("p.master");
  BOOST_TEST(master.at(0) == 1 - 1e-4F);
  BOOST_TEST(master.at(1) == 3.0F);
}

BOOST_AUTO_TEST_CASE(averages_of_16_bit_values_are_float) {
  const parameter<bfloat16> p("p", tensor<bfloat16>::ones({2}));
  optim::ema average(std::vector{p}, {.decay = 0.999, .warmup = optim::decay_warmup::off});
  p.value().fill(2.0F);
  for (int step = 0; step < 500; ++step) average.update();
  {
    const auto swapped = average.swap();
    // 2 - 0.999^500, which 16 bits would never have left 1 for.
    BOOST_TEST(static_cast<float>(p.value().at(0)) == static_cast<float>(bfloat16(1.3936F)));
  }
  BOOST_TEST(static_cast<float>(p.value().at(0)) == 2.0F);
  BOOST_TEST(std::abs(state_dict(average).at<float>("p.ema").at(1) - 1.3936F) < 1e-3F);
}

BOOST_AUTO_TEST_CASE(rows_without_a_gradient_step_on_unless_they_are_lazy) {
  for (const auto rows : {optim::row_updates::deferred, optim::row_updates::lazy}) {
    const parameter<bfloat16> table("table", random_values("table", {40, 8}).cast<bfloat16>());
    const parameter<float> exact("table", table.value().cast<float>());
    const optim::adamw_options options{.lr = 0.05, .rows = rows};
    optim::adamw<bfloat16> low(std::vector{table}, options);
    optim::adamw<float> full(std::vector{exact}, options);
    for (std::int64_t step = 0; step < 12; ++step) {
      const auto index = tensor<std::int64_t>::from({step, 3 * step}, {2});
      embedding<bfloat16>(table, index).backward_from(tensor<bfloat16>::ones({2, 8}));
      embedding<float>(exact, index).backward_from(tensor<float>::ones({2, 8}));
      low.step();
      full.step();
    }
    BOOST_TEST(unlike(table, exact) == 0U);
  }
}

namespace {

template <typename T>
struct classifier : nn::module<classifier<T>> {
  using value_type = T;
  nn::embedding<T> words{30, 12};
  nn::linear<T> first{12, 24, {.activation = activation::gelu}};
  nn::layer_norm<T> norm{24};
  nn::linear<T> second{24, 4};
  variable<float> forward(const tensor<std::int64_t>& ids) {
    return second(norm(first(words(ids))));
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("words", words);
    visit("first", first);
    visit("norm", norm);
    visit("second", second);
  }
};

struct run {
  std::vector<double> losses;
  std::uint64_t hash = 0;
};

/// 150 steps over words whose class is to be learnt.
template <typename T>
run train(process_group& group) {
  classifier<T> model;
  model.initialize(1);
  ddp net{model, group};
  optim::adamw opt{net.parameters(), {.lr = 3e-3}};
  run result;
  for (std::size_t step = 0; step < 150; ++step) {
    const std::size_t rows = 16;
    auto ids = tensor<std::int64_t>::empty({rows}), labels = tensor<std::int64_t>::empty({rows});
    for (std::size_t i = 0; i < rows; ++i) {
      const std::size_t sample = (step * rows + i) * static_cast<std::size_t>(group.size()) +
                                 static_cast<std::size_t>(group.rank());
      const std::size_t word = sample * sample * 7 % 30;
      ids.data()[i] = static_cast<std::int64_t>(word);
      labels.data()[i] = static_cast<std::int64_t>(word * 5 % 11 % 4);
    }
    const auto loss = nn::cross_entropy(net(ids), labels);
    loss.backward();
    optim::clip_grad_norm(opt.targets(), 1.0);
    opt.step();
    result.losses.push_back(static_cast<double>(loss.mean()));
  }
  result.hash = net.values_hash();
  return result;
}

template <typename T>
std::vector<run> on_ranks(int world) {
  std::vector<run> results(static_cast<std::size_t>(world));
  run_threads(world, [&](process_group& group) {
    results[static_cast<std::size_t>(group.rank())] = train<T>(group);
  });
  return results;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_model_in_16_bits_learns_what_one_in_32_learns) {
  const auto exact = on_ranks<float>(1).front().losses;
  BOOST_TEST(exact.front() > 1.0);
  BOOST_TEST(exact.back() < 0.2);
  const auto close = [&](const std::vector<double>& losses, double tolerance) {
    double furthest = 0;
    for (std::size_t i = 0; i < exact.size(); ++i)
      furthest = std::max(furthest, std::abs(losses[i] - exact[i]));
    BOOST_TEST(furthest < tolerance);
  };
  close(on_ranks<bfloat16>(1).front().losses, 0.05);
  close(on_ranks<float16>(1).front().losses, 0.01);
  // On the wire are 16 bits too, and all ranks end with the same.
  const auto ranks = on_ranks<bfloat16>(2);
  BOOST_TEST(ranks[0].hash == ranks[1].hash);
  BOOST_TEST(ranks[0].losses.back() < 0.2);
}
