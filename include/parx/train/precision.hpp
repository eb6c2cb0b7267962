// precision: what bf16 and fp16 change about a step: products in 16 bits, and for float16 a loss
// scale that finds its own height.
//
// Without either it is a plain forward, backward and step. One thread.
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
  /// `gradients`, where there is one, are the ranks that hold different parts of the gradients: one
  /// of them with an overflow is enough. Borrowed.
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

  /// compute() with its matrix products in 16 bits.
  template <typename Compute>
  [[nodiscard]] auto forward(Compute&& compute) const {
    std::optional<parx::detail::autocast_scope> low;
    if (products_) low.emplace(*products_);
    return compute();
  }
  template <typename Loss>
  void backward(const Loss& loss) const {
    if (scaler_) {
      scaler_->scale(loss).backward();
    } else {
      loss.backward();
    }
  }
  /// Whether an Inf or NaN in backward may come from the loss scale, and no error be behind it: not
  /// once the scale has fallen to 1.
  [[nodiscard]] bool may_overflow() const { return scaler_ && scaler_->get_scale() > 1; }
  /// Throws usage_error where a loss function that runs backward itself would miss the scale.
  void require_unscaled() const {
    require(!scaler_,
            "trainer: fp16 scales the loss before backward, but this loss function runs "
            "backward itself; take bf16");
  }

  /// The gradients as they are meant, to clip them.
  template <typename Optimizer>
  void unscale(Optimizer& optimizer) {
    if (scaler_) scaler_->unscale_(optimizer);
  }
  /// With a loss scale, a step whose gradients overflowed is left out, on all ranks alike.
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
  /// Collective. Gives all ranks what `root` has.
  void broadcast(process_group& group, int root, call_site site) {
    if (scaler_) broadcast_state(group, *scaler_, root, site);
  }
  /// A checkpoint without a scale leaves it at its start.
  void load(const saved_checkpoint& saved) {
    if (scaler_ && saved.contains("scaler.safetensors")) saved.load("scaler", *scaler_);
  }

 private:
  std::optional<dtype> products_;
  std::optional<amp::grad_scaler> scaler_;
};

}  // namespace parx::train
