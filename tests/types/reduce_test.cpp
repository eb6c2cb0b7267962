#include <parx/types/reduce.hpp>

#include <types/half_oracle.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>

namespace {

using parx::dtype;
using parx::reduce_op;
using bytes = std::vector<std::byte>;

constexpr std::size_t counts[] = {0, 1, 7, 64, 1000};

// ---- the oracle: one element at a time, from the definition ----

template <typename T>
T all_bits_set() {
  T value;
  std::memset(&value, 0xFF, sizeof value);
  return value;
}

template <typename T>
T min_or_max(T a, T b, bool smaller) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return all_bits_set<T>();
    if (a == 0 && b == 0) return std::signbit(a) == smaller ? a : b;  // -0 < +0
  }
  return (a < b) == smaller ? a : b;
}

/// `a op b` for float, double and integers.
template <typename T>
T combined(reduce_op op, T a, T b) {
  if (op == reduce_op::min || op == reduce_op::max) return min_or_max(a, b, op == reduce_op::min);
  if constexpr (std::is_integral_v<T>) {
    const auto x = static_cast<std::uint64_t>(a);
    const auto y = static_cast<std::uint64_t>(b);
    switch (op) {
      case reduce_op::product: return static_cast<T>(x * y);
      case reduce_op::band: return static_cast<T>(x & y);
      case reduce_op::bor: return static_cast<T>(x | y);
      case reduce_op::bxor: return static_cast<T>(x ^ y);
      default: return static_cast<T>(x + y);
    }
  } else {
    const T result = op == reduce_op::product ? a * b : a + b;
    return std::isnan(result) ? all_bits_set<T>() : result;
  }
}

template <typename T>
const half_oracle& half_of() {
  if constexpr (std::is_same_v<T, parx::float16>) return half_oracle::float16();
  else return half_oracle::bfloat16();
}

/// What element `index` of a kernel over `inputs` must be, as bytes.
template <typename T>
T expected(reduce_op op, const std::vector<bytes>& inputs, std::size_t index) {
  const auto element = [&](std::size_t k) {
    T value;
    std::memcpy(&value, inputs[k].data() + index * sizeof(T), sizeof(T));
    return value;
  };
  if constexpr (parx::is_half<T>) {
    auto total = static_cast<float>(half_of<T>().decode(element(0).bits));
    for (std::size_t k = 1; k < inputs.size(); ++k) {
      total = combined(op, total, static_cast<float>(half_of<T>().decode(element(k).bits)));
    }
    return std::isnan(total) ? all_bits_set<T>() : T::from_bits(half_of<T>().encode(total));
  } else {
    T total = element(0);
    for (std::size_t k = 1; k < inputs.size(); ++k) total = combined(op, total, element(k));
    return total;
  }
}

// ---- data: random bits, and often those that are special ----

template <typename T>
bytes random_elements(std::size_t count, std::uint32_t seed) {
  std::mt19937_64 random(seed);
  bytes result(count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = random();
    std::memcpy(result.data() + i * sizeof(T), &bits, sizeof(T));
    if constexpr (!std::is_integral_v<T>) {
      using limits = std::numeric_limits<T>;
      const T special[] = {T(0.0F), -T(0.0F), limits::infinity(), -limits::infinity(),
                           limits::quiet_NaN(), -limits::quiet_NaN(), limits::denorm_min(),
                           limits::max(), limits::min(), limits::signaling_NaN()};
      const std::uint64_t kind = random() % 32;
      if (kind < std::size(special)) {
        std::memcpy(result.data() + i * sizeof(T), &special[kind], sizeof(T));
      } else if (kind < 28) {  // of like size, so that sums are not just the larger operand
        const T plain(static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 64.0F);
        std::memcpy(result.data() + i * sizeof(T), &plain, sizeof(T));
      }
    }
  }
  return result;
}

/// Memory for a buffer that starts at an odd address and is followed by bytes that must not change.
class odd_memory {
 public:
  explicit odd_memory(std::size_t size) : size_(size), memory_(size + 1 + 64, std::byte{0xA5}) {}
  explicit odd_memory(const bytes& contents) : odd_memory(contents.size()) {
    std::copy(contents.begin(), contents.end(), data());
  }
  std::byte* data() { return memory_.data() + 1; }
  bool surroundings_are_intact() const {
    return memory_[0] == std::byte{0xA5} &&
           std::all_of(memory_.end() - 64, memory_.end(),
                       [](std::byte each) { return each == std::byte{0xA5}; });
  }
  bytes contents() { return {data(), data() + size_}; }

 private:
  std::size_t size_;
  bytes memory_;
};

/// Calls test(std::type_identity<T>, type, op) for every pair that means something.
template <typename F>
void for_every_kernel(F&& test) {
  for (std::size_t t = 0; t < parx::dtype_count; ++t) {
    for (std::size_t o = 0; o < parx::reduce_op_count; ++o) {
      const auto type = static_cast<dtype>(t);
      const auto op = static_cast<reduce_op>(o);
      if (!parx::is_defined(type, op)) continue;
      BOOST_TEST_CONTEXT(parx::name_of(type) << " " << parx::name_of(op)) {
        parx::visit_dtype(type, [&](auto identity) { test(identity, type, op); });
      }
    }
  }
}

template <typename T>
bytes expected_bytes(reduce_op op, const std::vector<bytes>& inputs) {
  bytes result(inputs[0].size());
  for (std::size_t i = 0; i < result.size() / sizeof(T); ++i) {
    const T value = expected<T>(op, inputs, i);
    std::memcpy(result.data() + i * sizeof(T), &value, sizeof(T));
  }
  return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_kernel_computes_its_definition_bit_by_bit_at_any_count_and_address) {
  for_every_kernel([]<typename T>(std::type_identity<T>, dtype type, reduce_op op) {
    const parx::reduce_function kernel = parx::reduce_kernel(type, op);
    for (const std::size_t count : counts) {
      const std::vector<bytes> inputs{random_elements<T>(count, 1), random_elements<T>(count, 2)};
      const bytes wanted = expected_bytes<T>(op, inputs);
      odd_memory a(inputs[0]);
      odd_memory b(inputs[1]);
      odd_memory out(wanted.size());
      kernel(out.data(), a.data(), b.data(), count);
      BOOST_TEST((out.contents() == wanted), "count " << count);
      BOOST_TEST(out.surroundings_are_intact());
      BOOST_TEST((a.contents() == inputs[0] && b.contents() == inputs[1]));
    }
  });
}

BOOST_AUTO_TEST_CASE(the_result_may_replace_either_operand) {
  for_every_kernel([]<typename T>(std::type_identity<T>, dtype type, reduce_op op) {
    const parx::reduce_function kernel = parx::reduce_kernel(type, op);
    for (const std::size_t count : counts) {
      const std::vector<bytes> inputs{random_elements<T>(count, 3), random_elements<T>(count, 4)};
      const bytes wanted = expected_bytes<T>(op, inputs);
      odd_memory a(inputs[0]);
      odd_memory b(inputs[1]);
      kernel(a.data(), a.data(), b.data(), count);
      BOOST_TEST((a.contents() == wanted));
      a = odd_memory(inputs[0]);
      kernel(b.data(), a.data(), b.data(), count);
      BOOST_TEST((b.contents() == wanted));
      BOOST_TEST((a.surroundings_are_intact() && b.surroundings_are_intact()));
    }
  });
}

BOOST_AUTO_TEST_CASE(operands_can_be_swapped_without_changing_a_bit) {
  for_every_kernel([]<typename T>(std::type_identity<T>, dtype type, reduce_op op) {
    constexpr std::size_t count = 5000;
    const bytes a = random_elements<T>(count, 5);
    const bytes b = random_elements<T>(count, 6);
    bytes one_way(a.size());
    bytes other_way(a.size());
    parx::reduce_kernel(type, op)(one_way.data(), a.data(), b.data(), count);
    parx::reduce_kernel(type, op)(other_way.data(), b.data(), a.data(), count);
    BOOST_TEST((one_way == other_way));
  });
}

// NaNs are looked for in the total of a block, so each place in one and in the next must count.
BOOST_AUTO_TEST_CASE(two_nans_that_meet_at_any_place_become_the_one_nan) {
  constexpr std::size_t count = parx::detail::simd::block_bytes / sizeof(float) + 100;
  const float positive = std::numeric_limits<float>::quiet_NaN();
  for (const reduce_op op : {reduce_op::sum, reduce_op::product, reduce_op::min, reduce_op::max}) {
    const parx::reduce_function kernel = parx::reduce_kernel(dtype::float32, op);
    std::size_t missed = 0;
    std::vector<float> a(count, 1.0F);
    std::vector<float> b(count, 1.0F);
    std::vector<float> out(count);
    for (std::size_t place = 0; place < count; ++place) {
      a[place] = positive;
      b[place] = -positive;
      kernel(out.data(), a.data(), b.data(), count);
      missed += std::bit_cast<std::uint32_t>(out[place]) != 0xFFFFFFFFU;
      a[place] = b[place] = 1.0F;
    }
    BOOST_TEST(missed == 0U, parx::name_of(op));
  }
}

BOOST_AUTO_TEST_CASE(cutting_a_buffer_into_pieces_does_not_change_a_bit) {
  for_every_kernel([]<typename T>(std::type_identity<T>, dtype type, reduce_op op) {
    constexpr std::size_t count = 3000;
    const parx::reduce_function kernel = parx::reduce_kernel(type, op);
    const bytes a = random_elements<T>(count, 7);
    const bytes b = random_elements<T>(count, 8);
    bytes whole(a.size());
    bytes pieces(a.size());
    kernel(whole.data(), a.data(), b.data(), count);
    for (std::size_t begin = 0, length = 1; begin < count; length = length * 2 + 1) {
      const std::size_t at = begin * sizeof(T);
      kernel(pieces.data() + at, a.data() + at, b.data() + at, std::min(length, count - begin));
      begin += length;
    }
    BOOST_TEST((whole == pieces));
  });
}

BOOST_AUTO_TEST_CASE(scaling_multiplies_every_element_once) {
  for (const dtype type : {dtype::float32, dtype::float64, dtype::float16, dtype::bfloat16}) {
    parx::visit_dtype(type, [type]<typename T>(std::type_identity<T>) {
      if constexpr (!std::is_integral_v<T>) {
        for (const std::size_t count : counts) {
          const double factor = 1.0 / 3;
          bytes wanted = random_elements<T>(count, 20);
          odd_memory data(wanted);
          parx::scale_kernel(type)(data.data(), count, factor);
          bool equal = true;
          const bytes scaled = data.contents();
          for (std::size_t i = 0; i < count; ++i) {
            T before;
            T after;
            std::memcpy(&before, wanted.data() + i * sizeof(T), sizeof(T));
            std::memcpy(&after, scaled.data() + i * sizeof(T), sizeof(T));
            if constexpr (parx::is_half<T>) {
              const float value = static_cast<float>(half_of<T>().decode(before.bits)) *
                                  static_cast<float>(factor);
              equal = equal && (std::isnan(value) ? std::isnan(after)
                                                  : after.bits == half_of<T>().encode(value));
            } else {
              const T value = before * static_cast<T>(factor);
              equal = equal && (std::isnan(value) ? std::isnan(after) : after == value);
            }
          }
          BOOST_TEST(equal, parx::name_of(type) << " count " << count);
          BOOST_TEST(data.surroundings_are_intact());
        }
      }
    });
  }
}

// Its payload, all ones, would carry out of a bfloat16 that is rounded without care.
BOOST_AUTO_TEST_CASE(scaling_by_any_nan_makes_every_element_a_nan) {
  const std::vector<parx::bfloat16> ones(100, parx::bfloat16(1.0F));
  for (const double factor : {all_bits_set<double>(), std::numeric_limits<double>::quiet_NaN()}) {
    std::vector<parx::bfloat16> data = ones;
    parx::scale_kernel(dtype::bfloat16)(data.data(), data.size(), factor);
    BOOST_TEST(std::all_of(data.begin(), data.end(), [](float x) { return std::isnan(x); }));
  }
}

BOOST_AUTO_TEST_CASE(integers_wrap_around) {
  const std::int32_t a[] = {std::numeric_limits<std::int32_t>::max(), 65536};
  const std::int32_t b[] = {1, 65536};
  std::int32_t out[2];
  parx::reduce_kernel(dtype::int32, reduce_op::sum)(out, a, b, 2);
  BOOST_TEST(out[0] == std::numeric_limits<std::int32_t>::min());
  parx::reduce_kernel(dtype::int32, reduce_op::product)(out, a, b, 2);
  BOOST_TEST(out[1] == 0);
}

BOOST_AUTO_TEST_CASE(an_average_is_a_sum_that_the_caller_scales) {
  BOOST_TEST(parx::reduce_kernel(dtype::float32, reduce_op::avg) ==
             parx::reduce_kernel(dtype::float32, reduce_op::sum));
  BOOST_TEST(parx::reduce_kernel(dtype::bfloat16, reduce_op::premul_sum) ==
             parx::reduce_kernel(dtype::bfloat16, reduce_op::sum));
}

BOOST_AUTO_TEST_CASE(a_reduction_that_means_nothing_is_refused_by_name) {
  const auto says = [](const std::string& part) {
    return [part](const parx::usage_error& error) {
      return std::string(error.what()).find(part) != std::string::npos;
    };
  };
  BOOST_CHECK_EXCEPTION((void)parx::reduce_kernel(dtype::float32, reduce_op::band),
                        parx::usage_error, says("reduce_op::band is not defined for float32"));
  BOOST_CHECK_EXCEPTION((void)parx::reduce_kernel(dtype::int32, reduce_op::avg),
                        parx::usage_error, says("reduce_op::avg is not defined for int32"));
  BOOST_CHECK_EXCEPTION((void)parx::scale_kernel(dtype::int8), parx::usage_error, says("int8"));
  BOOST_CHECK_THROW((void)parx::reduce_kernel(static_cast<dtype>(99), reduce_op::sum),
                    parx::usage_error);
  BOOST_CHECK_THROW((void)parx::reduce_kernel(dtype::int32, static_cast<reduce_op>(99)),
                    parx::usage_error);
}

// ---- a figure to read, not a test: time on a shared machine proves nothing ----

namespace {

#if defined(__clang__)
#define PARX_TEST_O3  // clang knows no such attribute: below -O2 its plain loop is scalar
#else
#define PARX_TEST_O3 __attribute__((optimize("O3")))
#endif

[[gnu::noinline]] PARX_TEST_O3 void plain_sum(float* __restrict out, const float* __restrict a,
                                              const float* __restrict b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

template <typename F>
double gigabytes_per_second(std::size_t size, F&& call) {
  using clock = std::chrono::steady_clock;
  double best = 1e9;
  const auto end = clock::now() + std::chrono::milliseconds(100);
  do {
    const auto start = clock::now();
    for (int i = 0; i < 10; ++i) call();
    best = std::min(best, std::chrono::duration<double>(clock::now() - start).count() / 10);
  } while (clock::now() < end);
  return static_cast<double>(size) / best / 1e9;
}

}  // namespace

BOOST_AUTO_TEST_CASE(print_the_speed_of_sums_against_a_plain_loop) {
  constexpr std::size_t size = 65536;
  std::vector<float> a(size / 4, 1.0F);
  std::vector<float> b(size / 4, 2.0F);
  std::vector<float> out(size / 4);
  const double plain =
      gigabytes_per_second(size, [&] { plain_sum(out.data(), a.data(), b.data(), size / 4); });
  fmt::print("plain float loop {:.1f} GB/s of results in 64 KiB buffers\n", plain);
  for (const dtype type : {dtype::float32, dtype::float64, dtype::bfloat16, dtype::float16}) {
    const parx::reduce_function kernel = parx::reduce_kernel(type, reduce_op::sum);
    const double speed = gigabytes_per_second(
        size, [&] { kernel(out.data(), a.data(), b.data(), size / parx::size_of(type)); });
    fmt::print("{:>16} sum {:.1f} GB/s ({:.0f} %)\n", parx::name_of(type), speed,
               100 * speed / plain);
  }
}
