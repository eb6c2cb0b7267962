// comm_hook: changes what is sent for a bucket, as PyTorch's DDP communication hooks do.
//
//   parx::ddp ddp{model, world, {.hook = parx::bf16_compress_hook{}}};
//   parx::ddp ddp{model, world, {.hook = parx::powersgd_hook{{.rank = 2}}}};
//
// A hook is any copyable class with `rounds`, `start(bucket)` and `proceed(bucket, round)`. start()
// runs during backward and may only begin asynchronous operations. After backward, in each round,
// proceed() is called for all buckets in order; the last round leaves the mean in the gradients.
// Every rank calls the same functions in the same order, so a hook must begin the same operations
// on all ranks, whatever the gradients hold. It sees the buckets of the ddp's own group; those of
// other reduction groups are sent unchanged. A hook with state that lasts from step to step returns
// it from `memory(buckets)`, for checkpoints (hook_state.hpp).
// Threads: on the thread that runs backward.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/checkpoint/hook_memory.hpp>  // IWYU pragma: export
#include <parx/comm/process_group.hpp>
#include <parx/comm/schedule/reduction_order.hpp>
#include <parx/core/source.hpp>
#include <parx/types/buffer.hpp>

namespace parx::inline PARX_ABI {

/// A gradient inside a bucket: `rows` x `columns` elements, row-major, from element `offset` on. A
/// tensor of more than two axes has the others folded into columns; a vector has one row.
struct hook_tensor {
  std::size_t offset = 0;
  std::size_t rows = 1;
  std::size_t columns = 0;
};

/// The bucket that a hook works on. `gradients` are sums over this rank's samples until the last
/// round, and the mean over all samples after it. Padding between gradients is zero.
struct hook_bucket {
  process_group& group;
  call_site site;
  std::size_t index;  ///< the same for the same bucket in every step
  buffer_view gradients;
  std::span<const hook_tensor> tensors;
  /// 1 / samples of the last step on all ranks, rounded to a power of two: scales the sums to about
  /// the mean without rounding errors. The same on all ranks.
  double scale = 1;
  /// Samples of this step on all ranks; set only in proceed().
  double count = 0;
  reduction_order order = reduction_order::any;  ///< for the hook's own sums: ddp_options::order

  /// The factor from a sum of gradients times `scale` to their mean.
  [[nodiscard]] double unscale() const noexcept { return count == 0 ? 0 : 1 / (scale * count); }
};

template <typename H>
concept communication_hook = std::copyable<H> && requires(H hook, hook_bucket& bucket, int round) {
  { H::rounds } -> std::convertible_to<int>;  // at least 1
  hook.start(bucket);
  hook.proceed(bucket, round);  // 0 .. rounds - 1
};

/// Any communication_hook, or none. Each ddp has a copy, and so its own state.
class comm_hook {
 public:
  comm_hook() = default;
  template <typename H>  // in this order: the second constraint asks for copies
    requires(!std::same_as<H, comm_hook>) && communication_hook<H>
  comm_hook(H hook)  // NOLINT(google-explicit-constructor)
      : held_(std::make_unique<model<H>>(std::move(hook))) {}
  comm_hook(const comm_hook& other) : held_(other ? other.held_->clone() : nullptr) {}
  comm_hook(comm_hook&&) noexcept = default;
  // Not one by value, which clang 14 never destroys where a template assigns {}.
  comm_hook& operator=(const comm_hook& other) { return *this = comm_hook(other); }
  comm_hook& operator=(comm_hook&&) noexcept = default;
  ~comm_hook() = default;

  [[nodiscard]] explicit operator bool() const noexcept { return held_ != nullptr; }
  [[nodiscard]] int rounds() const noexcept { return held_ != nullptr ? held_->rounds() : 0; }
  void start(hook_bucket& bucket) { held_->start(bucket); }
  void proceed(hook_bucket& bucket, int round) { held_->proceed(bucket, round); }
  /// The hook's state for `buckets`, which are all buckets of the ddp. Read or set it between two
  /// steps; it is valid until the next step. Names, types and sizes never change.
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
