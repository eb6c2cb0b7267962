// What DDP knows of a model: named parameters with a value, a gradient and a "this gradient is
// final" event. parx::nn modules and raw_module satisfy it; so does any class of your own that has
// for_each_parameter(visitor) and calls visitor(path, parameter).
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <parx/autograd/observer.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

/// A handle: copies refer to the same parameter. T is P::value_type.
template <typename P>
concept distributed_parameter =
    requires(const P& p, std::span<typename P::value_type> memory, backward_observer* observer) {
      requires element<typename P::value_type>;
      { p.value().data() } -> std::convertible_to<const typename P::value_type*>;
      { p.value().size() } -> std::convertible_to<std::size_t>;
      p.shape().begin();              // extents, for the layout check
      p.bind_grad(memory);            // gradients are written there from now on
      { p.has_grad() } -> std::convertible_to<bool>;
      p.assume_grad();                // the bound memory holds the gradient
      p.attach(observer, std::size_t{});
      p.detach_observer();
      { p.observer() } -> std::convertible_to<backward_observer*>;  // null when there is none
    };

namespace detail {

/// "128, 784"
[[nodiscard]] std::string extents_text(const auto& shape) {
  std::string text;
  for (const auto extent : shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", extent);
  return text;
}

struct accepts_any_parameter {
  template <distributed_parameter P>
  void operator()(const std::string&, P&) const {}
};

/// One parameter without its type.
struct parameter_slot {
  std::string name;
  std::string layout;  ///< "fc1.weight [128, 784] float32": what must be equal on all ranks
  dtype type = dtype::float32;
  std::size_t count = 0;
  std::size_t rows = 1;       ///< the extent of axis 0 where there are several axes
  bool expects_rows = false;  ///< its gradients are likely to be row-sparse
  std::function<void*()> value;
  std::function<void(void*)> bind_grad;
  std::function<bool()> has_grad;
  std::function<void()> assume_grad;
  /// The rows that have contributions when the rest is zero, and the gradient's memory with more
  /// rows among them: parameter::touched_rows, add_rows and clear_rows. Without row-sparsity
  /// nullopt and not callable.
  std::function<std::optional<std::span<const std::size_t>>()> touched_rows;
  std::function<void*(std::span<const std::size_t>)> add_rows;
  std::function<void()> clear_rows;
  std::function<void()> zero_grad;
  std::function<void()> end_step;  ///< the gradient is the mean over ranks now
  std::function<bool()> is_observed;
  std::function<void(backward_observer*, std::size_t)> attach;
  std::function<void()> detach;

  [[nodiscard]] std::size_t bytes() const noexcept { return count * size_of(type); }
};

template <distributed_parameter P>
[[nodiscard]] parameter_slot make_slot(const std::string& path, const P& p) {
  using T = typename P::value_type;
  parameter_slot slot;
  slot.name = path;
  slot.type = dtype_of<T>;
  slot.count = static_cast<std::size_t>(p.value().size());
  std::size_t axes = 0;
  for (const auto extent : p.shape()) {
    if (axes++ == 0) slot.rows = static_cast<std::size_t>(extent);
  }
  if (axes < 2 || slot.rows == 0) slot.rows = 1;
  slot.layout = fmt::format("{} [{}] {}", path, extents_text(p.shape()), name_of(slot.type));
  slot.value = [p]() -> void* { return const_cast<T*>(static_cast<const T*>(p.value().data())); };
  slot.bind_grad = [p, count = slot.count](void* memory) {
    p.bind_grad(std::span<T>(static_cast<T*>(memory), count));
  };
  slot.has_grad = [p] { return p.has_grad(); };
  slot.assume_grad = [p] { p.assume_grad(); };
  slot.touched_rows = [] { return std::nullopt; };
  if constexpr (requires { p.touched_rows(); p.expects_row_grad(); }) {
    slot.expects_rows = p.expects_row_grad();
    slot.touched_rows = [p] { return p.touched_rows(); };
    slot.add_rows = [p](std::span<const std::size_t> rows) -> void* {
      return p.add_rows(rows).data();
    };
    slot.clear_rows = [p] { p.clear_rows(); };
  }
  // Ranks that treat it differently would wait for each other.
  if (slot.expects_rows) slot.layout += " by rows";
  slot.zero_grad = [p] {
    if constexpr (requires { p.zero_grad(); }) p.zero_grad();
    else if constexpr (requires { p.end_step(); }) p.end_step();
  };
  slot.end_step = [p] {
    if constexpr (requires { p.end_step(); }) p.end_step();
  };
  slot.is_observed = [p] { return p.observer() != nullptr; };
  slot.attach = [p](backward_observer* observer, std::size_t index) { p.attach(observer, index); };
  slot.detach = [p] {
    p.detach_observer();
    if constexpr (requires { p.unbind(); }) p.unbind();  // the bucket goes
  };
  return slot;
}

}  // namespace detail

template <typename M>
concept distributed_module =
    requires(M& model) { model.for_each_parameter(detail::accepts_any_parameter{}); };

namespace detail {

/// Stands for a class that cannot be wrapped where a ddp is made of it: the sentence that a failed
/// constraint does not find.
template <typename M>
struct no_module {
  static_assert(distributed_module<M>,
                "parx::ddp ddp{model, world} wraps an nn::module, whose members() names its "
                "layers, a raw_module, or a class with for_each_parameter(visitor): see "
                "ddp/module.hpp");
  void for_each_parameter(accepts_any_parameter visitor) const;
};

}  // namespace detail

}  // namespace parx
