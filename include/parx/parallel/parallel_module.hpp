// parallel_module: a parallel model as one rank sees it: its parts of the parameters, its buffers,
// and the modes of the model. For checkpoints, averages and a trainer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <parx/checkpoint/state.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/nn/training_modes.hpp>
#include <parx/parallel/any_model.hpp>
#include <parx/parallel/strategy.hpp>

namespace parx::inline PARX_ABI {

template <typename T>
class parallel_module : public shared_state {
 public:
  using value_type = T;

  /// Both are borrowed.
  parallel_module(parallel_strategy<T>& strategy, any_model<T>& model) noexcept
      : strategy_(&strategy), model_(&model) {}

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
    model_->for_each_other_name(visitor);
  }
  void for_each_constant_name(const std::function<void(const std::string& name)>& visitor) {
    model_->for_each_constant_name(visitor);
  }
  /// Whether only other ranks have the parameter or buffer of this path.
  [[nodiscard]] bool is_elsewhere(const std::string& path) const {
    return strategy_->is_elsewhere(path);
  }
  /// Of the whole model.
  [[nodiscard]] std::size_t parameter_count() { return model_->parameter_count(); }
  void train() { model_->train(); }
  void eval() { model_->eval(); }
  [[nodiscard]] nn::training_modes training_modes() { return model_->training_modes(); }
  void reseed(std::uint64_t seed) { model_->reseed(seed); }
  void gradient_checkpointing_enable() { model_->gradient_checkpointing_enable(); }

 private:
  parallel_strategy<T>* strategy_;
  any_model<T>* model_;
};

/// Names and shapes of the whole model.
template <typename T>
class parallel_shapes {
 public:
  explicit parallel_shapes(any_model<T>& model) noexcept : model_(&model) {}
  template <typename Visitor>
  void for_each_parameter(Visitor&& visitor) {
    const auto visit = [&](const std::string& path, parameter<T>& whole) { visitor(path, whole); };
    model_->for_each_parameter(function_ref<void(const std::string&, parameter<T>&)>(visit));
  }
  template <typename Visitor>
  void for_each_buffer(Visitor&& visitor) {
    const auto visit = [&](const std::string& path, auto& buffer) { visitor(path, buffer); };
    model_->for_each_buffer(buffer_visitor<T>{visit, visit});
  }

 private:
  any_model<T>* model_;
};

}  // namespace parx
