// workspace: memory for the packed operands of one product.
#pragma once

#include <array>
#include <cstddef>

#include <parx/tensor/pool.hpp>

namespace parx::inline PARX_ABI::detail::product {

/// `count` elements, uninitialised, aligned to 64 bytes: from the stack while they are few, as in
/// attention's tiles, else from the pool.
template <typename T>
class workspace {
 public:
  explicit workspace(std::size_t count)
      : bytes_(count * sizeof(T)),
        data_(static_cast<T*>(bytes_ <= sizeof here_ ? static_cast<void*>(here_.data())
                                                     : memory_pool::instance().allocate(bytes_))) {}
  ~workspace() {
    if (bytes_ > sizeof here_) memory_pool::instance().deallocate(data_, bytes_);
  }
  workspace(const workspace&) = delete;
  workspace& operator=(const workspace&) = delete;

  [[nodiscard]] T* data() const noexcept { return data_; }

 private:
  alignas(64) std::array<std::byte, 32768> here_;
  std::size_t bytes_;
  T* data_;
};

}  // namespace parx::detail::product
