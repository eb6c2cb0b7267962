// parameter_handle: one type-erased parameter, as wrappers (DDP, FSDP) see it.
//
// distributed_module.hpp makes it from any class with the members that all parameters need. An
// optional capability is a part, which the class declares by a base:
//
//   class my_parameter : public parx::row_sparse_parameter { ... touched_rows() const ... };
//
// It must then have all members of that part: a missing or misspelt one is a compile-time error.
// Threads: as the parameter.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <parx/autograd/observer.hpp>
#include <parx/tensor/shape.hpp>
#include <parx/tensor/shard_spec.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

// Bases that declare the optional parts.

/// Its gradient may be zero outside of a few rows (axis 0): see row_gradient_part.
struct row_sparse_parameter {};
/// It may be a part of a whole, and says which: spec().
struct placed_parameter {};
/// State that is cut over the ranks like its parameters: an optimizer's. It has
/// for_each_placed_state(visitor), which calls visitor(name, tensor or number, part); `part` is a
/// std::optional<shard_spec>, the part of the parameter on this rank, or nullopt for state that
/// belongs to no parameter.
struct placed_state {};
/// It names the group of ranks over which its gradient is summed, reduction_group() const: see
/// reduction/reduction_group.hpp.
struct grouped_parameter {};
/// It can be frozen, and says whether it gets gradients, requires_grad() const.
struct freezable_parameter {};

/// Members of a row_sparse_parameter, as those of parameter<T>.
class row_gradient_part {
 public:
  virtual ~row_gradient_part() = default;
  /// Whether its gradients are likely to be row-sparse: the same on all ranks.
  [[nodiscard]] virtual bool expects_row_grad() const = 0;
  /// The rows with contributions, ascending; nullopt where other rows may not be zero.
  [[nodiscard]] virtual std::optional<std::span<const std::size_t>> touched_rows() const = 0;
  /// Adds `rows` to touched_rows() and returns the gradient's memory.
  [[nodiscard]] virtual void* add_rows(std::span<const std::size_t> rows) const = 0;
  /// Makes the memory of an absent gradient zero, for a wrapper that then writes rows of it.
  virtual void clear_rows() const = 0;
};

class parameter_handle {
 public:
  parameter_handle(const parameter_handle&) = delete;
  parameter_handle& operator=(const parameter_handle&) = delete;
  virtual ~parameter_handle() = default;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] dtype type() const noexcept { return type_; }
  /// The part of it on this rank.
  [[nodiscard]] const shard_spec& spec() const noexcept { return spec_; }
  /// The shape of that part.
  [[nodiscard]] const parx::shape& shape() const noexcept { return shape_; }
  /// Empty for the wrapper's own group.
  [[nodiscard]] const std::string& reduction_group() const noexcept { return reduction_group_; }
  [[nodiscard]] std::size_t count() const noexcept { return shape_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return count() * size_of(type_); }
  /// The extent of axis 0 where there are several axes; 1 otherwise.
  [[nodiscard]] std::size_t rows() const noexcept {
    return shape_.rank() < 2 || shape_[0] == 0 ? 1 : shape_[0];
  }

  /// count() elements.
  [[nodiscard]] virtual void* value() const = 0;
  /// `memory` has count() elements; the caller owns it and unbinds before freeing it.
  virtual void bind_grad(void* memory) const = 0;
  virtual void unbind() const = 0;
  [[nodiscard]] virtual bool has_grad() const = 0;
  /// It gets no gradient on this rank.
  [[nodiscard]] virtual bool is_frozen() const = 0;
  virtual void assume_grad() const = 0;
  virtual void zero_grad() const = 0;
  [[nodiscard]] virtual backward_observer* observer() const = 0;
  virtual void attach(backward_observer* observer, std::size_t index) const = 0;
  virtual void detach_observer() const = 0;

  /// Null where the parameter does not declare that part.
  [[nodiscard]] const row_gradient_part* row_gradient() const noexcept {
    return row_gradient_.get();
  }

 protected:
  parameter_handle(std::string name, dtype type, shard_spec spec, std::string reduction_group)
      : name_(std::move(name)), type_(type), spec_(std::move(spec)), shape_(spec_.shape()),
        reduction_group_(std::move(reduction_group)) {}

  std::unique_ptr<const row_gradient_part> row_gradient_;

 private:
  std::string name_;
  dtype type_;
  shard_spec spec_;
  parx::shape shape_;
  std::string reduction_group_;
};

}  // namespace parx
