// A model of equal layers one after the other, for tests that count bytes, waits or memory by
// layer.
#pragma once

#include <cstddef>
#include <vector>

#include <parx/autograd.hpp>
#include <parx/nn.hpp>

namespace stack {

/// relu(x W) with Width x Width weights, so a flat of Width * Width elements.
template <std::size_t Width>
struct layer : parx::nn::module<layer<Width>> {
  parx::nn::linear<> weights{Width, Width, {.bias = parx::nn::bias::none}};
  auto forward(const parx::variable<float>& x) { return parx::relu(weights(x)); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("weights", weights);
  }
};

template <typename Layer>
struct model : parx::nn::module<model<Layer>> {
  using value_type = float;
  std::vector<Layer> layers;

  explicit model(std::size_t count = 4) : layers(count) {}
  auto forward(parx::variable<float> x) {
    for (Layer& each : layers) x = each(x);
    return x;
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("layers", layers);
  }
};

}  // namespace stack
