// wire: sends 32-bit floats between ranks as bfloat16.
//
// Conversion can be done in place: the 16-bit values take the first half of the memory of the
// 32-bit ones. Rounding is to nearest, ties to even.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include <parx/types/dtype.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI {

/// The types in which the values and gradients of units are sent. Not set: their own type.
/// dtype::bfloat16: 32-bit floats are rounded to it, other types are sent as they are. Must be the
/// same on all ranks, which is checked.
struct wire_types {
  /// For gathers of values. All ranks compute with the rounded values, those of their own part
  /// included; optimizers work on the exact ones. Stages 1 and 2 then need a second copy of the
  /// part. If the ranks share pages, nothing is gathered and so nothing is rounded.
  std::optional<dtype> gather{};
  /// For reductions of gradients. Each rank's contribution is rounded once; the sum is formed in
  /// float, in rank order. With .shard_within the sums of the shard groups are then added up as
  /// bfloat16, and each of these additions rounds.
  std::optional<dtype> reduce{};
};

namespace detail {

[[nodiscard]] inline bool is_narrowed(const std::optional<dtype>& wire, dtype type) noexcept {
  return wire.has_value() && type == dtype::float32;
}

// Conversions go through small arrays, so that source and destination may overlap.
inline constexpr std::size_t wire_piece = 256;

template <typename From, typename To>
void convert_piece(const std::byte* from, std::byte* to, std::size_t count) noexcept {
  From in[wire_piece];
  To out[wire_piece];
  std::memcpy(in, from, count * sizeof(From));
  for (std::size_t i = 0; i < count; ++i) out[i] = To(in[i]);
  std::memcpy(to, out, count * sizeof(To));
}
/// `count` floats at `from` to bfloat16 at `to`, which may be the same place.
inline void narrow(const std::byte* from, std::byte* to, std::size_t count) noexcept {
  for (std::size_t at = 0; at < count; at += wire_piece) {
    convert_piece<float, bfloat16>(from + at * sizeof(float), to + at * sizeof(bfloat16),
                                   std::min(wire_piece, count - at));
  }
}
/// The inverse. It converts from the end, so that it can work in place.
inline void widen(const std::byte* from, std::byte* to, std::size_t count) noexcept {
  while (count > 0) {
    const std::size_t size = (count - 1) % wire_piece + 1;
    count -= size;
    convert_piece<bfloat16, float>(from + count * sizeof(bfloat16), to + count * sizeof(float),
                                   size);
  }
}
/// The floats at `sum` become the sum of `blocks` of `count` bfloat16, one after the other at
/// `from`, in that order. The two places do not overlap.
inline void add_up_narrow(const std::byte* from, std::size_t blocks, std::byte* sum,
                          std::size_t count) noexcept {
  float added[wire_piece];
  bfloat16 next[wire_piece];
  for (std::size_t at = 0; at < count; at += wire_piece) {
    const std::size_t size = std::min(wire_piece, count - at);
    for (std::size_t block = 0; block < blocks; ++block) {
      std::memcpy(next, from + (block * count + at) * sizeof(bfloat16), size * sizeof(bfloat16));
      for (std::size_t i = 0; i < size; ++i) {
        const auto value = static_cast<float>(next[i]);
        added[i] = block == 0 ? value : added[i] + value;
      }
    }
    std::memcpy(sum + at * sizeof(float), added, size * sizeof(float));
  }
}

}  // namespace detail
}  // namespace parx
