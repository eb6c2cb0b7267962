// What the tests of operations share: inputs from a normal distribution, and the check of
// gradients.
#pragma once

#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/autograd/gradcheck.hpp>
#include <parx/tensor/random.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx_test {

/// Of mean 0 and deviation 1; other names are other numbers.
template <typename T = double>
[[nodiscard]] parx::tensor<T> normal(const parx::shape& s, const char* name) {
  const auto t = parx::tensor<T>::empty(s);
  parx::random_stream(3, name).normal(t, T(0), T(1));
  return t;
}

/// The gradients of f(variables) are those of finite differences.
template <typename Function>
void check(Function&& f, std::vector<parx::tensor<double>> inputs) {
  const auto result = parx::gradcheck(f, std::move(inputs));
  BOOST_TEST(result.passed, result.report);
}

}  // namespace parx_test
