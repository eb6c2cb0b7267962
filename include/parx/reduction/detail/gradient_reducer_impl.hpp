// Definitions of gradient_reducer.hpp.
#pragma once

#include <chrono>
#include <exception>

#include <parx/comm/abort_reason.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/log.hpp>
#include <parx/reduction/gradient_reducer.hpp>
#include <parx/trace/event.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE void gradient_reducer::begin_backward(const backward_start& start) {
  const pass_kind kind = synchronising_ ? pass_kind::sums : without_sync_;
  const std::size_t held = sums_.held();
  const reduction_actions next = state_.begin(kind, start.count, start.reached, held);
  pass_count_ = start.count;
  if (!next.start_sums) return;
  async_before_ = groups_.async_seconds();
  const bool is_last = kind == pass_kind::sums;
  try {
    if (is_last) {
      sums_.headers().own().flags() = flag_.exchange(false) ? 1 : 0;
      sums_.headers().set_counted(start.counted);
    }
    sums_.start(state_, {.is_last = is_last,
                         .adds = held != reduction_state::nothing,
                         .count = start.count});
    sums_.launch(next.first, next.last);
  } catch (...) {
    abandon_backward();
    throw;
  }
}

PARX_INLINE void gradient_reducer::unobserved(std::string_view name,
                                              std::span<const std::size_t> shape) {
  if (std::exchange(has_warned_, true) || groups_[0].rank() != 0) return;
  log(log_level::warn,
      "{}: backward reaches parameter \"{}\" [{}], which the model does not name: its gradient "
      "stays this rank's own, and what is made from the model (shards, an optimizer, a checkpoint) "
      "leaves it out. If it belongs to a layer of the model, that is missing in members()",
      groups_.who(), name, joined_text(shape));
}

PARX_INLINE void gradient_reducer::end_backward() {
  const reduction_actions next = state_.end();
  under_way_ = next.finish_sums;
  // The next micro-batch adds to the sums of this one.
  const bool is_waited_for = finish_ == reduction_finish::with_backward || !next.end_step;
  if (!under_way_) {
    sums_.end_local_pass(pass_count_);
    state_.reduced();
  } else if (is_waited_for) {
    finish();
  }
}

PARX_INLINE void gradient_reducer::finish() {
  if (!std::exchange(under_way_, false)) return;
  const trace::span waiting("wait for gradients", "reduction");
  const auto from = std::chrono::steady_clock::now();
  sums_.finish();
  times_.waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  times_.communication += groups_.async_seconds() - async_before_;
  state_.reduced();
}

PARX_INLINE void gradient_reducer::abandon_backward() noexcept {
  if (state_.abandon().abort) tell_others();
  sums_.abandon();
}

PARX_INLINE void gradient_reducer::tell_others() const noexcept {
  try {
    if (std::current_exception() != nullptr) {
      groups_.abort(abort_reason(groups_[0]));
    } else {
      groups_.abort_for_now(formatted("rank {}: an exception has ended a backward pass of {}",
                                      groups_[0].rank(), groups_.who()));
    }
  } catch (const std::exception&) {
    groups_.abort_for_now("out of memory");
  }
}

}  // namespace parx
