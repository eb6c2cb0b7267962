// log_file: the shared file behind file_store, in PyTorch's FileStore format.
//
// The file is an append-only log under flock(2): records of u32 length + key, u32 length + value. A
// user's key is stored as "/key"; a deletion is the key "-/key" with an empty value; "cleanup/"
// counts the processes that have finished. Each reader remembers how far it has read. A record is
// appended by one write(2), so that on a local disk a killed writer leaves it whole or not at all.
//
// No lock of its own: the owner has one.
//
// Source: torch/csrc/distributed/c10d/FileStore.cpp.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/core/formatted.hpp>
#include <parx/store/detail/failure.hpp>
#include <parx/store/detail/value_map.hpp>

namespace parx::inline PARX_ABI::detail {

class log_file {
 public:
  explicit log_file(std::string path) : path_(std::move(path)) {}

  enum class access { read, write };

  /// Opens, locks and reads what is new, then runs `action(*this)` under the lock. False where
  /// somebody else holds the lock. Reading a file that does not exist (yet) shows an empty store.
  template <typename Action>
  bool try_locked(access mode, Action&& action) {
    const int flags = O_CLOEXEC | (mode == access::write ? O_RDWR | O_CREAT : O_RDONLY);
    file_ = descriptor(::open(path_.c_str(), flags, 0644));
    if (!file_.valid() && mode == access::read && errno == ENOENT) {
      forget();
      action(*this);
      return true;
    }
    if (!file_.valid()) fail("cannot be opened", errno);
    const int kind = mode == access::write ? LOCK_EX : LOCK_SH;
    if (::flock(file_.get(), kind | LOCK_NB) != 0) {
      const int saved = errno;
      file_.close();
      if (saved == EWOULDBLOCK || saved == EINTR) return false;
      fail("cannot be locked", saved);
    }
    try {
      refresh();
      action(*this);
    } catch (...) {
      file_.close();
      forget();  // `action` may have changed values() without having written it down
      throw;
    }
    file_.close();  // releases the lock
    return true;
  }

  /// The store's contents as of the last lock, keys as in the file.
  [[nodiscard]] value_map& values() noexcept { return values_; }

  /// Adds a record; only inside try_locked(access::write).
  void append(std::string_view key, std::string_view value) {
    std::string record;
    for (const std::string_view text : {key, value}) {
      if (text.size() > std::numeric_limits<std::uint32_t>::max()) {
        throw store_failure{errc::io,
                            "a key or value of 4 GiB or more does not fit the file's format"};
      }
      const auto length = static_cast<std::uint32_t>(text.size());
      for (unsigned shift = 0; shift < 32; shift += 8) {
        record.push_back(static_cast<char>((length >> shift) & 0xff));
      }
      record.append(text);
    }
    if (::lseek(file_.get(), 0, SEEK_END) < 0) fail("cannot be positioned", errno);
    if (const auto [written, reason] = write_all(file_.get(), record); reason != 0) {
      undo(written);
      fail("cannot be written", reason);
    }
  }

  void remove() noexcept { ::unlink(path_.c_str()); }
  [[nodiscard]] bool exists() const noexcept { return ::access(path_.c_str(), F_OK) == 0; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  void refresh() {
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0) fail("cannot be examined", errno);
    if (status.st_ino != inode_ || status.st_dev != device_ || status.st_size < position_) {
      forget();
      inode_ = status.st_ino;
      device_ = status.st_dev;
    }
    if (status.st_size == position_) return;
    const std::string fresh = read(status.st_size - position_);
    std::string_view rest = fresh;
    while (!rest.empty()) {
      const std::string_view key = take(rest);
      const std::string_view value = take(rest);
      if (key.starts_with('-')) {
        values_.erase(key.substr(1));
      } else {
        values_.set(key, value);
      }
      position_ = status.st_size - static_cast<off_t>(rest.size());
    }
  }

  std::string read(off_t count) {
    std::string bytes(static_cast<std::size_t>(count), '\0');
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t got = ::pread(file_.get(), bytes.data() + done, bytes.size() - done,
                                  position_ + static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("cannot be read", errno);
      if (got == 0) damaged();
      done += static_cast<std::size_t>(got);
    }
    return bytes;
  }

  std::string_view take(std::string_view& rest) {
    if (rest.size() < 4) damaged();
    std::uint32_t length = 0;
    for (unsigned byte = 0; byte < 4; ++byte) {
      length |= std::uint32_t{static_cast<unsigned char>(rest[byte])} << (8 * byte);
    }
    rest.remove_prefix(4);
    if (rest.size() < length) damaged();
    const std::string_view text = rest.substr(0, length);
    rest.remove_prefix(length);
    return text;
  }

  // A full disk must not leave half a record for the others to trip over.
  void undo(std::size_t written) noexcept {
    if (written == 0) return;
    const off_t end = ::lseek(file_.get(), 0, SEEK_CUR);
    [[maybe_unused]] const int result = ::ftruncate(file_.get(), end - static_cast<off_t>(written));
  }

  void forget() noexcept {
    values_.clear();
    position_ = 0;
    inode_ = 0;
    device_ = 0;
  }

  [[noreturn]] void damaged() const {
    throw store_failure{
        errc::bad_data,
        "the file ends inside a record or is no store file; delete it and start the job anew"};
  }
  [[noreturn]] static void fail(std::string_view what, int saved_errno) {
    throw store_failure{errc::io, formatted("the file {}: {}", what, errno_text(saved_errno))};
  }

  std::string path_;
  descriptor file_;
  value_map values_;
  off_t position_ = 0;
  ino_t inode_ = 0;
  dev_t device_ = 0;
};

}  // namespace parx::detail
