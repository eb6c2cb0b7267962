// reduction_state: what a ddp does at each event of a backward pass, as a state machine that knows
// no ranks.
//
//   begin -> ready, once for each gradient that the pass reaches -> end -> reduced
//
// or abandon instead, at any time. Each event answers with actions. Buckets are launched strictly
// by index, in whatever order gradients become ready, so that every rank issues the same
// operations. Events in a wrong order throw usage_error and change nothing. None allocates memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI::detail {

enum class reduction_phase {
  empty,      ///< no gradient of this step is there
  adding,     ///< a pass adds up gradients of this rank, under no_sync()
  added,      ///< such passes have ended
  averaging,  ///< a pass makes the mean itself: there is one rank
  summing,    ///< a pass whose sums over the ranks are under way
  reduced,    ///< gradients are final, or what a failed pass left: nothing may be added to them
};

/// What a pass is to do with its gradients.
enum class pass_kind {
  local,  ///< they stay with this rank until a later pass
  mean,   ///< they are the step's
  sums,   ///< they are summed over the ranks, and the step's
  parts   ///< they are summed, too, and a later pass adds to the sums
};

/// In this order.
struct reduction_actions {
  bool start_sums = false;  ///< tell the other ranks what was counted and used
  std::size_t first = 0;    ///< launch the buckets from here
  std::size_t last = 0;     ///< to before here
  bool finish_sums = false;
  bool end_step = false;  ///< gradients are final then
  bool abort = false;     ///< other ranks wait for gradients that will not come

  friend bool operator==(const reduction_actions&, const reduction_actions&) = default;
};

class reduction_state {
 public:
  static constexpr std::size_t nothing = static_cast<std::size_t>(-1);

  struct member {
    std::string name;
    std::size_t bucket;
  };

  /// `who` begins the errors: "ddp at train.cpp:12".
  reduction_state(std::string who, std::vector<member> parameters, std::size_t buckets)
      : who_(std::move(who)), parameters_(std::move(parameters)), used_(parameters_.size()),
        awaited_(parameters_.size()), pending_(buckets) {}

  [[nodiscard]] reduction_phase phase() const noexcept { return phase_; }
  /// Samples since the last reduced step, and the parameters that passes have reached since.
  [[nodiscard]] double count() const noexcept { return count_; }
  [[nodiscard]] bool is_used(std::size_t parameter) const noexcept { return used_[parameter] != 0; }
  /// Of a pass with sums: its gradient is not ready yet.
  [[nodiscard]] bool is_awaited(std::size_t parameter) const noexcept {
    return awaited_[parameter] != 0;
  }
  /// Whether a pass that begins now would be all of its step. `held` as for begin().
  [[nodiscard]] bool is_whole(std::size_t held) const noexcept {
    return phase_ != reduction_phase::added || held == nothing;
  }

  /// `reached` are parameters; `held` is one that has a gradient already, or nothing.
  reduction_actions begin(pass_kind kind, double count, std::span<const std::size_t> reached,
                          std::size_t held);

  reduction_actions ready(std::size_t parameter);

  /// Where the actions have been taken, reduced() follows.
  [[nodiscard]] reduction_actions end() const;
  void reduced() noexcept;

  /// Nothing where no pass runs.
  reduction_actions abandon() noexcept;

  /// An optimizer is about to use the gradients.
  void before_step() const;

 private:
  [[nodiscard]] bool is_running() const noexcept {
    return phase_ == reduction_phase::adding || phase_ == reduction_phase::averaging ||
           phase_ == reduction_phase::summing;
  }
  [[nodiscard]] std::string_view name(std::size_t parameter) const noexcept {
    return parameter < parameters_.size() ? parameters_[parameter].name : std::string_view();
  }
  [[nodiscard]] reduction_actions launch() noexcept;
  void start_over() noexcept;

  const std::string who_;
  const std::vector<member> parameters_;
  std::vector<unsigned char> used_;     ///< by parameter
  std::vector<unsigned char> awaited_;  ///< by parameter: its gradient is not ready yet
  std::vector<std::size_t> pending_;    ///< gradients that are not ready, by bucket
  std::size_t next_ = 0;                ///< the bucket to launch next
  double count_ = 0;
  bool ends_step_ = true;  ///< the pass that runs
  reduction_phase phase_ = reduction_phase::empty;
};

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/ddp/detail/reduction_state_impl.hpp>
#endif
