// One seed gives one set of bits, at every level of optimisation and by either compiler: those of
// the arithmetic that random.hpp states. (g++ fuses a product and a sum at -O2 and not at -O1, so a
// program and the library that it links could differ.) Prints what differs and ends with 1.
#include <parx/nn/init.hpp>
#include <parx/tensor/random.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numbers>
#include <span>
#include <vector>

using namespace parx;

namespace {

int failures = 0;

constexpr std::size_t count = 20'011;  // more than one block of a thread
const random_stream stream(42, "layer.weight");

std::vector<std::uint32_t> words(std::size_t first, std::size_t length) {
  std::vector<std::uint32_t> all;
  stream.words(first, length, [&](const std::uint32_t* word, std::uint64_t, std::size_t here) {
    all.insert(all.end(), word, word + here);
  });
  return all;
}

/// One rounding, whatever the compiler makes of it: neither factor is known to it.
template <typename T>
T placed(T from, T width, T x) {
  volatile T a = width, b = x, c = from;
  return std::fma(a, b, c);
}

template <typename T, typename Expected>
void compare(const char* name, const std::vector<T>& got, Expected expected) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const T right = expected(i);
    wrong += std::memcmp(&right, &got[i], sizeof right) != 0;
  }
  if (wrong == 0) return;
  ++failures;
  std::printf("%s of %zu bytes: %zu of %zu numbers have other bits\n", name, sizeof(T), wrong,
              got.size());
}

/// The numbers in [0, 1) of uniform().
template <typename T>
T fraction(const std::vector<std::uint32_t>& word, std::size_t i) {
  if constexpr (sizeof(T) == 4) {
    return static_cast<float>(word[i] >> 8) * 0x1p-24F;
  } else {
    return static_cast<double>((std::uint64_t{word[2 * i + 1]} << 32 | word[2 * i]) >> 11) *
           0x1p-53;
  }
}

template <typename T>
void compare_all() {
  const std::vector<std::uint32_t> word = words(0, 2 * count);
  std::vector<T> got(count);
  for (const double bound : {1.0, 0.1, 1 / std::sqrt(7.0)}) {
    const T low = static_cast<T>(-bound), high = static_cast<T>(2 * bound);
    stream.uniform(std::span(got), low, high);
    compare("uniform", got,
            [&](std::size_t i) { return placed(low, high - low, fraction<T>(word, i)); });
    // An initializer of a layer, as a program calls it.
    const auto values = tensor<T>::empty({count});
    nn::init::uniform(-bound, 2 * bound)
        .fill(values, 42, "layer.weight", shard_spec::whole({count}));
    compare("nn::init::uniform", std::vector<T>(values.begin(), values.end()),
            [&](std::size_t i) { return placed(low, high - low, fraction<T>(word, i)); });
  }
  for (const double mean : {0.0, 0.25}) {
    const T from = static_cast<T>(mean), deviation = static_cast<T>(0.02);
    const auto expected = [&](std::size_t i) {
      const std::size_t pair = i / 2 * 2;
      const double radius = std::sqrt(-2 * std::log((word[pair] + 0.5) * 0x1p-32));
      const double angle = 2 * std::numbers::pi * (word[pair + 1] * 0x1p-32);
      return placed(from, deviation,
                    static_cast<T>(radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle))));
    };
    stream.normal(std::span(got), from, deviation);
    compare("normal", got, expected);
    const auto values = tensor<T>::empty({count});
    nn::init::normal(mean, 0.02).fill(values, 42, "layer.weight", shard_spec::whole({count}));
    compare("nn::init::normal", std::vector<T>(values.begin(), values.end()), expected);
  }
}

}  // namespace

int main() {
  compare_all<float>();
  compare_all<double>();
  return failures == 0 ? 0 : 1;
}
