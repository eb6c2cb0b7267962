// A loss that is no number is told once, at the backward pass that starts from it: whoever trains
// by a loop of his own would otherwise see it in his curve, hours later.
#pragma once

#include <cmath>

#include <parx/core/abi.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI::detail {

/// While it lives, the calling thread's losses are watched by somebody who says more: a trainer, or
/// parallel's forward_backward.
class loss_is_watched {
 public:
  loss_is_watched() noexcept { ++depth(); }
  ~loss_is_watched() { --depth(); }
  loss_is_watched(const loss_is_watched&) = delete;
  loss_is_watched& operator=(const loss_is_watched&) = delete;

  [[nodiscard]] static int& depth() noexcept {
    thread_local int depth = 0;
    return depth;
  }
};

/// Once a process, and in a job on rank 0 alone.
void warn_of_loss(double loss, call_site site);

inline void look_at_loss(double loss, call_site site) {
  if (!std::isfinite(loss) && loss_is_watched::depth() == 0) [[unlikely]] warn_of_loss(loss, site);
}

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/autograd/detail/loss_watch_impl.hpp>
#endif
