// walk: visits the modules, parameters and buffers of a model with their paths, depth first, in the order in
// which members() names them.
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
#include <parx/nn/init.hpp>

namespace parx::nn::detail {

template <typename T>
inline constexpr bool is_parameter = false;
template <typename T>
inline constexpr bool is_parameter<parameter<T>> = true;

template <typename T>
inline constexpr bool is_buffer = false;
template <typename T>
inline constexpr bool is_buffer<model_buffer<T>> = true;

/// For walks that have nothing to do with buffers.
struct no_buffers {
  void operator()(const std::string& /*path*/, auto& /*buffer*/) const {}
};

/// What a member of a module may be; see module.hpp.
template <typename M>
concept walkable = requires(M& m) {
  m.is_training();
};

/// `on_module(path, module)` before its members; `on_parameter(owner, path, parameter,
/// initializer)` once for each parameter, under its first path when several modules share it;
/// `on_buffer(path, buffer)` for each buffer.
template <typename OnModule, typename OnParameter, typename OnBuffer = no_buffers>
class walker {
 public:
  walker(OnModule on_module, OnParameter on_parameter, OnBuffer on_buffer = {})
      : on_module_(std::move(on_module)),
        on_parameter_(std::move(on_parameter)),
        on_buffer_(std::move(on_buffer)) {}

  template <typename Module>
  void start(Module& module) {
    on_module_(std::as_const(path_), module);
    owned_by<Module> visit{*this, module};
    module.members(visit);
  }

 private:
  /// What members() calls: visit("name", member), also for buffers, or visit("name", parameter, initializer).
  template <typename Owner>
  struct owned_by {
    walker& walk;
    Owner& owner;

    template <typename Member>
    void operator()(std::string_view name, Member& member, const initializer& start = {}) {
      const std::size_t outer = walk.path_.size();
      if (outer > 0) walk.path_ += '.';
      walk.path_ += name;
      if constexpr (is_parameter<std::remove_const_t<Member>>) {
        if (member.defined() && walk.seen_.insert(member.node().get()).second) {
          walk.on_parameter_(owner, std::as_const(walk.path_), member, start);
        }
      } else if constexpr (is_buffer<std::remove_const_t<Member>>) {
        if (member.defined()) walk.on_buffer_(std::as_const(walk.path_), member);
      } else if constexpr (walkable<Member>) {
        walk.start(member);
      } else {
        static_assert(std::ranges::range<Member>,
                      "members() may visit parameters, buffers, modules, and ranges of them");
        std::size_t index = 0;
        for (auto& element : member) (*this)(std::to_string(index++), element, start);
      }
      walk.path_.resize(outer);
    }
  };

  OnModule on_module_;
  OnParameter on_parameter_;
  OnBuffer on_buffer_;
  std::string path_;
  std::unordered_set<const void*> seen_;
};

}  // namespace parx::nn::detail
