// random_stream: random numbers that are a function of (seed, path, index) only.
//
// A parameter is initialised from the stream of its path, element i from index i of the whole
// parameter: a matrix cut over 1, 2 or 4 ranks starts from the same values, and so does a model
// whose layers are made in another order. Streams are values without state; any thread may use one.
//
// Compilers fuse a product and a sum into one rounding as they like: g++ at -O2 and not at -O1,
// clang at every level. So no number here is such a sum, unless its product is exact or it is an
// fma by name, and one seed gives the same bits at every level, by both compilers, with and without
// vector instructions. (The logarithm, sine and cosine are the C library's, in double.)
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/hash.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/tensor/philox.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

/// FNV-1a with a final mix: 64 bits that are the same on every machine.
[[nodiscard]] constexpr std::uint64_t stable_hash(std::string_view text) noexcept {
  std::uint64_t hash = detail::fnv1a(text);
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EB;
  return hash ^ (hash >> 31);
}

class random_stream {
 public:
  random_stream(std::uint64_t seed, std::string_view path) noexcept
      : random_stream(seed, stable_hash(path)) {}

  /// An independent stream for each `number`: a training step, an epoch.
  [[nodiscard]] random_stream substream(std::uint64_t number) const noexcept {
    std::array<char, 16> bytes{};
    for (std::size_t i = 0; i < 8; ++i) {
      bytes[i] = static_cast<char>(path_ >> (8 * i));
      bytes[8 + i] = static_cast<char>(number >> (8 * i));
    }
    return {seed_, stable_hash({bytes.data(), bytes.size()})};
  }

  /// Calls use(piece, at, length) for consecutive pieces of the 32-bit words [first, first + count)
  /// of the stream: `piece` points at words [at, at + length). Each piece but the first starts at a
  /// multiple of 64.
  template <typename Use>
  void words(std::uint64_t first, std::uint64_t count, Use&& use) const {
    constexpr std::size_t blocks = 16;
    std::array<std::uint32_t, 4 * blocks> piece;
    const std::uint64_t end = first + count;
    for (std::uint64_t at = first; at < end;) {
      const std::uint64_t start = at / piece.size() * piece.size();
      const std::uint64_t counter = start / 4;
      detail::philox_blocks<blocks>(
          {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
           static_cast<std::uint32_t>(path_), static_cast<std::uint32_t>(path_ >> 32)},
          {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)},
          piece.data());
      const std::uint64_t stop = std::min<std::uint64_t>(start + piece.size(), end);
      use(piece.data() + (at - start), at, static_cast<std::size_t>(stop - at));
      at = stop;
    }
  }

  /// Uniform in [low, high), up to rounding. Element i of `out` gets number first + i of the
  /// stream.
  template <std::floating_point T>
  void uniform(std::span<T> out, T low, T high, std::uint64_t first = 0) const {
    parallel_for(out.size(), numbers_of_a_block, [&](std::size_t begin, std::size_t end) {
      uniform_block(out.subspan(begin, end - begin), low, high, first + begin);
    });
  }
  template <std::floating_point T>
  void uniform(const tensor<T>& target, T low, T high) const {
    uniform(target.span(), low, high);
  }

  /// Normal (Box-Muller on 32-bit uniforms, computed in double: at most 6.7 deviations from the
  /// mean). Element i of `out` gets number first + i of the stream.
  template <std::floating_point T>
  void normal(std::span<T> out, T mean, T deviation, std::uint64_t first = 0) const {
    parallel_for(out.size(), numbers_of_a_block, [&](std::size_t begin, std::size_t end) {
      normal_block(out.subspan(begin, end - begin), mean, deviation, first + begin);
    });
  }
  template <std::floating_point T>
  void normal(const tensor<T>& target, T mean, T deviation) const {
    normal(target.span(), mean, deviation);
  }

  /// A random permutation of 0, 1, ..., count - 1 (Fisher-Yates; the probabilities of permutations
  /// differ by less than a factor of 1 + count^2 / 2^64).
  [[nodiscard]] std::vector<std::size_t> permutation(std::size_t count) const {
    std::vector<std::size_t> order(count);
    for (std::size_t i = 0; i < count; ++i) order[i] = i;
    words(0, 2 * count, [&](const std::uint32_t* word, std::uint64_t at, std::size_t length) {
      for (std::size_t i = 0; i < length; i += 2) {
        // Step k swaps element last = count - 1 - k with one of 0 ... last.
        const std::size_t last = count - 1 - static_cast<std::size_t>((at + i) / 2);
        const std::uint64_t bits = (std::uint64_t{word[i + 1]} << 32) | word[i];
        std::swap(order[last], order[scaled(bits, last + 1)]);
      }
    });
    return order;
  }

 private:
  /// Some 20 us of uniform numbers, 300 us of normal ones.
  static constexpr std::size_t numbers_of_a_block = 16384;

  random_stream(std::uint64_t seed, std::uint64_t path) noexcept : seed_(seed), path_(path) {}

  template <typename T>
  void uniform_block(std::span<T> out, T low, T high, std::uint64_t first) const {
    if constexpr (sizeof(T) > 4) {
      words(2 * first, 2 * out.size(),
            [&](const std::uint32_t* word, std::uint64_t at, std::size_t count) {
              for (std::size_t i = 0; i < count; i += 2) {
                const std::uint64_t bits = (std::uint64_t{word[i + 1]} << 32) | word[i];
                out[(at + i) / 2 - first] =
                    placed(low, high - low, static_cast<double>(bits >> 11) * 0x1p-53);
              }
            });
    } else {
      words(first, out.size(),
            [&](const std::uint32_t* word, std::uint64_t at, std::size_t count) {
              for (std::size_t i = 0; i < count; ++i) {
                out[at + i - first] =
                    placed(low, high - low, static_cast<float>(word[i] >> 8) * 0x1p-24F);
              }
            });
    }
  }
  template <typename T>
  void normal_block(std::span<T> out, T mean, T deviation, std::uint64_t first) const {
    // Numbers come in pairs: start at an even word and drop the number that is not asked for.
    const std::uint64_t end = first + out.size();
    words(first & ~std::uint64_t{1}, end - (first & ~std::uint64_t{1}) + (end & 1),
          [&](const std::uint32_t* word, std::uint64_t at, std::size_t count) {
            for (std::size_t i = 0; i < count; i += 2) {
              const double radius = std::sqrt(-2 * std::log((word[i] + 0.5) * 0x1p-32));
              const double angle = 2 * std::numbers::pi * (word[i + 1] * 0x1p-32);
              const auto put = [&](std::uint64_t index, double value) {
                if (index >= first && index < end)
                  out[index - first] = placed(mean, deviation, static_cast<T>(value));
              };
              put(at + i, radius * std::cos(angle));
              put(at + i + 1, radius * std::sin(angle));
            }
          });
  }

  /// from + width * x. The product of two floats is exact in double.
  [[nodiscard]] static float placed(float from, float width, float x) noexcept {
    return static_cast<float>(double{from} + double{width} * double{x});
  }
  [[nodiscard]] static double placed(double from, double width, double x) noexcept {
    return std::fma(width, x, from);
  }

  /// The high 64 bits of bits * bound: uniform in [0, bound).
  [[nodiscard]] static std::uint64_t scaled(std::uint64_t bits, std::uint64_t bound) noexcept {
    const std::uint64_t mask = 0xFFFFFFFF;
    const std::uint64_t low = (bits & mask) * (bound & mask);
    const std::uint64_t middle = (bits >> 32) * (bound & mask) + (low >> 32);
    const std::uint64_t other = (bits & mask) * (bound >> 32) + (middle & mask);
    return (bits >> 32) * (bound >> 32) + (middle >> 32) + (other >> 32);
  }

  std::uint64_t seed_;
  std::uint64_t path_;
};

}  // namespace parx
