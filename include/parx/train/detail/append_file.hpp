// append_file: a file for logs: every append is one write, so a reader that follows the file
// (tail -f, TensorBoard) never sees a partial line.
//
// A log that cannot be written does not end training: the first failure is logged as a warning, and
// later appends do nothing. One thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <parx/core/descriptor.hpp>

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
