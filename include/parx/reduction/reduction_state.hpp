// reduction_state: decides what is done with gradients at each event of a backward pass. A state
// machine without communication. A bucket is what is summed by one operation: a ddp's bucket, or
// the flat parameter of an fsdp's unit.
//
//   begin -> ready, once for each gradient that the pass reaches -> end -> reduced
//
// or abandon instead, at any time. Each event returns actions. Buckets are launched strictly in
// index order, whatever the order in which gradients become ready, so that every rank issues the
// same operations. Events in a wrong order throw usage_error and change nothing. No event allocates
// memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

enum class reduction_phase {
  empty,      ///< there is no gradient of this step yet
  adding,     ///< a pass accumulates gradients on this rank, under no_sync()
  added,      ///< such passes have ended
  summing,    ///< a pass is running and its sums over the ranks are under way
  reduced,    ///< gradients are final or left by a failed pass: nothing may be added to them
};

/// What a pass does with its gradients.
enum class pass_kind {
  local,  ///< they stay on this rank until a later pass
  sums,   ///< they are summed over the ranks and then final
  parts   ///< they are summed over the ranks; a later pass of the step adds to the sums
};

/// When a wrapper waits for the sums of gradients over the ranks.
enum class reduction_finish {
  with_backward,  ///< at the end of the backward pass that started them
  when_asked,     ///< in finish(): other work can run in between
};

/// To be executed in this order.
struct reduction_actions {
  bool start_sums = false;  ///< start the sums of the step headers
  std::size_t first = 0;    ///< launch buckets [first, last)
  std::size_t last = 0;
  bool finish_sums = false;
  bool end_step = false;  ///< gradients are final
  bool abort = false;     ///< other ranks wait for gradients that will not arrive

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
  /// The passes that have begun, in all steps.
  [[nodiscard]] std::uint64_t passes() const noexcept { return passes_; }
  /// Samples of the passes of this step so far.
  [[nodiscard]] double count() const noexcept { return count_; }
  /// Whether a pass of this step has reached the parameter.
  [[nodiscard]] bool is_used(std::size_t parameter) const noexcept { return used_[parameter] != 0; }
  /// In a pass with sums: whether the parameter's gradient is not ready yet.
  [[nodiscard]] bool is_awaited(std::size_t parameter) const noexcept {
    return awaited_[parameter] != 0;
  }

  /// Between passes: the same parameters are in other buckets from now on.
  void regroup(std::vector<member> parameters, std::size_t buckets) {
    parameters_ = std::move(parameters);
    pending_.assign(buckets, 0);
  }

  /// `reached`: the parameters that the pass reaches. `held`: one that already has a gradient, or
  /// nothing. A pass may reach none: its samples count.
  reduction_actions begin(pass_kind kind, double count, std::span<const std::size_t> reached,
                          std::size_t held);

  reduction_actions ready(std::size_t parameter);

  /// Call reduced() after the actions have been executed.
  [[nodiscard]] reduction_actions end() const;
  void reduced() noexcept;

  /// Does nothing if no pass is running.
  reduction_actions abandon() noexcept;

  /// An optimizer is about to use the gradients. Throws usage_error if they are not reduced.
  void before_step() const;

 private:
  [[nodiscard]] bool is_running() const noexcept {
    return phase_ == reduction_phase::adding || phase_ == reduction_phase::summing;
  }
  [[nodiscard]] std::string_view name(std::size_t parameter) const noexcept {
    return parameter < parameters_.size() ? parameters_[parameter].name : std::string_view();
  }
  /// Whether zero_grad() has discarded the gradients of the passes so far. Those that reached no
  /// parameter had none to discard.
  [[nodiscard]] bool is_discarded(std::size_t held) const noexcept {
    return held == nothing &&
           (phase_ != reduction_phase::added ||
            std::find(used_.begin(), used_.end(), static_cast<unsigned char>(1)) != used_.end());
  }
  [[nodiscard]] reduction_actions launch() noexcept;
  void start_over() noexcept;

  const std::string who_;
  std::vector<member> parameters_;
  std::vector<unsigned char> used_;     ///< by parameter
  std::vector<unsigned char> awaited_;  ///< by parameter: its gradient is not ready yet
  std::vector<std::size_t> pending_;    ///< gradients that are not ready, by bucket
  std::size_t next_ = 0;                ///< the bucket to launch next
  double count_ = 0;
  std::uint64_t passes_ = 0;
  bool ends_step_ = true;  ///< whether the running pass is the last of its step
  reduction_phase phase_ = reduction_phase::empty;
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/reduction/detail/reduction_state_impl.hpp>
#endif
