// file_events: what this program asks of the kernel to make files lasting: fsync and rename, in
// their order. It defines both in the C library's place: include it in one file of a program.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace parx_test {

/// Records while it lives, for all threads.
class file_events {
 public:
  struct event {
    std::string to = {};       ///< the file or folder that was flushed, or the new name
    std::string from = {};     ///< of a rename: the old name
    std::uintmax_t bytes = 0;  ///< of a flush: the file's size then
    [[nodiscard]] bool is_rename() const { return !from.empty(); }
  };

  /// Calls before_flush(file, path) at the begin of each fsync.
  explicit file_events(std::function<void(int, const std::string&)> before_flush = {})
      : before_flush_(std::move(before_flush)) {
    const std::lock_guard lock(guard());
    current() = this;
  }
  ~file_events() {
    const std::lock_guard lock(guard());
    current() = nullptr;
  }
  file_events(const file_events&) = delete;
  file_events& operator=(const file_events&) = delete;

  [[nodiscard]] const std::vector<event>& all() const { return all_; }
  /// The place of the first event that `is_meant`; the number of events where there is none.
  template <typename IsMeant>
  [[nodiscard]] std::size_t find(IsMeant&& is_meant) const {
    std::size_t at = 0;
    while (at < all_.size() && !is_meant(all_[at])) ++at;
    return at;
  }

  static void flushed(int file) {
    const std::lock_guard lock(guard());
    if (current() == nullptr) return;
    const std::string path =
        std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file)).string();
    if (current()->before_flush_) current()->before_flush_(file, path);
    struct stat status {};
    (void)::fstat(file, &status);
    current()->all_.push_back({.to = path, .bytes = static_cast<std::uintmax_t>(status.st_size)});
  }
  static void renamed(const char* from, const char* to) {
    const std::lock_guard lock(guard());
    if (current() != nullptr) current()->all_.push_back({.to = to, .from = from});
  }

 private:
  static std::mutex& guard() {
    static std::mutex mutex;
    return mutex;
  }
  static file_events*& current() {
    static file_events* now = nullptr;
    return now;
  }

  std::function<void(int, const std::string&)> before_flush_;
  std::vector<event> all_;
};

}  // namespace parx_test

extern "C" int fsync(int file) {
  parx_test::file_events::flushed(file);
  return static_cast<int>(::syscall(SYS_fsync, file));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  parx_test::file_events::renamed(from, to);
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
