// optimizer: what SGD and AdamW share: the list of targets, the options, and state for each target.
//
// step() applies the gradients and consumes them: the next backward starts anew, so a training loop
// needs no zero_grad(). Several backward passes before one step() add up.
// An optimizer belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/optim/target.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::optim {

/// Derived has `void update(slot&, std::span<T> value, std::span<const T> grad)` and
/// `static constexpr std::array state_names`, one name for each tensor that a slot keeps.
template <typename Derived, typename T, typename Options>
class optimizer {
 public:
  using value_type = T;
  using options_type = Options;

  /// Updates every target that has a gradient, then drops the gradients. Local, does not block.
  void step() {
    for (slot& one : slots_) {
      if (!one.updated.has_grad()) continue;
      ++one.steps;
      static_cast<Derived&>(*this).update(one, one.updated.value(), one.updated.grad());
      one.updated.zero_grad();
    }
  }

  /// Drops the gradients without applying them.
  void zero_grad() {
    for (const slot& one : slots_) one.updated.zero_grad();
  }

  /// Takes effect with the next step(): `opt.options().lr = schedule.at(step)`.
  [[nodiscard]] Options& options() noexcept { return options_; }
  [[nodiscard]] const Options& options() const noexcept { return options_; }

  /// Calls visitor(name, tensor<T>&) for all state tensors, "0.weight.exp_avg", and visitor(name,
  /// std::uint64_t&) for the number of steps of each target, "0.weight.step": what a checkpoint has
  /// to keep. A tensor has the target's size and is all zero before its first step.
  template <typename Visitor>
  void for_each_state(Visitor&& visitor) {
    for (slot& one : slots_) {
      make_state(one);
      for (std::size_t i = 0; i < one.state.size(); ++i) {
        visitor(one.updated.name() + "." + std::string(Derived::state_names[i]), one.state[i]);
      }
      visitor(one.updated.name() + ".step", one.steps);
    }
  }

 protected:
  struct slot {
    target<T> updated;
    std::vector<tensor<T>> state = {};
    std::uint64_t steps = 0;
  };

  optimizer(std::vector<target<T>> targets, Options options) : options_(options) {
    require(!targets.empty(),
            "an optimizer needs at least one parameter; does the model's members() visit them?");
    slots_.reserve(targets.size());
    for (target<T>& one : targets) slots_.push_back({.updated = std::move(one)});
  }

  /// The state tensors of a slot, zero at first.
  std::vector<tensor<T>>& make_state(slot& one) {
    while (one.state.size() < Derived::state_names.size()) {
      one.state.push_back(tensor<T>::zeros({one.updated.size()}));
    }
    return one.state;
  }

 private:
  Options options_;
  std::vector<slot> slots_;
};

}  // namespace parx::optim
