// Local SGD and DiLoCo against their formulas, written out over all ranks in one process.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include <ddp/ranks.hpp>

#include <parx/ddp/diloco.hpp>
#include <parx/ddp/local_sgd.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using parx::tensor;
namespace nn = parx::nn;

constexpr int steps = 12;
constexpr std::size_t inputs = 3;

/// Rank `rank`'s batch of step `step`.
tensor<float> batch_of(int rank, int step) {
  auto x = tensor<float>::empty({4, inputs});
  parx::random_stream(static_cast<std::uint64_t>(100 * rank + step), "batch").normal(x, 0.0F, 1.0F);
  return x;
}
/// A model whose values depend on `salt`.
nn::linear<float> model_of(int salt) {
  nn::linear<float> model{inputs, 2};
  model.initialize(static_cast<std::uint64_t>(salt));
  return model;
}
void train_step(nn::linear<float>& model, parx::optim::sgd<float>& opt, int rank, int step) {
  const auto y = model(batch_of(rank, step));
  parx::mean(y * y).backward();
  opt.step();
}
std::vector<float> values_of(nn::linear<float>& model) {
  std::vector<float> all;
  for (const auto& each : model.parameters()) {
    all.insert(all.end(), each.value().begin(), each.value().end());
  }
  return all;
}
void set_values(nn::linear<float>& model, const std::vector<double>& values) {
  std::size_t at = 0;
  for (const auto& each : model.parameters()) {
    for (float& value : each.value()) value = static_cast<float>(values[at++]);
  }
}

/// The formulas: local steps of each rank, and every `every` steps the outer one.
std::vector<double> by_the_formula(int world, int every, double lr, double momentum) {
  std::vector<nn::linear<float>> models;
  for (int rank = 0; rank < world; ++rank) models.push_back(model_of(0));
  std::vector<parx::optim::sgd<float>> inner;
  for (auto& each : models)
    inner.emplace_back(each.parameters(), parx::optim::sgd_options{.lr = 0.1});
  const auto start = values_of(models[0]);
  std::vector<double> outer(start.begin(), start.end()), v(start.size());
  for (int step = 0; step < steps; ++step) {
    for (int rank = 0; rank < world; ++rank) {
      train_step(models[static_cast<std::size_t>(rank)], inner[static_cast<std::size_t>(rank)],
                 rank, step);
    }
    if ((step + 1) % every != 0) continue;
    std::vector<double> g(outer.size());
    for (auto& each : models) {
      const auto values = values_of(each);
      for (std::size_t i = 0; i < g.size(); ++i) g[i] += (outer[i] - values[i]) / world;
    }
    for (std::size_t i = 0; i < g.size(); ++i) {
      v[i] = momentum * v[i] + g[i];
      outer[i] -= lr * (g[i] + momentum * v[i]);
    }
    for (auto& each : models) set_values(each, outer);
  }
  return outer;
}

/// Each rank's values after `steps` steps; the ranks begin with different ones.
template <typename Make>
std::vector<std::vector<float>> trained(int world, Make make) {
  return on_ranks(world, [&](parx::process_group& group) {
    auto model = model_of(group.rank());
    auto sync = make(model, group);
    parx::optim::sgd<float> opt{model.parameters(), {.lr = 0.1}};
    for (int step = 0; step < steps; ++step) {
      train_step(model, opt, group.rank(), step);
      sync.step();
    }
    return values_of(model);
  });
}

void check_near(const std::vector<std::vector<float>>& all, const std::vector<double>& wanted) {
  for (const auto& values : all) {
    BOOST_TEST(values == all.front());  // the same bits
    BOOST_REQUIRE(values.size() == wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      BOOST_TEST(std::abs(static_cast<double>(values[i]) - wanted[i]) < 2e-6);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(local_sgd_averages_the_parameters_every_few_steps) {
  for (const int every : {1, 3, 4}) {
    const auto all = trained(3, [&](auto& model, auto& group) {
      return parx::local_sgd{
          model.parameters(), group, {.sync_every = static_cast<std::uint64_t>(every)}};
    });
    check_near(all, by_the_formula(3, every, 1, 0));
  }
}

BOOST_AUTO_TEST_CASE(diloco_makes_steps_with_nesterovs_momentum_on_the_mean_difference) {
  for (const int every : {1, 3, 6}) {
    const auto all = trained(2, [&](auto& model, auto& group) {
      return parx::diloco{
          model.parameters(),
          group,
          {.sync_every = static_cast<std::uint64_t>(every), .lr = 0.7, .momentum = 0.9}};
    });
    check_near(all, by_the_formula(2, every, 0.7, 0.9));
  }
}

BOOST_AUTO_TEST_CASE(warm_up_steps_are_averaged_each) {
  const auto synced = on_ranks(2, [](parx::process_group& group) {
    auto model = model_of(0);
    parx::local_sgd average{model.parameters(), group, {.sync_every = 4, .warmup_steps = 2}};
    std::string text;
    for (int step = 0; step < 10; ++step) text += average.step() ? 'x' : '.';
    return text;
  });
  BOOST_TEST(synced[0] == "xx...x...x");
}

BOOST_AUTO_TEST_CASE(synchronize_makes_ranks_equal_between_two_averages) {
  const auto all = on_ranks(2, [](parx::process_group& group) {
    auto model = model_of(0);
    parx::local_sgd average{model.parameters(), group, {.sync_every = 100}};
    parx::optim::sgd<float> opt{model.parameters(), {.lr = 0.1}};
    train_step(model, opt, group.rank(), 0);
    average.step();
    average.synchronize();
    const auto once = values_of(model);
    average.synchronize();  // nothing to do
    return std::pair(once, values_of(model));
  });
  BOOST_TEST(all[0].first == all[1].first);
  BOOST_TEST(all[0].first == all[0].second);
}

BOOST_AUTO_TEST_CASE(options_that_cannot_be_meant_are_refused) {
  on_ranks(1, [](parx::process_group& group) {
    auto model = model_of(0);
    const auto refuses = [&](auto make, const char* says) {
      BOOST_CHECK_EXCEPTION(make(), parx::usage_error, [&](const auto& error) {
        return std::string(error.what()).find(says) != std::string::npos;
      });
    };
    refuses(
        [&] {
          parx::local_sgd{model.parameters(), group, {.sync_every = 0}};
        },
        "sync_every is 0");
    refuses([&] { parx::diloco{model.parameters(), group, {.lr = -1}}; }, "must not be negative");
    refuses(
        [&] {
          parx::diloco<float>{std::vector<parx::parameter<float>>(), group};
        },
        "no parameters");
    return 0;
  });
}
