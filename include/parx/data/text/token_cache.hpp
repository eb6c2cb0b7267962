// token_cache: texts are tokenised once, by one process of a host; the others wait and map its
// file.
//
// The file's name is the key: a hash of the text file's contents, the tokenizer and the options, so
// a changed input never uses an old cache. The process that gets the lock (flock on NAME.lock) and
// finds no valid file writes one under a temporary name and renames it; if it is killed meanwhile,
// the lock is released and the next process starts over. A damaged file is made again. Where the
// folder cannot be written, every process keeps its rows in memory, and rank 0 warns. Nothing is
// downloaded.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/log.hpp>
#include <parx/data/text/token_rows.hpp>
#include <parx/tensor/random.hpp>

namespace parx::inline PARX_ABI::data {

/// A hash of a file's contents. Throws errc::io when it cannot be read.
[[nodiscard]] std::uint64_t content_hash(const std::string& path);

namespace detail {

[[nodiscard]] std::optional<token_rows> open_cache(const std::string& path, std::uint64_t key);

/// Returns 0, or the errno of the failure, after which no file is left.
[[nodiscard]] int write_cache(const std::string& path, std::span<const std::byte> bytes);

/// Holds the lock while it lives. On a file system without locks several processes may do the same
/// work, which is harmless.
struct cache_lock {
  descriptor file;    ///< not valid where the folder cannot be written
  bool held = false;  ///< no other process of the host is making this cache
};
[[nodiscard]] cache_lock lock_cache(const std::string& path);

}  // namespace detail

/// The rows for `key` from `folder`; if they are not there, `build(token_rows_data&)` makes them.
/// An empty folder name: no cache. Blocks while another process makes them; throws what build()
/// throws.
template <typename Build>
[[nodiscard]] token_rows cached_rows(const std::string& folder, std::uint64_t key, Build&& build) {
  token_rows_data made;
  if (folder.empty()) {
    build(made);
    return token_rows(std::move(made));
  }
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  const std::string path = formatted("{}/{:016x}.tokens", folder, key);
  if (auto rows = detail::open_cache(path, key)) return rows->with(cache_use::found);
  const detail::cache_lock lock = detail::lock_cache(path);
  cache_use use = cache_use::made;
  if (lock.file.valid()) {
    if (auto rows = detail::open_cache(path, key)) return rows->with(cache_use::found);
    if (::access(path.c_str(), R_OK) == 0) {
      use = cache_use::repaired;
      log(log_level::warn, "the cache \"{}\" is damaged or incomplete; making it again", path);
    }
  }
  made.made_alone = lock.held;
  build(made);
  const bool logs_warnings = made.logs_warnings();
  token_rows in_memory(std::move(made));
  const int reason = lock.file.valid() ? detail::write_cache(path, in_memory.encode(key)) : EACCES;
  if (reason == 0) {
    if (auto rows = detail::open_cache(path, key)) return rows->with(use);
  } else if (logs_warnings) {
    log(log_level::warn,
        "cannot write the cache \"{}\": {}; each process keeps its tokens in memory", path,
        errno_text(reason));
  }
  return in_memory;
}

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/text/detail/token_cache_impl.hpp>
#endif
