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
#include <parx/nn/detail/module_state.hpp>
#include <parx/nn/init.hpp>

namespace parx::inline PARX_ABI::nn::detail {

template <typename T>
inline constexpr bool is_parameter = false;
template <typename T>
inline constexpr bool is_parameter<parameter<T>> = true;

template <typename T>
inline constexpr bool is_buffer = false;
template <typename T>
inline constexpr bool is_buffer<model_buffer<T>> = true;

/// For walks that ignore buffers.
struct no_buffers {
  void operator()(const std::string& /*path*/, auto& /*buffer*/) const {}
};

/// For walks that ignore other names.
struct no_other_names {
  void operator()(const std::string& /*path*/, auto& /*parameter*/) const {}
};

/// A member that is a module itself.
template <typename M>
concept walkable = requires(M& m) {
  m.is_training();
};

/// The state of a walk that does not depend on types: the current path and the visited nodes.
class walk_position {
 public:
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 protected:
  /// Descends to a member; returns the argument for leave().
  [[nodiscard, gnu::noinline]] std::size_t enter(std::string_view name) {
    const std::size_t outer = path_.size();
    if (outer > 0) path_ += '.';
    path_ += name;
    return outer;
  }
  void leave(std::size_t outer) { path_.resize(outer); }
  [[nodiscard, gnu::noinline]] bool is_first_visit(const void* node) {
    return seen_.insert(node).second;
  }

 private:
  std::string path_;
  std::unordered_set<const void*> seen_;
};

/// `on_module(path, module)` before its members; `on_parameter(owner, path, parameter,
/// initializer)` once for each parameter, under its first path when several modules share it, its
/// owner a module_state; `on_buffer(path, buffer)` for each buffer; `on_other_name(path,
/// parameter)` for the names that members() gives by other_name().
///
/// Every visitor type instantiates the walk over the whole model again: visitors that do not depend
/// on types are part_visitors instead.
template <typename OnModule, typename OnParameter, typename OnBuffer = no_buffers,
          typename OnOtherName = no_other_names>
class walker : private walk_position {
 public:
  walker(OnModule on_module, OnParameter on_parameter, OnBuffer on_buffer = {},
         OnOtherName on_other_name = {})
      : on_module_(std::move(on_module)),
        on_parameter_(std::move(on_parameter)),
        on_buffer_(std::move(on_buffer)),
        on_other_name_(std::move(on_other_name)) {}

  template <typename Module>
  void start(Module& module) {
    on_module_(path(), module);
    module_state* const outer = std::exchange(owner_, &module);
    module.members(*this);
    owner_ = outer;
  }

  /// The same, with on_parameter once for each path of a parameter.
  template <typename Module>
  void start_all_paths(Module& module) {
    all_paths_ = true;
    start(module);
  }

  /// Called by members(): visit("name", member), also for buffers, or visit("name", parameter,
  /// initializer). Not inline: a model calls it from many places.
  template <typename Member>
  [[gnu::noinline]] void operator()(std::string_view name, Member& member,
                                    const initializer& begin = {}) {
    const std::size_t outer = enter(name);
    if constexpr (is_parameter<std::remove_const_t<Member>>) {
      if (is_other_name_) {
        if (member.defined()) on_other_name_(path(), member);
      } else if (member.defined() && (all_paths_ || is_first_visit(member.node().get()))) {
        on_parameter_(*owner_, path(), member, begin);
      }
    } else if constexpr (is_buffer<std::remove_const_t<Member>>) {
      if (member.defined()) on_buffer_(path(), member);
    } else if constexpr (walkable<Member>) {
      start(member);
    } else {
      static_assert(std::ranges::range<Member>,
                    "members() may visit parameters, buffers, modules, and ranges of them");
      std::size_t index = 0;
      for (auto& element : member) (*this)(std::to_string(index++), element, begin);
    }
    leave(outer);
  }
  /// Called by members(): in files the parameters of `member` may have `name` as well, in the place
  /// of the path under which it is visited. For a matrix that several layers share.
  template <typename Member>
  void other_name(std::string_view name, Member& member) {
    if constexpr (!std::is_same_v<OnOtherName, no_other_names>) {
      const bool before = std::exchange(is_other_name_, true);
      (*this)(name, member);
      is_other_name_ = before;
    }
  }
  /// Without a name: a compile-time error that says what to do.
  template <typename Member>
  void operator()(Member& /*member*/) {
    static_assert(std::is_void_v<Member>,
                  "members() gives each member the name by which files know it: "
                  "visit(\"fc\", fc)");
  }

 private:
  OnModule on_module_;
  OnParameter on_parameter_;
  OnBuffer on_buffer_;
  OnOtherName on_other_name_;
  module_state* owner_ = nullptr;
  bool all_paths_ = false;
  bool is_other_name_ = false;
};

}  // namespace parx::nn::detail
