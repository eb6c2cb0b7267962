// Definitions of append_file.hpp.
#pragma once

#include <fcntl.h>

#include <cerrno>

#include <parx/core/error.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/core/log.hpp>
#include <parx/train/detail/append_file.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE append_file::append_file(std::string path) : path_(std::move(path)) {
  file_ = descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file_.valid()) {
    throw_error(errc::io, "cannot write \"{}\": {}. Check the folder and its permissions.", path_,
                errno_text(errno));
  }
}

PARX_INLINE void append_file::append(std::string_view piece) {
  if (!file_.valid()) return;
  if (const int reason = parx::detail::write_all(file_.get(), piece).reason; reason != 0) {
    log(log_level::warn, "\"{}\" gets no further lines: {}", path_, errno_text(reason));
    file_.close();
  }
}

}  // namespace parx::train::detail
