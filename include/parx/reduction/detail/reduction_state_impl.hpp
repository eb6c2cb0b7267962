// Definitions of reduction_state.hpp.
#pragma once

#include <algorithm>

#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/reduction/reduction_state.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE reduction_actions reduction_state::begin(pass_kind kind, double count,
                                                     std::span<const std::size_t> reached,
                                                     std::size_t held) {
  require(!is_running(), "{}: a backward pass begins while another one runs", who_);
  require(
      phase_ != reduction_phase::reduced || held == nothing,
      "{}: in the backward pass at or after {}, the gradient of \"{}\" from the last step, or "
      "from a backward pass that failed, is still there, and adding to it would count it twice. "
      "Call optimizer.step() or zero_grad() between two backward passes; a ddp adds up "
      "micro-batches under no_sync()",
      who_, last_call_site(), name(held));
  // The samples of micro-batches that were discarded no longer count.
  if (is_discarded(held)) start_over();
  ++passes_;
  count_ += count;
  for (const std::size_t each : reached) used_[each] = 1;
  ends_step_ = kind == pass_kind::sums;
  if (kind == pass_kind::local) {
    phase_ = reduction_phase::adding;
    return {};
  }
  phase_ = reduction_phase::summing;
  std::fill(awaited_.begin(), awaited_.end(), static_cast<unsigned char>(0));
  std::fill(pending_.begin(), pending_.end(), 0);
  for (const std::size_t each : reached) {
    awaited_[each] = 1;
    ++pending_[parameters_[each].bucket];
  }
  next_ = 0;
  reduction_actions actions = launch();
  actions.start_sums = true;
  return actions;
}

PARX_INLINE reduction_actions reduction_state::ready(std::size_t parameter) {
  require(is_running(), "{}: the gradient of \"{}\" is ready outside of a backward pass", who_,
          name(parameter));
  if (phase_ != reduction_phase::summing) return {};
  require(std::exchange(awaited_[parameter], static_cast<unsigned char>(0)) != 0,
          "{}: the gradient of \"{}\" is ready twice in a backward pass, or was not among those "
          "that the pass reaches",
          who_, name(parameter));
  --pending_[parameters_[parameter].bucket];
  return launch();
}

PARX_INLINE reduction_actions reduction_state::end() const {
  require(is_running(), "{}: a backward pass ends that has not begun", who_);
  const auto missing = std::find(awaited_.begin(), awaited_.end(), 1);
  require(phase_ != reduction_phase::summing || missing == awaited_.end(),
          "{}: backward ended before the gradient of \"{}\" was ready", who_,
          name(static_cast<std::size_t>(missing - awaited_.begin())));
  return {.finish_sums = phase_ == reduction_phase::summing, .end_step = ends_step_};
}

PARX_INLINE void reduction_state::reduced() noexcept {
  if (!ends_step_) {
    phase_ = reduction_phase::added;
    return;
  }
  start_over();
  phase_ = reduction_phase::reduced;
}

PARX_INLINE reduction_actions reduction_state::abandon() noexcept {
  if (!is_running()) return {};
  const bool others_wait = phase_ == reduction_phase::summing;
  start_over();
  phase_ = reduction_phase::reduced;
  return {.abort = others_wait};
}

PARX_INLINE void reduction_state::before_step() const {
  require(phase_ != reduction_phase::adding && phase_ != reduction_phase::added,
          "{}: optimizer.step() would use gradients that were only added up on this rank, under "
          "no_sync(), and each rank would take a step of its own. Leave the last micro-batch's "
          "backward outside of no_sync(), also where an epoch ends early",
          who_);
  require(!is_running(), "{}: optimizer.step() is called while a backward pass runs", who_);
}

PARX_INLINE reduction_actions reduction_state::launch() noexcept {
  const std::size_t first = next_;
  while (next_ < pending_.size() && pending_[next_] == 0) ++next_;
  return {.first = first, .last = next_};
}

PARX_INLINE void reduction_state::start_over() noexcept {
  phase_ = reduction_phase::empty;
  count_ = 0;
  std::fill(used_.begin(), used_.end(), static_cast<unsigned char>(0));
}

}  // namespace parx
