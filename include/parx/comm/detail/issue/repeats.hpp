// repeats: a group's latest blocking collectives, kept ready to be issued once more.
//
// A program makes most of its calls again and again from the same places with other data. Such a
// call takes its plan, kernels and header from the last time; only what may differ is written. So a
// small call costs tens of nanoseconds, and none of its loads waits for the stores of the one
// before (shared_pipe's copy_words).
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

/// All that a call's header, plan and arithmetic are made from, but uneven counts and the user's
/// functions: calls with those are not kept.
struct call_likeness {
  operation what = operation::barrier;
  algorithm use = algorithm::automatic;
  reduce_op combine = reduce_op::sum;
  reduction_order order = reduction_order::any;
  std::uint8_t type = 0;
  int root = -1;
  int line = 0;
  bool input_in_area = false;  ///< as shared_areas::may_hold says
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
  /// Where a call made at this line is kept.
  [[nodiscard]] repeated_call& at(int line) noexcept {
    return kept_[static_cast<unsigned>(line) % kept_.size()];
  }

 private:
  std::array<repeated_call, 8> kept_;
};

}  // namespace parx::detail
