// hmac_sha256 (RFC 2104), computed by OpenSSL's libcrypto.
//
// The library is loaded when it is first needed: a program neither includes nor links OpenSSL, and
// one without a secret runs on a machine without it. parx has no cryptography of its own.
// Threads: safe from any.
#pragma once

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI {

/// A message authentication code.
using mac = std::array<unsigned char, 32>;

namespace detail {

/// The functions of libcrypto that parx calls, with the signatures of OpenSSL 1.1 to 3.
struct crypto_library {
  const void* (*sha256)() = nullptr;
  unsigned char* (*hmac)(const void* method, const void* key, int key_size,
                         const unsigned char* text, std::size_t size, unsigned char* out,
                         unsigned* out_size) = nullptr;
  int (*compare)(const void* one, const void* other, std::size_t size) = nullptr;
  std::string failure;  ///< why it could not be loaded; empty if it was

  static const crypto_library& instance() {
    static const crypto_library loaded;
    return loaded;
  }

 private:
  // Never unloaded: libcrypto runs its own clean-up when the process exits.
  crypto_library() {
    for (const char* const name : {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so"}) {
      void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) continue;
      find(library, "EVP_sha256", sha256);
      find(library, "HMAC", hmac);
      find(library, "CRYPTO_memcmp", compare);
      if (sha256 != nullptr && hmac != nullptr && compare != nullptr) return;
    }
    failure = "OpenSSL's libcrypto.so.3 (or .1.1) cannot be loaded; install it (Debian: libssl3)";
  }
  template <typename Function>
  static void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
  }
};

}  // namespace detail

/// Why this process cannot compute a MAC, and what to do; empty where it can.
[[nodiscard]] inline const std::string& why_no_hmac() {
  return detail::crypto_library::instance().failure;
}

/// Throws errc::io where libcrypto is missing.
[[nodiscard]] inline mac hmac_sha256(std::string_view key, std::string_view text) {
  const auto& library = detail::crypto_library::instance();
  mac result{};
  const bool done =
      library.failure.empty() &&
      library.hmac(library.sha256(), key.data(), static_cast<int>(key.size()),
                   reinterpret_cast<const unsigned char*>(text.data()), text.size(), result.data(),
                   nullptr) != nullptr;
  if (!done) {
    throw_error(errc::io, "nothing can be authenticated here: {}",
                library.failure.empty() ? "OpenSSL refuses HMAC-SHA256" : library.failure);
  }
  return result;
}

/// Takes a time that does not depend on where the two differ.
[[nodiscard]] inline bool equal_in_constant_time(const mac& one, const mac& other) noexcept {
  const auto& library = detail::crypto_library::instance();
  return library.failure.empty() && library.compare(one.data(), other.data(), one.size()) == 0;
}

}  // namespace parx
