// stage_module: a rank's stages as one module: the parameters that its optimizer updates, whole or
// this rank's parts of them, and the buffers and modes of the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include <parx/checkpoint/state.hpp>
#include <parx/nn/training_modes.hpp>
#include <parx/pipeline/stage_reductions.hpp>
#include <parx/pipeline/stage_submodule.hpp>

namespace parx::inline PARX_ABI {

template <typename T>
class stage_module : public shared_state {
 public:
  using value_type = T;

  /// Stages and reductions are borrowed.
  stage_module(stage_submodule<T>& own, stage_reductions<T>& reductions)
      : own_(own), reductions_(reductions), elsewhere_(own.names_elsewhere()) {}

  /// Whether a stage here uses the parameter or module of this path.
  [[nodiscard]] bool has(std::string_view path) const { return own_.has(path); }
  /// Whether only other stages use the parameter or buffer of this path.
  [[nodiscard]] bool is_elsewhere(const std::string& path) const {
    return elsewhere_.contains(path);
  }
  template <typename Visitor>
  void for_each_parameter(Visitor&& visitor) {
    reductions_.for_each_parameter(visitor);
  }
  template <typename Visitor>
  void for_each_buffer(Visitor&& visitor) {
    own_.for_each_buffer(visitor);
  }
  void for_each_other_name(
      const std::function<void(const std::string& other, const std::string& path)>& visitor) {
    own_.for_each_other_name(visitor);
  }
  void for_each_constant_name(const std::function<void(const std::string& name)>& visitor) {
    own_.for_each_constant_name(visitor);
  }
  /// Of the whole model.
  [[nodiscard]] std::size_t parameter_count() { return own_.parameter_count(); }
  void reseed(std::uint64_t seed) { own_.reseed(seed); }
  void train() { own_.train(); }
  void eval() { own_.eval(); }
  [[nodiscard]] nn::training_modes training_modes() { return own_.training_modes(); }

 private:
  stage_submodule<T>& own_;
  stage_reductions<T>& reductions_;
  std::set<std::string> elsewhere_;
};

}  // namespace parx
