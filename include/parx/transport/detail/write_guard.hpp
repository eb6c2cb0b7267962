// write_guard: lets a rank take back the permission to write its memory (process_vm_writev), also
// from a peer that is stopped just before it writes.
//
// A write goes to one page of this rank's first, then to where it is wanted. The kernel takes the
// pieces in order and ends at the first that cannot be written. So once the page is read-only, no
// write can begin any more; and the number in it tells whether the last one had begun.
// Threads: one, but for the peer's writes.
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
    // Shared, because private pages may become part of a neighbour's mapping, and to part them
    // again can fail.
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
  /// A page that was closed stays for good: at its address, a late write must find nothing else.
  ~write_guard() {
    if (passed_ != nullptr && !closed_) ::munmap(passed_, page_size);
  }

  /// Where the number of the last write that has begun lies; null without a page.
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
