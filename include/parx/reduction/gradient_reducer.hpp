// gradient_reducer: the backward_observer of a wrapper. It passes each event of a backward pass to
// reduction_state and has gradient_sums execute the actions that it answers with.
//
// A backward pass that fails closes its groups only if its sums are under way: otherwise no other
// rank waits for them.
// Threads: called on the thread that runs backward; raise_flag() on any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/autograd/observer.hpp>
#include <parx/reduction/gradient_sums.hpp>
#include <parx/reduction/reduction_group.hpp>
#include <parx/reduction/reduction_state.hpp>
#include <parx/reduction/times.hpp>

namespace parx::inline PARX_ABI {

class gradient_reducer : public backward_observer {
 public:
  /// `groups` are all that the sums use, the wrapper's own first. `without_sync` is the kind of the
  /// passes under no_sync(). `sums` is borrowed. Attach this to the parameters, by their indices.
  gradient_reducer(reduction_groups groups, gradient_sums& sums, reduction_state state,
                   pass_kind without_sync, reduction_finish finish)
      : groups_(std::move(groups)), sums_(sums), state_(std::move(state)),
        without_sync_(without_sync), finish_(finish) {}

  [[nodiscard]] const gradient_sums& sums() const noexcept { return sums_; }
  [[nodiscard]] reduction_state& state() noexcept { return state_; }
  [[nodiscard]] const reduction_state& state() const noexcept { return state_; }
  [[nodiscard]] reduction_times times() const noexcept { return times_; }
  /// While false, a pass is of the kind `without_sync`.
  [[nodiscard]] bool& synchronising() noexcept { return synchronising_; }
  [[nodiscard]] bool is_synchronising() const noexcept { return synchronising_; }
  /// Whether sums are under way that finish() waits for.
  [[nodiscard]] bool is_under_way() const noexcept { return under_way_; }

  void raise_flag() noexcept { flag_ = true; }
  [[nodiscard]] bool flag_raised() const noexcept { return sums_.headers().own().flags() > 0; }

  /// Collective unless under no_sync(). A pass of `count` samples that reaches no parameter: it
  /// sums what earlier passes have accumulated.
  void add_pass(double count) {
    begin_backward({.count = count});
    end_backward();
  }
  /// Collective. Blocks until the sums that are under way are done.
  void finish();

  // backward_observer:

  /// Gradients of sums are added up, over micro-batches and ranks, and divided once, by all
  /// samples: also where one rank has one micro-batch, so that its bits are those of other layouts.
  [[nodiscard]] gradient_of wanted() const override { return gradient_of::sum; }
  void begin_backward(const backward_start& start) override;
  /// Allowed, but usually a layer was forgotten in members(): rank 0 warns once.
  void unobserved(std::string_view name, std::span<const std::size_t> shape) override;
  void leaf_ready(std::size_t index) override {
    const reduction_actions next = state_.ready(index);
    if (state_.phase() == reduction_phase::summing) sums_.launch(next.first, next.last);
  }
  void end_backward() override;
  void abandon_backward() noexcept override;
  [[nodiscard]] bool adds_passes_up() const override {
    return state_.phase() == reduction_phase::added;
  }
  void before_step() const override { state_.before_step(); }

 private:
  /// The sums of this pass are under way, and this rank does not end them.
  void tell_others() const noexcept;

  const reduction_groups groups_;
  gradient_sums& sums_;
  reduction_state state_;
  const pass_kind without_sync_;
  const reduction_finish finish_;
  std::atomic<bool> flag_{false};  ///< raised but not sent yet
  reduction_times times_;
  double pass_count_ = 0;    ///< samples of the running pass
  double async_before_ = 0;  ///< groups_.async_seconds() when this pass started its sums
  bool has_warned_ = false;  ///< of a parameter that the model does not name
  bool synchronising_ = true;
  bool under_way_ = false;
};

/// While it lives, backward accumulates gradients on this rank only. The first backward after it
/// sums them over the ranks; every sample then has the same weight.
class [[nodiscard]] no_sync_scope {
 public:
  explicit no_sync_scope(bool& synchronising) noexcept
      : synchronising_(synchronising), before_(std::exchange(synchronising, false)) {}
  ~no_sync_scope() { synchronising_ = before_; }
  no_sync_scope(const no_sync_scope&) = delete;
  no_sync_scope& operator=(const no_sync_scope&) = delete;

 private:
  bool& synchronising_;
  bool before_;
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/reduction/detail/gradient_reducer_impl.hpp>
#endif
