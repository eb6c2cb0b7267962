// stage_submodule: the parameters and buffers of a model that one stage uses, as a module that can
// be wrapped.
//
// They keep their paths in the whole model, so checkpoints and initial values do not depend on the
// cut. A parameter that several stages use (tied embeddings) belongs to each of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/abi.hpp>
#include <parx/fsdp/unit_choice.hpp>
#include <parx/nn/any_module.hpp>
#include <parx/nn/module_view.hpp>
#include <parx/nn/training_modes.hpp>

namespace parx::inline PARX_ABI {

/// Whether `path` is one of `parts` or within one.
[[nodiscard]] inline bool is_within(std::string_view path, const std::vector<std::string>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return is_in_module(path, part); });
}

template <typename T>
class stage_submodule : public nn::detail::module_state {
 public:
  using value_type = T;

  /// The model is borrowed. `parts` and `without` are paths of modules or parameters.
  stage_submodule(nn::any_module<T> whole, std::vector<std::string> parts,
             std::vector<std::string> without = {})
      : whole_(whole), parts_(std::move(parts)), without_(std::move(without)) {}

  [[nodiscard]] bool has(std::string_view path) const {
    return is_within(path, parts_) && !is_within(path, without_);
  }

  /// The paths of the model's parameters and buffers that are not in this part.
  [[nodiscard]] std::set<std::string> names_elsewhere() {
    std::set<std::string> names;
    const auto note = [&](const std::string& path, auto&) {
      if (!has(path)) names.insert(path);
    };
    whole_.for_each_parameter(note);
    whole_.for_each_buffer(note);
    whole_.for_each_other_name([&](const std::string& other, const std::string& path) {
      if (!has(path)) names.insert(other);
    });
    return names;
  }
  template <typename Visitor>
  void for_each_parameter(Visitor&& visitor) {
    whole_.for_each_parameter([&](const std::string& path, auto& parameter) {
      if (has(path)) visitor(path, parameter);
    });
  }
  template <typename Visitor>
  void for_each_parameter_path(Visitor&& visitor) {
    whole_.for_each_parameter_path(
        [&](const std::string& path, auto& parameter, const auto& start) {
          if (has(path)) visitor(path, parameter, start);
        });
  }
  void for_each_other_name(
      const std::function<void(const std::string& other, const std::string& path)>& visitor) {
    whole_.for_each_other_name([&](const std::string& other, const std::string& path) {
      if (has(path)) visitor(other, path);
    });
  }
  void for_each_constant_name(const std::function<void(const std::string& name)>& visitor) {
    whole_.for_each_constant_name(visitor);
  }
  /// The stage itself, then the modules in it.
  void for_each_module(
      function_ref<void(const std::string& path, const nn::module_view& module)> visitor) {
    visitor("", nn::module_view::of(*this));
    whole_.for_each_module([&](const std::string& path, const nn::module_view& module) {
      if (has(path)) visitor(path, module);
    });
  }
  template <typename Visitor>
  void for_each_buffer(Visitor&& visitor) {
    whole_.for_each_buffer([&](const std::string& path, auto& buffer) {
      if (has(path)) visitor(path, buffer);
    });
  }
  /// Of the whole model.
  [[nodiscard]] std::size_t parameter_count() { return whole_.parameter_count(); }
  /// Does nothing: the pipeline has initialized the parameters.
  void materialize() noexcept {}
  // Modes and random streams are those of the whole model; they take no memory.
  void gradient_checkpointing_enable() { whole_.gradient_checkpointing_enable(); }
  void set_replica(std::uint64_t replica) { whole_.set_replica(replica); }
  void reseed(std::uint64_t seed) { whole_.reseed(seed); }
  void train() { whole_.train(); }
  void eval() { whole_.eval(); }
  [[nodiscard]] nn::training_modes training_modes() { return whole_.training_modes(); }

 private:
  nn::any_module<T> whole_;
  std::vector<std::string> parts_, without_;
};

}  // namespace parx
