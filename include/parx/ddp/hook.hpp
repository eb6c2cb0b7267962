// comm_hook: what is sent for a bucket instead of its gradients as they are, PyTorch's DDP
// communication hooks.
//
//   parx::ddp ddp{model, world, {.hook = parx::bf16_compress_hook{}}};
//   parx::ddp ddp{model, world, {.hook = parx::powersgd_hook{{.rank = 2}}}};
//
// A hook is any copyable class with `rounds`, `start(bucket)` and `proceed(bucket, round)`. start()
// runs during backward and may only begin asynchronous operations; after backward, in each round,
// proceed() is called for all buckets in order, and the last one leaves the mean in the gradients.
// Every rank calls the same functions in the same order, so a hook must begin the same operations
// on all, whatever the gradients hold. It sees the buckets of the ddp's own group; those of other
// reduction groups travel as they are. What a hook remembers from step to step it lists in
// `memory(buckets)`: checkpoints keep it (hook_state.hpp).
// Threads: on the thread that runs backward.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/comm/process_group.hpp>
#include <parx/comm/schedule/reduction_order.hpp>
#include <parx/core/source.hpp>
#include <parx/types/buffer.hpp>

namespace parx::inline PARX_ABI {

/// A gradient inside a bucket: `rows` x `columns` elements, row-major, from `offset` on. What has
/// more than two axes has them folded into columns; what has less has one row.
struct hook_tensor {
  std::size_t offset = 0;
  std::size_t rows = 1;
  std::size_t columns = 0;
};

/// What a hook works on. `gradients` are sums over this rank's samples until the last round, and
/// the mean over all samples after it. Between gradients there is padding, which is zero.
struct hook_bucket {
  process_group& group;
  call_site site;
  std::size_t index;  ///< the same number for the same bucket at every step
  buffer_view gradients;
  std::span<const hook_tensor> tensors;
  /// 1 / samples of the last step on all ranks, rounded to a power of two: brings the sums near the
  /// mean without rounding them. The same on all ranks.
  double scale = 1;
  /// Samples of this step on all ranks; for proceed() alone.
  double count = 0;
  reduction_order order = reduction_order::any;  ///< for the hook's own sums: ddp_options::order

  /// What makes a mean of a sum of gradients times `scale`.
  [[nodiscard]] double unscale() const noexcept { return count == 0 ? 0 : 1 / (scale * count); }
};

enum class hook_share {
  equal,   ///< the same bits on all ranks
  addend,  ///< each rank's own, of which the sum over the ranks is what matters
};

/// A piece of what a hook remembers from one step to the next. The memory is the hook's.
struct hook_memory {
  std::string name;  ///< "bucket.0.left_out"
  buffer_view values;
  hook_share share = hook_share::equal;
};

template <typename H>
concept communication_hook = std::copyable<H> && requires(H hook, hook_bucket& bucket, int round) {
  { H::rounds } -> std::convertible_to<int>;  // at least 1
  hook.start(bucket);
  hook.proceed(bucket, round);  // 0 .. rounds - 1
};

/// Any communication_hook, or none. Each ddp has a copy, so that what a hook remembers is its own.
class comm_hook {
 public:
  comm_hook() = default;
  template <typename H>  // in this order: the second constraint asks for copies
    requires(!std::same_as<H, comm_hook>) && communication_hook<H>
  comm_hook(H hook)  // NOLINT(google-explicit-constructor)
      : held_(std::make_unique<model<H>>(std::move(hook))) {}
  comm_hook(const comm_hook& other) : held_(other ? other.held_->clone() : nullptr) {}
  comm_hook(comm_hook&&) noexcept = default;
  comm_hook& operator=(comm_hook other) noexcept {
    std::swap(held_, other.held_);
    return *this;
  }
  ~comm_hook() = default;

  [[nodiscard]] explicit operator bool() const noexcept { return held_ != nullptr; }
  [[nodiscard]] int rounds() const noexcept { return held_ != nullptr ? held_->rounds() : 0; }
  void start(hook_bucket& bucket) { held_->start(bucket); }
  void proceed(hook_bucket& bucket, int round) { held_->proceed(bucket, round); }
  /// What is remembered of `buckets`, which are all that there are: to be read or set between two
  /// steps, and valid until the next. Names, types and sizes are the same at all times.
  [[nodiscard]] std::vector<hook_memory> memory(std::span<const hook_bucket> buckets) {
    return held_ != nullptr ? held_->memory(buckets) : std::vector<hook_memory>();
  }

 private:
  struct base {
    virtual ~base() = default;
    [[nodiscard]] virtual std::unique_ptr<base> clone() const = 0;
    [[nodiscard]] virtual int rounds() const noexcept = 0;
    virtual void start(hook_bucket& bucket) = 0;
    virtual void proceed(hook_bucket& bucket, int round) = 0;
    [[nodiscard]] virtual std::vector<hook_memory> memory(std::span<const hook_bucket>) = 0;

    base() = default;
    base(const base&) = default;
    base& operator=(const base&) = default;
  };
  template <typename H>
  struct model final : base {
    explicit model(H given) : hook(std::move(given)) {}
    [[nodiscard]] std::unique_ptr<base> clone() const override {
      return std::make_unique<model>(hook);
    }
    [[nodiscard]] int rounds() const noexcept override { return H::rounds; }
    void start(hook_bucket& bucket) override { hook.start(bucket); }
    void proceed(hook_bucket& bucket, int round) override { hook.proceed(bucket, round); }
    [[nodiscard]] std::vector<hook_memory> memory(std::span<const hook_bucket> buckets) override {
      if constexpr (requires { hook.memory(buckets); }) return hook.memory(buckets);
      return {};
    }
    H hook;
  };

  std::unique_ptr<base> held_;
};

}  // namespace parx
