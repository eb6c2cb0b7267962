// clip_grad_norm: gradients scaled so that their common norm is not above a limit.
//
// Source: PyTorch's torch.nn.utils.clip_grad_norm_, norm 2. Local: under data parallelism every
// rank has the same gradients after backward and finds the same norm; sharded gradients need a sum
// over the ranks.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/optim/target.hpp>

namespace parx::optim {

/// The Euclidean norm of all gradients together, 0 without any. Sums in double.
template <typename T>
[[nodiscard]] double grad_norm(const std::vector<target<T>>& targets) {
  // Several sums, because one would wait for each addition before it can begin the next.
  std::array<double, 8> squares{};
  for (const target<T>& one : targets) {
    const std::span<const T> g = one.grad();
    std::size_t i = 0;
    for (; i + squares.size() <= g.size(); i += squares.size()) {
      for (std::size_t lane = 0; lane < squares.size(); ++lane) {
        const double value = static_cast<double>(g[i + lane]);
        squares[lane] += value * value;
      }
    }
    for (; i < g.size(); ++i) squares[0] += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  }
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

/// Multiplies all gradients by max_norm / (norm + 1e-6) where that is below 1. Returns the norm
/// before, which is infinite or NaN when a gradient is. Throws usage_error unless max_norm is
/// positive.
template <typename T>
double clip_grad_norm(const std::vector<target<T>>& targets, double max_norm) {
  require(max_norm > 0, "clip_grad_norm: the limit must be positive, not {}", max_norm);
  const double norm = grad_norm(targets);
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) return norm;
  for (const target<T>& one : targets) {
    for (T& value : one.grad()) value *= static_cast<T>(factor);
  }
  return norm;
}
template <typename T>
double clip_grad_norm(const std::vector<parameter<T>>& parameters, double max_norm) {
  return clip_grad_norm(targets_of(parameters), max_norm);
}

}  // namespace parx::optim
