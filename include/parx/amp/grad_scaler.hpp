// grad_scaler: scales the loss so that small gradients do not underflow in float16, and skips the
// steps whose gradients overflow.
//
//   parx::amp::grad_scaler scaler;
//   scaler.scale(loss).backward();
//   scaler.unscale_(optimizer);                       // only needed to clip
//   parx::optim::clip_grad_norm(model.parameters(), 1.0);
//   scaler.step(optimizer);                           // not taken when a gradient is Inf or NaN
//   scaler.update();
//
// Source: PyTorch's torch.amp.GradScaler. Under data parallelism backward gives every rank bitwise
// the same gradients: a rank that overflows makes the sum Inf or NaN everywhere, so all ranks
// decide alike without communication. Where ranks hold different gradients (FSDP, tensor or
// pipeline parallelism) the parameters know these ranks, which skip a step together: unscale_(), or
// step() without it, is collective over them then, and sends one number.
// The scale is the same for all micro-batches of a step: update() comes after step(). A scaler
// belongs to one thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <type_traits>

#include <parx/autograd/loss.hpp>
#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/optim/over_ranks.hpp>
#include <parx/optim/target.hpp>

namespace parx::inline PARX_ABI::amp {

struct grad_scaler_options {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  std::uint64_t growth_interval = 2000;  ///< steps in a row without overflow before the scale grows
};

namespace detail {

/// Multiplies by `factor`; returns whether a result is Inf or NaN.
template <typename T>
[[nodiscard]] bool multiply_finding_overflow(std::span<T> values, T factor) noexcept {
  constexpr T largest = std::numeric_limits<T>::max();
  unsigned bad = 0;
  for (T& value : values) {
    value *= factor;
    bad |= static_cast<unsigned>(!(std::abs(value) <= largest));
  }
  return bad != 0;
}

}  // namespace detail

class grad_scaler {
 public:
  /// Throws usage_error for a scale or factors outside their range.
  explicit grad_scaler(grad_scaler_options options = {}) : options_(options) {
    require(options.init_scale > 0 && std::isfinite(options.init_scale),
            "grad_scaler: init_scale must be positive and finite, not {}", options.init_scale);
    require(options.growth_factor > 1 && options.backoff_factor > 0 && options.backoff_factor < 1,
            "grad_scaler: growth_factor {} must be above 1, backoff_factor {} between 0 and 1",
            options.growth_factor, options.backoff_factor);
    require(options.growth_interval > 0, "grad_scaler: growth_interval must not be 0");
    *scale_.data() = options.init_scale;
  }

  /// The loss to call backward() on.
  template <typename T>
  [[nodiscard]] variable<T> scale(const variable<T>& loss) const {
    return loss * static_cast<T>(get_scale());
  }
  /// The count does not change; mean() is scaled too, so print the unscaled loss.
  template <typename T>
  [[nodiscard]] weighted_loss<T> scale(const weighted_loss<T>& loss) const {
    return {scale(loss.sum), loss.count};
  }

  /// Divides the optimizer's gradients by the scale, once a step: to clip or look at them before
  /// step(), which does it otherwise. Collective over the ranks that have different parts of the
  /// gradients. Throws usage_error when it was called for this optimizer since the last update().
  template <typename Optimizer>
  void unscale_(Optimizer& optimizer, call_site site = call_site::current()) {
    progress& done = optimizers_[&optimizer];
    require(done.at == phase::scaled,
            "grad_scaler: unscale_() was already called for this optimizer since the last "
            "update(){}",
            done.at == phase::stepped ? ", and step() too" : "");
    bool overflow = false;
    const auto targets = optimizer.targets();
    for (const auto& target : targets) {
      using value = typename Optimizer::value_type;
      static_assert(!std::is_same_v<value, float16>,
                    "gradients in float16 cannot be unscaled in place: what the scale has saved "
                    "would be lost. Hold the parameters in float and compute under "
                    "autocast<float16>");
      // Of a row-sparse gradient only the touched rows: zeros stay zeros.
      target.for_each_grad([&](std::span<value> part) {
        overflow |= detail::multiply_finding_overflow(part, static_cast<value>(1 / get_scale()));
      });
    }
    overflow = optim::on_any_rank_of(targets, targets.axes, overflow, site);
    done = {phase::unscaled, overflow};
  }

  /// optimizer.step() with unscaled gradients; if one of them is Inf or NaN, only drops them.
  /// Returns whether the step was taken (a schedule should count those). Collective as unscale_()
  /// unless that was called. Throws usage_error on a second call before update().
  template <typename Optimizer>
  bool step(Optimizer& optimizer, call_site site = call_site::current()) {
    progress& done = optimizers_[&optimizer];
    require(done.at != phase::stepped,
            "grad_scaler: step() was already called for this optimizer since the last update()");
    if (done.at == phase::scaled) unscale_(optimizer, site);
    done.at = phase::stepped;
    if (!done.found_inf) {
      optimizer.step();
      return true;
    }
    optimizer.zero_grad();
    ++skipped_;
    return false;
  }

  /// Ends the step: a smaller scale after an overflow in any optimizer, a larger one after
  /// growth_interval steps without. Throws usage_error when no optimizer was unscaled or stepped.
  void update() {
    require(!optimizers_.empty(),
            "grad_scaler: update() comes after unscale_() or step() of at least one optimizer");
    bool overflow = false;
    for (const auto& [optimizer, done] : optimizers_) overflow |= done.found_inf;
    optimizers_.clear();
    double& scale = *scale_.data();
    if (overflow) {
      scale *= options_.backoff_factor;
      growth_tracker_ = 0;
    } else if (++growth_tracker_ >= options_.growth_interval) {
      // Beyond float's range a scaled loss would never be finite again.
      const double grown = scale * options_.growth_factor;
      if (grown <= std::numeric_limits<float>::max()) scale = grown;
      growth_tracker_ = 0;
    }
  }

  [[nodiscard]] double get_scale() const noexcept { return *scale_.data(); }
  /// Skipped steps since the beginning of training.
  [[nodiscard]] std::uint64_t skipped_steps() const noexcept { return skipped_; }

  /// Calls visitor(name, tensor<double>& or std::uint64_t&): the state for a checkpoint.
  template <typename Visitor>
  void for_each_state(Visitor&& visitor) {
    visitor("scale", scale_);
    visitor("growth_tracker", growth_tracker_);
    visitor("skipped_steps", skipped_);
  }

 private:
  enum class phase { scaled, unscaled, stepped };
  struct progress {
    phase at = phase::scaled;
    bool found_inf = false;
  };

  grad_scaler_options options_;
  tensor<double> scale_ = tensor<double>::scalar(1);
  std::uint64_t growth_tracker_ = 0;  ///< steps without overflow since the scale changed
  std::uint64_t skipped_ = 0;
  std::map<const void*, progress> optimizers_;  ///< since the last update()
};

}  // namespace parx::amp
