// replica_scope: says that this thread computes one of several virtual replicas. A layer that sums
// over ranks would mix them, and asks.
#pragma once

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::nn {

class [[nodiscard]] replica_scope {
 public:
  replica_scope() noexcept { ++depth(); }
  ~replica_scope() { --depth(); }
  replica_scope(const replica_scope&) = delete;
  replica_scope& operator=(const replica_scope&) = delete;

  [[nodiscard]] static bool is_active() noexcept { return depth() > 0; }

 private:
  [[nodiscard]] static int& depth() noexcept {
    thread_local int scopes = 0;
    return scopes;
  }
};

}  // namespace parx::nn
