// The speed of matrix products: parx's own, and Eigen, BLAS and oneDNN as far as this program was
// built with them, on the products of a training step of parx-bench-train's models, compared with
// the peak rate of the processor's multiply-adds. Beside them parx's products of bfloat16, with
// operands that are floats ("bf16") and that are bfloat16 already ("bf16, kept"), and oneDNN's of
// the latter. PARX_BF16=dot or wide chooses by what parx computes them.
//
//   parx-bench-gemm [seconds for each figure, default 0.3]
//
// OMP_NUM_THREADS threads, one unless it is set. Each figure is the median of many short batches,
// which alternate between the libraries so that a disturbance hits all of them; the spread is that
// between the quartiles. At the end, for each model: the products of a step in ms, parx's rate over
// that of the best of the others in float32, and that of its bfloat16 over that of its float32
// (geometric means).
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>

#include <parx/tensor/detail/instructions.hpp>
#include <parx/tensor/gemm/bf16_processor.hpp>
#include <parx/tensor/matmul.hpp>
#include <parx/tensor/random.hpp>
#include <parx/tensor/tensor.hpp>
#include <parx/types/half.hpp>
#ifdef BENCH_EIGEN
#include <Eigen/Core>
#endif
#ifdef BENCH_BLAS
#include <cblas.h>
#endif
#ifdef BENCH_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace {

using parx::op, parx::tensor;

/// c = op(a) op(b) + beta c, beta 0 or 1.
struct call {
  op a_as, b_as;
  std::size_t m, n, k;
  const float* a;
  const float* b;
  const parx::bfloat16* half_a;  ///< the same values, rounded
  const parx::bfloat16* half_b;
  float* c;
  float beta;

  [[nodiscard]] std::size_t lda() const { return a_as == op::plain ? k : m; }
  [[nodiscard]] std::size_t ldb() const { return b_as == op::plain ? n : k; }
};

/// A product that is ready to be computed again and again.
using multiplication = std::function<void()>;

/// That of a function which needs no preparation.
template <void (*Multiply)(const call&)>
multiplication of(const call& x) {
  return [x] { Multiply(x); };
}

void by_parx(const call& x) {
  parx::gemm(x.a_as, x.b_as, x.m, x.n, x.k, 1.0F, x.a, x.lda(), x.b, x.ldb(), x.beta, x.c, x.n);
}
void by_parx_bf16(const call& x) {
  parx::bfloat16_gemm(x.a_as, x.b_as, x.m, x.n, x.k, 1.0F, x.a, x.lda(), x.b, x.ldb(), x.beta, x.c,
                      x.n);
}
void by_parx_kept(const call& x) {
  parx::bfloat16_gemm(x.a_as, x.b_as, x.m, x.n, x.k, 1.0F, x.half_a, x.lda(), x.half_b, x.ldb(),
                      x.beta, x.c, x.n);
}
#ifdef BENCH_EIGEN
void by_eigen(const call& x) {
  using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto map = [](const float* data, std::size_t rows, std::size_t columns) {
    return Eigen::Map<const matrix>(data, static_cast<Eigen::Index>(rows),
                                    static_cast<Eigen::Index>(columns));
  };
  const auto a = x.a_as == op::plain ? map(x.a, x.m, x.k) : map(x.a, x.k, x.m);
  const auto b = x.b_as == op::plain ? map(x.b, x.k, x.n) : map(x.b, x.n, x.k);
  Eigen::Map<matrix> c(x.c, static_cast<Eigen::Index>(x.m), static_cast<Eigen::Index>(x.n));
  const auto multiply = [&](const auto& left, const auto& right) {
    if (x.beta == 0) c.noalias() = left * right;
    else c.noalias() += left * right;
  };
  if (x.a_as == op::plain && x.b_as == op::plain) multiply(a, b);
  if (x.a_as == op::plain && x.b_as != op::plain) multiply(a, b.transpose());
  if (x.a_as != op::plain && x.b_as == op::plain) multiply(a.transpose(), b);
  if (x.a_as != op::plain && x.b_as != op::plain) multiply(a.transpose(), b.transpose());
}
#endif
#ifdef BENCH_BLAS
void by_blas(const call& x) {
  const auto as = [](op o) { return o == op::plain ? CblasNoTrans : CblasTrans; };
  const auto number = [](std::size_t value) { return static_cast<int>(value); };
  cblas_sgemm(CblasRowMajor, as(x.a_as), as(x.b_as), number(x.m), number(x.n), number(x.k), 1.0F,
              x.a, number(x.lda()), x.b, number(x.ldb()), x.beta, x.c, number(x.n));
}
#endif
#ifdef BENCH_ONEDNN
void by_onednn(const call& x) {
  const auto as = [](op o) { return o == op::plain ? 'N' : 'T'; };
  const auto number = [](std::size_t value) { return static_cast<dnnl_dim_t>(value); };
  dnnl_sgemm(as(x.a_as), as(x.b_as), number(x.m), number(x.n), number(x.k), 1.0F, x.a,
             number(x.lda()), x.b, number(x.ldb()), x.beta, x.c, number(x.n));
}
/// Empty where oneDNN has no products of bfloat16 on this processor.
multiplication by_onednn_bf16(const call& x) {
  using dnnl::memory;
  const auto number = [](std::size_t value) { return static_cast<memory::dim>(value); };
  const auto matrix = [&](std::size_t rows, std::size_t columns, op as, memory::data_type type) {
    return memory::desc(
        {number(rows), number(columns)}, type,
        as == op::plain ? memory::dims{number(columns), 1} : memory::dims{1, number(rows)});
  };
  const memory::desc a = matrix(x.m, x.k, x.a_as, memory::data_type::bf16);
  const memory::desc b = matrix(x.k, x.n, x.b_as, memory::data_type::bf16);
  const memory::desc c = matrix(x.m, x.n, op::plain, memory::data_type::f32);
  dnnl::primitive_attr then;
  if (x.beta != 0) {
    dnnl::post_ops sum;
    sum.append_sum(x.beta);
    then.set_post_ops(sum);
  }
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  try {
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul product(dnnl::matmul::primitive_desc(engine, a, b, c, then));
#else
    const dnnl::matmul product(
        dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), then, engine));
#endif
    const auto at = [&](const memory::desc& of, const void* data) {
      return memory(of, engine, const_cast<void*>(data));
    };
    return [product, stream = dnnl::stream(engine),
            operands = std::unordered_map<int, memory>{{DNNL_ARG_SRC, at(a, x.half_a)},
                                                       {DNNL_ARG_WEIGHTS, at(b, x.half_b)},
                                                       {DNNL_ARG_DST, at(c, x.c)}}]() mutable {
      product.execute(stream, operands);
      stream.wait();
    };
  } catch (const dnnl::error&) {
    return {};
  }
}
#endif

enum class products { of_float32, of_bfloat16 };
struct library {
  std::string_view name;
  multiplication (*prepare)(const call&);
  products type = products::of_float32;
};
constexpr std::array libraries{
    library{"parx", &of<by_parx>},
    library{"parx bf16", &of<by_parx_bf16>, products::of_bfloat16},
    library{"parx bf16, kept", &of<by_parx_kept>, products::of_bfloat16},
#ifdef BENCH_EIGEN
    library{"Eigen", &of<by_eigen>},
#endif
#ifdef BENCH_BLAS
    library{"BLAS", &of<by_blas>},
#endif
#ifdef BENCH_ONEDNN
    library{"oneDNN", &of<by_onednn>},
    library{"oneDNN bf16", &by_onednn_bf16, products::of_bfloat16},
#endif
};

struct size {
  std::string_view model;  ///< with which the times are added up
  op a_as, b_as;
  std::size_t m, n, k;
  float beta;
  int calls;  ///< in a step
  std::string_view what = "";
};
constexpr op N = op::plain, T = op::transposed;
constexpr std::array sizes{
    size{"gpt", N, N, 1024, 384, 128, 0, 4, "qkv"},
    size{"gpt", N, N, 1024, 128, 128, 0, 4, "attention's output"},
    size{"gpt", N, N, 1024, 512, 128, 0, 4, "mlp up"},
    size{"gpt", N, N, 1024, 128, 512, 0, 4, "mlp down"},
    size{"gpt", N, T, 1024, 256, 128, 0, 1, "vocabulary"},
    size{"gpt", T, N, 128, 384, 1024, 0, 4, "weight gradient"},
    size{"gpt", T, N, 128, 128, 1024, 0, 4, ""},
    size{"gpt", T, N, 128, 512, 1024, 0, 4, ""},
    size{"gpt", T, N, 512, 128, 1024, 0, 4, ""},
    size{"gpt", T, N, 256, 128, 1024, 0, 1, ""},
    size{"gpt", N, T, 1024, 128, 384, 0, 4, "input gradient"},
    size{"gpt", N, T, 1024, 128, 128, 0, 4, ""},
    size{"gpt", N, T, 1024, 128, 512, 0, 4, ""},
    size{"gpt", N, T, 1024, 512, 128, 0, 4, ""},
    size{"gpt", N, N, 1024, 128, 256, 0, 1, ""},
    size{"gpt", N, T, 32, 32, 32, 0, 384, "attention: scores, dP"},
    size{"gpt", N, T, 32, 64, 32, 0, 384, ""},
    size{"gpt", N, T, 32, 96, 32, 0, 384, ""},
    size{"gpt", N, T, 32, 128, 32, 0, 384, ""},
    size{"gpt", N, N, 32, 32, 32, 0, 256, "values, dQ"},
    size{"gpt", N, N, 32, 32, 64, 0, 256, ""},
    size{"gpt", N, N, 32, 32, 96, 0, 256, ""},
    size{"gpt", N, N, 32, 32, 128, 0, 256, ""},
    size{"gpt", T, N, 32, 32, 32, 1, 256, "dV, dK"},
    size{"gpt", T, N, 64, 32, 32, 1, 256, ""},
    size{"gpt", T, N, 96, 32, 32, 1, 256, ""},
    size{"gpt", T, N, 128, 32, 32, 1, 256, ""},
    size{"gpt512", N, N, 1024, 1536, 512, 0, 4, "qkv"},
    size{"gpt512", N, N, 1024, 512, 512, 0, 4, "attention's output"},
    size{"gpt512", N, N, 1024, 2048, 512, 0, 4, "mlp up"},
    size{"gpt512", N, N, 1024, 512, 2048, 0, 4, "mlp down"},
    size{"gpt512", T, N, 512, 1536, 1024, 0, 4, "weight gradient"},
    size{"gpt512", T, N, 512, 2048, 1024, 0, 4, ""},
    size{"gpt512", T, N, 2048, 512, 1024, 0, 4, ""},
    size{"gpt512", N, T, 1024, 512, 1536, 0, 4, "input gradient"},
    size{"gpt512", N, T, 1024, 512, 2048, 0, 4, ""},
    size{"gpt512", N, T, 1024, 2048, 512, 0, 4, ""},
    size{"bert", N, T, 2048, 192, 64, 0, 1, "qkv"},
    size{"bert", N, T, 2048, 64, 64, 0, 3, ""},
    size{"bert", N, T, 2048, 256, 64, 0, 1, "mlp up"},
    size{"bert", N, T, 2048, 64, 256, 0, 1, "mlp down"},
    size{"bert", T, N, 192, 64, 2048, 0, 1, "weight gradient"},
    size{"bert", T, N, 64, 64, 2048, 0, 3, ""},
    size{"bert", T, N, 256, 64, 2048, 0, 1, ""},
    size{"bert", T, N, 64, 256, 2048, 0, 1, ""},
    size{"bert", N, N, 2048, 64, 192, 1, 1, "input gradient"},
    size{"bert", N, N, 2048, 64, 64, 1, 3, ""},
    size{"bert", N, N, 2048, 256, 64, 0, 1, ""},
    size{"bert", N, N, 2048, 64, 256, 1, 1, ""},
    size{"bert", N, T, 128, 128, 32, 0, 96, "attention: scores, dP"},
    size{"bert", N, N, 128, 32, 128, 0, 64, "values, dQ"},
    size{"bert", T, N, 128, 32, 128, 1, 64, "dV, dK"},
    size{"mlp", N, T, 128, 1024, 784, 0, 1, "forward"},
    size{"mlp", N, T, 128, 1024, 1024, 0, 1, ""},
    size{"mlp", N, T, 128, 10, 1024, 0, 1, "classes"},
    size{"mlp", T, N, 1024, 784, 128, 0, 1, "weight gradient"},
    size{"mlp", T, N, 1024, 1024, 128, 0, 1, ""},
    size{"mlp", N, N, 128, 1024, 1024, 0, 1, "input gradient"},
    size{"mlp", T, N, 10, 1024, 128, 0, 1, ""},
    size{"mlp", N, N, 128, 1024, 10, 0, 1, ""},
    size{"cnn", N, N, 32, 784, 9, 0, 64, "convolution 1 to 32, unrolled"},
    size{"cnn", N, N, 64, 196, 288, 0, 64, "convolution 32 to 64"},
    size{"cnn", N, T, 64, 288, 196, 1, 64, "its weight gradient"},
    size{"cnn", T, N, 288, 196, 64, 0, 64, "its input gradient"},
    size{"cnn", N, T, 64, 10, 3136, 0, 1, "classes"},
    size{"cnn", T, N, 10, 3136, 64, 0, 1, ""},
    size{"cnn", N, N, 64, 3136, 10, 0, 1, ""},
    size{"square", N, N, 8, 8, 8, 0, 1, ""},
    size{"square", N, N, 16, 16, 16, 0, 1, ""},
    size{"square", N, N, 24, 24, 24, 0, 1, ""},
    size{"square", N, N, 32, 32, 32, 0, 1, ""},
    size{"square", N, N, 48, 48, 48, 0, 1, ""},
    size{"square", N, N, 64, 64, 64, 0, 1, ""},
    size{"square", N, N, 128, 128, 128, 0, 1, ""},
    size{"square", N, N, 256, 256, 256, 0, 1, ""},
    size{"square", N, N, 512, 512, 512, 0, 1, ""},
    size{"square", N, N, 1024, 1024, 1024, 0, 1, ""},
    size{"square", N, T, 1024, 1024, 1024, 0, 1, ""},
    size{"square", T, N, 1024, 1024, 1024, 0, 1, ""},
    size{"square", N, N, 2048, 2048, 2048, 0, 1, ""},
    size{"vector", N, T, 1, 1024, 1024, 0, 1, "one row, W stored (out, in)"},
    size{"vector", N, N, 1, 1024, 1024, 0, 1, "one row"},
    size{"vector", N, N, 2, 1024, 1024, 0, 1, "two rows"},
    size{"vector", N, N, 3, 384, 128, 0, 1, "three rows"},
    size{"vector", N, T, 4, 512, 128, 0, 1, "four rows"},
    size{"vector", N, N, 4, 512, 128, 0, 1, ""},
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

/// By library; zeros where one cannot.
std::vector<figure> measure(const size& s, double seconds) {
  const auto filled = [](std::size_t count, std::string_view name) {
    const auto values = tensor<float>::empty({count});
    parx::random_stream(1, name).uniform(values, -1.0F, 1.0F);
    return values;
  };
  const auto rounded = [](const tensor<float>& values) {
    const auto halves = tensor<parx::bfloat16>::empty(values.shape());
    parx::convert(values.data(), halves.data(), values.size());
    return halves;
  };
  const auto a = filled(s.m * s.k, "a"), b = filled(s.k * s.n, "b");
  const auto half_a = rounded(a), half_b = rounded(b);
  const auto c = tensor<float>::zeros({s.m * s.n});
  const call one{s.a_as,   s.b_as,        s.m,           s.n,      s.k,   a.data(),
                 b.data(), half_a.data(), half_b.data(), c.data(), s.beta};
  const double work = 2.0 * static_cast<double>(s.m * s.n * s.k);
  // At least 20 us for each batch, so that reading the clock does not matter.
  const auto batch = static_cast<std::size_t>(std::max(1.0, 20e-6 * 50e9 / work));
  std::vector<std::vector<double>> rates(libraries.size());
  std::vector<multiplication> ready;
  for (const library& by : libraries) ready.push_back(by.prepare(one));
  const stopwatch whole;
  while (whole.seconds() < seconds * static_cast<double>(libraries.size()) || rates[0].size() < 5) {
    for (std::size_t i = 0; i < libraries.size(); ++i) {
      if (!ready[i]) continue;
      ready[i]();
      const stopwatch watch;
      for (std::size_t j = 0; j < batch; ++j) ready[i]();
      rates[i].push_back(work * static_cast<double>(batch) / watch.seconds() * 1e-9);
    }
  }
  std::vector<figure> figures;
  for (auto& each : rates) {
    if (each.empty()) each.push_back(0);
    std::sort(each.begin(), each.end());
    figures.push_back({each[each.size() / 4], each[each.size() / 2], each[each.size() * 3 / 4]});
  }
  return figures;
}

/// Of one model: a step's products, by library, and the logarithms of parx's rates over that of the
/// best of the others, and in bfloat16 over those in float32, at each size.
struct total {
  std::array<double, libraries.size()> ms{};
  double over_others = 0, over_float32 = 0;
  int sizes = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    ::setenv("OMP_NUM_THREADS", "1", 1);
    ::execv("/proc/self/exe", argv);  // the libraries read the variable when they are loaded
  }
  const double seconds = argc > 1 ? std::strtod(argv[1], nullptr) : 0.3;
  using parx::detail::compiled_level;
  fmt::print("compiled with {}, the processor has {}; multiply-adds alone: {:.0f} GFLOP/s\n",
             name_of(compiled_level), name_of(parx::detail::processor_level()),
             multiply_add_peak());
  fmt::print("products of bfloat16 by {}\n", parx::bfloat16_products());
  fmt::print("{:>8}{:>20}", "model", "GFLOP/s  m x n x k");
  for (const library& each : libraries) fmt::print("{:>22}", each.name);
  fmt::print("\n");
  std::map<std::string_view, total> totals;
  for (const size& s : sizes) {
    const auto letter = [](op o) { return o == op::plain ? 'N' : 'T'; };
    fmt::print("{:>8}{:>20}", s.model,
               fmt::format("{}{} {}x{}x{}", letter(s.a_as), letter(s.b_as), s.m, s.n, s.k));
    const std::vector<figure> figures = measure(s, seconds);
    total& sum = totals[s.model];
    double best = 0;
    for (std::size_t i = 0; i < figures.size(); ++i) {
      const figure& f = figures[i];
      fmt::print("{:>22}", fmt::format("{:.1f} [{:.1f}..{:.1f}]", f.median, f.low, f.high));
      sum.ms[i] += 2e-6 * static_cast<double>(s.m * s.n * s.k) / f.median * s.calls;
      if (i > 0 && libraries[i].type == products::of_float32) best = std::max(best, f.median);
    }
    if (best > 0) sum.over_others += std::log(figures[0].median / best);
    sum.over_float32 += std::log(figures[1].median / figures[0].median);
    ++sum.sizes;
    fmt::print("  {}\n", s.what);
  }
  fmt::print("\n{:>8}{:>20}", "model", "ms a step");
  for (const library& each : libraries) fmt::print("{:>22}", each.name);
  fmt::print("  float32 over the best of the others, bf16 over float32\n");
  for (const auto& [model, sum] : totals) {
    fmt::print("{:>8}{:>20}", model, "");
    for (const double ms : sum.ms) fmt::print("{:>22.2f}", ms);
    fmt::print("  {:.2f}  {:.2f}\n", std::exp(sum.over_others / sum.sizes),
               std::exp(sum.over_float32 / sum.sizes));
  }
}
