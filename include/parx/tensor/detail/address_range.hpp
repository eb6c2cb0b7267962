// address_range: reserved addresses, to which memory can be moved with mremap(2).
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::detail {

/// Both ends are aligned to 2 MiB, so that whole page tables move. Nothing may be read or written
/// where there is no memory.
class address_range {
 public:
  static constexpr std::size_t huge_page = std::size_t{2} << 20U;

  explicit address_range(std::size_t bytes) : bytes_(bytes) {
    void* const found = ::mmap(nullptr, bytes + huge_page, PROT_NONE, reserving, -1, 0);
    if (found == MAP_FAILED) refuse("reserve addresses for", bytes);
    auto* const begin = static_cast<std::byte*>(found);
    const std::size_t before = (0 - reinterpret_cast<std::uintptr_t>(begin)) % huge_page;
    data_ = begin + before;
    if (before > 0) ::munmap(begin, before);
    ::munmap(data_ + bytes, huge_page - before);
  }
  address_range(address_range&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  ~address_range() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }

  /// Maps new memory at `offset` and returns its address.
  std::byte* fill(std::size_t offset, std::size_t bytes) {
    std::byte* const at = data_ + offset;
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (::mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) {
      refuse("allocate", bytes);
    }
    ::madvise(at, bytes, MADV_HUGEPAGE);
    return at;
  }

  /// Moves the memory at `from` to `to`, and reserves the addresses at `from` again. Where it
  /// throws, the memory is still at `from` and the addresses at `to` are reserved.
  static void move(std::byte* from, std::byte* to, std::size_t bytes) {
    // MREMAP_DONTUNMAP: no other thread's mmap() gets the old addresses before they are reserved.
    constexpr int flags = MREMAP_MAYMOVE | MREMAP_FIXED | dont_unmap;
    // Not mremap(3): in a process that uses UCX this is UCX's, which loses the fifth argument. UCX,
    // which remembers what memory it has registered, is told by the mmap(3) below.
    if (::syscall(SYS_mremap, from, bytes, bytes, flags, to) == -1) {
      const int why = errno;
      // The kernel unmaps the addresses at `to` before it checks that it has memory for the move.
      ::mmap(to, bytes, PROT_NONE, reserving | MAP_FIXED_NOREPLACE, -1, 0);
      errno = why;
      refuse("move", bytes);
    }
    // Nothing may fail once the memory has moved. mremap has left the addresses mapped to empty
    // pages, so that they stay reserved even where a new mapping fails.
    if (::mmap(from, bytes, PROT_NONE, reserving | MAP_FIXED, -1, 0) == MAP_FAILED) {
      ::mprotect(from, bytes, PROT_NONE);
    }
  }

 private:
  static constexpr int reserving = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  static constexpr int dont_unmap = 4;  // MREMAP_DONTUNMAP, which glibc has since 2.32

  [[noreturn]] static void refuse(const char* what, std::size_t bytes) {
    const int why = errno;
    const char* hint = "";
    if (why == ENOMEM) {
      hint = ". Is the address space limited (ulimit -v), or the number of mappings "
             "(/proc/sys/vm/max_map_count)?";
    } else if (why == EINVAL) {
      hint = ". It takes Linux 5.7 or newer";
    }
    throw_error(errc::io, "page_pool: cannot {} {} bytes: {}{}", what, bytes, errno_text(why),
                hint);
  }

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace parx::detail
