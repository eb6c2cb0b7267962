// training_engine: what computes gradients over ranks, without the type of its model. A ddp is one,
// replicated; an fsdp, sharded; and a pipeline, staged, with one of the others for each stage. What
// all offer alike a parallel model asks here, whatever its layout.
#pragma once

#include <cstddef>

#include <parx/core/source.hpp>
#include <parx/reduction/gradient_reducer.hpp>
#include <parx/reduction/times.hpp>

namespace parx::inline PARX_ABI {

class training_engine {
 public:
  virtual ~training_engine() = default;

  /// Gradient accumulation: `{ auto guard = ddp.no_sync(); loss.backward(); }` for all
  /// micro-batches but the last. An optimizer throws if the last one was under no_sync(), too.
  /// fsdp_options::accumulate chooses where an fsdp adds gradients up.
  [[nodiscard]] virtual no_sync_scope no_sync() noexcept = 0;
  /// Local. Drops the gradients of all parameters, including those that no optimizer has: the next
  /// backward overwrites them.
  virtual void zero_grad() = 0;

  /// From any thread. Tells all ranks something that one rank has noticed (its host goes down, a
  /// disk is full). The flag is sent with the next backward() that sums gradients, at no cost.
  virtual void raise_flag() noexcept = 0;
  /// Whether any rank's flag was sent with the last such gradients. The same on all ranks, until
  /// the next such backward(). Collective where the model is in stages.
  [[nodiscard]] virtual bool flag_raised(call_site site = call_site::current()) = 0;

  /// Call this on all ranks before parameters are written by anything other than an optimizer, an
  /// average of parx::optim or load(): it invalidates gathered values.
  virtual void before_write() = 0;
  /// Collective. Gives all ranks that have the same buffers those of the first of them.
  virtual void broadcast_buffers(call_site site = call_site::current()) = 0;

  /// How long backward passes have communicated and waited so far:
  /// `(ddp.times() - before).hidden()`.
  [[nodiscard]] virtual reduction_times times() const noexcept = 0;
  /// The number of buckets (of an fsdp: flat parameters of its units), and their sizes in the order
  /// in which they are sent.
  [[nodiscard]] virtual std::size_t bucket_count() const = 0;
  [[nodiscard]] virtual std::size_t bucket_bytes(std::size_t index) const = 0;
};

}  // namespace parx
