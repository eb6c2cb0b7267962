// oracle: input data whose result is known exactly, and the count of wrong elements.
//
// Inputs are small integers, chosen so that every intermediate result, in any order of the ranks,
// is an integer that the dtype holds exactly: so results must be exact. The data are pseudo-random
// with a period that is a prime number of elements, so that a misplaced chunk is detected. Only avg
// over a number of ranks that is not a power of two may be off by a rounding.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <bench/backend.hpp>

namespace bench {

inline constexpr std::size_t pattern_period = 1021;
inline constexpr double premul_factor = 2;

class oracle {
 public:
  oracle(parx::dtype type, parx::reduce_op reduction, int world)
      : type_(type), reduction_(reduction), world_(world), exact_(largest_exact(type)) {}

  /// Sets this rank's input of `given`, and fills the rest of its output with wrong values.
  void prepare(const call& given, int rank) const {
    std::memset(given.output.data, 0xff, given.output.bytes());
    // In place the input is a part of the output, or the output a part of the input.
    void* input = const_cast<void*>(given.input.data);
    fill(input, given.input.count, reduces(given.op) ? contributions(rank) : own_data(rank));
  }

  /// The number of wrong elements in the output of `given`, which has run.
  [[nodiscard]] std::size_t count_wrong(const call& given, int rank) const {
    const std::size_t count = given.output.count;
    const auto own_piece = static_cast<std::size_t>(rank) * count;
    switch (row_of(given.op).result) {
      case outcome::reduced: return differing(given.output.data, count, 0, reduced());
      case outcome::reduced_at_root:
        return rank == given.root ? differing(given.output.data, count, 0, reduced()) : 0;
      case outcome::reduced_piece: return differing(given.output.data, count, own_piece, reduced());
      case outcome::input_of_root:
        return differing(given.output.data, count, 0, own_data(given.root));
      case outcome::input_of_previous:
        return differing(given.output.data, count, 0, own_data((rank + world_ - 1) % world_));
      case outcome::prefix: return differing(given.output.data, count, 0, reduced(rank + 1));
      case outcome::prefix_before:
        return rank > 0 ? differing(given.output.data, count, 0, reduced(rank)) : 0;
      case outcome::piece_of_root:
        return differing(given.output.data, count, own_piece, own_data(given.root));
      case outcome::transposed: {
        const std::size_t piece = count / static_cast<std::size_t>(world_);
        std::size_t wrong = 0;
        for (int from = 0; from < world_; ++from) {
          const auto* block = static_cast<const std::byte*>(given.output.data) +
                              static_cast<std::size_t>(from) * piece * parx::size_of(type_);
          wrong += differing(block, piece, static_cast<std::size_t>(rank) * piece, own_data(from));
        }
        return wrong;
      }
      case outcome::all_inputs_at_root:
        if (rank != given.root) return 0;
        [[fallthrough]];
      case outcome::all_inputs: {
        std::size_t wrong = 0;
        for (int from = 0; from < world_; ++from) {
          const auto* piece = static_cast<const std::byte*>(given.output.data) +
                              static_cast<std::size_t>(from) * given.input.bytes();
          wrong += differing(piece, given.input.count, 0, own_data(from));
        }
        return wrong;
      }
      case outcome::nothing: break;
    }
    return 0;
  }

 private:
  using pattern = std::array<double, pattern_period>;

  /// The dtype holds all integers up to this one exactly.
  [[nodiscard]] static std::int64_t largest_exact(parx::dtype type) {
    switch (type) {
      case parx::dtype::float16: return 1 << 11;
      case parx::dtype::bfloat16: return 1 << 8;
      case parx::dtype::int8:
      case parx::dtype::uint8: return 127;
      case parx::dtype::int16:
      case parx::dtype::uint16: return 32767;
      default: return 1 << 24;
    }
  }

  /// 16 pseudo-random bits (multiplicative hashing, Knuth, TAOCP 6.4).
  [[nodiscard]] static std::int64_t scattered(std::int64_t i) {
    return static_cast<std::uint32_t>(i) * 2654435761u >> 16;
  }

  [[nodiscard]] std::int64_t contribution(int rank, std::int64_t i) const {
    using parx::reduce_op;
    const std::int64_t world = world_;
    // The number of ranks that add a number other than zero.
    const std::int64_t adders = std::min(world, exact_ / 4);
    const std::int64_t values = std::min<std::int64_t>(1000, exact_ / (2 * adders));
    switch (reduction_) {
      case reduce_op::sum:
      case reduce_op::premul_sum: return rank < adders ? (scattered(i) + rank * 17) % values : 0;
      case reduce_op::avg: {
        // Deviations that cancel in pairs: the sum is a multiple of the world.
        const bool alone = rank + 1 == world && world % 2 == 1;
        const std::int64_t deviation = alone ? 0 : (rank % 2 == 0 ? 1 : -1);
        return (world > adders ? 0 : scattered(i) % values) + deviation;
      }
      case reduce_op::product: {
        // At most six factors of two.
        const std::int64_t stride = (world + 5) / 6;
        return (rank + i) % stride == 0 && (scattered(i) >> rank % 16 & 1) != 0 ? 2 : 1;
      }
      default: return (scattered(i) + rank * 17) % std::min<std::int64_t>(1009, exact_);
    }
  }

  [[nodiscard]] std::int64_t combine(std::int64_t a, std::int64_t b) const {
    using parx::reduce_op;
    switch (reduction_) {
      case reduce_op::product: return a * b;
      case reduce_op::min: return std::min(a, b);
      case reduce_op::max: return std::max(a, b);
      case reduce_op::band: return a & b;
      case reduce_op::bor: return a | b;
      case reduce_op::bxor: return a ^ b;
      default: return a + b;
    }
  }

  [[nodiscard]] pattern contributions(int rank) const {
    pattern result;
    for (std::size_t i = 0; i < pattern_period; ++i) {
      result[i] = static_cast<double>(contribution(rank, static_cast<std::int64_t>(i)));
    }
    return result;
  }

  [[nodiscard]] pattern reduced() const { return reduced(world_); }
  /// The reduction over the first `ranks` ranks.
  [[nodiscard]] pattern reduced(int ranks) const {
    pattern result;
    for (std::size_t i = 0; i < pattern_period; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      std::int64_t total = contribution(0, at);
      for (int rank = 1; rank < ranks; ++rank) total = combine(total, contribution(rank, at));
      result[i] = static_cast<double>(total);
      if (reduction_ == parx::reduce_op::avg) result[i] /= world_;
      if (reduction_ == parx::reduce_op::premul_sum) result[i] *= premul_factor;
    }
    return result;
  }

  [[nodiscard]] pattern own_data(int rank) const {
    pattern result;
    const std::int64_t values = std::min<std::int64_t>(1009, exact_);
    for (std::size_t i = 0; i < pattern_period; ++i) {
      const std::int64_t mixed = scattered(static_cast<std::int64_t>(i));
      result[i] = static_cast<double>((mixed + rank * 17) % values);
    }
    return result;
  }

  [[nodiscard]] double tolerance() const {
    const bool power_of_two = (world_ & (world_ - 1)) == 0;
    if (reduction_ != parx::reduce_op::avg || power_of_two) return 0;
    return parx::visit_dtype(type_, []<typename T>(std::type_identity<T>) {
      return static_cast<double>(static_cast<float>(std::numeric_limits<T>::epsilon()));
    });
  }

  void fill(void* data, std::size_t count, const pattern& values) const {
    parx::visit_dtype(type_, [&]<typename T>(std::type_identity<T>) {
      auto* to = static_cast<T*>(data);
      for (std::size_t i = 0, at = 0; i < count; ++i, at = at + 1 < pattern_period ? at + 1 : 0) {
        to[i] = static_cast<T>(values[at]);
      }
    });
  }

  /// `first` is the index in the whole vector of the first element.
  [[nodiscard]] std::size_t differing(const void* data, std::size_t count, std::size_t first,
                                      const pattern& expected) const {
    const double allowed = tolerance();
    return parx::visit_dtype(type_, [&]<typename T>(std::type_identity<T>) {
      const auto* got = static_cast<const T*>(data);
      std::size_t wrong = 0;
      std::size_t at = first % pattern_period;
      for (std::size_t i = 0; i < count; ++i, at = at + 1 < pattern_period ? at + 1 : 0) {
        const auto value = static_cast<double>(got[i]);
        // A NaN is wrong too.
        if (!(std::abs(value - expected[at]) <= allowed * std::abs(expected[at]))) ++wrong;
      }
      return wrong;
    });
  }

  parx::dtype type_;
  parx::reduce_op reduction_;
  int world_;
  std::int64_t exact_;
};

}  // namespace bench
