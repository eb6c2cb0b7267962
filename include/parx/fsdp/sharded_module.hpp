// sharded_module: a model as one rank of an fsdp sees it: its parts of the parameters under their
// names, for optimizers and checkpoints, and the model's buffers and modes. Two references.
// Model: a handle of the model (nn/any_module.hpp), or one that has the same functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <parx/autograd/parameter.hpp>
#include <parx/fsdp/sharded_parameter.hpp>
#include <parx/nn/training_modes.hpp>

namespace parx::inline PARX_ABI {

template <typename Model>
class sharded_module {
 public:
  using value_type = typename Model::value_type;

  /// Both are borrowed; `all` has the model's parameters in the order of for_each_parameter.
  sharded_module(Model& model, const std::vector<std::unique_ptr<detail::sharded_parameter>>& all)
      : model_(model), all_(all) {}

  /// Calls visitor(path, parameter<T>&) with this rank's part of each parameter; the part's spec()
  /// says which elements it has.
  template <typename Visitor>
  void for_each_parameter(Visitor&& visitor) {
    std::size_t next = 0;
    model_.for_each_parameter([&, this]<typename T>(const std::string& path, parameter<T>&) {
      visitor(path, static_cast<detail::sharded_parameter_of<T>&>(*all_[next++]).part());
    });
  }
  template <typename Visitor>
  void for_each_buffer(Visitor&& visitor) {
    model_.for_each_buffer(visitor);
  }
  void for_each_other_name(
      const std::function<void(const std::string& other, const std::string& path)>& visitor) {
    model_.for_each_other_name(visitor);
  }
  void for_each_constant_name(const std::function<void(const std::string& name)>& visitor) {
    model_.for_each_constant_name(visitor);
  }
  /// Handles of all parts, for an optimizer, as nn::module::parameters.
  template <typename T = value_type>
  [[nodiscard]] std::vector<parameter<T>> parameters() {
    std::vector<parameter<T>> parts;
    for_each_parameter([&](const std::string&, auto& part) { parts.push_back(part); });
    return parts;
  }

  /// Of the whole model.
  [[nodiscard]] std::size_t parameter_count() { return model_.parameter_count(); }

  void gradient_checkpointing_enable() { model_.gradient_checkpointing_enable(); }
  void train() { model_.train(); }
  void eval() { model_.eval(); }
  [[nodiscard]] nn::training_modes training_modes() { return model_.training_modes(); }
  void reseed(std::uint64_t seed) { model_.reseed(seed); }

 private:
  Model& model_;
  const std::vector<std::unique_ptr<detail::sharded_parameter>>& all_;
};

}  // namespace parx
