// stream_copy: a copy with non-temporal stores, which bypass the caches.
//
// A plain store first fetches the line that it overwrites, and evicts others from the caches. For
// data larger than a cache, both are wasted. Measured: two ranks that copy 32 MiB each move 12 GB/s
// instead of 8, one alone that copies 64 MiB 9 instead of 7. glibc's memcpy does the same only from
// 180 MiB on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <parx/core/abi.hpp>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace parx::inline PARX_ABI::detail {

/// The size in bytes from which on stream_copy is faster than memcpy.
inline constexpr std::size_t least_streamed = std::size_t{16} << 20;

/// Like memcpy; the bytes are visible to other threads before any later store of this one.
inline void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__SSE2__)
  constexpr std::size_t line = 64;
  const std::size_t head = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
  if (bytes >= head + line) {
    std::memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= line; to += line, from += line, bytes -= line) {
      const auto* source = reinterpret_cast<const __m128i*>(from);
      auto* target = reinterpret_cast<__m128i*>(to);
      const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
      const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(target, a);
      _mm_stream_si128(target + 1, b);
      _mm_stream_si128(target + 2, c);
      _mm_stream_si128(target + 3, d);
    }
    _mm_sfence();
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace parx::detail
