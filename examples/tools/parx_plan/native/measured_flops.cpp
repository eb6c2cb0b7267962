#include "tools/parx_plan/native/measured_flops.hpp"

#include <chrono>
#include <cstddef>

#include <parx/core/compiled_for.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/tensor.hpp>

namespace examples {

constinit const char* const needed_by_measured_flops = parx::detail::compiled_for;

double measured_flops() {
  parx::set_num_threads(1);
  constexpr std::size_t n = 512;
  const auto a = parx::tensor<float>::full({n, n}, 1), b = parx::tensor<float>::full({n, n}, 2);
  static_cast<void>(parx::matmul(a, b));
  const auto begin = std::chrono::steady_clock::now();
  std::chrono::duration<double> passed{};
  double operations = 0;
  while (passed.count() < 0.1) {
    static_cast<void>(parx::matmul(a, b));
    operations += 2.0 * n * n * n;
    passed = std::chrono::steady_clock::now() - begin;
  }
  return operations / passed.count();
}

}  // namespace examples
