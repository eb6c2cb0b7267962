// Definitions of protobuf.hpp.
#pragma once

#include <bit>

#include <parx/train/detail/protobuf.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE std::string little_endian(std::uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i)
    bytes += static_cast<char>(value >> (8U * static_cast<unsigned>(i)));
  return bytes;
}

PARX_INLINE protobuf_message& protobuf_message::varint(unsigned field, std::uint64_t value) {
  key(field, 0);
  base128(value);
  return *this;
}

PARX_INLINE protobuf_message& protobuf_message::real64(unsigned field, double value) {
  key(field, 1);
  text_ += little_endian(std::bit_cast<std::uint64_t>(value), 8);
  return *this;
}

PARX_INLINE protobuf_message& protobuf_message::real32(unsigned field, float value) {
  key(field, 5);
  text_ += little_endian(std::bit_cast<std::uint32_t>(value), 4);
  return *this;
}

PARX_INLINE protobuf_message& protobuf_message::bytes(unsigned field, std::string_view value) {
  key(field, 2);
  base128(value.size());
  text_ += value;
  return *this;
}

PARX_INLINE void protobuf_message::base128(std::uint64_t value) {
  while (value >= 0x80) {
    text_ += static_cast<char>(value | 0x80U);
    value >>= 7U;
  }
  text_ += static_cast<char>(value);
}

}  // namespace parx::train::detail
