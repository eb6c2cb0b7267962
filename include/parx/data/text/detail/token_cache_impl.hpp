// Definitions of token_cache.hpp.
#pragma once

#include <fcntl.h>
#include <sys/file.h>

#include <parx/core/file_limit.hpp>
#include <parx/core/temporary_file.hpp>
#include <parx/data/detail/mapped_file.hpp>
#include <parx/data/text/token_cache.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE std::uint64_t content_hash(const std::string& path) {
  const detail::mapped_file file(path);
  const auto bytes = file.bytes();
  return stable_hash({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace parx::data

namespace parx::inline PARX_ABI::data::detail {

PARX_INLINE std::optional<token_rows> open_cache(const std::string& path, std::uint64_t key) {
  if (::access(path.c_str(), R_OK) != 0) return std::nullopt;
  try {
    if (auto rows = token_rows::decode(mapped_file(path), key)) return rows;
  } catch (const error&) {
  }
  return std::nullopt;
}

PARX_INLINE int write_cache(const std::string& path, std::span<const std::byte> bytes) {
  parx::detail::temporary_file made = parx::detail::make_temporary(path);
  if (!made.file.valid()) return made.reason;
  int failure = parx::detail::write_all(made.file.get(), bytes).reason;
  // Network file systems report a full disk only here.
  if (::close(made.file.release()) != 0 && failure == 0) failure = errno;
  if (failure == 0 && ::rename(made.name.c_str(), path.c_str()) != 0) failure = errno;
  if (failure != 0) ::unlink(made.name.c_str());
  return failure;
}

PARX_INLINE cache_lock lock_cache(const std::string& path) {
  descriptor file(::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file.valid()) return {};
  int failed = ::flock(file.get(), LOCK_EX | LOCK_NB);
  if (failed != 0 && errno == EWOULDBLOCK) {
    log(log_level::info, "waiting until another process has made \"{}\"", path);
    do {
      failed = ::flock(file.get(), LOCK_EX);
    } while (failed != 0 && errno == EINTR);
  }
  return {std::move(file), failed == 0};
}

}  // namespace parx::data::detail
