// storage: a reference-counted, 64-byte aligned block of memory that several tensors can share.
//
// One pool block holds the count, the size and the data, so that making a storage is one pool
// operation. A storage can also refer to memory that something else owns and keeps alive (a DDP
// bucket). The count is atomic; users must synchronise access to the contents.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include <parx/tensor/pool.hpp>

namespace parx::inline PARX_ABI {

struct cut_rows;

class storage {
 public:
  storage() noexcept = default;

  /// `bytes` of uninitialised memory from the pool.
  [[nodiscard]] static storage allocate(std::size_t bytes) {
    void* memory = memory_pool::instance().allocate(sizeof(block) + bytes);
    auto* made = ::new (memory) block;
    made->data = static_cast<std::byte*>(memory) + sizeof(block);
    made->bytes = bytes;
    made->pool_bytes = sizeof(block) + bytes;
    return storage(made);
  }
  /// A reference to memory that `owner` keeps alive (a file's mapping); without one the caller
  /// does, longer than every copy of the storage.
  [[nodiscard]] static storage wrap(void* data, std::size_t bytes,
                                    std::shared_ptr<const void> owner = nullptr) {
    auto* made = ::new (memory_pool::instance().allocate(sizeof(block))) block;
    made->data = data;
    made->bytes = bytes;
    made->pool_bytes = sizeof(block);
    made->owner = std::move(owner);
    return storage(made);
  }

  storage(const storage& other) noexcept : block_(other.block_) {
    if (block_ != nullptr) block_->holders.fetch_add(1, std::memory_order_relaxed);
  }
  storage(storage&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  // Not one by value, which clang 14 never destroys where a template assigns {}.
  storage& operator=(const storage& other) noexcept { return *this = storage(other); }
  storage& operator=(storage&& other) noexcept {
    storage taken(std::move(other));
    std::swap(block_, taken.block_);
    return *this;
  }
  ~storage() {
    if (block_ == nullptr || block_->holders.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    const std::size_t bytes = block_->pool_bytes;
    block_->~block();
    memory_pool::instance().deallocate(block_, bytes);
  }

  [[nodiscard]] void* data() const noexcept { return block_ == nullptr ? nullptr : block_->data; }
  [[nodiscard]] std::size_t bytes() const noexcept { return block_ == nullptr ? 0 : block_->bytes; }
  /// Whether this is the only reference to the memory, which was allocated here.
  [[nodiscard]] bool unique() const noexcept {
    return block_ != nullptr && block_->pool_bytes > sizeof(block) &&
           block_->holders.load(std::memory_order_acquire) == 1;
  }
  [[nodiscard]] bool same_as(const storage& other) const noexcept { return block_ == other.block_; }
  /// What tensor::note_cut() has noted; null: nothing.
  [[nodiscard]] const cut_rows* cut() const noexcept {
    return block_ == nullptr ? nullptr : block_->cut;
  }
  [[nodiscard]] std::shared_ptr<const cut_rows> shared_cut() const noexcept {
    return {block_->owner, block_->cut};
  }
  /// Must have memory.
  void note_cut(std::shared_ptr<const cut_rows> cut) const {
    block_->cut = cut.get();
    if (block_->owner == nullptr) {
      block_->owner = std::move(cut);
    } else {
      block_->owner = std::make_shared<const std::pair<std::shared_ptr<const void>,
                                                       std::shared_ptr<const cut_rows>>>(
          std::move(block_->owner), std::move(cut));
    }
  }
  /// A number that is never reused, unlike an address; 0 without memory.
  [[nodiscard]] std::uint64_t id() const noexcept {
    if (block_ == nullptr) return 0;
    std::uint64_t id = block_->id.load(std::memory_order_relaxed);
    if (id != 0) return id;
    static std::atomic<std::uint64_t> next{1};
    const std::uint64_t fresh = next.fetch_add(1, std::memory_order_relaxed);
    return block_->id.compare_exchange_strong(id, fresh) ? fresh : id;
  }

 private:
  struct alignas(memory_pool::alignment) block {
    std::atomic<std::uint64_t> holders{1};
    void* data = nullptr;
    std::size_t bytes = 0;
    std::size_t pool_bytes = 0;
    std::atomic<std::uint64_t> id{0};  // assigned by the first id()
    std::shared_ptr<const void> owner = nullptr;  // of wrapped memory, of the cut, of both
    const cut_rows* cut = nullptr;
  };
  static_assert(sizeof(block) == memory_pool::alignment);
  explicit storage(block* made) noexcept : block_(made) {}
  block* block_ = nullptr;
};

}  // namespace parx
