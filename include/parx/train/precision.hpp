// precision: mixed precision for the trainer: matrix products in 16 bits (bf16, fp16) and a dynamic
// loss scale (fp16).
//
// Without either option it only calls forward, backward and step. One thread.
#pragma once

#include <optional>

#include <parx/amp/grad_scaler.hpp>
#include <parx/autograd/autocast.hpp>
#include <parx/checkpoint.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/train/options.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI::train {

class precision {
 public:
  /// `gradients`, if not null, are the ranks that hold different parts of the gradients: an
  /// overflow on one of them counts for all. Borrowed.
  precision(const trainer_options& options, process_group* gradients) {
    if (options.bf16) products_ = dtype::bfloat16;
    if (options.fp16) products_ = dtype::float16;
    if (!options.fp16) return;
    if (gradients != nullptr) {
      scaler_.emplace(*gradients);
    } else {
      scaler_.emplace();
    }
  }

  /// Calls compute() with matrix products in 16 bits.
  template <typename Compute>
  [[nodiscard]] auto forward(Compute&& compute) const {
    std::optional<parx::detail::autocast_scope> low;
    if (products_) low.emplace(*products_);
    return compute();
  }
  /// `site` is the user's line, for errors.
  template <typename Loss>
  void backward(const Loss& loss, call_site site) const {
    if (scaler_) {
      scaler_->scale(loss).backward({}, site);
    } else {
      loss.backward({}, site);
    }
  }
  /// Whether the loss scale alone can cause an Inf or NaN in backward: as long as it is above 1.
  [[nodiscard]] bool may_overflow() const { return scaler_ && scaler_->get_scale() > 1; }
  /// For loss functions that run backward themselves: throws usage_error if there is a loss scale,
  /// which they would not apply.
  void require_unscaled() const {
    require(!scaler_,
            "trainer: fp16 scales the loss before backward, but this loss function runs "
            "backward itself; take bf16");
  }

  /// Divides the gradients by the loss scale, before clipping.
  template <typename Optimizer>
  void unscale(Optimizer& optimizer) {
    if (scaler_) scaler_->unscale_(optimizer);
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
  std::optional<dtype> products_;
  std::optional<amp::grad_scaler> scaler_;
};

}  // namespace parx::train
