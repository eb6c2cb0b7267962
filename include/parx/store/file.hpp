// file_store: a store in a file that all ranks can reach, in PyTorch's FileStore format (both can
// use one file at the same time).
//
// Works wherever flock(2) works between the ranks: one host, NFS, Lustre mounted with -o flock. The
// file must be new or empty when a job starts; waiting is polling, every 10 ms, so use tcp_store
// where a port can be opened.
//
// Threads: any number, one at a time; a waiting call lets the others in.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <parx/core/formatted.hpp>
#include <parx/store/detail/failure.hpp>
#include <parx/store/detail/log_file.hpp>
#include <parx/store/store.hpp>

namespace parx::inline PARX_ABI {

struct file_store_options {
  std::string path;
  /// The last of this many processes to destroy its store removes the file; 0 leaves it.
  int world_size = 0;
};

class file_store final : public store {
 public:
  explicit file_store(file_store_options options)
      : file_(std::move(options.path)), world_size_(options.world_size) {}

  /// Counts this process as finished. Waits at most a second for the file's lock.
  ~file_store() override {
    if (world_size_ <= 0 || !is_here() || !file_.exists()) return;
    try {
      locked("close", {}, access::write, deadline::after(std::chrono::seconds(1)), [&](auto& file) {
        const auto finished = file.values().add("cleanup/", 1);
        if (!finished) return;
        file.append("cleanup/", std::to_string(*finished));
        if (*finished == world_size_) file.remove();
      });
    } catch (const std::exception&) {
      // A file that stays behind is harmless; a destructor that throws is not.
    }
  }

  [[nodiscard]] std::string describe() const override {
    return formatted("file_store {}", file_.path());
  }

 private:
  using access = detail::log_file::access;

  class file_watch final : public store_watch {
   public:
    file_watch(file_store& owner, std::string_view key) : owner_(owner), key_(key) {}
    [[nodiscard]] int descriptor() const noexcept override { return -1; }
    [[nodiscard]] watch_state ready() override {
      if (state_ != watch_state::pending) return state_;
      try {
        const std::lock_guard lock(owner_.mutex_);
        owner_.file_.try_locked(access::read, [&](auto& file) {
          if (file.values().contains("/" + key_)) state_ = watch_state::set;
        });
      } catch (const detail::store_failure&) {
        state_ = watch_state::lost;
      }
      return state_;
    }
    [[nodiscard]] std::string value(deadline limit) override { return owner_.get(key_, limit); }

   private:
    file_store& owner_;
    std::string key_;
    watch_state state_ = watch_state::pending;
  };

  void do_set(std::string_view key, std::string_view value, deadline limit) override {
    locked("set", detail::quoted_key(key), access::write, limit,
           [&](auto& file) { file.append(stored(key), value); });
  }

  std::string do_get(std::string_view key, deadline limit) override {
    const std::string keys[] = {std::string(key)};
    return std::move(when_all_exist("get", keys, limit).front());
  }

  std::int64_t do_add(std::string_view key, std::int64_t delta, deadline limit) override {
    std::int64_t result = 0;
    locked("add", detail::quoted_key(key), access::write, limit, [&](auto& file) {
      const auto sum = file.values().add(stored(key), delta);
      if (!sum) {
        throw detail::store_failure{errc::bad_data,
                                    "the key does not hold a decimal number that can take the sum"};
      }
      result = *sum;
      file.append(stored(key), std::to_string(result));
    });
    return result;
  }

  void do_wait(std::span<const std::string> keys, deadline limit) override {
    when_all_exist("wait", keys, limit);
  }

  bool do_check(std::span<const std::string> keys, deadline limit) override {
    bool result = false;
    locked("check", detail::quoted_keys(keys), access::read, limit,
           [&](auto& file) { result = missing(file, keys).empty(); });
    return result;
  }

  std::string do_compare_set(std::string_view key, std::string_view expected,
                             std::string_view desired, deadline limit) override {
    std::string answer;
    locked("compare_set", detail::quoted_key(key), access::write, limit, [&](auto& file) {
      auto result = file.values().compare_set(stored(key), expected, desired);
      if (result.stored) file.append(stored(key), desired);
      answer = std::move(result.answer);
    });
    return answer;
  }

  bool do_delete_key(std::string_view key, deadline limit) override {
    bool existed = false;
    locked("delete_key", detail::quoted_key(key), access::write, limit, [&](auto& file) {
      existed = file.values().erase(stored(key));
      if (existed) file.append("-" + stored(key), {});
    });
    return existed;
  }

  std::int64_t do_num_keys(deadline limit) override {
    std::int64_t result = 0;
    locked("num_keys", {}, access::read, limit,
           [&](auto& file) { result = static_cast<std::int64_t>(file.values().size()); });
    return result;
  }

  void do_append(std::string_view key, std::string_view value, deadline limit) override {
    locked("append", detail::quoted_key(key), access::write, limit, [&](auto& file) {
      file.values().append(stored(key), value);
      file.append(stored(key), *file.values().find(stored(key)));
    });
  }

  std::vector<std::string> do_multi_get(std::span<const std::string> keys,
                                        deadline limit) override {
    return when_all_exist("multi_get", keys, limit);
  }

  void do_multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                    deadline limit) override {
    locked("multi_set", detail::quoted_keys(keys), access::write, limit, [&](auto& file) {
      for (std::size_t i = 0; i < keys.size(); ++i) file.append(stored(keys[i]), values[i]);
    });
  }

  std::unique_ptr<store_watch> do_watch(std::string_view key, deadline) override {
    return std::make_unique<file_watch>(*this, key);
  }

  static std::string stored(std::string_view key) { return formatted("/{}", key); }

  static std::vector<std::string> missing(detail::log_file& file,
                                          std::span<const std::string> keys) {
    std::vector<std::string> result;
    for (const std::string& key : keys) {
      if (!file.values().contains(stored(key))) result.push_back(key);
    }
    return result;
  }

  std::vector<std::string> when_all_exist(std::string_view operation,
                                          std::span<const std::string> keys,
                                          const deadline& limit) {
    while (true) {
      std::vector<std::string> absent;
      std::vector<std::string> values;
      locked(operation, detail::quoted_keys(keys), access::read, limit, [&](auto& file) {
        absent = missing(file, keys);
        if (!absent.empty()) return;
        for (const std::string& key : keys) values.push_back(*file.values().find(stored(key)));
      });
      if (absent.empty()) return values;
      if (limit.passed()) {
        detail::throw_store_error(errc::timeout, operation, detail::quoted_keys(keys), describe(),
                                  limit, "nobody set " + detail::quoted_keys(absent));
      }
      // inotify would be quicker but says nothing of what other hosts write.
      pause(limit, std::chrono::milliseconds(10));
    }
  }

  template <typename Action>
  void locked(std::string_view operation, const std::string& keys, access mode,
              const deadline& limit, Action action) {
    try {
      while (true) {
        {
          const std::lock_guard lock(mutex_);
          if (file_.try_locked(mode, action)) return;
        }
        if (limit.passed()) {
          throw detail::store_failure{errc::timeout, "another process holds the file's lock"};
        }
        pause(limit, std::chrono::milliseconds(1));
      }
    } catch (const detail::store_failure& failure) {
      detail::throw_store_error(failure.code, operation, keys, describe(), limit, failure.reason);
    }
  }

  static void pause(const deadline& limit, std::chrono::milliseconds most) {
    std::this_thread::sleep_for(std::min(most, limit.remaining()));
  }

  std::mutex mutex_;
  detail::log_file file_;
  int world_size_;
};

}  // namespace parx
