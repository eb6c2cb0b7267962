// prefix_store: another store seen through a prefix, so that its users do not meet each other.
//
// The key k becomes "prefix/k" (PyTorch's rule). Nested, the outermost prefix ends up nearest the
// key: prefix_store("outer", prefix_store("inner", s)) turns k into "inner/outer/k".
//
// A prefix may hold a secret. Error messages, which end up in logs, then show another text for it.
//
// Borrows the other store, which must outlive it. Threads: as the other store.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <parx/core/error.hpp>
#include <parx/store/detail/failure.hpp>
#include <parx/store/store.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// What messages show for a prefix.
struct prefix_in_messages {
  std::string prefix;
  std::string shown_as;

  /// Acts on the other store; where that throws, the message is changed.
  template <typename Act>
  auto operator()(Act&& act) const {
    try {
      return act();
    } catch (const error& failure) {
      rethrow(failure);
    }
  }

 private:
  [[noreturn]] void rethrow(const error& failure) const {
    if (shown_as == prefix) throw;
    throw error(failure.code_value(), changed(failure.message()), failure.context(),
                failure.cause());
  }
  [[nodiscard]] std::string changed(std::string text) const {
    // As messages spell it: escaped, and cut where it is long.
    std::string spelled = quoted_key(prefix).substr(1);
    spelled.erase(spelled.find_last_not_of(".\"") + 1);
    for (auto at = text.find(spelled); at != text.npos; at = text.find(spelled, at)) {
      text.replace(at, spelled.size(), shown_as);
      at += shown_as.size();
    }
    return text;
  }
};

/// Another store's watch, with changed messages.
class prefix_watch final : public store_watch {
 public:
  prefix_watch(prefix_in_messages shown, std::unique_ptr<store_watch> other)
      : shown_(std::move(shown)), other_(std::move(other)) {}
  [[nodiscard]] int descriptor() const noexcept override { return other_->descriptor(); }
  [[nodiscard]] watch_state ready() override { return other_->ready(); }
  [[nodiscard]] std::string value(deadline limit) override {
    return shown_([&] { return other_->value(limit); });
  }

 private:
  prefix_in_messages shown_;
  std::unique_ptr<store_watch> other_;
};

}  // namespace detail

class prefix_store final : public store {
 public:
  prefix_store(std::string prefix, store& other) : prefix_store(prefix, other, prefix) {}
  /// Messages name the prefix `shown_as`.
  prefix_store(std::string prefix, store& other, std::string shown_as)
      : shown_{std::move(prefix), std::move(shown_as)}, other_(other) {
    set_default_timeout(other.default_timeout());
  }

  [[nodiscard]] std::string describe() const override {
    return fmt::format("prefix \"{}\" of {}", shown_.shown_as, other_.describe());
  }

 private:
  void do_set(std::string_view key, std::string_view value, deadline limit) override {
    return shown_([&] { return other_.set(full(key), value, limit); });
  }
  std::string do_get(std::string_view key, deadline limit) override {
    return shown_([&] { return other_.get(full(key), limit); });
  }
  std::int64_t do_add(std::string_view key, std::int64_t delta, deadline limit) override {
    return shown_([&] { return other_.add(full(key), delta, limit); });
  }
  void do_wait(std::span<const std::string> keys, deadline limit) override {
    return shown_([&] { return other_.wait(full(keys), limit); });
  }
  bool do_check(std::span<const std::string> keys, deadline limit) override {
    return shown_([&] { return other_.check(full(keys), limit); });
  }
  std::string do_compare_set(std::string_view key, std::string_view expected,
                             std::string_view desired, deadline limit) override {
    return shown_([&] { return other_.compare_set(full(key), expected, desired, limit); });
  }
  bool do_delete_key(std::string_view key, deadline limit) override {
    return shown_([&] { return other_.delete_key(full(key), limit); });
  }
  std::int64_t do_num_keys(deadline limit) override { return other_.num_keys(limit); }
  void do_append(std::string_view key, std::string_view value, deadline limit) override {
    return shown_([&] { return other_.append(full(key), value, limit); });
  }
  std::vector<std::string> do_multi_get(std::span<const std::string> keys,
                                        deadline limit) override {
    return shown_([&] { return other_.multi_get(full(keys), limit); });
  }
  void do_multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                    deadline limit) override {
    return shown_([&] { return other_.multi_set(full(keys), values, limit); });
  }
  std::unique_ptr<store_watch> do_watch(std::string_view key, deadline limit) override {
    auto watched = shown_([&] { return other_.watch(full(key), limit); });
    return std::unique_ptr<store_watch>(new detail::prefix_watch(shown_, std::move(watched)));
  }

  [[nodiscard]] std::string full(std::string_view key) const {
    return fmt::format("{}/{}", shown_.prefix, key);
  }
  [[nodiscard]] std::vector<std::string> full(std::span<const std::string> keys) const {
    std::vector<std::string> result;
    result.reserve(keys.size());
    for (const std::string& key : keys) result.push_back(full(key));
    return result;
  }

  detail::prefix_in_messages shown_;
  store& other_;
};

}  // namespace parx
