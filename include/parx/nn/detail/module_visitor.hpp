// module_visitor: a visitor of the modules, parameters and buffers of a model, whatever their
// types.
//
// The walk (walk.hpp) calls the virtual functions here and is therefore compiled once for each
// layer of a program, not once for each layer, model and purpose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <typeinfo>

#include <parx/autograd/model_buffer.hpp>
#include <parx/autograd/parameter.hpp>
#include <parx/core/check.hpp>
#include <parx/nn/detail/module_state.hpp>
#include <parx/nn/init.hpp>
#include <parx/nn/module_view.hpp>

namespace parx::inline PARX_ABI::nn::detail {

/// A handle, parameter<T> or model_buffer<T>, of some element type T.
class any_handle {
 public:
  /// The handle itself, if its elements are of type T; else null. It is the module's member.
  template <template <typename> typename Handle, typename T>
  [[nodiscard]] Handle<T>* as() const noexcept {
    return type_ == typeid(Handle<T>) ? static_cast<Handle<T>*>(handle_) : nullptr;
  }

  template <template <typename> typename Handle, typename T>
  explicit any_handle(const Handle<T>& held) noexcept
      : handle_(const_cast<Handle<T>*>(&held)), type_(typeid(Handle<T>)) {}

 private:
  void* handle_;
  const std::type_info& type_;
};

/// A parameter of any element type.
class any_parameter : public any_handle {
 public:
  virtual void rename(const std::string& path) const = 0;
  /// What its copies share.
  [[nodiscard]] virtual const void* node() const = 0;
  [[nodiscard]] virtual bool has_values() const = 0;
  virtual void fill(const initializer& start, std::uint64_t seed, std::string_view path) const = 0;
  virtual void freeze() const = 0;
  virtual void unfreeze() const = 0;
  virtual void zero_grad() const = 0;
  [[nodiscard]] virtual std::size_t whole_size() const = 0;

 protected:
  using any_handle::any_handle;
  ~any_parameter() = default;
};

template <typename T>
class parameter_of final : public any_parameter {
 public:
  explicit parameter_of(const parameter<T>& held) noexcept : any_parameter(held), held_(held) {}

  void rename(const std::string& path) const override { held_.rename(path); }
  [[nodiscard]] const void* node() const override { return held_.node().get(); }
  [[nodiscard]] bool has_values() const override { return held_.has_values(); }
  void fill(const initializer& start, std::uint64_t seed, std::string_view path) const override {
    require(start.kind != initializer::distribution::keep || held_.has_values(),
            "parameter \"{}\" has neither values nor an initializer: name one in members(), as in "
            "visit(\"{}\", member, parx::nn::init::normal(0, 0.02))",
            path, path.substr(path.rfind('.') + 1));
    start.fill(held_.allocate(), seed, path, held_.spec());
  }
  void freeze() const override { held_.freeze(); }
  void unfreeze() const override { held_.unfreeze(); }
  void zero_grad() const override { held_.zero_grad(); }
  [[nodiscard]] std::size_t whole_size() const override { return held_.global_shape().size(); }

 private:
  const parameter<T>& held_;
};

class module_visitor {
 public:
  virtual void on_module(const std::string& /*path*/, const module_view& /*module*/) {}
  virtual void on_parameter(module_state& /*owner*/, const std::string& /*path*/,
                            const any_parameter& /*parameter*/, const initializer& /*start*/) {}
  virtual void on_buffer(const std::string& /*path*/, const any_handle& /*buffer*/) {}
  /// For the names that members() gives by other_name().
  virtual void on_other_name(const std::string& /*path*/, const any_parameter& /*parameter*/) {}
  /// For those that it gives by constant_name().
  virtual void on_constant_name(const std::string& /*path*/) {}
  /// For optional_prefix(): names that begin with `prefix` may lack what of it is behind `kept`.
  virtual void on_optional_prefix(const std::string& /*prefix*/, std::size_t /*kept*/) {}

 protected:
  ~module_visitor() = default;

  [[nodiscard]] static bool& ready(module_state& module) noexcept { return module.ready_; }
  [[nodiscard]] static bool& training(module_state& module) noexcept { return module.training_; }
};

}  // namespace parx::nn::detail
