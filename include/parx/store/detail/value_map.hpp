// value_map: what the operations of a store mean, on a map in memory.
//
// The in-process store and the TCP server both use this one, so that the corner
// cases are the same everywhere. No lock: the owner has one.
//
// Source of the semantics: torch/csrc/distributed/c10d/{HashStore,TCPStoreBackend}.cpp.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

class value_map {
 public:
  [[nodiscard]] const std::string* find(std::string_view key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] bool contains(std::string_view key) const { return find(key) != nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return values_.size(); }
  [[nodiscard]] const auto& entries() const noexcept { return values_; }

  void set(std::string_view key, std::string_view value) { slot(key).assign(value); }
  void append(std::string_view key, std::string_view value) { slot(key).append(value); }

  bool erase(std::string_view key) {
    const auto found = values_.find(key);
    if (found == values_.end()) return false;
    values_.erase(found);
    return true;
  }

  /// What a counter that holds `text` (nullptr: missing, counts as 0) becomes. nullopt where the
  /// text is no whole decimal number or the sum leaves 64 bits.
  [[nodiscard]] static std::optional<std::int64_t> plus(const std::string* text,
                                                        std::int64_t delta) {
    std::int64_t value = 0;
    if (text != nullptr) {
      const char* const end = text->data() + text->size();
      const auto [stop, code] = std::from_chars(text->data(), end, value);
      if (code != std::errc{} || stop != end) return std::nullopt;
    }
    if (__builtin_add_overflow(value, delta, &value)) return std::nullopt;
    return value;
  }

  /// The new value of a counter; nullopt, with nothing changed, where plus() says so.
  [[nodiscard]] std::optional<std::int64_t> add(std::string_view key, std::int64_t delta) {
    const auto sum = plus(find(key), delta);
    if (sum) set(key, std::to_string(*sum));
    return sum;
  }

  /// Whether compare_set stores: the value is the expected one, or is missing (nullptr) and
  /// expected is empty.
  [[nodiscard]] static bool matches(const std::string* present,
                                    std::string_view expected) noexcept {
    return present == nullptr ? expected.empty() : *present == expected;
  }

  struct swap_result {
    std::string answer;  ///< what compare_set returns
    bool stored = false;
  };
  [[nodiscard]] swap_result compare_set(std::string_view key, std::string_view expected,
                                        std::string_view desired) {
    const std::string* present = find(key);
    if (matches(present, expected)) {
      set(key, desired);
      return {std::string(desired), true};
    }
    return {present == nullptr ? std::string(expected) : *present, false};
  }

  [[nodiscard]] std::vector<std::string> missing(std::span<const std::string> keys) const {
    std::vector<std::string> result;
    for (const std::string& key : keys) {
      if (!contains(key)) result.push_back(key);
    }
    return result;
  }

 private:
  std::string& slot(std::string_view key) {
    const auto found = values_.lower_bound(key);
    if (found != values_.end() && found->first == key) return found->second;
    return values_.emplace_hint(found, key, std::string())->second;
  }

  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace parx::detail
