// reserved_pages: reserved addresses for a sparsely written array. A page takes memory when it is
// first written, and reads as zero before.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::detail {

class reserved_pages {
 public:
  static constexpr std::size_t page_bytes = 4096;

  explicit reserved_pages(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const found = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (found == MAP_FAILED) {
      throw_error(errc::io, "no addresses for a table of {} bytes: {}", bytes, errno_text(errno));
    }
    // With huge pages, one row would take 2 MiB.
    ::madvise(found, bytes, MADV_NOHUGEPAGE);
    data_ = found;
  }
  reserved_pages(reserved_pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  ~reserved_pages() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }

  [[nodiscard]] void* data() const noexcept { return data_; }
  /// Everything is zero again, and takes no memory.
  void drop() const noexcept {
    if (data_ != nullptr) ::madvise(data_, bytes_, MADV_DONTNEED);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

}  // namespace parx::detail
