// xxh64: a fast checksum: about memory bandwidth on one core, without special instructions.
//
// Detects damage, not tampering. Pure. Source: xxHash's specification, "XXH64 algorithm
// description" (github.com/Cyan4973/xxHash, doc/xxhash_spec.md), seed 0; `xxhsum -H1` prints the
// same number.
#pragma once

#include <algorithm>
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

  [[nodiscard]] static std::uint64_t of(std::span<const std::byte> bytes) noexcept {
    xxh64 hash;
    hash.update(bytes);
    return hash.value();
  }

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
  static void mix(std::array<std::uint64_t, 4>& lanes, const std::byte* at) noexcept {
    for (std::size_t i = 0; i < 4; ++i) lanes[i] = round(lanes[i], load<std::uint64_t>(at + 8 * i));
  }

  std::array<std::uint64_t, 4> lanes_{prime1 + prime2, prime2, 0, 0 - prime1};
  std::array<std::byte, stripe> rest_{};
  std::size_t held_ = 0;
  std::uint64_t total_ = 0;
};

inline void xxh64::update(std::span<const std::byte> bytes) noexcept {
  total_ += bytes.size();
  if (held_ > 0) {
    const std::size_t taken = std::min(bytes.size(), stripe - held_);
    std::copy_n(bytes.begin(), taken, rest_.begin() + static_cast<std::ptrdiff_t>(held_));
    held_ += taken;
    bytes = bytes.subspan(taken);
    if (held_ < stripe) return;
    mix(lanes_, rest_.data());
  }
  auto lanes = lanes_;  // a local, so that the four stay in registers
  for (; bytes.size() >= stripe; bytes = bytes.subspan(stripe)) mix(lanes, bytes.data());
  lanes_ = lanes;
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
  held_ = bytes.size();
}

inline std::uint64_t xxh64::value() const noexcept {
  std::uint64_t hash = prime5;
  if (total_ >= stripe) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (const std::uint64_t lane : lanes_) hash = (hash ^ round(0, lane)) * prime1 + prime4;
  }
  hash += total_;
  const std::byte* at = rest_.data();
  std::size_t left = held_;
  for (; left >= 8; left -= 8, at += 8)
    hash = std::rotl(hash ^ round(0, load<std::uint64_t>(at)), 27) * prime1 + prime4;
  for (; left >= 4; left -= 4, at += 4)
    hash = std::rotl(hash ^ load<std::uint32_t>(at) * prime1, 23) * prime2 + prime3;
  for (; left > 0; --left, ++at)
    hash = std::rotl(hash ^ std::to_integer<std::uint64_t>(*at) * prime5, 11) * prime1;
  hash = (hash ^ (hash >> 33)) * prime2;
  hash = (hash ^ (hash >> 29)) * prime3;
  return hash ^ (hash >> 32);
}

}  // namespace parx::detail
