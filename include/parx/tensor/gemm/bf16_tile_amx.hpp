// bf16_tile_amx: tiles of 32 x 32 sums in the tile registers of AMX.
//
// A step of 32 terms loads two tile registers of a and two of b, 1 KiB each, and does four
// tdpbf16ps of 16 cycles. A register of a is 16 rows of 32 terms, as they lie in a row-major
// matrix; one of b has pairs of terms side by side, for 16 columns.
//
// A thread loads its configuration of the tile registers before a task and releases it after it:
// registers in use cost 8 KiB of state at each switch of threads, and keep a core out of deep
// sleep.
#pragma once

#if defined(__x86_64__)

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include <parx/core/abi.hpp>

#define PARX_BF16_TILES \
  gnu::target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")

namespace parx::inline PARX_ABI::detail::product::amx {

// Registers 0 to 3 are the sums, 4 and 5 of a, 6 and 7 of b.
template <bool HasLowerRows, bool HasRightColumns>
[[PARX_BF16_TILES, gnu::always_inline]] inline void multiply_registers(std::size_t steps,
                                                                       const std::byte* a,
                                                                       const std::byte* b,
                                                                       float* sums) {
  _tile_zero(0);
  if constexpr (HasRightColumns) _tile_zero(1);
  if constexpr (HasLowerRows) _tile_zero(2);
  if constexpr (HasLowerRows && HasRightColumns) _tile_zero(3);
  for (std::size_t k = 0; k < steps; ++k, a += 2048, b += 2048) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    if constexpr (HasRightColumns) _tile_loadd(7, b + 1024, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (HasRightColumns) _tile_dpbf16ps(1, 4, 7);
    if constexpr (HasLowerRows) _tile_loadd(5, a + 1024, 64);
    if constexpr (HasLowerRows) _tile_dpbf16ps(2, 5, 6);
    if constexpr (HasLowerRows && HasRightColumns) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, 128);
  if constexpr (HasRightColumns) _tile_stored(1, sums + 16, 128);
  if constexpr (HasLowerRows) _tile_stored(2, sums + 512, 128);
  if constexpr (HasLowerRows && HasRightColumns) _tile_stored(3, sums + 528, 128);
}

[[PARX_BF16_TILES, gnu::noinline]] inline void multiply(std::size_t steps, const std::byte* a,
                                                        const std::byte* b, std::size_t rows,
                                                        std::size_t columns, float* sums) {
  __asm__ volatile("" ::: "memory");  // the packed operands are in memory
  if (rows <= 16) {
    if (columns <= 16) multiply_registers<false, false>(steps, a, b, sums);
    else multiply_registers<false, true>(steps, a, b, sums);
  } else {
    if (columns <= 16) multiply_registers<true, false>(steps, a, b, sums);
    else multiply_registers<true, true>(steps, a, b, sums);
  }
}

[[PARX_BF16_TILES]] inline void begin() {
  struct alignas(64) configuration {
    std::uint8_t palette = 1, start = 0, reserved[14] = {};
    std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static constexpr configuration whole;
  _tile_loadconfig(&whole);
}
[[PARX_BF16_TILES]] inline void end() { _tile_release(); }

}  // namespace parx::detail::product::amx

#endif
