// Definitions of gzip.hpp.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include <parx/core/error.hpp>
#include <parx/data/formats/gzip.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE gzip_reader::gzip_reader(std::string path) : path_(std::move(path)) {
  errno = 0;
  file_.reset(gzopen(path_.c_str(), "rbe"));
  if (file_ == nullptr) {
    throw_error(errc::io, "cannot open \"{}\": {}. Check the path and its permissions.", path_,
                errno != 0 ? errno_text(errno) : "out of memory");
  }
  gzbuffer(file_.get(), 1U << 17U);
}

PARX_INLINE std::size_t gzip_reader::read(std::span<std::byte> target) {
  std::size_t done = 0;
  while (done < target.size()) {
    const auto part = static_cast<unsigned>(std::min(target.size() - done, largest_read));
    errno = 0;
    const int count = gzread(file_.get(), target.data() + done, part);
    if (count > 0) done += static_cast<std::size_t>(count);
    check_stream(done);
    if (count < static_cast<int>(part)) break;
  }
  offset_ += done;
  return done;
}

PARX_INLINE void gzip_reader::skip_to(std::uint64_t position) {
  (void)is_plain();  // has looked at the file, without which gzseek reads what it could pass over
  const auto target = static_cast<z_off_t>(position);
  errno = 0;
  if (gzseek(file_.get(), target, SEEK_SET) != target) {
    check_stream(0);
    throw_error(errc::io, "reading \"{}\" from byte {} on failed.", path_, position);
  }
  offset_ = position;
}

PARX_INLINE void gzip_reader::read_exactly(std::span<std::byte> target, const char* what) {
  const std::uint64_t start = offset_;
  const std::size_t count = read(target);
  if (count < target.size()) {
    throw_error(errc::bad_data,
                "\"{}\" ends too early: {} at byte {} needs {} bytes, but only {} are left. The "
                "file is incomplete; copy or download it again.",
                path_, what, start, target.size(), count);
  }
}

PARX_INLINE std::vector<std::uint8_t> gzip_reader::read_bytes(std::uint64_t count,
                                                              const char* what) {
  constexpr std::uint64_t step = std::uint64_t{1} << 24U;
  const std::uint64_t start = offset_;
  std::vector<std::uint8_t> bytes;
  while (bytes.size() < count) {
    const std::size_t old_size = bytes.size();
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(step, count - old_size));
    bytes.resize(old_size + part);
    const auto target = std::as_writable_bytes(std::span(bytes).subspan(old_size));
    if (const std::size_t got = read(target); got < part) {
      throw_error(errc::bad_data,
                  "\"{}\" ends too early: {} at byte {} need {} bytes, but only {} are there. The "
                  "file is incomplete; copy or download it again.",
                  path_, what, start, count, old_size + got);
    }
  }
  return bytes;
}

PARX_INLINE void gzip_reader::check_stream(std::size_t done) const {
  const int saved_errno = errno;
  int code = Z_OK;
  const char* reason = gzerror(file_.get(), &code);
  if (code == Z_OK || code == Z_STREAM_END) return;
  const std::uint64_t position = offset_ + done;
  if (code == Z_BUF_ERROR) {
    throw_error(errc::bad_data,
                "\"{}\" is a gzip file that was cut short: it ends inside the compressed data, "
                "after {} unpacked bytes. Copy or download it again.",
                path_, position);
  }
  if (code == Z_ERRNO) {
    throw_error(errc::io, "reading \"{}\" failed after {} bytes: {}.", path_, position,
                errno_text(saved_errno));
  }
  throw_error(
      errc::bad_data,
      "\"{}\" is a damaged gzip file: {}, after {} unpacked bytes. Copy or download it again.",
      path_, reason, position);
}

}  // namespace parx::data
