// store: a key-value service through which ranks find each other before they can talk directly.
//
// Keys and values are opaque bytes; the operations and their corner cases are PyTorch's
// (c10d::Store), so that any store here can serve a job that PyTorch takes part in. No store is
// meant for bulk data: over TCP a key is at most 8 KiB and a value at most 8 MiB.
//
// Threads: every store may be called from several threads at once; a store_watch belongs to one.
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
  lost,     ///< the server has gone, or broke the protocol: the key will never be seen
};

/// A wait for one key that can sit in a poll set beside other descriptors. It must not outlive the
/// store that made it, except that of a tcp_store, which has a connection of its own.
class store_watch {
 public:
  store_watch() = default;
  store_watch(const store_watch&) = delete;
  store_watch& operator=(const store_watch&) = delete;
  virtual ~store_watch() = default;

  /// Becomes readable (POLLIN) when ready() would no longer say pending. -1 where this kind of
  /// store has no descriptor: then call ready() now and then. Owned by the watch; never read from
  /// it.
  [[nodiscard]] virtual int descriptor() const noexcept = 0;

  /// Never blocks. Once it has said set or lost it keeps saying so.
  [[nodiscard]] virtual watch_state ready() = 0;

  /// The key's value. Waits for the key where ready() has not said set yet; throws parx::error when
  /// the deadline passes or the server has gone.
  [[nodiscard]] virtual std::string value(deadline limit) = 0;
};

/// The interface of all stores. Every call blocks at most until its deadline, which is the store's
/// default timeout from now where the argument is left out. Failures are parx::error with
/// errc::timeout (the deadline passed; the store stays usable), errc::peer_lost (the server has
/// gone), errc::protocol (it answered nonsense) or errc::io, and name the operation, the keys, the
/// server and the time spent; and usage_error in a process that was forked from the store's own.
class store {
 public:
  store() = default;
  store(const store&) = delete;
  store& operator=(const store&) = delete;
  virtual ~store() = default;

  /// Stores the value, replacing an older one, and wakes those who wait for the key. When it
  /// returns, every other process can see the value, whatever becomes of this one.
  void set(std::string_view key, std::string_view value, std::optional<deadline> limit = {}) {
    do_set(key, value, or_default(limit));
  }

  /// The key's value, as soon as the key exists.
  [[nodiscard]] std::string get(std::string_view key, std::optional<deadline> limit = {}) {
    return do_get(key, or_default(limit));
  }

  /// Adds to a counter and returns the new value; a missing key counts as 0. The value is kept as
  /// decimal text, so get() of a counter returns "5". Throws errc::bad_data (tcp_store: peer_lost,
  /// because such servers hang up) when the key holds something else.
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

  /// Stores `desired` where the value equals `expected`, or where the key is missing and `expected`
  /// is empty, and returns `desired`. Otherwise changes nothing and returns the present value, or
  /// `expected` where the key is missing.
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                          std::optional<deadline> limit = {}) {
    return do_compare_set(key, expected, desired, or_default(limit));
  }

  /// Whether the key existed.
  bool delete_key(std::string_view key, std::optional<deadline> limit = {}) {
    return do_delete_key(key, or_default(limit));
  }

  /// The number of keys of the whole store: those of other users, other prefixes, and PyTorch's own
  /// "init/" (a counter of the processes that joined) count too.
  [[nodiscard]] std::int64_t num_keys(std::optional<deadline> limit = {}) {
    return do_num_keys(or_default(limit));
  }

  /// Appends to the key's value, creating it where it is missing, and wakes those who wait for it.
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

  /// Starts to wait for a key without blocking for it. Throws when the watch cannot be set up
  /// before the deadline.
  [[nodiscard]] std::unique_ptr<store_watch> watch(std::string_view key,
                                                   std::optional<deadline> limit = {}) {
    return do_watch(key, or_default(limit));
  }

  /// What error messages call this store: "tcp_store at n1:29500".
  [[nodiscard]] virtual std::string describe() const = 0;

  /// The limit of calls without a deadline, initially PyTorch's 300 s.
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
