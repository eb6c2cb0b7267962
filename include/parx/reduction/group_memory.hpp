// group_memory: memory that the collectives of one group work on: buckets, flat parameters.
//
// If all its ranks share memory (one host), it is a shared buffer, in which sums are made in place.
#pragma once

#include <cstddef>
#include <cstring>

#include <parx/comm/shared_buffer.hpp>
#include <parx/core/source.hpp>
#include <parx/reduction/aligned_memory.hpp>

namespace parx::inline PARX_ABI {

class group_memory {
 public:
  /// Collective. Zeroed. All ranks of `group` pass the same number of bytes.
  group_memory(process_group& group, std::size_t bytes, call_site site) {
    if (bytes > 0 && group.size() > 1 && group.shares_memory()) {
      shared_ = allocate_shared<std::byte>(group, bytes, site);
      return;
    }
    own_ = allocate_aligned(bytes);
    std::memset(own_.get(), 0, bytes);
  }

  [[nodiscard]] std::byte* data() noexcept { return own_ != nullptr ? own_.get() : shared_.data(); }
  /// Null if the ranks do not share memory.
  [[nodiscard]] const shared_buffer<std::byte>* shared() const noexcept {
    return own_ != nullptr ? nullptr : &shared_;
  }

 private:
  shared_buffer<std::byte> shared_;
  aligned_memory own_;
};

}  // namespace parx
