// secret_file: what parxrun hands its ranks their secret in.
//
// A file in memory that parxrun holds open and that its user alone may read, by its name under
// /proc: unlike a variable it is not in the environment of all that a rank starts, and unlike a
// file on disk it is gone with parxrun, however that ends.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include <parx/core/descriptor.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

class secret_file {
 public:
  explicit secret_file(const std::string& secret)
      : file_(::memfd_create("parx-secret", MFD_CLOEXEC)) {
    const bool made = file_.valid() && ::fchmod(file_.get(), 0600) == 0 &&
                      ::write(file_.get(), secret.data(), secret.size()) ==
                          static_cast<ssize_t>(secret.size());
    if (!made) return;
    const std::string name = formatted("/proc/{}/fd/{}", ::getpid(), file_.get());
    if (descriptor(::open(name.c_str(), O_RDONLY | O_CLOEXEC)).valid()) path_ = name;
  }

  /// Empty where a sandbox knows no such files.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  descriptor file_;
  std::string path_;
};

}  // namespace parx::detail
