// protobuf: an encoder for the wire types of Protocol Buffers that event files use.
//
// A message is a string of fields, each a key (number and wire type) and a value. Pure. Source:
// protobuf.dev/programming-guides/encoding.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::train::detail {

/// The lowest `count` bytes of `value`.
[[nodiscard]] inline std::string little_endian(std::uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i)
    bytes += static_cast<char>(value >> (8U * static_cast<unsigned>(i)));
  return bytes;
}

class protobuf_message {
 public:
  protobuf_message& varint(unsigned field, std::uint64_t value) {
    key(field, 0);
    base128(value);
    return *this;
  }
  protobuf_message& real64(unsigned field, double value) {
    key(field, 1);
    text_ += little_endian(std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }
  protobuf_message& real32(unsigned field, float value) {
    key(field, 5);
    text_ += little_endian(std::bit_cast<std::uint32_t>(value), 4);
    return *this;
  }
  /// A string, or a message within this one.
  protobuf_message& bytes(unsigned field, std::string_view value) {
    key(field, 2);
    base128(value.size());
    text_ += value;
    return *this;
  }

  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  void key(unsigned field, unsigned wire_type) { base128(field << 3U | wire_type); }
  void base128(std::uint64_t value) {
    while (value >= 0x80) {
      text_ += static_cast<char>(value | 0x80U);
      value >>= 7U;
    }
    text_ += static_cast<char>(value);
  }

  std::string text_;
};

}  // namespace parx::train::detail
