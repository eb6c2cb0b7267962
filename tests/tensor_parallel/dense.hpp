// Integer-valued tensors, whose sums are exact in any order, and dense arithmetic by plain loops.
#pragma once

#include <cstddef>
#include <cstdint>

#include <parx/tensor.hpp>

/// Integers from -range to range, a function of (shape, seed).
inline parx::tensor<float> integers(const parx::shape& s, std::uint64_t seed, int range = 3) {
  const auto t = parx::tensor<float>::empty(s);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
  for (float& value : t) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const auto span = 2 * static_cast<std::uint64_t>(range) + 1;
    value = static_cast<float>(static_cast<int>((state >> 33) % span) - range);
  }
  return t;
}

/// a (m, k) b (k, n).
inline parx::tensor<float> product(const parx::tensor<float>& a, const parx::tensor<float>& b) {
  const auto c = parx::tensor<float>::zeros({a.extent(0), b.extent(1)});
  for (std::size_t i = 0; i < a.extent(0); ++i) {
    for (std::size_t j = 0; j < b.extent(1); ++j) {
      for (std::size_t k = 0; k < a.extent(1); ++k) c.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return c;
}

inline parx::tensor<float> plus(const parx::tensor<float>& a, const parx::tensor<float>& b) {
  return parx::map([](float x, float y) { return x + y; }, a, b);
}

inline bool equal(const parx::tensor<float>& a, const parx::tensor<float>& b) {
  if (a.shape() != b.shape()) return false;
  const auto x = a.contiguous(), y = b.contiguous();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x.data()[i] != y.data()[i]) return false;
  }
  return true;
}

/// Chunk `rank` of `ranks`: the first chunks have one index more.
inline parx::tensor<float> chunk_of(const parx::tensor<float>& whole, int dim, int rank,
                                    int ranks) {
  const std::size_t extent = whole.extent(dim), n = static_cast<std::size_t>(ranks);
  const auto begin = [&](std::size_t r) { return r * (extent / n) + std::min(r, extent % n); };
  const auto r = static_cast<std::size_t>(rank);
  return whole.slice(dim, begin(r), begin(r + 1)).contiguous();
}
