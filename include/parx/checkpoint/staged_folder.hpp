// staged_folder: a folder that appears under its name only when all its files are on the disk.
//
// Built under a hidden name beside the final one, flushed, renamed. One that is replaced leaves in
// the same instant where the kernel can exchange two names (Linux; not on NFS). What a killed
// process leaves behind begins with stale_prefix and belongs to nobody.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <parx/checkpoint/atomic_file.hpp>
#include <parx/checkpoint/detail/output_file.hpp>
#include <parx/checkpoint/detail/xxh64.hpp>
#include <parx/checkpoint/manifest.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::detail {

inline constexpr std::string_view stale_prefix = ".parx-";

/// A hidden name in the folder of `path` that nobody uses.
[[nodiscard]] inline std::filesystem::path hidden_beside(const std::filesystem::path& path) {
  const std::string name = std::string(stale_prefix) + path.filename().string();
  return path.parent_path() / temporary_name(name);
}

/// Removes a folder so that its name never stands for half of it. Errors are passed over: what
/// stays has a hidden name and is removed the next time.
void remove_folder(const std::filesystem::path& path) noexcept;

inline constexpr const char* earlier_ones_untouched = "The earlier checkpoints are as they were.";

/// Writes the file `name` into a hidden folder, from any process: produce(write) calls write(bytes)
/// for its pieces. Returns what the manifest says about it. Throws errc::io.
template <typename Produce>
[[nodiscard]] checkpoint_manifest::file write_staged(const std::filesystem::path& hidden,
                                                     const std::string& name, Produce&& produce) {
  output_file file((hidden / name).string(), earlier_ones_untouched);
  xxh64 checksum;
  std::forward<Produce>(produce)([&](std::span<const std::byte> bytes) {
    // In pieces that are still in the cache when the kernel copies them.
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

class staged_folder {
 public:
  /// Creates the hidden folder; the one above must exist. Throws errc::io, as everything here.
  explicit staged_folder(std::filesystem::path target)
      : target_(std::move(target)), hidden_(hidden_beside(target_)) {
    if (::mkdir(hidden_.c_str(), 0777) != 0) fail("cannot create", errno);
  }
  ~staged_folder() {
    std::error_code failure;
    if (!hidden_.empty()) std::filesystem::remove_all(hidden_, failure);
  }
  staged_folder(const staged_folder&) = delete;
  staged_folder& operator=(const staged_folder&) = delete;

  /// As write_staged.
  template <typename Produce>
  [[nodiscard]] checkpoint_manifest::file add(const std::string& name, Produce&& produce) {
    return write_staged(hidden_, name, std::forward<Produce>(produce));
  }
  /// The hidden folder.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return hidden_; }

  /// Gives the folder its name; one that has it is replaced.
  void commit();

 private:
  void replace(int saved_errno);

  [[noreturn]] void fail(const char* what, int saved_errno) const;

  std::filesystem::path target_;
  std::filesystem::path hidden_;
};

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/staged_folder_impl.hpp>
#endif
