// atomic_folder: a folder that appears under its name only when all its files are on the disk.
//
// Built under a hidden name beside the final one, flushed, then renamed. An existing folder of that
// name is replaced atomically if the file system supports RENAME_EXCHANGE (not NFS). Folders that a
// killed process leaves behind begin with stale_prefix and may be removed.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <parx/checkpoint/atomic_file.hpp>
#include <parx/checkpoint/detail/output_file.hpp>
#include <parx/checkpoint/manifest.hpp>
#include <parx/core/error.hpp>
#include <parx/core/xxh64.hpp>

namespace parx::inline PARX_ABI::detail {

inline constexpr std::string_view stale_prefix = ".parx-";

/// An unused hidden name in the folder of `path`.
[[nodiscard]] inline std::filesystem::path hidden_beside(const std::filesystem::path& path) {
  const std::string name = std::string(stale_prefix) + path.filename().string();
  return path.parent_path() / temporary_name(name);
}

/// For destructors: what cannot be removed stays.
inline void remove_all_quietly(const std::filesystem::path& path) noexcept {
  try {
    std::error_code failure;
    std::filesystem::remove_all(path, failure);
  } catch (const std::exception&) {  // out of memory
  }
}

/// Removes a folder after renaming it, so that its name never refers to a partly removed one.
/// Errors are ignored: what remains has a hidden name and is removed the next time.
inline void remove_folder(const std::filesystem::path& path) noexcept {
  try {
    const auto hidden = hidden_beside(path);
    std::error_code failure;
    std::filesystem::rename(path, hidden, failure);
    if (!failure) std::filesystem::remove_all(hidden, failure);
  } catch (const std::exception&) {
  }
}

inline constexpr const char* earlier_ones_untouched = "The earlier checkpoints are as they were.";

/// Throws errc::io if a file or a link has the name, which no folder can replace.
inline void require_place_for_folder(const std::filesystem::path& path) {
  std::error_code failure;
  const auto found = std::filesystem::symlink_status(path, failure).type();
  using enum std::filesystem::file_type;
  if (found == none || found == not_found || found == directory) return;
  throw_error(errc::io,
              "\"{}\" is {}, and a checkpoint would be a folder of this name. Move it away. {}",
              path.string(),
              found == symlink   ? "a link"
              : found == regular ? "a file"
                                 : "no folder",
              earlier_ones_untouched);
}

/// Writes the file `name` into a hidden folder, which another process may have created:
/// produce(write) calls write(bytes) for its pieces. Returns its entry for the manifest. Throws
/// errc::io.
template <typename Produce>
[[nodiscard]] checkpoint_manifest::file write_staged(const std::filesystem::path& hidden,
                                                     const std::string& name, Produce&& produce) {
  output_file file((hidden / name).string(), earlier_ones_untouched);
  xxh64 checksum;
  std::forward<Produce>(produce)([&](std::span<const std::byte> bytes) {
    // In pieces small enough to be still in the cache when the kernel copies them.
    constexpr std::size_t piece = 1024 * 1024;
    while (!bytes.empty()) {
      const auto next = bytes.first(std::min(piece, bytes.size()));
      checksum.update(next);
      file.write(next);
      bytes = bytes.subspan(next.size());
    }
  });
  file.finish();
  return {.name = name, .bytes = file.written(), .checksum = checksum.value()};
}

class atomic_folder {
 public:
  /// Creates the hidden folder, beside the target or in `claim` (writer_claim.hpp), whose loss ends
  /// the right to commit. All functions throw errc::io; also where a file or a link has the name of
  /// the target.
  explicit atomic_folder(std::filesystem::path target, std::filesystem::path claim = {})
      : target_(std::move(target)),
        claim_(std::move(claim)),
        hidden_(hidden_beside(claim_.empty() ? target_ : claim_ / target_.filename())) {
    require_place_for_folder(target_);
    if (::mkdir(hidden_.c_str(), 0777) != 0) fail("cannot create", errno);
  }
  ~atomic_folder() {
    if (!hidden_.empty()) remove_all_quietly(hidden_);
  }
  atomic_folder(const atomic_folder&) = delete;
  atomic_folder& operator=(const atomic_folder&) = delete;

  /// The hidden folder.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return hidden_; }

  /// Throws where the claim is lost.
  void require_claim() const {
    if (claim_.empty() || ::access(claim_.c_str(), F_OK) == 0) return;
    throw_error(errc::io,
                "\"{}\" is not saved: another start of this run has begun meanwhile, and this "
                "process may write no more checkpoints. {}",
                target_.string(), earlier_ones_untouched);
  }
  /// Gives the folder its final name, replacing an existing folder.
  void commit() {
    flush_folder(hidden_);
    require_place_for_folder(target_);
    if (::rename(hidden_.c_str(), target_.c_str()) != 0) replace(errno);
    hidden_.clear();
    flush_folder(target_.parent_path());
  }

 private:
  void replace(int saved_errno) {
    if (saved_errno != ENOTEMPTY && saved_errno != EEXIST) fail("cannot rename", saved_errno);
    if (::renameat2(AT_FDCWD, hidden_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
      std::error_code failure;
      std::filesystem::remove_all(hidden_, failure);
      return;
    }
    remove_folder(target_);
    if (::rename(hidden_.c_str(), target_.c_str()) != 0) fail("cannot rename", errno);
  }

  [[noreturn]] void fail(const char* what, int saved_errno) const {
    require_claim();
    throw_error(errc::io, "{} \"{}\": {}. {} {}", what, hidden_.string(), errno_text(saved_errno),
                advice_for(saved_errno), earlier_ones_untouched);
  }

  std::filesystem::path target_;
  std::filesystem::path claim_;
  std::filesystem::path hidden_;
};

}  // namespace parx::detail
