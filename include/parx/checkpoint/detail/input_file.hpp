// input_file: a regular file that is open for reading, at any offset, from any thread; or one of
// so many that each has a descriptor only while it is read (share_descriptors).
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::detail {

class input_file {
 public:
  /// Throws errc::io.
  explicit input_file(std::string path) : path_(std::move(path)) { file_ = opened(); }

  /// From now on the file is open while a `reading` of it lives, and no longer. Whoever has more
  /// files than a process may have open calls it before other threads read.
  void share_descriptors() {
    shared_ = std::make_unique<shared_use>();
    file_ = {};
  }
  /// Keeps the file open. Throws errc::io, and errc::bad_data where another has taken its place.
  class reading {
   public:
    explicit reading(const input_file& file) : file_(file), number_(file.begin_reading()) {}
    ~reading() { file_.end_reading(); }
    reading(const reading&) = delete;
    reading& operator=(const reading&) = delete;
    [[nodiscard]] int number() const noexcept { return number_; }

   private:
    const input_file& file_;
    const int number_;
  };

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Bytes when it was opened.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  /// Fills `target` from `offset` on. Throws errc::io when the disk fails, errc::bad_data when the
  /// file ends before.
  void read(std::uint64_t offset, std::span<std::byte> target) const {
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

  /// The contents. Throws errc::bad_data for more than 100 MB, which no file of text here has.
  [[nodiscard]] std::string whole_text() const {
    constexpr std::uint64_t limit = 100'000'000;
    if (size_ > limit)
      throw_error(errc::bad_data, "\"{}\" has {} bytes; at most {} are read.", path_, size_, limit);
    std::string text(static_cast<std::size_t>(size_), '\0');
    read(0, std::as_writable_bytes(std::span(text)));
    return text;
  }

 private:
  struct shared_use {
    std::mutex mutex = {};
    int readers = 0;
    descriptor file = {};
  };
  /// What tells a file from another one of its name.
  struct identity {
    ::dev_t device = 0;
    ::ino_t number = 0;
    bool operator==(const identity&) const = default;
  };

  [[nodiscard]] descriptor opened() {
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
  [[nodiscard]] int begin_reading() const {
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
  void end_reading() const noexcept {
    if (shared_ == nullptr) return;
    const std::lock_guard lock(shared_->mutex);
    if (--shared_->readers == 0) shared_->file = {};
  }

  std::string path_;
  descriptor file_;
  std::uint64_t size_ = 0;
  identity identity_;
  std::unique_ptr<shared_use> shared_;
};

}  // namespace parx::detail
