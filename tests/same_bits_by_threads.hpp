// Computes the same with several numbers of threads and compares the bits.
#pragma once

#include <cstring>
#include <string_view>

#include <boost/test/unit_test.hpp>

#include <parx/core/parallel_for.hpp>
#include <parx/tensor.hpp>

template <typename T>
bool same_bits(const parx::tensor<T>& a, const parx::tensor<T>& b) {
  const auto x = a.contiguous(), y = b.contiguous();
  return x.shape() == y.shape() && std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

/// compute() is a tensor. Leaves one thread.
template <typename Compute>
void require_same_bits_by_threads(std::string_view what, Compute compute) {
  parx::set_num_threads(1);
  const auto alone = compute();
  for (const int threads : {2, 3, 8}) {
    parx::set_num_threads(threads);
    BOOST_TEST(same_bits(compute(), alone), what << " by " << threads << " threads");
  }
  parx::set_num_threads(1);
}
