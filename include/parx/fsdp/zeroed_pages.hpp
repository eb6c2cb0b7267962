// zeroed_pages: a large array of bytes, all zero at first, in huge pages if the system gives
// them. Pages take memory when they are first written.
#pragma once

#include <cstddef>
#include <optional>

#include <parx/tensor/page_pool.hpp>

namespace parx::inline PARX_ABI::detail {

class zeroed_pages {
 public:
  explicit zeroed_pages(std::size_t bytes) {
    if (bytes == 0) return;
    memory_.emplace(page_pool(1, bytes).reserve());
    memory_->attach();
  }

  /// Null for 0 bytes.
  [[nodiscard]] std::byte* data() const noexcept { return memory_ ? memory_->data() : nullptr; }

 private:
  std::optional<fixed_memory> memory_;
};

}  // namespace parx::detail
