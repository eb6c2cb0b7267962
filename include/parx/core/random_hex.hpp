// Random bytes from the kernel, which nobody can guess: for secrets, nonces, tokens and names.
#pragma once

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <string>

#include <parx/core/error.hpp>
#include <parx/core/hex.hpp>

namespace parx::inline PARX_ABI::detail {

template <std::size_t Size>
[[nodiscard, gnu::cold]] std::array<unsigned char, Size> random_bytes() {
  std::array<unsigned char, Size> bytes{};
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const auto got = ::getrandom(bytes.data() + filled, bytes.size() - filled, 0);
    if (got > 0) {
      filled += static_cast<std::size_t>(got);
    } else if (errno != EINTR) {
      throw_error(errc::io, "cannot get random bytes: {}", errno_text(errno));
    }
  }
  return bytes;
}

/// 128 bits, as 32 hexadecimal digits.
[[nodiscard, gnu::cold]] inline std::string random_hex() {
  const auto bytes = random_bytes<16>();
  return to_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace parx::detail
