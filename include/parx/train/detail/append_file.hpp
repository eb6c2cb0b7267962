// append_file: a file that grows by whole pieces, and is readable while it grows.
//
// A piece is one write, so a reader that follows the file (tail -f, TensorBoard) sees no half line.
// A log that cannot be written is no reason to end a training: the first failure is a warning, and
// what comes after it is dropped. One thread.
#pragma once

#include <fcntl.h>

#include <string>
#include <string_view>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/core/log.hpp>

namespace parx::inline PARX_ABI::train::detail {

class append_file {
 public:
  append_file() = default;
  /// Opens or creates `path`. Throws errc::io.
  explicit append_file(std::string path);

  [[nodiscard]] bool is_open() const noexcept { return file_.valid(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  void append(std::string_view piece);

 private:
  std::string path_;
  descriptor file_;
};

}  // namespace parx::train::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/append_file_impl.hpp>
#endif
