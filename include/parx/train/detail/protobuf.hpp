// protobuf: an encoder for the wire types of Protocol Buffers that event files use.
//
// A message is a string of fields, each a key (number and wire type) and a value. Pure. Source:
// protobuf.dev/programming-guides/encoding.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::train::detail {

/// The lowest `count` bytes of `value`.
[[nodiscard]] std::string little_endian(std::uint64_t value, int count);

class protobuf_message {
 public:
  protobuf_message& varint(unsigned field, std::uint64_t value);
  protobuf_message& real64(unsigned field, double value);
  protobuf_message& real32(unsigned field, float value);
  /// A string, or a message within this one.
  protobuf_message& bytes(unsigned field, std::string_view value);

  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  void key(unsigned field, unsigned wire_type) { base128(field << 3U | wire_type); }
  void base128(std::uint64_t value);

  std::string text_;
};

}  // namespace parx::train::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/protobuf_impl.hpp>
#endif
