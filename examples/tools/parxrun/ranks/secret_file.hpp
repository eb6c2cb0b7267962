// secret_file: the file in which parxrun passes the job's secret to its ranks.
//
// A memfd that parxrun keeps open and only its user may read, named by its path under /proc. Unlike
// an environment variable it is not inherited by the processes that a rank starts, and unlike a
// file on disk it disappears with parxrun, however that ends.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include <parx/core/descriptor.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

class secret_file {
 public:
  explicit secret_file(const std::string& secret)
      : file_(::memfd_create("parx-secret", MFD_CLOEXEC)) {
    const bool made = file_.valid() && ::fchmod(file_.get(), 0600) == 0 &&
                      write_all(file_.get(), secret).reason == 0;
    if (!made) return;
    const std::string name = formatted("/proc/{}/fd/{}", ::getpid(), file_.get());
    if (descriptor(::open(name.c_str(), O_RDONLY | O_CLOEXEC)).valid()) path_ = name;
  }

  /// Empty where the file cannot be made or opened, for instance in a sandbox.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  descriptor file_;
  std::string path_;
};

}  // namespace parx::detail
