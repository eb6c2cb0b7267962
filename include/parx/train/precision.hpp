// precision: mixed precision for the trainer: matrix products in 16 bits (bf16, fp16) and a dynamic
// loss scale (fp16).
//
// Without either option it only calls forward, backward and step. One thread.
#pragma once

#include <optional>

#include <parx/amp/grad_scaler.hpp>
#include <parx/autograd/anomaly.hpp>
#include <parx/autograd/autocast.hpp>
#include <parx/autograd/loss_scale.hpp>
#include <parx/autograd/loss_watch.hpp>
#include <parx/checkpoint.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/train/options.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI::train {

class precision {
 public:
  explicit precision(const trainer_options& options) {
    if (options.bf16) products_ = dtype::bfloat16;
    if (options.fp16) products_ = dtype::float16;
    if (options.fp16) scaler_.emplace();
  }

  /// Calls compute() with matrix products in 16 bits, and with the loss scale for a pipeline, which
  /// runs backward in it.
  template <typename Compute>
  [[nodiscard]] auto forward(Compute&& compute) {
    std::optional<parx::autocast_scope> low;
    if (products_) low.emplace(*products_);
    const parx::detail::loss_scale_scope scale(loss_scale().value_or(1));
    auto result = compute();
    is_scaled_inside_ = scale.is_applied();
    return result;
  }
  /// Runs backward; ends `watch` where the loss scale can cause an Inf or NaN in it, since then the
  /// step is skipped. The loss function of a pipeline has run backward already, and returns a
  /// figure. `site` is the user's line, for errors: a loss function that runs backward without
  /// applying the scale is refused.
  template <typename Loss>
  void backward(const Loss& loss, std::optional<detect_anomaly>& watch, call_site site) const {
    if constexpr (is_figure<Loss>) {
      require(!scaler_ || is_scaled_inside_,
              "trainer: fp16 scales the loss before backward, but this loss function runs backward "
              "itself, and not by model.forward_backward(); take bf16");
    } else {
      if (may_overflow()) watch.reset();
      const parx::detail::loss_is_watched by_trainer;
      if (scaler_) scaler_->scale(loss).backward({}, site);
      else loss.backward({}, site);
    }
  }
  /// Whether what detect_anomaly finds before backward() is the model's, not the loss scale's.
  template <typename Loss>
  [[nodiscard]] bool finds_anomalies() const {
    return !is_figure<Loss> || !may_overflow();
  }

  /// Divides the gradients by the loss scale, before clipping.
  template <typename Optimizer>
  void unscale(Optimizer& optimizer, call_site site) {
    if (scaler_) scaler_->unscale_(optimizer, site);
  }
  /// With a loss scale, a step whose gradients overflowed is skipped on all ranks.
  template <typename Optimizer>
  void step(Optimizer& optimizer) {
    if (!scaler_) return optimizer.step();
    scaler_->step(optimizer);
    scaler_->update();
  }

  [[nodiscard]] std::optional<double> loss_scale() const {
    return scaler_ ? std::optional(scaler_->get_scale()) : std::nullopt;
  }
  void add_to(checkpoint_parts& parts) {
    if (scaler_) parts.add("scaler", *scaler_);
  }
  /// Collective. Copies the scale of `root` to all ranks.
  void broadcast(process_group& group, int root, call_site site) {
    if (scaler_) broadcast_state(group, *scaler_, root, site);
  }
  /// A checkpoint without a scale leaves the initial one.
  void load(const saved_checkpoint& saved) {
    if (scaler_ && saved.contains("scaler.safetensors")) saved.load("scaler", *scaler_);
  }

 private:
  /// Of what a loss function returns: backward has run in it.
  template <typename Loss>
  static constexpr bool is_figure = !requires(const Loss& made) { made.backward(); };
  /// Whether the loss scale alone can cause an Inf or NaN in backward: as long as it is above 1.
  [[nodiscard]] bool may_overflow() const { return scaler_ && scaler_->get_scale() > 1; }

  std::optional<dtype> products_;
  std::optional<amp::grad_scaler> scaler_;
  bool is_scaled_inside_ = false;
};

}  // namespace parx::train
