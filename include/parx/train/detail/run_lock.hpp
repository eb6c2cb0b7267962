// run_lock: allows one run at a time to use an output_dir. Two runs in one folder would silently
// replace each other's checkpoints and logs.
//
// Held by rank 0 while it trains; the kernel releases it when the process ends, however it ends. On
// a file system without locks it does nothing. Local.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>

#include <parx/checkpoint/checkpoint_folder.hpp>
#include <parx/checkpoint/staged_folder.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/host_name.hpp>

namespace parx::inline PARX_ABI::train::detail {

class run_lock {
 public:
  /// Holds no lock.
  run_lock() = default;

  /// Throws errc::io if another run holds the lock of `folder`, or the lock file cannot be created.
  /// Waits up to two seconds, since a run that was just killed may take a moment to end.
  explicit run_lock(const std::string& folder) {
    const std::string path = folder + "/" + std::string(parx::detail::stale_prefix) + "run-lock";
    file_ = descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!file_.valid()) {
      throw_error(errc::io, "cannot write \"{}\": {}. {}", path, errno_text(errno),
                  parx::detail::advice_for(errno));
    }
    if (!parx::detail::lock_within(file_, std::chrono::seconds(2))) {
      throw_error(errc::io,
                  "another run trains into \"{}\" ({}). Give each run a folder of its own, or wait "
                  "until that one has ended.",
                  folder, holder());
    }
    sign();
  }

 private:
  /// Writes into the file who holds the lock, for the error message of another process.
  void sign() const {
    const std::string name = formatted("process {} on {}", ::getpid(), parx::detail::host_name());
    if (::ftruncate(file_.get(), 0) != 0) return;  // the lock works without a name, too
    [[maybe_unused]] const auto written = parx::detail::write_all(file_.get(), name);
  }
  [[nodiscard]] std::string holder() const {
    std::array<char, 512> text{};
    const auto length = ::pread(file_.get(), text.data(), text.size(), 0);
    return length > 0 ? std::string(text.data(), static_cast<std::size_t>(length))
                      : "it has not signed its lock";
  }

  descriptor file_;
};

}  // namespace parx::train::detail
