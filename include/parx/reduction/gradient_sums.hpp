// gradient_sums: the interface of what a wrapper does with gradients: a ddp's buckets, an fsdp's
// flat parameters. gradient_reducer, the one observer of backward, calls it.
//
//   event               in the observer                               here
//   begin_backward      reduction_state decides what the pass does    start(), launch()
//   leaf_ready          it decides which buckets are complete now     launch()
//   end_backward        now, or in the wrapper's finish(); times      finish()
//   abandon_backward    aborts the groups if other ranks wait         abandon()
//
// So events in a wrong order, raised flags, times and the warning of parameters that the model does
// not name are the observer's. Between the wrappers these differ:
//
//               gradient_buckets (ddp)               unit_gradients (fsdp)
//   start()     sends the headers                    sends the header in the last pass of a step
//   launch()    all_reduce of a bucket, or what a    reduce_scatter of a flat to this rank's part,
//               hook sends, or the numbers of rows   over shards, then replicas; exact or bfloat16
//   finish()    receives the headers; waits; divides by the samples where that is not done yet
//   abandon()   nothing                              gradients return to the parameters
//
// Another form of reduction is another implementation of this class, or of what the two delegate
// to: bucket_sum (ddp/bucket_sum.hpp), comm_hook (ddp/hook.hpp), flat_sum (fsdp/flat_sum.hpp).
// Threads: the one that runs backward.
#pragma once

#include <cstddef>
#include <utility>

#include <parx/reduction/reduction_state.hpp>
#include <parx/reduction/step_header.hpp>

namespace parx::inline PARX_ABI {

/// What a pass does with its sums over the ranks.
struct reduction_pass {
  bool is_last = true;   ///< of its step: sums become means. Otherwise later passes add to them
  bool adds = false;     ///< gradients or sums of earlier passes of the step are there
  bool is_padding = false;  ///< it has no samples: other ranks have a virtual replica more
  double count = 0;      ///< samples of this pass
};

class gradient_sums {
 public:
  gradient_sums(const gradient_sums&) = delete;
  gradient_sums& operator=(const gradient_sums&) = delete;
  virtual ~gradient_sums() = default;

  /// The number of buckets, and their sizes in the order in which they are launched.
  [[nodiscard]] virtual std::size_t bucket_count() const noexcept = 0;
  [[nodiscard]] virtual std::size_t bucket_bytes(std::size_t index) const noexcept = 0;
  /// The first parameter that has a gradient, or reduction_state::nothing.
  [[nodiscard]] virtual std::size_t held() const = 0;

  /// Collective, asynchronous: begins a pass. In the last one of a step it sends the headers.
  virtual void start(const reduction_state& state, const reduction_pass& pass) = 0;
  /// Local: a pass of `count` samples under no_sync() has ended without sums.
  virtual void end_local_pass(double /*count*/) {}
  /// Collective, asynchronous: the gradients of buckets [first, last) are final. In order.
  virtual void launch(std::size_t first, std::size_t last) = 0;
  /// Collective, after all launches: receives the headers, and blocks until the sums, or means, are
  /// there.
  virtual void finish() = 0;
  /// The pass has failed; groups with sums under way have been aborted.
  virtual void abandon() noexcept = 0;

  [[nodiscard]] step_headers& headers() noexcept { return headers_; }
  [[nodiscard]] const step_headers& headers() const noexcept { return headers_; }

 protected:
  explicit gradient_sums(step_headers headers) : headers_(std::move(headers)) {}

 private:
  step_headers headers_;
};

}  // namespace parx
