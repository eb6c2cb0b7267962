// A model of two blocks that has what is awkward to shard (one weight in two places, running
// statistics, random numbers), and what tests of fsdp do with it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/autograd.hpp>
#include <parx/fsdp.hpp>
#include <parx/nn.hpp>

#include <comm/jobs.hpp>

namespace blocks {

using parx::tensor;
using variable = parx::variable<float>;

// A unit with running statistics, random numbers, and one weight in two places.
struct block : parx::nn::module<block> {
  using value_type = float;
  parx::parameter<float> shared{"shared", {6, 6}};
  parx::nn::batch_norm<> norm{6};
  parx::nn::dropout drop{0.25};
  std::function<void()> before = [] {};

  variable forward(const variable& x) {
    before();
    return x + drop(norm(parx::linear(parx::relu(parx::linear(x, shared, {})), shared, {})));
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("a", shared, parx::nn::init::normal(0, 0.3));
    visit("b", shared, parx::nn::init::normal(0, 0.3));
    visit("norm", norm);
    visit("drop", drop);
  }
};
struct model : parx::nn::module<model> {
  using value_type = float;
  block first, second;
  parx::nn::linear<> head{6, 3};
  bool twice = false;

  variable forward(const variable& x) {
    const variable y = second(first(x));
    return head(twice ? first(y) : y);
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("first", first);
    visit("second", second);
    visit("head", head);
  }
};

inline tensor<float> samples(int rank, int step) {
  tensor<float> x = tensor<float>::empty({4, 6});
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto k = static_cast<int>(i) * 7 + rank * 13 + step * 5;
    x.data()[i] = static_cast<float>(k % 11 - 5) * 0.37F;
  }
  return x;
}
inline variable loss_of(const variable& y, const tensor<float>& x) {
  const variable difference = y - x.slice(1, 0, 3);
  return mean(difference * difference);
}

/// What each rank threw in body(fsdp, model, group).
template <typename Model = model, typename Body>
std::vector<std::string> failures_of(parx::fsdp_options options, Body body, int world = 2) {
  return jobs::run_collecting(jobs::kind::inproc, world, [&](parx::process_group& group) {
    Model m;
    parx::fsdp fsdp{m, group, options};
    body(fsdp, m, group);
  });
}

/// Of the model in units, which are gathered.
inline parx::fsdp_options gathered_blocks(int stage = 3) {
  return {.stage = stage, .units = parx::by_type<block>, .values = parx::value_storage::gathered};
}

}  // namespace blocks
