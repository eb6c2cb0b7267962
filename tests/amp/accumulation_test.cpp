#include <parx/amp.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <parx/autograd.hpp>
#include <parx/comm.hpp>
#include <parx/comm/threads.hpp>
#include <parx/ddp.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using parx::tensor;

constexpr std::size_t rows = 18;

struct classifier : parx::nn::module<classifier> {
  parx::nn::linear<> first{6, 16};
  parx::nn::linear<> second{16, 4};
  parx::variable<float> forward(const parx::variable<float>& x) {
    return second(parx::gelu(first(x)));
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("first", first);
    visit("second", second);
  }
};

struct outcome {
  std::vector<float> values;
  std::vector<double> norms;  ///< before clipping, of each step
  double scale = 0;
  std::uint64_t skipped = 0;
};

// Five steps over one batch, which rank r of `world` sees as the micro-batches that end at `cuts`
// (global rows). Step 1 overflows float.
outcome train(parx::process_group& group, const std::vector<std::vector<std::size_t>>& cuts) {
  tensor<float> x = tensor<float>::empty({rows, 6});
  parx::random_stream(1, "x").uniform(x, -1.0F, 1.0F);
  tensor<std::int64_t> y = tensor<std::int64_t>::empty({rows});
  for (std::size_t i = 0; i < rows; ++i) {
    // Some rows are padding, which counts for nothing.
    y.data()[i] = i % 5 == 3 ? -100 : static_cast<std::int64_t>(i % 4);
  }
  classifier model;
  model.initialize(1);
  parx::ddp ddp{model, group};
  parx::optim::adamw<float> opt(model.parameters(), {.lr = 0.01});
  parx::amp::grad_scaler scaler({.init_scale = 1024, .growth_interval = 2});
  outcome result;
  const auto& mine = cuts[static_cast<std::size_t>(group.rank())];
  for (int step = 0; step < 5; ++step) {
    const auto micro_batch = [&](std::size_t i) {
      const auto logits = ddp(x.slice(0, mine[i], mine[i + 1]));
      auto loss = scaler.scale(parx::nn::cross_entropy(logits, y.slice(0, mine[i], mine[i + 1])));
      // The first micro-batch of one rank is enough.
      if (step == 1 && mine[i] == 0) loss.sum = loss.sum * 3e38F * 10.0F;
      loss.backward();
    };
    for (std::size_t i = 0; i + 2 < mine.size(); ++i) {
      const auto quiet = ddp.no_sync();
      micro_batch(i);
    }
    micro_batch(mine.size() - 2);
    scaler.unscale_(opt);
    result.norms.push_back(parx::optim::clip_grad_norm(model.parameters(), 0.2));
    scaler.step(opt);
    scaler.update();
  }
  for (const auto& p : model.parameters()) {
    result.values.insert(result.values.end(), p.value().begin(), p.value().end());
  }
  result.scale = scaler.get_scale();
  result.skipped = scaler.skipped_steps();
  return result;
}

std::vector<outcome> on_ranks(const std::vector<std::vector<std::size_t>>& cuts) {
  std::vector<outcome> results(cuts.size());
  parx::run_threads(static_cast<int>(cuts.size()), [&](parx::process_group& group) {
    results[static_cast<std::size_t>(group.rank())] = train(group, cuts);
  });
  return results;
}

}  // namespace

BOOST_AUTO_TEST_CASE(uneven_micro_batches_on_any_ranks_train_like_one_batch) {
  const outcome whole = on_ranks({{0, rows}}).front();
  BOOST_TEST(whole.skipped == 1U);
  BOOST_TEST(whole.scale == 1024);  // 1024, overflow: 512, two clean steps: 1024
  BOOST_TEST(whole.norms[0] > 0.2);  // clipping does something
  const std::vector<std::vector<std::vector<std::size_t>>> ways{
      {{0, 1, 7, rows}},
      {{0, 6, 12, rows}},
      {{0, 4, 5}, {5, 11, 17, rows}},
      {{0, 9}, {9, 10, rows}},
      // A rank with padding only in one micro-batch, and ranks with different numbers of them.
      {{0, 3, 4, 8}, {8, 9}, {9, 10, 13, 14, rows}}};
  for (const auto& cuts : ways) {
    for (const outcome& one : on_ranks(cuts)) {
      BOOST_TEST(one.skipped == whole.skipped);
      BOOST_TEST(one.scale == whole.scale);
      double worst = 0;
      for (std::size_t i = 0; i < whole.values.size(); ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(one.values[i] - whole.values[i])));
      }
      BOOST_TEST(worst < 2e-5, cuts.size() << " ranks: the weights differ by " << worst);
      for (std::size_t step = 0; step < whole.norms.size(); ++step) {
        if (step == 1) {
          BOOST_TEST(!std::isfinite(one.norms[step]));
        } else {
          BOOST_TEST(std::abs(one.norms[step] - whole.norms[step]) < 1e-4 * whole.norms[step]);
        }
      }
    }
  }
}
