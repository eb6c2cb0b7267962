// input_file: a regular file that is open for reading, at any offset, from any thread. With
// share_descriptors it has a descriptor only while it is read, for programs with very many files.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include <parx/core/descriptor.hpp>

namespace parx::inline PARX_ABI::detail {

class input_file {
 public:
  /// Throws errc::io.
  explicit input_file(std::string path) : path_(std::move(path)) { file_ = opened(); }

  /// From now on the file is open only while a `reading` of it lives. For more files than a process
  /// may have open. Call it before other threads read.
  void share_descriptors();
  /// Keeps the file open. Throws errc::io, and errc::bad_data if the file was replaced.
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

  /// Fills `target` from `offset` on. Throws errc::io if the disk fails, errc::bad_data if the file
  /// ends before.
  void read(std::uint64_t offset, std::span<std::byte> target) const;

  /// The contents. Throws errc::bad_data for more than 100 MB: no text file here is that large.
  [[nodiscard]] std::string whole_text() const;

 private:
  struct shared_use {
    std::mutex mutex = {};
    int readers = 0;
    descriptor file = {};
  };
  /// Distinguishes a file from a later one of the same name.
  struct identity {
    ::dev_t device = 0;
    ::ino_t number = 0;
    bool operator==(const identity&) const = default;
  };

  [[nodiscard]] descriptor opened();
  [[nodiscard]] int begin_reading() const;
  void end_reading() const noexcept;

  std::string path_;
  descriptor file_;
  std::uint64_t size_ = 0;
  identity identity_;
  std::unique_ptr<shared_use> shared_;
};

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/input_file_impl.hpp>
#endif
