// data_parallel_wrapper: what a ddp and an fsdp offer alike: when gradients are summed, and the
// flag that travels with them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <parx/reduction/gradient_reducer.hpp>
#include <parx/reduction/times.hpp>

namespace parx::inline PARX_ABI {

class data_parallel_wrapper {
 public:
  /// Gradient accumulation: `{ auto guard = ddp.no_sync(); loss.backward(); }` for all
  /// micro-batches but the last. An optimizer throws if the last one was under no_sync(), too.
  /// fsdp_options::accumulate chooses where an fsdp adds gradients up.
  no_sync_scope no_sync() noexcept { return no_sync_scope(reducer_->synchronising()); }

  /// Collective. Starts summing the gradients accumulated under no_sync(), without another pass.
  void reduce() { add_pass(0); }
  /// For a wrapper that cuts a graph: the same as a pass of so many samples that reached none of
  /// the parameters. Collective unless under no_sync().
  void add_pass(double count) { reducer_->add_pass(count); }
  /// The passes so far: those that reached a parameter, and those of reduce() and add_pass().
  [[nodiscard]] std::uint64_t passes() const noexcept { return reducer_->state().passes(); }
  /// Collective. With options.finish == when_asked: blocks until the sums of the last backward are
  /// complete and the gradients are means. Does nothing if no sums are under way.
  void finish() { reducer_->finish(); }

  /// From any thread. Tells all ranks something that one rank has noticed (its host goes down, a
  /// disk is full). The flag is sent with the next backward() that sums gradients, at no cost.
  void raise_flag() noexcept { reducer_->raise_flag(); }
  /// Whether any rank's flag was sent with the last such gradients. The same on all ranks, until
  /// the next such backward().
  [[nodiscard]] bool flag_raised() const noexcept { return reducer_->flag_raised(); }

  /// How long backward passes have communicated and waited so far:
  /// `(ddp.times() - before).hidden()`.
  [[nodiscard]] reduction_times times() const noexcept { return reducer_->times(); }

  /// The number of buckets (of an fsdp: flat parameters of its units), and their sizes in the order
  /// in which they are sent.
  [[nodiscard]] std::size_t bucket_count() const noexcept {
    return reducer_->sums().bucket_count();
  }
  [[nodiscard]] std::size_t bucket_bytes(std::size_t index) const noexcept {
    return reducer_->sums().bucket_bytes(index);
  }

 protected:
  data_parallel_wrapper() = default;
  ~data_parallel_wrapper() = default;
  data_parallel_wrapper(data_parallel_wrapper&&) = default;
  data_parallel_wrapper& operator=(data_parallel_wrapper&&) = default;

  /// Borrowed; before any other function is called.
  void reduce_by(gradient_reducer& reducer) noexcept { reducer_ = &reducer; }

 private:
  gradient_reducer* reducer_ = nullptr;
};

}  // namespace parx
