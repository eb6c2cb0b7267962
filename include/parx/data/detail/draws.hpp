// draws: the random numbers of one generated sample, one after the other, as a function of (seed,
// index of the sample, purpose). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <parx/tensor/philox.hpp>
#include <parx/tensor/random.hpp>

namespace parx::inline PARX_ABI::data::detail {

class draws {
 public:
  /// `purpose` separates these numbers from all others of the same seed.
  draws(std::uint64_t seed, std::uint64_t index, std::string_view purpose) noexcept
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)},
        counter_{0, static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32U),
                 static_cast<std::uint32_t>(stable_hash(purpose))} {}

  std::uint32_t word() noexcept {
    if (drawn_ % 4 == 0) {
      counter_[0] = drawn_ / 4;
      block_ = philox4x32(counter_, key_);
    }
    return block_[drawn_++ % 4];
  }
  float between(float low, float high) noexcept {
    return low + (high - low) * (static_cast<float>(word() >> 8U) * 0x1p-24F);
  }
  std::size_t below(std::size_t bound) noexcept {
    return static_cast<std::size_t>(std::uint64_t{word()} * bound >> 32U);
  }
  template <typename List>
  std::string_view one_of(const List& list) noexcept {
    return list[below(list.size())];
  }

 private:
  philox_key key_;
  philox_counter counter_;
  philox_counter block_{};
  std::uint32_t drawn_ = 0;
};

}  // namespace parx::data::detail
