// write_guard: lets a rank revoke a peer's permission to write its memory (process_vm_writev), even
// from a peer that is stopped just before it writes.
//
// Each process_vm_writev first writes the request's number to a page of the receiver, then the
// bytes to their destination. The kernel takes the pieces in order and ends at the first that
// cannot be written. So once the page is read-only, no write can begin, and the number in it tells
// whether the last write had begun. Threads: one, except for the peer's writes.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::detail {

class write_guard {
 public:
  using word = std::atomic<std::uint32_t>;

  write_guard() = default;
  [[nodiscard]] static write_guard create() {
    // Shared, because the kernel may merge private pages with a neighbouring mapping, and the
    // mprotect that splits them again can fail.
    void* const page =
        ::mmap(nullptr, page_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw_error(errc::io, "no page for a link: {}", errno_text(errno));
    write_guard made;
    made.passed_ = new (page) word{0};
    return made;
  }
  write_guard(write_guard&& other) noexcept
      : passed_(std::exchange(other.passed_, nullptr)), closed_(other.closed_) {}
  write_guard& operator=(write_guard&& other) noexcept {
    std::swap(passed_, other.passed_);
    std::swap(closed_, other.closed_);
    return *this;
  }
  /// A closed page is never unmapped: a late write to its address must not hit other memory.
  ~write_guard() {
    if (passed_ != nullptr && !closed_) ::munmap(passed_, page_size);
  }

  /// The number of the last write that has begun; null without a page.
  [[nodiscard]] const word* passed() const noexcept { return passed_; }
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  void close() noexcept {
    if (passed_ != nullptr) closed_ = ::mprotect(passed_, page_size, PROT_READ) == 0;
  }

 private:
  static constexpr std::size_t page_size = 4096;

  word* passed_ = nullptr;
  bool closed_ = false;
};

}  // namespace parx::detail
