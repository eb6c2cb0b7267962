// Definitions of input_file.hpp.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <parx/checkpoint/detail/input_file.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE void input_file::share_descriptors() {
  shared_ = std::make_unique<shared_use>();
  file_ = {};
}

PARX_INLINE void input_file::read(std::uint64_t offset, std::span<std::byte> target) const {
  const reading open(*this);
  while (!target.empty()) {
    const ssize_t count =
        ::pread(open.number(), target.data(), std::min<std::size_t>(target.size(), 1U << 30U),
                static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw_error(errc::io, "reading \"{}\" failed at byte {}: {}.", path_, offset,
                  errno_text(errno));
    }
    if (count == 0) {
      throw_error(errc::bad_data,
                  "\"{}\" became shorter while it was read: it had {} bytes, now it ends at {}. "
                  "Do not change files that are being read.",
                  path_, size_, offset);
    }
    target = target.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

PARX_INLINE std::string input_file::whole_text() const {
  constexpr std::uint64_t limit = 100'000'000;
  if (size_ > limit)
    throw_error(errc::bad_data, "\"{}\" has {} bytes; at most {} are read.", path_, size_, limit);
  std::string text(static_cast<std::size_t>(size_), '\0');
  read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

PARX_INLINE descriptor input_file::opened() {
  // O_NONBLOCK, because opening a pipe would wait for its writer.
  descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) {
    throw_error(errc::io, "cannot open \"{}\": {}. Check the path and its permissions.", path_,
                errno_text(errno));
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
    throw_error(errc::io, "\"{}\" is not a regular file. Give the path of a file.", path_);
  size_ = static_cast<std::uint64_t>(status.st_size);
  identity_ = {status.st_dev, status.st_ino};
  return file;
}

PARX_INLINE int input_file::begin_reading() const {
  if (shared_ == nullptr) return file_.get();
  const std::lock_guard lock(shared_->mutex);
  if (shared_->readers == 0) {
    input_file again(path_);
    if (again.identity_ != identity_ || again.size_ != size_) {
      throw_error(errc::bad_data,
                  "\"{}\" was replaced while it was read. Do not change files that are being "
                  "read.",
                  path_);
    }
    shared_->file = std::move(again.file_);
  }
  ++shared_->readers;
  return shared_->file.get();
}

PARX_INLINE void input_file::end_reading() const noexcept {
  if (shared_ == nullptr) return;
  const std::lock_guard lock(shared_->mutex);
  if (--shared_->readers == 0) shared_->file = {};
}

}  // namespace parx::detail
