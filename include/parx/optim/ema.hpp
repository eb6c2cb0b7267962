// ema: an average of the parameters over the steps, which often evaluates better than the last.
//
//   optim::ema average{model.parameters(), {.decay = 0.999}};
//   ... opt.step(); average.update();
//   { const auto swapped = average.swap(); evaluate(model); }   // back to the trained values here
//
// shadow = d shadow + (1 - d) value with d = min(decay, (1 + t) / (10 + t)) at update t, so that
// the initial values are soon forgotten. Source: TensorFlow's ExponentialMovingAverage, timm's
// ModelEmaV3. Averages of 16-bit parameters are float; the model gets them rounded. An update reads
// all of every parameter, which applies deferred row updates (optimizer.hpp) first.
// Use it on the optimizer's thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/parameter.hpp>
#include <parx/core/check.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/tensor/shard_spec.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::optim {

/// Whether the first averages forget faster: the decay is at most (1 + n) / (10 + n) at step n.
enum class decay_warmup { on, off };

struct ema_options {
  double decay = 0.999;
  decay_warmup warmup = decay_warmup::on;
};

template <typename T>
class ema : public placed_state {
 public:
  using value_type = T;

  /// Starts from copies of the parameters' values. Throws usage_error for a decay outside [0, 1].
  explicit ema(std::vector<parameter<T>> parameters, ema_options options = {})
      : parameters_(std::move(parameters)), options_(options) {
    require(options.decay >= 0 && options.decay <= 1, "ema: the decay must be in [0, 1], not {}",
            options.decay);
    shadows_.reserve(parameters_.size());
    for (const parameter<T>& each : parameters_) {
      if constexpr (is_half<T>) {
        shadows_.push_back(each.value().template cast<float>());
      } else {
        shadows_.push_back(each.value().clone());
      }
    }
  }

  /// After a step of the optimizer. Local. Throws usage_error while the averages are swapped in.
  void update() {
    require(!is_swapped_, "ema: update() while the model has the averages: end swap() first");
    using A = arithmetic_type<T>;
    const auto keep = static_cast<A>(decay_at(updates_++));
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      require_same_part(i);
      const T* const value = parameters_[i].value().data();
      A* const shadow = shadows_[i].data();
      // In this form a shadow that equals the value does not change.
      parx::for_each_element(shadows_[i].size(), [=](std::size_t k) {
        shadow[k] += (A(1) - keep) * (static_cast<A>(value[k]) - shadow[k]);
      });
    }
  }
  /// The decay of update number `update`, counted from 0.
  [[nodiscard]] double decay_at(std::uint64_t update) const noexcept {
    if (options_.warmup == decay_warmup::off) return options_.decay;
    const auto t = static_cast<double>(update + 1);
    return std::min(options_.decay, (1 + t) / (10 + t));
  }

  /// While it lives, the model has the averages. It must end before its ema.
  class [[nodiscard]] swapped {
   public:
    explicit swapped(ema& owner) : owner_(owner) { owner_.swap_in(); }
    ~swapped() { owner_.swap_back(); }
    swapped(const swapped&) = delete;
    swapped& operator=(const swapped&) = delete;

   private:
    ema& owner_;
  };
  /// Throws usage_error while they are swapped in already.
  swapped swap() {
    require(!is_swapped_, "ema: the model has the averages already");
    for (std::size_t i = 0; i < parameters_.size(); ++i) require_same_part(i);
    return swapped(*this);
  }

  /// For save_state and load_state: "0.weight.ema" and the number of updates, "ema.updates".
  template <typename Visitor>
  void for_each_state(Visitor&& visitor) {
    for_each_placed_state(
        [&](const std::string& name, auto& value, const auto& /*part*/) { visitor(name, value); });
  }
  /// The same with the part of the parameter that this rank has; nullopt for the number of updates.
  template <typename Visitor>
  void for_each_placed_state(Visitor&& visitor) {
    for (std::size_t i = 0; i < shadows_.size(); ++i)
      visitor(parameters_[i].name() + ".ema", shadows_[i], std::optional(parameters_[i].spec()));
    visitor(std::string("ema.updates"), updates_, std::optional<shard_spec>());
  }

 private:
  /// A parameter may be cut over ranks, or become whole, after its average was made.
  void require_same_part(std::size_t i) const {
    require(parameters_[i].size() == shadows_[i].size(),
            "ema: \"{}\" had {} elements on this rank and has {}: it has been cut, or made whole, "
            "since. Make a new ema",
            parameters_[i].name(), shadows_[i].size(), parameters_[i].size());
  }
  void swap_in() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].observer() != nullptr) parameters_[i].observer()->before_write();
      const tensor<T>& value = parameters_[i].value();
      if constexpr (!is_half<T>) {
        std::swap_ranges(value.begin(), value.end(), shadows_[i].begin());
      } else {
        trained_.push_back(value.clone());
        convert(shadows_[i].data(), value.data(), value.size());
      }
      parameters_[i].note_change();
    }
    is_swapped_ = true;
  }
  /// Where a wrapper's group has failed, the wrapper cannot be told; its next call says so.
  void swap_back() noexcept {
    const auto tell = [](auto&& wrapper) {
      try {
        wrapper();
      } catch (const std::exception&) {
      }
    };
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const parameter<T>& each = parameters_[i];
      if (each.observer() != nullptr) tell([&] { each.observer()->before_write(); });
      const tensor<T>& value = each.value();
      if constexpr (!is_half<T>) {
        std::swap_ranges(value.begin(), value.end(), shadows_[i].begin());
      } else {
        value.copy_from(trained_[i]);
      }
      tell([&] { each.note_change(); });
    }
    trained_.clear();
    is_swapped_ = false;
  }

  std::vector<parameter<T>> parameters_;
  ema_options options_;
  std::vector<tensor<arithmetic_type<T>>> shadows_;
  std::vector<tensor<T>> trained_;  // 16-bit values while the model has the averages
  std::uint64_t updates_ = 0;
  bool is_swapped_ = false;
};

}  // namespace parx::optim
