// gradcheck: compares the gradients of an operation with central differences, in double.
//
//   const auto result = gradcheck([](const auto& x) { return matmul(x[0], x[1]); }, {a, b});
//   if (!result.passed) std::puts(result.report.c_str());
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <parx/autograd/variable.hpp>
#include <parx/core/formatted.hpp>
#include <parx/tensor/random.hpp>

namespace parx::inline PARX_ABI {

struct gradcheck_options {
  double step = 1e-5;       ///< of the differences
  double tolerance = 1e-7;  ///< largest |difference| / max(1, |gradient|)
};

/// What gradcheck found.
struct gradcheck_result {
  bool passed = true;
  double worst = 0;    ///< largest |difference| / max(1, |gradient|)
  std::string report;  ///< a sentence about the worst element
};

/// `f` maps a vector of variables to a variable of any shape; it must be smooth around `inputs` and
/// deterministic. Every element of every input is checked twice: after a first contribution to the
/// gradient, which overwrites, and after a second one, which adds.
template <typename Function>
[[nodiscard]] gradcheck_result gradcheck(Function&& f, std::vector<tensor<double>> inputs,
                                         const gradcheck_options& options = {}) {
  for (tensor<double>& input : inputs) input = input.clone();
  const std::vector<variable<double>> constants(inputs.begin(), inputs.end());
  const tensor<double> direction = tensor<double>::empty(f(constants).shape());
  random_stream(1, "gradcheck").uniform(direction, -1.0, 1.0);
  const auto along_direction = [&] {
    const tensor<double> y = f(constants).value().contiguous();
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y.data()[i] * direction.data()[i];
    return sum;
  };

  std::vector<variable<double>> leaves;
  for (const tensor<double>& input : inputs) leaves.emplace_back(input, gradient::wanted);
  f(leaves).backward_from(direction);
  std::vector<tensor<double>> first;
  for (const variable<double>& leaf : leaves)
    first.push_back(leaf.grad().defined() ? leaf.grad().clone() : tensor<double>());
  f(leaves).backward_from(direction);

  gradcheck_result result;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    for (std::size_t i = 0; i < inputs[k].size(); ++i) {
      double& element = inputs[k].data()[i];
      const double original = element;
      element = original + options.step;
      const double above = along_direction();
      element = original - options.step;
      const double below = along_direction();
      element = original;
      const double expected = (above - below) / (2 * options.step);
      const double once = first[k].defined() ? first[k].data()[i] : 0;
      const double twice = leaves[k].grad().defined() ? leaves[k].grad().data()[i] : 0;
      const double difference =
          std::max(std::abs(once - expected), std::abs(twice - 2 * expected)) /
          std::max(1.0, std::abs(expected));
      if (difference <= result.worst) continue;
      result.worst = difference;
      result.report = formatted(
          "input {}, element {}: backward says {:.10g} (and {:.10g} after two passes), differences "
          "say {:.10g}",
          k, i, once, twice, expected);
    }
  }
  result.passed = result.worst <= options.tolerance;
  return result;
}

}  // namespace parx
