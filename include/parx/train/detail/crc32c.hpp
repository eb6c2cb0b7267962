// crc32c: the checksum of TFRecord files (Castagnoli's polynomial, reflected 0x82F63B78), plain and
// masked.
//
// Pure. Source: RFC 3720, appendix B.4; the masking: TensorFlow, tsl/lib/hash/crc32c.h.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::train::detail {

[[nodiscard]] constexpr std::array<std::uint32_t, 256> crc32c_table() noexcept {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t rest = i;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1U) ^ ((rest & 1U) != 0 ? 0x82F63B78U : 0U);
    table[i] = rest;
  }
  return table;
}

[[nodiscard]] constexpr std::uint32_t crc32c(std::string_view bytes) noexcept {
  constexpr auto table = crc32c_table();
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) {
    crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xFFU] ^ (crc >> 8U);
  }
  return ~crc;
}
static_assert(crc32c("123456789") == 0xE3069283U);

/// The form that records store: a CRC of data that contain CRCs would be weak.
[[nodiscard]] constexpr std::uint32_t masked_crc32c(std::string_view bytes) noexcept {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15U | crc << 17U) + 0xA282EAD8U;
}

}  // namespace parx::train::detail
