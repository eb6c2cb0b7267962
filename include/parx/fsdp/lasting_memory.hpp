// lasting_memory: one large array of bytes for the life of a wrapper, all zero at first, in huge
// pages where the system gives them. Pages take memory when they are first written.
#pragma once

#include <cstddef>
#include <vector>

#include <parx/tensor/page_pool.hpp>

namespace parx::inline PARX_ABI::detail {

class lasting_memory {
 public:
  explicit lasting_memory(std::size_t bytes) {
    if (bytes == 0) return;
    memory_.push_back(page_pool(1, bytes).reserve());
    memory_.front().attach();
  }

  /// Null where nothing was asked for.
  [[nodiscard]] std::byte* data() const noexcept {
    return memory_.empty() ? nullptr : memory_.front().data();
  }

 private:
  std::vector<fixed_memory> memory_;
};

}  // namespace parx::detail
