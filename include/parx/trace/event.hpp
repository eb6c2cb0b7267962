// What a program records about itself: spans of time, counters, and the names of its threads.
//
//   parx::trace::span s{"all_reduce", "comm"};
//   s.arg("bytes", bytes);
//
// While nothing records (see chrome.hpp for how to start), each call is one relaxed atomic load and
// never allocates. While recording, an event is two clock readings and a copy into the thread's
// ring. Safe from any thread; a span belongs to the thread that opened it.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include <parx/trace/detail/record.hpp>

namespace parx::inline PARX_ABI::trace {

/// True while events are recorded: for work that only a trace needs.
[[nodiscard]] inline bool enabled() noexcept {
  return detail::recording.load(std::memory_order_relaxed);
}

/// A string literal. Categories and argument keys are kept by address; a string that could be gone
/// when the trace is written does not compile.
class literal {
 public:
  template <std::size_t N>
  consteval literal(const char (&text)[N]) noexcept : text_(text) {}  // NOLINT: meant to convert
  [[nodiscard]] constexpr const char* text() const noexcept { return text_; }

 private:
  const char* text_;
};

namespace detail {

template <typename T>
requires std::is_arithmetic_v<T>
[[nodiscard]] constexpr number to_number(T value) noexcept {
  if constexpr (std::floating_point<T>) {
    return static_cast<double>(value);
  } else if constexpr (std::unsigned_integral<T>) {
    return static_cast<std::uint64_t>(value);
  } else {
    return static_cast<std::int64_t>(value);
  }
}

}  // namespace detail

/// The time from its construction to the end of its scope.
class span {
 public:
  /// The first 48 bytes of `name` are copied.
  explicit span(std::string_view name, literal category = "parx") noexcept {
    if (enabled()) [[unlikely]]
      open(name, category);
  }
  span(const span&) = delete;
  span& operator=(const span&) = delete;
  ~span() {
    if (event_) [[unlikely]]
      close();
  }

  /// A number to show with the span. The first four are kept.
  template <typename T>
  requires std::is_arithmetic_v<T>
  void arg(literal key, T value) noexcept {
    if (event_) [[unlikely]]
      add({key.text(), detail::to_number(value)});
  }

 private:
  // Out of line, so that a span in a hot function is one load and one branch of code.
  [[gnu::cold]] void open(std::string_view name, literal category) noexcept;
  [[gnu::cold]] void close() noexcept;
  [[gnu::cold]] void add(detail::argument next) noexcept;

  std::optional<detail::event> event_;
};

/// The value of a quantity from now on ("bytes in flight"); viewers draw it as a curve.
template <typename T>
requires std::is_arithmetic_v<T>
void counter(std::string_view name, T value) noexcept {
  if (!enabled()) return;
  detail::event now{.kind = detail::event_kind::counter, .start_ns = detail::now_ns()};
  now.name = detail::short_text<48>(name);
  now.arguments[0] = {"value", detail::to_number(value)};
  now.argument_count = 1;
  detail::record(now);
}

/// The calling thread's name in traces ("compute", "comm"); its first 32 bytes are kept, even while
/// nothing records.
void name_thread(std::string_view name);

}  // namespace parx::trace

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/trace/detail/event_impl.hpp>
#endif
