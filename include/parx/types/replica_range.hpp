// replica_range: which of a step's virtual replicas a rank computes.
#pragma once

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// Replicas [first, last).
struct replica_range {
  int first = 0, last = 0;
  [[nodiscard]] constexpr int size() const noexcept { return last - first; }
  friend bool operator==(const replica_range&, const replica_range&) = default;
};

/// The replicas that rank `rank` of `ranks` computes, of `replicas` >= `ranks`: as many as the
/// other ranks have, or one more. With 0 replicas each rank is one.
[[nodiscard]] constexpr replica_range replicas_of(int rank, int ranks, int replicas) noexcept {
  if (replicas == 0) return {rank, rank + 1};
  return {replicas * rank / ranks, replicas * (rank + 1) / ranks};
}

}  // namespace parx
