#include <parx/tensor/gemm/gemm.hpp>

#include <boost/test/unit_test.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

namespace product = parx::detail::product;
using product::addend, product::matrix, product::multiplication;

namespace {

using element_types = std::tuple<float, double>;

/// The sum in the order of summation_order.hpp, one element at a time.
template <typename T>
T in_stated_order(matrix<T> a, matrix<T> b, std::size_t k, T alpha, T base) {
  const auto fma = [](T x, T y, T z) {
    return parx::detail::simd::has_fma ? std::fma(x, y, z) : x * y + z;
  };
  T c = base;
  for (std::size_t k0 = 0; k0 == 0 || k0 < k; k0 += product::block_k) {
    T sum = 0;
    for (std::size_t p = k0; p < std::min(k, k0 + product::block_k); ++p) {
      sum = fma(*a.at(0, p), *b.at(p, 0), sum);
    }
    c = fma(alpha, sum, c);
  }
  return c;
}

template <typename T>
std::vector<T> random_values(std::size_t count, std::mt19937& random) {
  std::uniform_real_distribution<T> between(-1, 1);
  std::vector<T> values(count);
  for (T& each : values) each = between(random);
  return values;
}

enum class layout { rows, columns };
template <typename T>
matrix<T> in_layout(const T* data, layout as, std::size_t ld) {
  return as == layout::rows ? matrix<T>{data, ld, 1} : matrix<T>{data, 1, ld};
}

/// Products of random sizes by tiles of shape S, in one go or cut into rows and columns, packed or
/// not: the number of those whose bits are not those of the stated order.
template <typename S>
int differing_products(int tries, unsigned seed) {
  using T = typename S::T;
  std::mt19937 random(seed);
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  int differing = 0;
  for (int t = 0; t < tries; ++t) {
    const std::size_t m = 1 + below(t % 9 == 0 ? 160 : 40), n = 1 + below(t % 7 == 0 ? 300 : 80),
                      k = below(t % 5 == 0 ? 1100 : 90);
    const auto a = random_values<T>(m * k + 1, random), b = random_values<T>(k * n + 1, random);
    const auto before = random_values<T>(m * n, random);
    const layout a_as = layout(below(2)), b_as = layout(below(2));
    const matrix<T> left = in_layout(a.data(), a_as, a_as == layout::rows ? k : m);
    const matrix<T> right = in_layout(b.data(), b_as, b_as == layout::rows ? n : k);
    const T alpha = below(2) == 0 ? T(1) : T(0.37);
    const addend<T> none, all{before.data(), n, below(2) == 0 ? T(1) : T(0.5)},
        row{before.data(), 0, T(1)};
    const addend<T> base = std::array{none, all, row}[below(3)];
    std::vector<T> c(m * n), expected(m * n);
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        expected[i * n + j] =
            in_stated_order(left.from(i, 0), right.from(0, j), k, alpha, base.at(i, j));
      }
    }
    const std::size_t rows = below(2) == 0 ? m : 1 + below(m);
    const std::size_t columns = below(2) == 0 ? n : 1 + below(n);
    const bool chosen = below(3) == 0;
    const product::blocking how{.columns = std::size_t{16} << below(5),
                                .rows = 12 + below(60),
                                .packed_b = std::size_t{1} << below(16),
                                .pack_a = below(2) == 0,
                                .pack_b = right.right != 1 || below(2) == 0};
    for (std::size_t i = 0; i < m; i += rows) {
      for (std::size_t j = 0; j < n; j += columns) {
        const std::size_t height = std::min(rows, m - i), width = std::min(columns, n - j);
        const addend<T> part{base.data == nullptr ? nullptr : base.data + i * base.step + j,
                             base.step, base.factor};
        T* const to = c.data() + i * n + j;
        const multiplication<T> x{.m = height, .n = width, .k = k, .alpha = alpha,
                                  .a = left.from(i, 0), .b = right.from(0, j), .base = part,
                                  .c = to, .ldc = n};
        if (chosen) product::multiply<S>(x);
        else product::blocked_product<S>(x, how).run();
      }
    }
    differing += std::memcmp(c.data(), expected.data(), c.size() * sizeof(T)) != 0 ? 1 : 0;
  }
  return differing;
}

/// Memory that ends where the next page cannot be read.
template <typename T>
class guarded {
 public:
  explicit guarded(std::size_t count) : bytes_((count * sizeof(T) + page - 1) / page * page) {
    map_ = static_cast<char*>(::mmap(nullptr, bytes_ + page, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ::mprotect(map_ + bytes_, page, PROT_NONE);
    data_ = reinterpret_cast<T*>(map_ + bytes_) - count;
  }
  ~guarded() { ::munmap(map_, bytes_ + page); }
  guarded(const guarded&) = delete;
  guarded& operator=(const guarded&) = delete;
  [[nodiscard]] T* data() const noexcept { return data_; }

 private:
  static constexpr std::size_t page = 4096;
  std::size_t bytes_;
  char* map_;
  T* data_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(the_bits_of_a_product_depend_on_k_alone) {
  using product::tile_shape;
  BOOST_TEST(differing_products<product::native_tile<float>>(700, 1) == 0);
  BOOST_TEST(differing_products<product::native_tile<double>>(300, 2) == 0);
  BOOST_TEST((differing_products<tile_shape<float, 16, 6, 2>>(200, 3)) == 0);
  BOOST_TEST((differing_products<tile_shape<float, 16, 8, 3>>(200, 4)) == 0);
  BOOST_TEST((differing_products<tile_shape<double, 16, 6, 2>>(100, 5)) == 0);
#if defined(PARX_VECTORS_AVX512)
  BOOST_TEST((differing_products<tile_shape<float, 32, 6, 2>>(200, 6)) == 0);
#endif
}

// Integers, so that every order gives the same bits; the sizes are all up to 20 and some to 70.
BOOST_AUTO_TEST_CASE_TEMPLATE(products_are_exact_and_touch_nothing_but_their_operands, T,
                              element_types) {
  constexpr std::size_t largest = 70;
  constexpr T outside = T(77);
  std::mt19937 random(1);
  const auto whole_number = [&] { return static_cast<T>(static_cast<int>(random() % 9) - 4); };
  const auto fill = [&](matrix<T> to, std::size_t rows, std::size_t columns) {
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; ++j) *const_cast<T*>(to.at(i, j)) = whole_number();
    }
  };
  const auto check = [&](std::size_t m, std::size_t n, std::size_t k) {
    const layout a_as = layout(random() % 2), b_as = layout(random() % 2);
    const std::size_t lda = (a_as == layout::rows ? k : m) + random() % 3;
    const std::size_t ldb = (b_as == layout::rows ? n : k) + random() % 3;
    const std::size_t ldc = n + random() % 3;
    const auto size = [](layout as, std::size_t rows, std::size_t columns, std::size_t ld) {
      return as == layout::rows ? (rows - 1) * ld + columns : (columns - 1) * ld + rows;
    };
    const guarded<T> a(size(a_as, m, k, lda)), b(size(b_as, k, n, ldb)),
        c((m - 1) * ldc + n);
    const matrix<T> left = in_layout<T>(a.data(), a_as, lda);
    const matrix<T> right = in_layout<T>(b.data(), b_as, ldb);
    fill(left, m, k);
    fill(right, k, n);
    std::fill_n(c.data(), (m - 1) * ldc + n, outside);
    const auto kind = random() % 3;  // nothing, c itself, 3 c
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        c.data()[i * ldc + j] = kind == 0 ? std::numeric_limits<T>::quiet_NaN() : whole_number();
      }
    }
    std::vector<T> expected(c.data(), c.data() + (m - 1) * ldc + n);
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        T& sum = expected[i * ldc + j];
        sum = kind == 0 ? T(0) : kind == 1 ? sum : 3 * sum;
        for (std::size_t p = 0; p < k; ++p) sum += 2 * *left.at(i, p) * *right.at(p, j);
      }
    }
    const addend<T> base =
        kind == 0 ? addend<T>{} : addend<T>{c.data(), ldc, kind == 1 ? T(1) : T(3)};
    product::multiply<product::native_tile<T>>(multiplication<T>{
        .m = m, .n = n, .k = k, .alpha = T(2), .a = left, .b = right, .base = base, .c = c.data(),
        .ldc = ldc});
    return std::equal(expected.begin(), expected.end(), c.data());
  };
  std::size_t wrong = 0;
  for (std::size_t m = 1; m <= 20; ++m) {
    for (std::size_t n = 1; n <= 20; ++n) {
      for (std::size_t k = 1; k <= 20; ++k) wrong += check(m, n, k) ? 0U : 1U;
    }
  }
  for (int t = 0; t < 2000; ++t) {
    wrong += check(1 + random() % largest, 1 + random() % largest, 1 + random() % largest)
                 ? 0U
                 : 1U;
  }
  BOOST_TEST(wrong == 0U);
}

BOOST_AUTO_TEST_CASE(each_element_of_a_result_is_finished_once_after_its_last_term) {
  std::mt19937 random(3);
  using S = product::native_tile<float>;
  for (int t = 0; t < 600; ++t) {
    const std::size_t m = 1 + random() % 50, n = 1 + random() % (t % 2 == 0 ? 60 : 5),
                      k = random() % 600, ldc = n + random() % 3;
    const auto a = random_values<float>(m * k + 1, random);
    const auto b = random_values<float>(k * n + 1, random);
    std::vector<float> plain(m * ldc), finished(m * ldc);
    std::vector<int> times(m * ldc);
    multiplication<float> x{.m = m, .n = n, .k = k, .alpha = 1, .a = {a.data(), k, 1},
                            .b = {b.data(), n, 1}, .base = {}, .c = plain.data(), .ldc = ldc};
    product::multiply<S>(x);
    const auto add_place = [&](const parx::result_tile<float>& part) {
      for (std::size_t r = 0; r < part.rows; ++r) {
        for (std::size_t q = 0; q < part.columns; ++q) {
          const std::size_t at = (part.row + r) * ldc + part.column + q;
          part.values[r * part.step + q] += static_cast<float>(at);
          ++times[at];
        }
      }
    };
    x.c = finished.data();
    x.finish = add_place;
    product::multiply<S>(x);
    for (std::size_t at = 0; at < m * ldc; ++at) {
      const bool in_result = at % ldc < n;
      BOOST_REQUIRE(finished[at] == plain[at] + static_cast<float>(in_result ? at : 0));
      BOOST_REQUIRE(times[at] == (in_result ? 1 : 0));
    }
  }
}

BOOST_AUTO_TEST_CASE(threads_change_no_bit_of_a_product) {
  using S = product::native_tile<float>;
  std::mt19937 random(7);
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  int differing = 0;
  for (int t = 0; t < 60; ++t) {
    const std::size_t m = t % 5 == 0 ? 1 + below(12) : 40 + below(500);
    const std::size_t n = t % 4 == 0 ? 1 + below(30) : 40 + below(1200);
    const std::size_t k = t % 5 == 0 || t % 4 == 0 ? 1000 + below(1500) : 30 + below(600);
    const auto a = random_values<float>(m * k, random), b = random_values<float>(k * n, random);
    const auto before = random_values<float>(m * n, random);
    const layout a_as = layout(below(2)), b_as = layout(below(2));
    const bool adds = below(2) == 0;
    const auto halved = [](const parx::result_tile<float>& part) {
      for (std::size_t r = 0; r < part.rows; ++r) {
        for (std::size_t q = 0; q < part.columns; ++q) part.values[r * part.step + q] *= 0.5F;
      }
    };
    const auto by_threads = [&](int threads) {
      parx::set_num_threads(threads);
      std::vector<float> c = before;
      product::multiply<S>(multiplication<float>{
          .m = m, .n = n, .k = k, .alpha = 0.7F,
          .a = in_layout(a.data(), a_as, a_as == layout::rows ? k : m),
          .b = in_layout(b.data(), b_as, b_as == layout::rows ? n : k),
          .base = adds ? addend<float>{c.data(), n, 1} : addend<float>{}, .c = c.data(), .ldc = n,
          .finish = halved});
      return c;
    };
    const std::vector<float> alone = by_threads(1);
    for (const int threads : {2, 3, 8}) {
      const std::vector<float> together = by_threads(threads);
      differing += std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float)) != 0;
    }
  }
  parx::set_num_threads(1);
  BOOST_TEST(differing == 0);
}

// Each product of two elements is too small for a float, so with multiply-adds all sums are -0.
BOOST_AUTO_TEST_CASE(threads_keep_the_sign_of_zero) {
  constexpr std::size_t m = 48, n = 64, k = 2048;
  const std::vector<float> a(m * k, 1e-30F), b(k * n, -1e-30F);
  const matrix<float> left{a.data(), 1, m}, right{b.data(), n, 1};
  const float expected = in_stated_order(left, right, k, 1.0F, -0.0F);
  BOOST_TEST(std::signbit(expected) == parx::detail::simd::has_fma);
  for (const int threads : {1, 2}) {
    parx::set_num_threads(threads);
    std::vector<float> c(m * n, -0.0F);
    product::multiply<product::native_tile<float>>(multiplication<float>{
        .m = m, .n = n, .k = k, .alpha = 1, .a = left, .b = right, .base = {c.data(), n, 1},
        .c = c.data(), .ldc = n});
    const auto is_expected = [&](float x) {
      return x == 0 && std::signbit(x) == std::signbit(expected);
    };
    BOOST_TEST(std::all_of(c.begin(), c.end(), is_expected), threads << " threads");
  }
  parx::set_num_threads(1);
}

BOOST_AUTO_TEST_CASE(the_error_of_a_sum_is_within_the_bound_of_its_blocks) {
  std::mt19937 random(4);
  for (const std::size_t k : {1U, 7U, 64U, 256U, 257U, 1000U, 4096U}) {
    constexpr std::size_t m = 13, n = 27;
    const auto a = random_values<float>(m * k, random), b = random_values<float>(k * n, random);
    std::vector<float> c(m * n);
    product::multiply<product::native_tile<float>>(multiplication<float>{
        .m = m, .n = n, .k = k, .alpha = 1, .a = {a.data(), k, 1}, .b = {b.data(), n, 1},
        .base = {}, .c = c.data(), .ldc = n});
    const double roundings = static_cast<double>(std::min(k, product::block_k) +
                                                 (k + product::block_k - 1) / product::block_k);
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        double sum = 0, magnitude = 0;
        for (std::size_t p = 0; p < k; ++p) {
          const double term = static_cast<double>(a[i * k + p]) * static_cast<double>(b[p * n + j]);
          sum += term;
          magnitude += std::abs(term);
        }
        BOOST_REQUIRE(std::abs(static_cast<double>(c[i * n + j]) - sum) <=
                      magnitude * roundings * 0x1p-24);
      }
    }
  }
}
