// The speed of matrix products: every backend of gemm that this program was built with, on the
// shapes of the models, compared with the peak rate of the processor's multiply-adds.
//
//   parx-bench-gemm [seconds for each figure, default 0.3]
//
// One thread. Each figure is the median of many short batches, which alternate between the backends
// so that a disturbance hits all of them; the spread is that between the quartiles.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <parx/tensor/detail/gemm_eigen.hpp>
#include <parx/tensor/detail/instructions.hpp>
#include <parx/tensor/random.hpp>
#include <parx/tensor/tensor.hpp>
#ifdef BENCH_BLAS
#include <parx/tensor/detail/gemm_blas.hpp>
#endif
#ifdef BENCH_ONEDNN
#include <parx/tensor/detail/gemm_onednn.hpp>
#endif

namespace {

using parx::tensor;

using product = void (*)(bool, bool, std::size_t, std::size_t, std::size_t, float, const float*,
                         std::size_t, const float*, std::size_t, float, float*, std::size_t,
                         const float*);
struct backend {
  std::string_view name;
  product gemm;
};
constexpr std::array backends{
    backend{"eigen", &parx::detail::eigen::gemm<float>},
#ifdef BENCH_BLAS
    backend{"blas", &parx::detail::blas::gemm<float>},
#endif
#ifdef BENCH_ONEDNN
    backend{"onednn", &parx::detail::onednn::gemm<float>},
#endif
};

enum class layout { plain, weight, gradient };  // a b, a b^T (forward), a^T b (weight gradient)
struct size {
  std::size_t m, n, k;
  layout as = layout::plain;
  std::string_view what = "";
};
constexpr std::array sizes{
    size{8, 8, 8},
    size{16, 16, 16},
    size{32, 32, 32},
    size{128, 10, 64, layout::weight, "classifier"},
    size{128, 128, 32, layout::weight, "attention scores"},
    size{128, 32, 128, layout::plain, "attention values"},
    size{32, 784, 9, layout::plain, "convolution 1 -> 32"},
    size{64, 196, 288, layout::plain, "convolution 32 -> 64"},
    size{64, 288, 784, layout::weight, "its weight gradient"},
    size{1024, 64, 64},
    size{1024, 256, 64, layout::weight},
    size{1024, 64, 256, layout::weight},
    size{2048, 64, 64},
    size{128, 1024, 784, layout::weight, "MLP forward"},
    size{1024, 784, 128, layout::gradient, "MLP weight gradient"},
    size{128, 10, 1024, layout::weight, "MLP output"},
    size{1024, 1024, 1024},
    size{2048, 2048, 2048},
};

class stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(clock::now() - start_).count();
  }

 private:
  using clock = std::chrono::steady_clock;
  clock::time_point start_ = clock::now();
};

#if defined(__AVX512F__)
constexpr std::size_t lanes = 16;
#elif defined(__AVX__)
constexpr std::size_t lanes = 8;
#else
constexpr std::size_t lanes = 4;
#endif
using vector [[gnu::vector_size(lanes * sizeof(float))]] = float;

[[gnu::always_inline]] inline void hold_in_register(vector& v) { __asm__ volatile("" : "+x"(v)); }

/// Enough independent chains to hide the latency of a multiply-add; each stays in its register.
template <std::size_t... Chain>
double multiply_add_rate(std::size_t rounds, std::index_sequence<Chain...> /*chains*/) {
  const vector factor = vector{} + 0.999F, addend = vector{} + 0.001F;
  std::tuple<decltype(static_cast<void>(Chain), vector{})...> sums{};
  const stopwatch watch;
  std::apply(
      [&](auto... sum) {
        for (std::size_t i = 0; i < rounds; ++i) {
          ((sum = sum * factor + addend), ...);
          (hold_in_register(sum), ...);
        }
      },
      sums);
  return static_cast<double>(2 * lanes * sizeof...(Chain) * rounds) / watch.seconds() * 1e-9;
}

/// GFLOP/s of multiply-adds in registers, with the widest vectors that were compiled in.
double multiply_add_peak() {
  double best = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    best = std::max(best, multiply_add_rate(2'000'000, std::make_index_sequence<12>{}));
  }
  return best;
}

struct figure {
  double low, median, high;  // GFLOP/s
};

std::vector<figure> measure(const size& s, double seconds) {
  const auto filled = [](std::size_t count, std::string_view name) {
    const auto values = tensor<float>::empty({count});
    parx::random_stream(1, name).uniform(values, -1.0F, 1.0F);
    return values;
  };
  const auto a = filled(s.m * s.k, "a"), b = filled(s.k * s.n, "b");
  const auto c = tensor<float>::empty({s.m * s.n});
  const bool a_transposed = s.as == layout::gradient, b_transposed = s.as == layout::weight;
  const auto run = [&](const backend& by) {
    by.gemm(a_transposed, b_transposed, s.m, s.n, s.k, 1.0F, a.data(), a_transposed ? s.m : s.k,
            b.data(), b_transposed ? s.k : s.n, 0.0F, c.data(), s.n, nullptr);
  };
  const double work = 2.0 * static_cast<double>(s.m * s.n * s.k);
  // At least 20 us for each batch, so that reading the clock does not matter.
  const auto batch = static_cast<std::size_t>(std::max(1.0, 20e-6 * 50e9 / work));
  std::vector<std::vector<double>> rates(backends.size());
  for (const backend& by : backends) run(by);
  const stopwatch whole;
  while (whole.seconds() < seconds * static_cast<double>(backends.size()) || rates[0].size() < 5) {
    for (std::size_t i = 0; i < backends.size(); ++i) {
      run(backends[i]);
      const stopwatch watch;
      for (std::size_t j = 0; j < batch; ++j) run(backends[i]);
      rates[i].push_back(work * static_cast<double>(batch) / watch.seconds() * 1e-9);
    }
  }
  std::vector<figure> figures;
  for (auto& each : rates) {
    std::sort(each.begin(), each.end());
    figures.push_back(
        {each[each.size() / 4], each[each.size() / 2], each[each.size() * 3 / 4]});
  }
  return figures;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::strtod(argv[1], nullptr) : 0.3;
  using parx::detail::compiled_level;
  fmt::print("compiled with {}, the processor has {}; multiply-adds alone: {:.0f} GFLOP/s\n",
             name_of(compiled_level), name_of(parx::detail::processor_level()),
             multiply_add_peak());
  fmt::print("{:>18}", "GFLOP/s   m,n,k");
  for (const backend& each : backends) fmt::print("{:>24}", each.name);
  fmt::print("\n");
  for (const size& s : sizes) {
    fmt::print("{:>18}", fmt::format("{}x{}x{}", s.m, s.n, s.k));
    for (const figure& f : measure(s, seconds)) {
      fmt::print("{:>24}", fmt::format("{:.1f} [{:.1f}..{:.1f}]", f.median, f.low, f.high));
    }
    fmt::print("  {}\n", s.what);
  }
}
