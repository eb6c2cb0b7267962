// What a comparison with PyTorch needs on this side: the inputs, and a look at its figures.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/tensor/tensor.hpp>

#include <nn/torch_oracle.hpp>

namespace parx_test {

/// The same exact numbers as grid() in torch_layers.py and torch_transformer.py.
[[nodiscard]] inline parx::tensor<float> grid(std::size_t k, const parx::shape& s) {
  auto values = parx::tensor<float>::empty(s);
  for (std::size_t i = 0; i < s.size(); ++i) {
    values.data()[i] = (static_cast<float>((i * 37 + k * 11) % 17) - 8.0F) / 16.0F;
  }
  return values;
}

/// `error` is relative for numbers above 1.
inline void check_close(const oracle_numbers& torch, const std::string& name,
                        std::span<const float> found, double error) {
  const std::vector<double>& expected = torch.at(name);
  BOOST_REQUIRE_EQUAL(expected.size(), found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    BOOST_TEST(std::abs(expected[i] - static_cast<double>(found[i])) <=
                   error * std::max(1.0, std::abs(expected[i])),
               name << ", element " << i << ": " << expected[i] << " and " << found[i]);
  }
}

}  // namespace parx_test
