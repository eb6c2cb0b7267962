// parallel_part: a parallel model as one rank sees it: its parts of the parameters, its buffers,
// and the modes of the model. For checkpoints, averages and a trainer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <parx/checkpoint/state.hpp>
#include <parx/nn/training_modes.hpp>
#include <parx/parallel/strategy.hpp>

namespace parx::inline PARX_ABI {

template <typename T>
class parallel_part : public shared_state {
 public:
  using value_type = T;

  /// The strategy is borrowed.
  explicit parallel_part(parallel_strategy<T>& strategy) noexcept : strategy_(&strategy) {}

  /// Calls visitor(path, parameter<T>&) with this rank's parts, whose spec() says what they are.
  template <typename Visitor>
  void for_each_parameter(Visitor&& visitor) {
    strategy_->for_each_parameter(
        [&](const std::string& path, parameter<T>& part) { visitor(path, part); });
  }
  template <typename Visitor>
  void for_each_buffer(Visitor&& visitor) {
    const auto visit = [&](const std::string& path, auto& buffer) { visitor(path, buffer); };
    strategy_->for_each_buffer({visit, visit});
  }
  void for_each_other_name(
      const std::function<void(const std::string& other, const std::string& path)>& visitor) {
    strategy_->for_each_other_name(visitor);
  }
  void for_each_constant_name(const std::function<void(const std::string& name)>& visitor) {
    strategy_->for_each_constant_name(visitor);
  }
  /// Whether only other ranks have the parameter or buffer of this path.
  [[nodiscard]] bool is_elsewhere(const std::string& path) const {
    return strategy_->is_elsewhere(path);
  }
  /// Of the whole model.
  [[nodiscard]] std::size_t parameter_count() { return strategy_->parameter_count(); }
  void train() { strategy_->set_training(true); }
  void eval() { strategy_->set_training(false); }
  [[nodiscard]] nn::training_modes training_modes() { return strategy_->training_modes(); }
  void reseed(std::uint64_t seed) { strategy_->reseed(seed); }
  void gradient_checkpointing_enable() { strategy_->checkpoint_gradients(); }

 private:
  parallel_strategy<T>* strategy_;
};

/// Names and shapes of the whole model.
template <typename T>
class parallel_shapes {
 public:
  explicit parallel_shapes(parallel_strategy<T>& strategy) noexcept : strategy_(&strategy) {}
  template <typename Visitor>
  void for_each_parameter(Visitor&& visitor) {
    strategy_->for_each_whole_parameter(
        [&](const std::string& path, parameter<T>& whole) { visitor(path, whole); });
  }
  template <typename Visitor>
  void for_each_buffer(Visitor&& visitor) {
    const auto visit = [&](const std::string& path, auto& buffer) { visitor(path, buffer); };
    strategy_->for_each_whole_buffer({visit, visit});
  }

 private:
  parallel_strategy<T>* strategy_;
};

}  // namespace parx
