// walk: visits the modules, parameters and buffers of a model with their paths, depth first, in the
// order in which members() names them.
//
// Paths are the names joined by dots, "encoder.0.weight", as in PyTorch.
#pragma once

#include <cstddef>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include <parx/autograd/model_buffer.hpp>
#include <parx/autograd/parameter.hpp>
#include <parx/nn/detail/module_visitor.hpp>
#include <parx/nn/module_view.hpp>

namespace parx::inline PARX_ABI::nn::detail {

template <typename T>
inline constexpr bool is_parameter = false;
template <typename T>
inline constexpr bool is_parameter<parameter<T>> = true;

template <typename T>
inline constexpr bool is_buffer = false;
template <typename T>
inline constexpr bool is_buffer<model_buffer<T>> = true;

/// A member that is a module itself.
template <typename M>
concept walkable = requires(M& m) {
  m.is_training();
};

/// Each parameter once, under its first path when several modules share it; under each of its
/// paths; or under its paths and other names.
enum class visited { parameters, all_paths, all_names };

/// Calls a module_visitor: on_module before the module's members; on_parameter with the module that
/// owns it and its initializer; on_buffer; and for names in files alone on_other_name,
/// on_constant_name, on_optional_prefix. members() is compiled with this one
/// class.
class walker {
 public:
  walker(module_visitor& visitor, visited what) : visitor_(visitor), what_(what) {}

  template <typename Module>
  void start(Module& module) {
    visitor_.on_module(path_, module_view::of(module));
    module_state* const outer = std::exchange(owner_, &module);
    module.members(*this);
    owner_ = outer;
  }

  /// Called by members(): visit("name", member), also for buffers, or visit("name", parameter,
  /// initializer). Not inline: a model calls it from many places.
  template <typename Member>
  [[gnu::noinline]] void operator()(std::string_view name, Member& member,
                                    const initializer& begin = {}) {
    const std::size_t outer = enter(name);
    if constexpr (is_parameter<std::remove_const_t<Member>>) {
      if (member.defined()) on_parameter(parameter_of(member), begin);
    } else if constexpr (is_buffer<std::remove_const_t<Member>>) {
      if (member.defined()) visitor_.on_buffer(path_, any_handle(member));
    } else if constexpr (walkable<Member>) {
      start(member);
    } else {
      static_assert(std::ranges::range<Member>,
                    "members() may visit parameters, buffers, modules, and ranges of them");
      std::size_t index = 0;
      for (auto& element : member) (*this)(std::to_string(index++), element, begin);
    }
    path_.resize(outer);
  }
  /// Called by members(): in files the parameters of `member` may have `name` as well, in the place
  /// of the path under which it is visited. For a matrix that several layers share.
  template <typename Member>
  void other_name(std::string_view name, Member& member) {
    if (what_ != visited::all_names) return;
    const bool before = std::exchange(is_other_name_, true);
    (*this)(name, member);
    is_other_name_ = before;
  }
  /// Called by members(): files may have all names without this one in front, "h.0.ln_1.weight" for
  /// "transformer.h.0.ln_1.weight", as those of a base model have them.
  void optional_prefix(std::string_view name) {
    if (what_ != visited::all_names) return;
    const std::size_t outer = enter(name);
    visitor_.on_optional_prefix(path_ + ".", outer);
    path_.resize(outer);
  }
  /// Called by members(): files of other programs may have a tensor of this name that is no value
  /// of the model, because it follows from the configuration: a mask, rotary frequencies.
  void constant_name(std::string_view name) {
    if (what_ != visited::all_names) return;
    const std::size_t outer = enter(name);
    visitor_.on_constant_name(path_);
    path_.resize(outer);
  }
  /// Without a name: a compile-time error that says what to do.
  template <typename Member>
  void operator()(Member& /*member*/) {
    static_assert(std::is_void_v<Member>,
                  "members() gives each member the name by which files know it: "
                  "visit(\"fc\", fc)");
  }

 private:
  /// Descends to a member; returns the length of the path around it.
  [[nodiscard, gnu::noinline]] std::size_t enter(std::string_view name) {
    const std::size_t outer = path_.size();
    if (outer > 0) path_ += '.';
    path_ += name;
    return outer;
  }
  void on_parameter(const any_parameter& held, const initializer& begin) {
    if (is_other_name_) {
      visitor_.on_other_name(path_, held);
    } else if (what_ != visited::parameters || seen_.insert(held.node()).second) {
      visitor_.on_parameter(*owner_, path_, held, begin);
    }
  }

  module_visitor& visitor_;
  visited what_;
  std::string path_;
  std::unordered_set<const void*> seen_;
  module_state* owner_ = nullptr;
  bool is_other_name_ = false;
};

}  // namespace parx::nn::detail
