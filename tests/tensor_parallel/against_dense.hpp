// A model whose layers are cut over ranks, compared with the same model on one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <ddp/ranks.hpp>

#include <parx/nn/loss.hpp>
#include <parx/tensor_parallel/parallelize.hpp>

/// (2, positions) of numbers below `words`.
inline parx::tensor<std::int64_t> tokens(std::size_t words, std::size_t positions,
                                         std::size_t step) {
  const auto ids = parx::tensor<std::int64_t>::empty({2, positions});
  std::size_t next = 1;
  for (auto& id : ids) {
    next = (next * step + 5) % words;
    id = static_cast<std::int64_t>(next);
  }
  return ids;
}

/// Values and gradients of whole parameters, by path.
struct dense_run {
  float loss = 0;
  std::map<std::string, std::vector<float>> values, gradients;
};

template <typename Model, typename Loss>
dense_run run_dense(Model& model, Loss loss_of) {
  dense_run run;
  model.initialize(7);
  const auto loss = loss_of(model);
  loss.backward();
  run.loss = loss.mean();
  model.for_each_parameter([&](const std::string& path, auto& p) {
    run.values[path] = {p.value().begin(), p.value().end()};
    const auto grad = p.grad();
    run.gradients[path] = {grad.begin(), grad.end()};
  });
  return run;
}

/// What differs from the dense run on this rank, "" for nothing.
template <typename Model>
std::string differences(Model& model, float loss, const dense_run& dense, float tolerance) {
  std::string wrong;
  const auto near = [&](float a, float b) {
    return std::abs(a - b) <= tolerance * std::max(1.0F, std::abs(b));
  };
  if (!near(loss, dense.loss)) wrong += fmt::format("loss {} for {}; ", loss, dense.loss);
  model.for_each_parameter([&](const std::string& path, auto& p) {
    const auto& values = dense.values.at(path);
    const auto& gradients = dense.gradients.at(path);
    if (!p.has_grad()) {
      wrong += path + " has no gradient; ";
      return;
    }
    const auto grad = p.grad();
    std::size_t bad = 0, moved = 0;
    float worst = 0;
    p.spec().for_each_run([&](const parx::shard_run& run) {
      for (std::size_t i = 0; i < run.length; ++i) {
        if (p.value().data()[run.local + i] != values[run.global + i]) ++moved;
        const float g = grad.data()[run.local + i], want = gradients[run.global + i];
        if (!near(g, want)) ++bad;
        worst = std::max(worst, std::abs(g - want));
      }
    });
    if (moved > 0) wrong += fmt::format("{}: {} first values differ; ", path, moved);
    if (bad > 0)
      wrong += fmt::format("{}: {} of {} gradients, by {}; ", path, bad, p.size(), worst);
  });
  return wrong;
}

/// make() gives the model, plan_of(model) its plan, loss_of(model) its loss, cut or not.
template <typename Make, typename Plan, typename Loss>
void require_equal_to_dense(std::vector<int> worlds, Make make, Plan plan_of, Loss loss_of,
                            float tolerance = 1e-5F) {
  auto whole = make();
  const dense_run dense = run_dense(whole, loss_of);
  for (const int world : worlds) {
    const auto wrong = on_ranks(world, [&](parx::process_group& group) {
      auto model = make();
      const auto tp = parx::parallelize(model, group, plan_of(model));
      model.initialize(7);
      const auto loss = loss_of(model);
      loss.backward();
      return differences(model, loss.mean(), dense, tolerance);
    });
    for (const std::string& each : wrong) BOOST_TEST(each == "", world << " ranks: " << each);
  }
}
