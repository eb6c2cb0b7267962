// target<T>: what an optimizer updates: a parameter, or a value and a gradient in the caller's
// memory.
//
// A parameter's memory is looked up at every step, because a wrapper may move it; a parameter
// without a gradient since the last step is skipped. Spans are used unchanged at every step.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/gradient_axis.hpp>
#include <parx/autograd/parameter.hpp>
#include <parx/autograd/parameter_list.hpp>
#include <parx/core/check.hpp>
#include <parx/tensor/shard_spec.hpp>

namespace parx::inline PARX_ABI::optim {

template <typename T>
class target {
 public:
  target(parameter<T> owner)  // NOLINT(google-explicit-constructor)
      : parameter_(std::move(owner)) {
    require(parameter_.defined(), "an optimizer cannot update a parameter that is not defined");
  }
  /// The caller's memory, which must outlive the optimizer. Throws usage_error when the sizes
  /// differ.
  target(std::string name, std::span<T> value, std::span<T> grad)
      : name_(std::move(name)), value_(value), grad_(grad) {
    require(value.size() == grad.size(), "\"{}\" has {} values, but a gradient of {}", name_,
            value.size(), grad.size());
  }

  [[nodiscard]] const std::string& name() const {
    return parameter_.defined() ? parameter_.name() : name_;
  }
  [[nodiscard]] std::size_t size() const noexcept {
    return parameter_.defined() ? parameter_.size() : value_.size();
  }
  /// Which part of the parameter this is; spans are the whole.
  [[nodiscard]] shard_spec spec() const {
    return parameter_.defined() ? parameter_.spec() : shard_spec::whole({value_.size()});
  }
  [[nodiscard]] std::span<T> value() const {
    return parameter_.defined() ? parameter_.value().span() : value_;
  }
  [[nodiscard]] bool has_grad() const { return !parameter_.defined() || parameter_.has_grad(); }
  /// Empty without a gradient.
  [[nodiscard]] std::span<T> grad() const {
    if (!parameter_.defined()) return grad_;
    return parameter_.has_grad() ? parameter_.grad().span() : std::span<T>{};
  }
  /// The gradient if only embeddings have contributed to it; nullopt otherwise.
  [[nodiscard]] std::optional<row_gradient<T>> row_grad() const {
    return parameter_.defined() ? parameter_.row_grad() : std::nullopt;
  }
  /// Calls f(span) for the pieces of the gradient, without rows that are zero. f may scale them.
  template <typename F>
  void for_each_grad(F&& f) const {
    const auto rows = row_grad();
    if (!rows) {
      if (const std::span<T> all = grad(); !all.empty()) f(all);
      return;
    }
    const std::span<T> all = rows->values.span();
    const std::size_t width = all.empty() ? 0 : all.size() / rows->values.shape()[0];
    for (const std::size_t row : rows->rows) f(all.subspan(row * width, width));
  }
  /// The ranks that have other parts or copies of the gradient; none for spans.
  [[nodiscard]] const gradient_places& places() const {
    static const gradient_places none;
    return parameter_.defined() ? parameter_.places() : none;
  }
  /// Not defined() for spans.
  [[nodiscard]] const parameter<T>& owner() const noexcept { return parameter_; }
  /// Throws usage_error where a wrapper has not completed the gradient (no_sync() of a ddp), or
  /// never gives this parameter one.
  void before_step() const {
    const backward_observer* const wrapper = parameter_.defined() ? parameter_.observer() : nullptr;
    if (wrapper == nullptr) return;
    if (parameter_.has_grad()) wrapper->before_step();
    else wrapper->step_without_gradient();
  }
  /// To be called after an update.
  void note_change() const {
    if (parameter_.defined()) parameter_.note_change();
  }
  /// A parameter's next gradient overwrites this one. Spans do not change: the caller writes them.
  void zero_grad() const {
    if (parameter_.defined()) parameter_.zero_grad();
  }

 private:
  parameter<T> parameter_;
  std::string name_;
  std::span<T> value_;
  std::span<T> grad_;
};

/// Targets of one optimizer. `axes` are those of the groups of parameters that are a rank's share
/// of a model, so that a rank without any still takes part in sums over all ranks.
template <typename T>
struct target_list : std::vector<target<T>> {
  std::vector<share_axes> axes;
};

/// What an optimizer updates, of these parameters.
template <typename T>
[[nodiscard]] std::vector<target<T>> targets_of(const std::vector<parameter<T>>& parameters) {
  return {parameters.begin(), parameters.end()};
}

}  // namespace parx::optim
