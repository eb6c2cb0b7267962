// value_map: the semantics of a store's operations, on a map in memory.
//
// Used by the in-process store and the TCP server, so that both have the same corner cases. Not
// synchronized: the owner has a lock or one thread.
//
// Source of the semantics: torch/csrc/distributed/c10d/{HashStore,TCPStoreBackend}.cpp.
#pragma once

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
#include <parx/core/parse_number.hpp>

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

  void set(std::string_view key, std::string_view value) {
    std::string& held = slot(key);
    // A string keeps the memory of what it held before, and a store is limited by what it holds
    // now.
    if (value.size() < held.capacity() / 2) std::string(value).swap(held);
    else held.assign(value);
  }
  void append(std::string_view key, std::string_view value) { slot(key).append(value); }

  bool erase(std::string_view key) {
    const auto found = values_.find(key);
    if (found == values_.end()) return false;
    values_.erase(found);
    return true;
  }

  /// The sum of `delta` and a counter's text (nullptr: missing, counts as 0). nullopt where the
  /// text is not a decimal integer or the sum overflows 64 bits.
  [[nodiscard]] static std::optional<std::int64_t> plus(const std::string* text,
                                                        std::int64_t delta) {
    const auto value = text == nullptr ? 0 : parse_number<std::int64_t>(*text);
    std::int64_t sum = 0;
    if (!value || __builtin_add_overflow(*value, delta, &sum)) return std::nullopt;
    return sum;
  }

  /// Adds to a counter and returns its new value; nullopt, with nothing changed, as from plus().
  [[nodiscard]] std::optional<std::int64_t> add(std::string_view key, std::int64_t delta) {
    const auto sum = plus(find(key), delta);
    if (sum) set(key, std::to_string(*sum));
    return sum;
  }

  /// Whether compare_set stores: the value equals `expected`, or is missing (nullptr) and
  /// `expected` is empty.
  [[nodiscard]] static bool matches(const std::string* present,
                                    std::string_view expected) noexcept {
    return present == nullptr ? expected.empty() : *present == expected;
  }

  /// As store::compare_set.
  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired) {
    const std::string* present = find(key);
    if (matches(present, expected)) {
      set(key, desired);
      return std::string(desired);
    }
    return present == nullptr ? std::string(expected) : *present;
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
