// repeats: a cache of a group's latest blocking collectives, by source line.
//
// Most calls are repeated from the same line with other data. Such a call reuses plan, kernels and
// header of the last one; only the buffers are written. So issuing a small call costs tens of
// nanoseconds, and its loads do not stall on the previous call's stores (store forwarding).
// Threads: that of its group.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <parx/comm/detail/progress/call.hpp>
#include <parx/comm/schedule/operation.hpp>
#include <parx/comm/schedule/reduction_order.hpp>

namespace parx::inline PARX_ABI::detail {

/// The key: the fields that determine a call's header, plan and arithmetic. Calls with uneven
/// counts or user functions are never cached, so neither is a field.
struct call_likeness {
  operation what = operation::barrier;
  algorithm use = algorithm::automatic;
  reduce_op combine = reduce_op::sum;
  reduction_order order = reduction_order::any;
  std::uint8_t type = 0;
  int root = -1;
  int line = 0;
  bool input_in_area = false;  ///< shared_areas::may_hold
  bool output_in_area = false;
  const char* file = nullptr;
  std::size_t element_size = 0;
  std::size_t count = 0;
  std::size_t input_count = 0;
  std::size_t output_count = 0;
  double factor = 1;
  std::chrono::milliseconds timeout{0};
  bool operator==(const call_likeness&) const = default;
};

struct repeated_call {
  call_likeness like;
  call request;
  bool ready = false;
};

class repeats {
 public:
  /// The slot of calls made at this line; lines that are equal modulo 8 share one.
  [[nodiscard]] repeated_call& at(int line) noexcept {
    return kept_[static_cast<unsigned>(line) % kept_.size()];
  }

 private:
  std::array<repeated_call, 8> kept_;
};

}  // namespace parx::detail
