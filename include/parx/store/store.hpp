// store: a key-value service through which ranks find each other before they can talk directly.
//
// Keys and values are opaque bytes. The operations and their corner cases are those of PyTorch's
// c10d::Store, so that any store here can serve a job in which PyTorch takes part. Stores are not
// meant for bulk data: over TCP a key has at most 8 KiB and a value at most 8 MiB.
//
// Threads: a store may be called from several threads at once; a store_watch belongs to one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/own_process.hpp>

namespace parx::inline PARX_ABI {

enum class watch_state {
  pending,  ///< the key does not exist yet
  set,      ///< the key exists: value() returns without waiting for another rank
  lost,     ///< the server is gone or broke the protocol: this watch will not see the key
};

/// A wait for one key that can be part of a poll(2) set. It must not outlive the store that made
/// it; only the watch of a tcp_store may, since it has a connection of its own.
class store_watch {
 public:
  store_watch() = default;
  store_watch(const store_watch&) = delete;
  store_watch& operator=(const store_watch&) = delete;
  virtual ~store_watch() = default;

  /// Becomes readable (POLLIN) when ready() no longer returns pending. -1 where this kind of store
  /// has no descriptor: then call ready() periodically. Owned by the watch; never read from it.
  [[nodiscard]] virtual int descriptor() const noexcept = 0;

  /// Does not block. set and lost are final.
  [[nodiscard]] virtual watch_state ready() = 0;

  /// The key's value. Waits for the key where ready() has not returned set yet; throws parx::error
  /// when the deadline passes or the server is gone.
  [[nodiscard]] virtual std::string value(deadline limit) = 0;
};

/// The interface of all stores. Every call blocks at most until its deadline, which defaults to the
/// store's timeout from now. Failures are parx::error with errc::timeout (the deadline passed; the
/// store stays usable), errc::peer_lost (the server is gone), errc::protocol (its answer is wrong)
/// or errc::io. They name the operation, the keys, the server and the time spent. In a forked child
/// of the store's process every call throws usage_error.
class store {
 public:
  store() = default;
  store(const store&) = delete;
  store& operator=(const store&) = delete;
  virtual ~store() = default;

  /// Stores the value, replacing an older one, and ends the waits for the key. When it returns, all
  /// processes can see the value, even if this process ends.
  void set(std::string_view key, std::string_view value, std::optional<deadline> limit = {}) {
    do_set(key, value, or_default(limit));
  }

  /// The key's value, as soon as the key exists.
  [[nodiscard]] std::string get(std::string_view key, std::optional<deadline> limit = {}) {
    return do_get(key, or_default(limit));
  }

  /// Adds to a counter and returns the new value; a missing key counts as 0. The value is stored as
  /// decimal text, so get() of a counter returns "5". Throws errc::bad_data where the key holds
  /// something else; a tcp_store throws peer_lost, because the server then closes the connection.
  std::int64_t add(std::string_view key, std::int64_t delta, std::optional<deadline> limit = {}) {
    return do_add(key, delta, or_default(limit));
  }

  /// Returns when all keys exist, at once when there are none. The timeout error names the missing
  /// ones.
  void wait(std::span<const std::string> keys, std::optional<deadline> limit = {}) {
    do_wait(keys, or_default(limit));
  }

  /// Whether all keys exist now.
  [[nodiscard]] bool check(std::span<const std::string> keys, std::optional<deadline> limit = {}) {
    return do_check(keys, or_default(limit));
  }

  /// Compare and swap. Stores `desired` and returns it if the value equals `expected`, or if the
  /// key is missing and `expected` is empty. Otherwise changes nothing and returns the present
  /// value, or `expected` if the key is missing.
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                          std::optional<deadline> limit = {}) {
    return do_compare_set(key, expected, desired, or_default(limit));
  }

  /// Deletes the key; returns whether it existed.
  bool delete_key(std::string_view key, std::optional<deadline> limit = {}) {
    return do_delete_key(key, or_default(limit));
  }

  /// The number of keys in the whole store, those of other users and prefixes and PyTorch's "init/"
  /// (its count of the processes that joined) included.
  [[nodiscard]] std::int64_t num_keys(std::optional<deadline> limit = {}) {
    return do_num_keys(or_default(limit));
  }

  /// Appends to the key's value, creating it where it is missing, and ends the waits for the key.
  void append(std::string_view key, std::string_view value, std::optional<deadline> limit = {}) {
    do_append(key, value, or_default(limit));
  }

  /// The values of all keys, in order, as soon as all exist.
  [[nodiscard]] std::vector<std::string> multi_get(std::span<const std::string> keys,
                                                   std::optional<deadline> limit = {}) {
    return do_multi_get(keys, or_default(limit));
  }

  /// Sets keys[i] to values[i]. Throws usage_error when the lengths differ.
  void multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                 std::optional<deadline> limit = {}) {
    require(keys.size() == values.size(), "store multi_set was given {} keys and {} values",
            keys.size(), values.size());
    do_multi_set(keys, values, or_default(limit));
  }

  /// Starts to wait for a key in the background. Throws when the watch cannot be set up before the
  /// deadline.
  [[nodiscard]] std::unique_ptr<store_watch> watch(std::string_view key,
                                                   std::optional<deadline> limit = {}) {
    return do_watch(key, or_default(limit));
  }

  /// The name of this store in error messages: "tcp_store n1:29500".
  [[nodiscard]] virtual std::string describe() const = 0;

  /// The timeout of calls without a deadline, initially 300 s as in PyTorch.
  [[nodiscard]] std::chrono::milliseconds default_timeout() const noexcept {
    return std::chrono::milliseconds(default_timeout_.load(std::memory_order_relaxed));
  }
  void set_default_timeout(std::chrono::milliseconds limit) noexcept {
    default_timeout_.store(limit.count(), std::memory_order_relaxed);
  }

 private:
  virtual void do_set(std::string_view key, std::string_view value, deadline limit) = 0;
  virtual std::string do_get(std::string_view key, deadline limit) = 0;
  virtual std::int64_t do_add(std::string_view key, std::int64_t delta, deadline limit) = 0;
  virtual void do_wait(std::span<const std::string> keys, deadline limit) = 0;
  virtual bool do_check(std::span<const std::string> keys, deadline limit) = 0;
  virtual std::string do_compare_set(std::string_view key, std::string_view expected,
                                     std::string_view desired, deadline limit) = 0;
  virtual bool do_delete_key(std::string_view key, deadline limit) = 0;
  virtual std::int64_t do_num_keys(deadline limit) = 0;
  virtual void do_append(std::string_view key, std::string_view value, deadline limit) = 0;
  virtual std::vector<std::string> do_multi_get(std::span<const std::string> keys,
                                                deadline limit) = 0;
  virtual void do_multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                            deadline limit) = 0;
  virtual std::unique_ptr<store_watch> do_watch(std::string_view key, deadline limit) = 0;

  [[nodiscard]] deadline or_default(const std::optional<deadline>& limit) const {
    if (!process_.is_this()) [[unlikely]] {
      throw_usage("{} was opened by the process that this one was forked from, and only that one "
                  "may use it: open a store of its own here",
                  describe());
    }
    return limit ? *limit : deadline::after(default_timeout());
  }

  detail::own_process process_;
  std::atomic<std::chrono::milliseconds::rep> default_timeout_{300'000};
};

}  // namespace parx
