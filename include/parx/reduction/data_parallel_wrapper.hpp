// data_parallel_wrapper: the training_engine of a ddp or an fsdp: when gradients are summed, and
// the flag that travels with them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <parx/core/source.hpp>
#include <parx/reduction/gradient_reducer.hpp>
#include <parx/reduction/times.hpp>
#include <parx/reduction/training_engine.hpp>

namespace parx::inline PARX_ABI {

class data_parallel_wrapper : public training_engine {
 public:
  no_sync_scope no_sync() noexcept override { return no_sync_scope(reducer_->synchronising()); }
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

  void raise_flag() noexcept override { reducer_->raise_flag(); }
  /// Local.
  [[nodiscard]] bool flag_raised(call_site /*site*/ = call_site::current()) noexcept override {
    return reducer_->flag_raised();
  }
  [[nodiscard]] reduction_times times() const noexcept override { return reducer_->times(); }
  [[nodiscard]] std::size_t bucket_count() const override {
    return reducer_->sums().bucket_count();
  }
  [[nodiscard]] std::size_t bucket_bytes(std::size_t index) const override {
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
