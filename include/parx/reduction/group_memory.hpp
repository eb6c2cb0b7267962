// group_memory: memory that the collectives of one group work on: buckets, flat parameters.
//
// If all its ranks share memory (one host), it is a shared buffer, in which sums are made in place.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include <parx/comm/shared_buffer.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

class group_memory {
 public:
  /// What lies in it starts at cache lines, so that kernels on them run at full speed.
  static constexpr std::size_t alignment = 64;

  /// Collective. Zeroed. All ranks of `group` pass the same number of bytes.
  group_memory(process_group& group, std::size_t bytes, call_site site) {
    if (bytes > 0 && group.size() > 1 && group.shares_memory()) {
      shared_ = allocate_shared<std::byte>(group, bytes, site);
      return;
    }
    own_.reset(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{alignment})));
    std::memset(own_.get(), 0, bytes);
  }

  [[nodiscard]] std::byte* data() noexcept { return own_ != nullptr ? own_.get() : shared_.data(); }
  /// Null if the ranks do not share memory.
  [[nodiscard]] const shared_buffer<std::byte>* shared() const noexcept {
    return own_ != nullptr ? nullptr : &shared_;
  }

 private:
  struct aligned_delete {
    void operator()(std::byte* memory) const noexcept {
      ::operator delete(memory, std::align_val_t{alignment});
    }
  };

  shared_buffer<std::byte> shared_;
  std::unique_ptr<std::byte, aligned_delete> own_;
};

}  // namespace parx
