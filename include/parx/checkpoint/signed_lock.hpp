// signed_lock: a lock file whose holder signs it: with a name for people, and with the start of the
// job that it belongs to. Local.
//
// The kernel releases a lock when the process ends, however it ends. A process that is stopped or
// cut off keeps it; so a later generation of the same job, under the same parxrun, takes it away:
// it makes a new file of that name. parxrun begins a generation only once it counts the earlier one
// as over. On a file system without locks every process gets them.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <parx/checkpoint/atomic_file.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>
#include <parx/core/error.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/host_name.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::detail {

/// What is known of a process that holds a lock.
enum class lock_holder {
  may_be_another_run,
  is_superseded,  ///< the ranks of its job go on without it
};

class signed_lock {
 public:
  /// Holds nothing.
  signed_lock() = default;

  /// Waits for `patience` where another process holds the lock; see is_held(). Throws errc::io
  /// where the file cannot be made.
  signed_lock(std::string path, lock_holder other, std::chrono::seconds patience,
              const environment& env = process_environment())
      : path_(std::move(path)),
        start_(env_string(env, "PARX_COORDINATOR").value_or("-") + " " +
               env_string(env, "PARX_GENERATION").value_or("0")) {
    open();
    is_held_ = is_free();
    if (!is_held_ && (other == lock_holder::is_superseded || is_earlier(signature(1), start_))) {
      ::unlink(path_.c_str());
      open();
    }
    for (const auto limit = deadline::after(patience); !(is_held_ = is_held_ || is_free());) {
      if (limit.passed()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    sign();
  }

  [[nodiscard]] bool is_held() const noexcept { return is_held_; }
  /// Who holds it, for people.
  [[nodiscard]] std::string holder() const { return signature(0); }

 private:
  void open() {
    file_ = descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!file_.valid()) {
      throw_error(errc::io, "cannot write into \"{}\": {}. {}",
                  std::filesystem::path(path_).parent_path().string(), errno_text(errno),
                  advice_for(errno));
    }
  }
  [[nodiscard]] bool is_free() const {
    return ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0 || (errno != EWOULDBLOCK && errno != EINTR);
  }
  void sign() const {
    const std::string text = formatted("process {} on {}\n{}\n", ::getpid(), host_name(), start_);
    // Over the former signature, which is cut after that: a holder that is stopped in between is
    // known as well. The lock works without a name, too.
    const auto written = ::pwrite(file_.get(), text.data(), text.size(), 0);
    [[maybe_unused]] const bool cut = written > 0 && ::ftruncate(file_.get(), written) == 0;
  }
  [[nodiscard]] std::string signature(std::size_t line) const {
    std::array<char, 512> text{};
    const auto length = ::pread(file_.get(), text.data(), text.size(), 0);
    const std::string_view all(text.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
    const auto lines = split_at(all, '\n');
    return line < lines.size() ? std::string(lines[line]) : "it has not signed its lock";
  }
  /// Whether `theirs` is the start of an earlier generation of the job that began `ours`.
  [[nodiscard]] static bool is_earlier(std::string_view theirs, std::string_view ours) {
    const auto space = ours.find(' ');
    if (ours.starts_with("- ") || theirs.substr(0, space + 1) != ours.substr(0, space + 1)) {
      return false;
    }
    const auto before = parse_number<int>(theirs.substr(space + 1));
    const auto now = parse_number<int>(ours.substr(space + 1));
    return before && now && *before < *now;
  }

  std::string path_;
  std::string start_;  ///< the parxrun that keeps the job, and the generation of the ranks
  descriptor file_;
  bool is_held_ = false;
};

}  // namespace parx::detail
