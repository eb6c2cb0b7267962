// shared_buffer: a buffer in shared memory, which collectives read and write in place.
//
// Every rank of a group has a part of its own; ranks of one host can access each other's parts. A
// collective whose buffer lies in such parts, at the same offset on every rank, reads and writes
// all of them directly: an all_reduce of 64 MiB between two ranks takes a fifth of the time that
// ordinary buffers take. Across hosts it is ordinary memory.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI {

/// `size()` elements, initially zero. Movable; it must outlive the operations that borrow it.
template <typename T>
class shared_buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;

  shared_buffer() = default;
  shared_buffer(std::shared_ptr<const shared_area> area, int rank, std::size_t size)
      : area_(std::move(area)),
        data_(reinterpret_cast<T*>(area_->of_rank[static_cast<std::size_t>(rank)])), size_(size) {}
  shared_buffer(shared_buffer&& other) noexcept
      : area_(std::move(other.area_)), data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  shared_buffer& operator=(shared_buffer&& other) noexcept {
    std::swap(area_, other.area_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Another rank's part; null if that rank is on another host.
  [[nodiscard]] T* of(int rank) const noexcept {
    return reinterpret_cast<T*>(area_->of_rank[static_cast<std::size_t>(rank)]);
  }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return data_[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return data_[i]; }
  [[nodiscard]] T* begin() noexcept { return data_; }
  [[nodiscard]] T* end() noexcept { return data_ + size_; }
  [[nodiscard]] const T* begin() const noexcept { return data_; }
  [[nodiscard]] const T* end() const noexcept { return data_ + size_; }

 private:
  std::shared_ptr<const shared_area> area_;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Collective: every rank calls it with the same `size`, in elements. Throws usage_error if the
/// size exceeds the address space, parx::error if memory cannot be allocated or a rank does not
/// enter in time.
template <typename T>
[[nodiscard]] shared_buffer<T> allocate_shared(process_group& group, std::size_t size,
                                               call_site site = call_site::current()) {
  require(size <= static_cast<std::size_t>(-1) / sizeof(T) / 2,
          "allocate_shared at {}: {} elements of {} bytes are more than memory can hold", site,
          size, sizeof(T));
  return {detail::share_memory(group, size * sizeof(T)), group.rank(), size};
}

}  // namespace parx
