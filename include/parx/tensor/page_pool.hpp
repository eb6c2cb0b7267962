// page_pool: blocks of memory that move between addresses, so that objects which are used in turns
// have fixed addresses, but memory only while they are in use.
//
// A unit of a sharded model is such an object: tensors, views and saved operands keep their
// pointers while its parameters come and go. mremap(2) moves the entries of the page table, one
// for each 2 MiB, and copies nothing: 7 to 15 us for 1 to 64 MiB, whereas mapping and unmapping
// a file at the address costs 100 us for each MiB (benchmarks/README.md). Of one product of 64
// rows by 512 x 512 weights the moves are 5 to 8 %, of larger ones nothing. Saved operands that
// ask for the address again would change every operation, and views would be silently stale.
// Units of much less than 1 MiB are better kept together or in place. Touching memory that has
// moved away is a segmentation fault rather than a wrong number. The pages are private to the
// process and take no descriptor; a forked child gets copies. A pool and its ranges belong to
// one thread at a time, and nobody may use a range's memory while it moves. Linux 5.7 or newer.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/tensor/detail/address_range.hpp>

namespace parx::inline PARX_ABI {

class fixed_memory;

class page_pool {
 public:
  /// `blocks` blocks of at least `bytes`, rounded up to 2 MiB: huge pages, where the system grants
  /// them (madvise). They take memory when they are first written. Throws parx::error where memory
  /// cannot be reserved or moved; a move is tried here.
  page_pool(std::size_t blocks, std::size_t bytes);

  /// Addresses for one block, without memory yet. They may outlive the pool object.
  [[nodiscard]] fixed_memory reserve() const;

  [[nodiscard]] std::size_t block_bytes() const noexcept { return shared_->bytes; }
  [[nodiscard]] std::size_t free_blocks() const noexcept { return shared_->free.size(); }
  /// One more block. Throws parx::error where there is no memory.
  void add_block() const { shared_->add(1); }
  /// Gives the memory of free blocks back to the system until they are written again.
  void drop_free() const noexcept {
    for (std::byte* const block : shared_->free) ::madvise(block, shared_->bytes, MADV_DONTNEED);
  }

 private:
  friend class fixed_memory;

  struct state {
    state(std::size_t blocks, std::size_t block_bytes) : bytes(block_bytes) { add(blocks); }
    void add(std::size_t blocks) {
      detail::address_range& home = homes.emplace_back(blocks * bytes);
      for (std::size_t i = 0; i < blocks; ++i) free.push_back(home.fill(i * bytes, bytes));
    }
    std::size_t bytes;
    std::vector<detail::address_range> homes;
    std::vector<std::byte*> free;  ///< where in `homes` the free blocks are
  };

  std::shared_ptr<state> shared_;
};

/// Addresses for one block of a pool. Movable; data() stays the same.
class fixed_memory {
 public:
  fixed_memory(fixed_memory&& other) noexcept
      : pool_(std::move(other.pool_)), range_(std::move(other.range_)),
        block_(std::exchange(other.block_, nullptr)) {}
  ~fixed_memory() {
    if (block_ == nullptr) return;
    try {
      detach();
    } catch (const std::exception&) {  // the pool loses the block
    }
  }

  /// Aligned to 2 MiB. Nothing may be read or written there unless attached().
  [[nodiscard]] std::byte* data() const noexcept { return range_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return pool_->bytes; }
  [[nodiscard]] bool attached() const noexcept { return block_ != nullptr; }

  /// Moves a free block here, with whatever it contains; does nothing if one is attached. Throws
  /// usage_error where the pool has none left.
  void attach() {
    if (attached()) return;
    require(!pool_->free.empty(),
            "page_pool: all blocks of {} bytes are in use; detach one before another is attached",
            pool_->bytes);
    detail::address_range::move(pool_->free.back(), data(), size());
    block_ = pool_->free.back();
    pool_->free.pop_back();
  }
  /// Gives the block back to the pool; does nothing if none is attached.
  void detach() {
    if (!attached()) return;
    detail::address_range::move(data(), block_, size());
    pool_->free.push_back(std::exchange(block_, nullptr));
  }

 private:
  friend class page_pool;
  explicit fixed_memory(std::shared_ptr<page_pool::state> pool)
      : pool_(std::move(pool)), range_(pool_->bytes) {}

  std::shared_ptr<page_pool::state> pool_;
  detail::address_range range_;
  std::byte* block_ = nullptr;  ///< the place in the pool's `homes` of the attached block
};

inline page_pool::page_pool(std::size_t blocks, std::size_t bytes) {
  constexpr std::size_t page = detail::address_range::huge_page, addresses = std::size_t{1} << 47U;
  require(blocks > 0 && bytes > 0, "page_pool: {} blocks of {} bytes are no memory", blocks, bytes);
  const std::size_t pages = (bytes - 1) / page + 1;
  require(pages <= addresses / page / blocks,
          "page_pool: {} blocks of {} bytes are more than a process has addresses for", blocks,
          bytes);
  shared_ = std::make_shared<state>(blocks, pages * page);
  reserve().attach();
}

inline fixed_memory page_pool::reserve() const { return fixed_memory(shared_); }

}  // namespace parx
