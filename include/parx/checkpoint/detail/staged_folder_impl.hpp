// Definitions of staged_folder.hpp.
#pragma once

#include <fcntl.h>

#include <cstdio>

#include <parx/checkpoint/atomic_file.hpp>
#include <parx/checkpoint/staged_folder.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE void remove_folder(const std::filesystem::path& path) noexcept {
  try {
    const auto hidden = hidden_beside(path);
    std::error_code failure;
    std::filesystem::rename(path, hidden, failure);
    if (!failure) std::filesystem::remove_all(hidden, failure);
  } catch (const std::exception&) {
  }
}

PARX_INLINE void staged_folder::commit() {
  flush_folder(hidden_);
  if (::rename(hidden_.c_str(), target_.c_str()) != 0) replace(errno);
  hidden_.clear();
  flush_folder(target_.parent_path());
}

PARX_INLINE void staged_folder::replace(int saved_errno) {
  if (saved_errno != ENOTEMPTY && saved_errno != EEXIST) fail("cannot rename", saved_errno);
  if (::renameat2(AT_FDCWD, hidden_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
    std::error_code failure;
    std::filesystem::remove_all(hidden_, failure);
    return;
  }
  remove_folder(target_);
  if (::rename(hidden_.c_str(), target_.c_str()) != 0) fail("cannot rename", errno);
}

PARX_INLINE void staged_folder::fail(const char* what, int saved_errno) const {
  throw_error(errc::io, "{} \"{}\": {}. {} {}", what, hidden_.string(), errno_text(saved_errno),
              advice_for(saved_errno), earlier_ones_untouched);
}

}  // namespace parx::detail
