// hash_store: a store in this process's memory, for ranks that are threads, for a world of one, and
// for tests.
//
// Threads: any number; those that wait sleep on one condition variable.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <parx/store/detail/failure.hpp>
#include <parx/store/detail/value_map.hpp>
#include <parx/store/store.hpp>

namespace parx::inline PARX_ABI {

class hash_store final : public store {
 public:
  [[nodiscard]] std::string describe() const override { return "hash_store of this process"; }

 private:
  class hash_watch final : public store_watch {
   public:
    hash_watch(hash_store& owner, std::string_view key) : owner_(owner), key_(key) {}
    [[nodiscard]] int descriptor() const noexcept override { return -1; }
    [[nodiscard]] watch_state ready() override {
      if (!seen_) {
        const std::lock_guard lock(owner_.mutex_);
        seen_ = owner_.values_.contains(key_);
      }
      return seen_ ? watch_state::set : watch_state::pending;
    }
    [[nodiscard]] std::string value(deadline limit) override { return owner_.get(key_, limit); }

   private:
    hash_store& owner_;
    std::string key_;
    bool seen_ = false;
  };

  void do_set(std::string_view key, std::string_view value, deadline) override {
    change([&] { values_.set(key, value); });
  }

  std::string do_get(std::string_view key, deadline limit) override {
    std::unique_lock lock(mutex_);
    const std::string keys[] = {std::string(key)};
    wait_for_keys(lock, "get", keys, limit);
    return *values_.find(key);
  }

  std::int64_t do_add(std::string_view key, std::int64_t delta, deadline limit) override {
    const auto sum = change([&] { return values_.add(key, delta); });
    if (!sum) {
      detail::throw_store_error(errc::bad_data, "add", detail::quoted_key(key), describe(), limit,
                                "the key does not hold a decimal number that can take the sum");
    }
    return *sum;
  }

  void do_wait(std::span<const std::string> keys, deadline limit) override {
    std::unique_lock lock(mutex_);
    wait_for_keys(lock, "wait", keys, limit);
  }

  bool do_check(std::span<const std::string> keys, deadline) override {
    const std::lock_guard lock(mutex_);
    return values_.missing(keys).empty();
  }

  std::string do_compare_set(std::string_view key, std::string_view expected,
                             std::string_view desired, deadline) override {
    return change([&] { return values_.compare_set(key, expected, desired); });
  }

  bool do_delete_key(std::string_view key, deadline) override {
    return change([&] { return values_.erase(key); });
  }

  std::int64_t do_num_keys(deadline) override {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int64_t>(values_.size());
  }

  void do_append(std::string_view key, std::string_view value, deadline) override {
    change([&] { values_.append(key, value); });
  }

  std::vector<std::string> do_multi_get(std::span<const std::string> keys,
                                        deadline limit) override {
    std::unique_lock lock(mutex_);
    wait_for_keys(lock, "multi_get", keys, limit);
    std::vector<std::string> result;
    result.reserve(keys.size());
    for (const std::string& key : keys) result.push_back(*values_.find(key));
    return result;
  }

  void do_multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                    deadline) override {
    change([&] {
      for (std::size_t i = 0; i < keys.size(); ++i) values_.set(keys[i], values[i]);
    });
  }

  std::unique_ptr<store_watch> do_watch(std::string_view key, deadline) override {
    return std::make_unique<hash_watch>(*this, key);
  }

  template <typename Action>
  std::invoke_result_t<Action> change(Action action) {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
    return action();
  }

  void wait_for_keys(std::unique_lock<std::mutex>& lock, std::string_view operation,
                     std::span<const std::string> keys, const deadline& limit) {
    while (true) {
      const auto missing = values_.missing(keys);
      if (missing.empty()) return;
      if (limit.passed()) {
        detail::throw_store_error(errc::timeout, operation, detail::quoted_keys(keys), describe(),
                                  limit, "nobody set " + detail::quoted_keys(missing));
      }
      if (limit.is_never()) {
        changed_.wait(lock);
      } else {
        changed_.wait_until(lock, limit.end());
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  detail::value_map values_;
};

}  // namespace parx
