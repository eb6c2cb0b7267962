// Definitions of run_lock.hpp.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

#include <parx/checkpoint/checkpoint_folder.hpp>
#include <parx/checkpoint/staged_folder.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/host_name.hpp>
#include <parx/train/detail/run_lock.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE run_lock::run_lock(const std::string& folder) {
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

PARX_INLINE void run_lock::sign() const {
  const std::string name =
      formatted("process {} on {}", ::getpid(), parx::detail::host_name());
  if (::ftruncate(file_.get(), 0) != 0) return;  // the lock works without a name, too
  [[maybe_unused]] const auto written = ::pwrite(file_.get(), name.data(), name.size(), 0);
}

PARX_INLINE std::string run_lock::holder() const {
  std::array<char, 512> text{};
  const auto length = ::pread(file_.get(), text.data(), text.size(), 0);
  return length > 0 ? std::string(text.data(), static_cast<std::size_t>(length))
                    : "it has not signed its lock";
}

}  // namespace parx::train::detail
