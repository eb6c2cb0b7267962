// xxh64: a fast checksum of files: about memory bandwidth on one core, without special
// instructions.
//
// Detects damage, not tampering. Pure. Source: xxHash's specification, "XXH64 algorithm
// description" (github.com/Cyan4973/xxHash, doc/xxhash_spec.md), seed 0; `xxhsum -H1` prints the
// same number.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

class xxh64 {
 public:
  void update(std::span<const std::byte> bytes) noexcept;

  /// The checksum of everything so far.
  [[nodiscard]] std::uint64_t value() const noexcept;

  [[nodiscard]] static std::uint64_t of(std::span<const std::byte> bytes) noexcept;

 private:
  static constexpr std::size_t stripe = 32;
  static constexpr std::uint64_t prime1 = 0x9E3779B185EBCA87, prime2 = 0xC2B2AE3D27D4EB4F,
                                 prime3 = 0x165667B19E3779F9, prime4 = 0x85EBCA77C2B2AE63,
                                 prime5 = 0x27D4EB2F165667C5;

  template <typename T>
  [[nodiscard]] static std::uint64_t load(const std::byte* at) noexcept {
    T word;
    std::memcpy(&word, at, sizeof word);
    return word;
  }
  [[nodiscard]] static std::uint64_t round(std::uint64_t lane, std::uint64_t input) noexcept {
    return std::rotl(lane + input * prime2, 31) * prime1;
  }
  static void mix(std::array<std::uint64_t, 4>& lanes, const std::byte* at) noexcept;

  std::array<std::uint64_t, 4> lanes_{prime1 + prime2, prime2, 0, 0 - prime1};
  std::array<std::byte, stripe> rest_{};
  std::size_t held_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/xxh64_impl.hpp>
#endif
