// stage_wrapper: one or several stages of a rank over the data-parallel ranks: in a ddp, where each
// of them has the same, or in an fsdp, where each has a part (ZeRO).
//
// An fsdp gathers the values of a stage when its first forward after a step begins, and sums
// gradients with its last backward. Threads: one.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/ddp/ddp.hpp>
#include <parx/fsdp/fsdp.hpp>
#include <parx/pipeline/stage_part.hpp>

namespace parx::inline PARX_ABI {

template <typename Model>
class stage_wrapper {
  using part_type = stage_part<Model>;

 public:
  /// Collective over `data` and the reduction groups. Part and groups are borrowed.
  stage_wrapper(part_type& part, process_group& data, ddp_options reductions,
                const std::optional<fsdp_options>& sharding, call_site site)
      : part_(part) {
    if (sharding) sharded_.reset(new fsdp<part_type>(part, data, *sharding, site));
    else summed_.reset(new ddp<part_type>(part, data, std::move(reductions), site));
  }

  /// Calls use(wrapper) with the ddp or the fsdp.
  template <typename Use>
  decltype(auto) with(Use use) const {
    return sharded_ ? use(*sharded_) : use(*summed_);
  }

  /// Runs `forward`, in which the stage's values are there. Collective where they are gathered.
  template <typename Forward>
  void around_forward(Forward forward) {
    if (sharded_) sharded_->call(forward);
    else forward();
  }
  [[nodiscard]] no_sync_scope no_sync() {
    return with([](auto& wrapper) { return wrapper.no_sync(); });
  }
  /// Of gradients that were all made within no_sync().
  void reduce() { summed_->reduce(); }
  /// Blocks until gradients are what the optimizer should see.
  void finish() {
    if (summed_) summed_->finish();
  }
  /// Before values are written by something other than an optimizer.
  void before_write() {
    if (sharded_) sharded_->before_write();
  }

  /// The parameters for an optimizer: whole ones, or this rank's parts.
  template <typename Visitor>
  void for_each_parameter(Visitor&& visitor) {
    if (sharded_) sharded_->module().for_each_parameter(visitor);
    else part_.for_each_parameter(visitor);
  }
  void zero_grad() {
    with([](auto& wrapper) { wrapper.zero_grad(); });
  }
  /// Seconds in which collectives of an fsdp ran; a ddp's are those of its groups.
  [[nodiscard]] double own_communication() const noexcept {
    return sharded_ ? sharded_->times().communication : 0;
  }

 private:
  part_type& part_;
  std::unique_ptr<ddp<part_type>> summed_;
  std::unique_ptr<fsdp<part_type>> sharded_;
};

}  // namespace parx
