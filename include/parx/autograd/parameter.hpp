// parameter<T>: a named leaf, what modules are made of and what wrappers and optimizers work on.
//
// Value and gradient may live in memory of a wrapper's: bind_value and bind_grad (a flat FSDP unit,
// a DDP bucket). All handles of a parameter see the change. A handle, like variable.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <parx/autograd/variable.hpp>

namespace parx {

template <typename T>
class parameter : public variable<T> {
 public:
  parameter() noexcept = default;
  parameter(std::string name, tensor<T> value) : variable<T>(value.contiguous(), gradient::wanted) {
    rename(std::move(name));
  }

  [[nodiscard]] const std::string& name() const { return leaf("name").name; }
  void rename(std::string name) const { leaf("rename").name = std::move(name); }

  /// Whether backward computes a gradient for it; a frozen parameter is a constant to operations.
  void freeze() const { leaf("freeze").requires_grad = false; }
  void unfreeze() const { leaf("unfreeze").requires_grad = true; }

  // Memory.

  /// Moves the value into `memory` (copied there), which the caller keeps alive until the next
  /// bind_value, unbind or the parameter's end. Throws usage_error when the sizes differ.
  void bind_value(std::span<T> memory) const {
    const tensor<T> bound = tensor<T>::wrap(memory, this->shape());
    bound.copy_from(this->value());
    this->shared().value = bound;
  }
  /// Gradients go to `memory` from now on; a gradient that exists is copied there. The same
  /// lifetime.
  void bind_grad(std::span<T> memory) const { leaf("bind_grad").bind(memory); }
  /// Value and gradient return to memory of their own.
  void unbind() const {
    leaf("unbind").unbind();
    if (!this->value().is_unique()) this->shared().value = this->value().clone();
  }

  // Gradient.

  /// Some backward since zero_grad() has contributed, or assume_grad() was called.
  [[nodiscard]] bool has_grad() const { return leaf("has_grad").has_gradient(); }
  /// The bound memory now holds the gradient, written by a wrapper (an all-reduced bucket, also of
  /// a parameter that this rank did not use). Needed after every write by others than operations.
  void assume_grad() const { leaf("assume_grad").assume_written(); }
  /// The rows (axis 0, ascending) that have contributions since zero_grad(), when embeddings are
  /// its only users: all other rows of grad() are zero. Otherwise nullopt. Valid until the next
  /// backward.
  [[nodiscard]] std::optional<std::span<const std::size_t>> touched_rows() const {
    return leaf("touched_rows").rows();
  }

  // Observation.

  /// Reports to `observer` from the next backward on, under `index`. Replaces an earlier observer.
  /// The observer must detach before it dies.
  void attach(backward_observer* observer, std::size_t index) const {
    leaf("attach").observer = observer;
    leaf("attach").observer_index = index;
  }
  void detach_observer() const { leaf("detach_observer").observer = nullptr; }
  [[nodiscard]] backward_observer* observer() const { return leaf("observer").observer; }

 private:
  using variable<T>::leaf;
};

}  // namespace parx
