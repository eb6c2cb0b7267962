// distributed_module: what wrappers (DDP, FSDP) can wrap, and the handles of its parameters.
//
// parx::nn modules and raw_module are such classes; so is any of your own that has
// for_each_parameter(visitor) and calls visitor(path, parameter). If a parameter lacks a member, or
// one that a declared optional part of parameter_handle.hpp needs, a compile-time error names it.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <parx/autograd/observer.hpp>
#include <parx/autograd/parameter_handle.hpp>
#include <parx/core/check.hpp>
#include <parx/tensor/shard_spec.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

/// A copy refers to the same parameter. T is P::value_type.
template <typename P>
concept distributed_parameter =
    requires { typename P::value_type; } &&
    requires(const P& p, std::span<typename P::value_type> memory, backward_observer* observer) {
      requires element<typename P::value_type>;
      { p.value().data() } -> std::convertible_to<const typename P::value_type*>;
      { p.value().size() } -> std::convertible_to<std::size_t>;
      p.shape().begin();    // extents, without values
      p.bind_grad(memory);   // gradients are written there from now on
      p.unbind();            // value and gradient return to memory of their own
      { p.has_grad() } -> std::convertible_to<bool>;
      p.assume_grad();  // the bound memory holds the gradient
      p.zero_grad();    // the next gradient overwrites it
      p.attach(observer, std::size_t{});
      p.detach_observer();
      { p.observer() } -> std::convertible_to<backward_observer*>;  // null when there is none
    };

namespace detail {

template <typename P>
concept has_row_gradient = requires(const P& p, std::span<const std::size_t> rows) {
  { p.expects_row_grad() } -> std::convertible_to<bool>;
  { p.touched_rows() } -> std::convertible_to<std::optional<std::span<const std::size_t>>>;
  { p.add_rows(rows).data() } -> std::convertible_to<void*>;
  p.clear_rows();
};
template <typename P>
concept has_spec = requires(const P& p) {
  { p.spec() } -> std::convertible_to<shard_spec>;
};
template <typename P>
concept has_reduction_group = requires(const P& p) {
  { p.reduction_group() } -> std::convertible_to<std::string>;
};
template <typename P>
concept has_requires_grad = requires(const P& p) {
  { p.requires_grad() } -> std::convertible_to<bool>;
};

template <typename P>
concept keeps_row_gradient = !std::derived_from<P, row_sparse_parameter> || has_row_gradient<P>;
template <typename P>
concept keeps_spec = !std::derived_from<P, placed_parameter> || has_spec<P>;
template <typename P>
concept keeps_reduction_group = !std::derived_from<P, grouped_parameter> || has_reduction_group<P>;
template <typename P>
concept keeps_requires_grad = !std::derived_from<P, freezable_parameter> || has_requires_grad<P>;

/// Whether P has the members that it declares; if not, a compile-time error names them.
template <typename P>
[[nodiscard]] constexpr bool is_whole_parameter() {
  static_assert(distributed_parameter<P>,
                "a parameter has value_type and const members value(), shape(), bind_grad(memory), "
                "unbind(), has_grad(), assume_grad(), zero_grad(), attach(observer, index), "
                "detach_observer() and observer(): see autograd/distributed_module.hpp");
  static_assert(keeps_row_gradient<P>,
                "a row_sparse_parameter has const members expects_row_grad(), touched_rows(), "
                "add_rows(rows) and clear_rows(): see autograd/parameter_handle.hpp");
  static_assert(keeps_spec<P>, "a placed_parameter has spec() const, a shard_spec");
  static_assert(keeps_reduction_group<P>, "a grouped_parameter has reduction_group() const");
  static_assert(keeps_requires_grad<P>, "a freezable_parameter has requires_grad() const");
  return distributed_parameter<P> && keeps_row_gradient<P> && keeps_spec<P> &&
         keeps_reduction_group<P> && keeps_requires_grad<P>;
}

template <typename P>
class row_gradient_of final : public row_gradient_part {
 public:
  explicit row_gradient_of(const P& p) : p_(p) {}
  [[nodiscard]] bool expects_row_grad() const override { return p_.expects_row_grad(); }
  [[nodiscard]] std::optional<std::span<const std::size_t>> touched_rows() const override {
    return p_.touched_rows();
  }
  [[nodiscard]] void* add_rows(std::span<const std::size_t> rows) const override {
    return p_.add_rows(rows).data();
  }
  void clear_rows() const override { p_.clear_rows(); }

 private:
  P p_;
};

template <distributed_parameter P>
class typed_parameter_handle final : public parameter_handle {
  using T = typename P::value_type;

 public:
  typed_parameter_handle(const std::string& name, const P& p)
      : parameter_handle(name, dtype_of<T>, spec_of(p), group_of(p)), p_(p) {
    if constexpr (std::derived_from<P, row_sparse_parameter>) {
      row_gradient_ = std::make_unique<row_gradient_of<P>>(p);
    }
  }

  [[nodiscard]] void* value() const override {
    auto&& held = p_.value();
    require(static_cast<std::size_t>(held.size()) == count(),
            "parameter \"{}\" has {} values, but its shape is {}", name(), held.size(),
            to_string(shape()));
    return const_cast<T*>(static_cast<const T*>(held.data()));
  }
  void bind_grad(void* memory) const override {
    p_.bind_grad(std::span(static_cast<T*>(memory), count()));
  }
  void unbind() const override { p_.unbind(); }
  [[nodiscard]] bool has_grad() const override { return p_.has_grad(); }
  [[nodiscard]] bool is_frozen() const override {
    if constexpr (std::derived_from<P, freezable_parameter>) return !p_.requires_grad();
    return false;
  }
  void assume_grad() const override { p_.assume_grad(); }
  void zero_grad() const override { p_.zero_grad(); }
  [[nodiscard]] backward_observer* observer() const override { return p_.observer(); }
  void attach(backward_observer* observer, std::size_t index) const override {
    p_.attach(observer, index);
  }
  void detach_observer() const override { p_.detach_observer(); }

 private:
  [[nodiscard]] static shard_spec spec_of(const P& p) {
    if constexpr (std::derived_from<P, placed_parameter>) {
      return p.spec();
    } else {
      parx::shape extents;
      for (const auto extent : p.shape()) extents.push_back(static_cast<std::size_t>(extent));
      return shard_spec::whole(extents);
    }
  }
  [[nodiscard]] static std::string group_of(const P& p) {
    if constexpr (std::derived_from<P, grouped_parameter>) return p.reduction_group();
    return {};
  }

  P p_;
};

struct accepts_any_parameter {
  void operator()(const std::string&, auto&) const {}
};

}  // namespace detail

/// The handle by which a wrapper reaches parameter `p`, which may be of a user's own type.
template <typename P>
[[nodiscard]] std::unique_ptr<parameter_handle> make_parameter_handle(const std::string& name,
                                                                      const P& p) {
  if constexpr (detail::is_whole_parameter<P>()) {
    return std::make_unique<detail::typed_parameter_handle<P>>(name, p);
  } else {
    return nullptr;
  }
}

template <typename M>
concept distributed_module =
    requires(M& model) { model.for_each_parameter(detail::accepts_any_parameter{}); };

/// Handles of all parameters, in the order of for_each_parameter.
template <distributed_module M>
[[nodiscard]] std::vector<std::unique_ptr<parameter_handle>> parameter_handles(M& model) {
  std::vector<std::unique_ptr<parameter_handle>> all;
  model.for_each_parameter([&](const std::string& path, auto& parameter) {
    all.push_back(make_parameter_handle(path, parameter));
  });
  return all;
}

}  // namespace parx
