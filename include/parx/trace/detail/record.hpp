// What is recorded: an event, by value.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include <parx/core/utf8.hpp>

namespace parx::inline PARX_ABI::trace::detail {

inline std::atomic<bool> recording{false};

/// The longest prefix of `text` of at most N bytes that cuts no UTF-8 character, held by value.
template <std::size_t N>
class short_text {
 public:
  constexpr short_text() = default;
  explicit constexpr short_text(std::string_view text) noexcept {
    while (size_ < text.size()) {
      const auto next = parx::detail::front_character(text.substr(size_)).bytes;
      if (size_ + next > N) break;
      size_ += next;
    }
    std::copy_n(text.data(), size_, bytes_.data());
  }
  [[nodiscard]] constexpr std::string_view view() const noexcept { return {bytes_.data(), size_}; }

 private:
  std::size_t size_ = 0;
  std::array<char, N> bytes_{};
};

using number = std::variant<std::int64_t, std::uint64_t, double>;

struct argument {
  const char* key = "";
  number value = {};
};

enum class event_kind { span, counter };

struct event {
  event_kind kind = event_kind::span;
  std::int64_t start_ns = 0;  ///< on the steady clock
  std::int64_t duration_ns = 0;
  const char* category = "";
  short_text<48> name = {};
  std::size_t argument_count = 0;
  std::array<argument, 4> arguments = {};
};

[[nodiscard]] inline std::int64_t now_ns() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

/// Keeps an event of the calling thread.
void record(const event& next) noexcept;

}  // namespace parx::trace::detail
