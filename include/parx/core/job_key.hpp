// job_key: the key with which the ranks of a job authenticate each other.
//
// It is derived from the job's secret and run id, so that a signature of one job is worthless in
// another. The secret itself is not kept; neither secret nor key is ever sent or printed. A
// signature covers a purpose, the parts and the length of each. Whether the job encrypts its
// connections (PARX_TLS) is part of the key: ranks that disagree about it reject each other.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include <parx/core/hmac.hpp>

namespace parx::inline PARX_ABI {

class job_key {
 public:
  /// Throws errc::io where libcrypto is missing.
  job_key(std::string_view secret, std::string_view run_id, bool encrypts = false)
      : bytes_(sign_with(secret, encrypts ? "parx job, encrypted" : "parx job", {run_id})),
        encrypts_(encrypts) {}

  /// Whether connections between hosts switch to TLS once both sides have proved that they know the
  /// key.
  [[nodiscard]] bool encrypts() const noexcept { return encrypts_; }

  [[nodiscard]] mac sign(std::string_view purpose,
                         std::initializer_list<std::string_view> parts) const {
    return sign_with(view(bytes_), purpose, parts);
  }
  [[nodiscard]] bool has_signed(const mac& signature, std::string_view purpose,
                                std::initializer_list<std::string_view> parts) const {
    return equal_in_constant_time(signature, sign(purpose, parts));
  }

  /// The bytes of a trivially copyable value, to be signed.
  template <typename Value>
  [[nodiscard]] static std::string_view view(const Value& value) noexcept {
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }

 private:
  [[nodiscard, gnu::cold]] static mac sign_with(std::string_view key, std::string_view purpose,
                                                std::initializer_list<std::string_view> parts) {
    std::string text;
    const auto append = [&](std::string_view part) {
      text.append(view(std::uint64_t{part.size()}));
      text.append(part);
    };
    append(purpose);
    for (const std::string_view part : parts) append(part);
    return hmac_sha256(key, text);
  }

  mac bytes_;
  bool encrypts_;
};

}  // namespace parx
