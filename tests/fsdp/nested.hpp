// A model of units within units, for tests of fsdp.
#pragma once

#include <cstddef>
#include <vector>

#include <parx/autograd.hpp>
#include <parx/nn.hpp>

namespace nested {

using parx::tensor;
using variable = parx::variable<float>;

// A unit with another one within it, which it gives one of its own parameters to.
struct inner : parx::nn::module<inner> {
  parx::nn::linear<> second{5, 6};
  variable forward(const variable& x, const variable& scale) { return second(x) * scale; }
  template <typename Visit>
  void members(Visit& visit) {
    visit("second", second);
  }
};
struct block : parx::nn::module<block> {
  using value_type = float;
  parx::nn::linear<> first{6, 5};
  inner within;
  parx::parameter<float> scale{"scale", {6}};
  parx::parameter<float> empty{"empty", {0, 3}};
  variable forward(const variable& x) { return x + within(parx::relu(first(x)), scale); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("first", first);
    visit("within", within);
    visit("scale", scale, parx::nn::init::constant(0.5));
    visit("empty", empty, parx::nn::init::constant(0));
  }
};
struct model : parx::nn::module<model> {
  using value_type = float;
  std::vector<block> blocks;
  parx::nn::linear<> spare{6, 6};  // used on request only
  parx::nn::linear<> head{6, 3};
  bool use_spare = false;
  bool recompute = false;

  model() {
    for (int i = 0; i < 3; ++i) blocks.emplace_back();
  }
  variable forward(const variable& x) { return head(encode(x)); }
  variable encode(const variable& x) {
    variable y = x;
    for (block& each : blocks) y = recompute ? parx::checkpoint(each, y) : each(y);
    return use_spare ? spare(y) : y;
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("blocks", blocks);
    visit("spare", spare);
    visit("head", head);
  }
};

inline tensor<float> samples(int rank, int step, std::size_t rows = 4) {
  tensor<float> x = tensor<float>::empty({rows, 6});
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto k = static_cast<int>(i) * 7 + rank * 13 + step * 5;
    x.data()[i] = static_cast<float>(k % 11 - 5) * 0.37F;
  }
  return x;
}

}  // namespace nested
