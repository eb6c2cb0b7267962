// wire: 32-bit floats that travel between ranks as bfloat16.
//
// The 16-bit values take the first half of the memory of the 32-bit ones, or another place, so that
// conversion needs no memory of its own. Rounding is to nearest, ties to even.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>

#include <parx/types/dtype.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI {

/// As what the values and gradients of units travel. Not set: as they are. dtype::bfloat16: 32-bit
/// floats are rounded to it, other types stay. The same on all ranks, which is checked.
struct wire_types {
  /// Values when they are gathered. A rank computes with rounded values, those of its own part
  /// included, and its optimizer with exact ones: so all ranks see the same. Stages 1 and 2 then
  /// need a second copy of the part. Where ranks read the same pages nothing is gathered, so
  /// nothing is rounded.
  std::optional<dtype> gather{};
  /// Gradients when they are reduced. Each rank's contribution is rounded once; the sum is made in
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
void narrow(const std::byte* from, std::byte* to, std::size_t count) noexcept;
/// The inverse; from the end, for the same reason.
void widen(const std::byte* from, std::byte* to, std::size_t count) noexcept;
/// The floats at `sum` become the sum of `blocks` of `count` bfloat16, one after the other at
/// `from`, in that order. The two places do not overlap.
void add_up_narrow(const std::byte* from, std::size_t blocks, std::byte* sum,
                   std::size_t count) noexcept;

}  // namespace detail
}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/fsdp/detail/wire_impl.hpp>
#endif
