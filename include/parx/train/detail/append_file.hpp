// append_file: a file for logs: every append is one write, so a reader that follows the file
// (tail -f, TensorBoard) never sees a partial line.
//
// A log that cannot be written does not end training: the first failure is logged as a warning, and
// later appends do nothing. One thread.
#pragma once

#include <fcntl.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/core/log.hpp>

namespace parx::inline PARX_ABI::train::detail {

class append_file {
 public:
  append_file() = default;
  /// Opens or creates `path`. Throws errc::io.
  explicit append_file(std::string path) : path_(std::move(path)) {
    file_ = descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (!file_.valid()) {
      throw_error(errc::io, "cannot write \"{}\": {}. Check the folder and its permissions.", path_,
                  errno_text(errno));
    }
  }

  [[nodiscard]] bool is_open() const noexcept { return file_.valid(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  void append(std::string_view piece) {
    if (!file_.valid()) return;
    if (const int reason = parx::detail::write_all(file_.get(), piece).reason; reason != 0) {
      log(log_level::warn, "\"{}\" gets no further lines: {}", path_, errno_text(reason));
      file_.close();
    }
  }

 private:
  std::string path_;
  descriptor file_;
};

}  // namespace parx::train::detail
