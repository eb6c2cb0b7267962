// batch_norm: channels normalised over the batch; in evaluation by the running statistics of
// training. PyTorch's BatchNorm1d, 2d and 3d in one: x is (n, channels, ...).
//
// Every row of x counts in the statistics, even one of weight 0: the samples with which
// data::remainder::exact pads an epoch's last batch affect them, though not the loss. With
// data::remainder::drop there are no such samples. Under ddp each rank normalises by and tracks its
// own rows: see ddp::broadcast_buffers and sync_batch_norm.
#pragma once

#include <cstddef>
#include <cstdint>

#include <parx/autograd/model_buffer.hpp>
#include <parx/autograd/ops/batch_norm.hpp>
#include <parx/autograd/recompute.hpp>
#include <parx/nn/module.hpp>

namespace parx::inline PARX_ABI::nn {

struct batch_norm_options {
  double epsilon = 1e-5;
  double momentum = 0.1;  ///< the weight of the newest batch in the running statistics
};

/// The common base of batch_norm and sync_batch_norm. Derived::sums() returns the function that
/// adds up the sums of the ranks.
template <typename Derived, typename T>
class batch_norm_layer : public module<Derived> {
 public:
  using value_type = T;

  [[nodiscard]] variable<T> forward(const variable<T>& x) {
    if (!this->is_training()) {
      return batch_norm_with<T>(
          x, weight_, bias_,
          {mean_.value().template cast<double>(), variance_.value().template cast<double>()},
          options_.epsilon);
    }
    const auto combine = static_cast<Derived&>(*this).sums();
    // Under activation checkpointing forward runs twice; the ranks communicate the first time only.
    const batch_statistics batch = parx::detail::once([&] {
      batch_statistics newest = statistics_of_batch(x.value(), combine);
      track(newest);
      return newest;
    });
    return parx::batch_norm<T>(x, weight_, bias_, batch, options_.epsilon, combine);
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, init::constant(1));
    visit("bias", bias_, init::constant(0));
    visit("running_mean", mean_);
    visit("running_var", variance_);
    visit("num_batches_tracked", batches_);
  }

 protected:
  batch_norm_layer(std::size_t channels, batch_norm_options options)
      : options_(options),
        weight_("weight", {channels}),
        bias_("bias", {channels}),
        mean_(tensor<T>::zeros({channels})),
        variance_(tensor<T>::ones({channels})),
        batches_(tensor<std::int64_t>::scalar(0)) {
    weight_.exempt_from_decay();
    bias_.exempt_from_decay();
  }

 private:
  void track(const batch_statistics& batch) {
    if (batch.count == 0) return;
    require(batch.count > 1, "batch_norm: {} values a channel have no variance to train with",
            batch.count);
    const double unbiased = batch.count / (batch.count - 1);
    for (std::size_t c = 0; c < mean_.value().size(); ++c) {
      update(mean_.value().data()[c], batch.mean.data()[c]);
      update(variance_.value().data()[c], batch.variance.data()[c] * unbiased);
    }
    ++*batches_.value().data();
  }
  void update(T& running, double newest) const {
    running = static_cast<T>((1 - options_.momentum) * static_cast<double>(running) +
                             options_.momentum * newest);
  }

  batch_norm_options options_;
  parameter<T> weight_;
  parameter<T> bias_;
  model_buffer<T> mean_;
  model_buffer<T> variance_;
  model_buffer<std::int64_t> batches_;
};

template <typename T = float>
class batch_norm : public batch_norm_layer<batch_norm<T>, T> {
 public:
  explicit batch_norm(std::size_t channels, batch_norm_options options = {})
      : batch_norm_layer<batch_norm<T>, T>(channels, options) {}

  [[nodiscard]] local_sums sums() const noexcept { return {}; }
};

}  // namespace parx::nn
