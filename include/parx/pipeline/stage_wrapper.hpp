// stage_wrapper: one or several stages of a rank over the data-parallel ranks: in a ddp, where each
// of them has the same, or in an fsdp, where each has a part (ZeRO).
//
// An fsdp gathers the values of a stage when its first forward after a step begins. Parameters that
// have a reduction group, such as those that are tied over stages, stay whole beside it, in a ddp.
// Sums begin with the last backward, or reduce(), and are waited for in finish(). Threads: one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/core/source.hpp>
#include <parx/ddp/ddp.hpp>
#include <parx/fsdp/fsdp.hpp>
#include <parx/pipeline/stage_part.hpp>

namespace parx::inline PARX_ABI {

template <typename Model>
class stage_wrapper {
  using part_type = stage_part<Model>;

 public:
  /// Collective over `data` and the reduction groups. `parts` are the stages' paths in the model.
  /// Model and groups are borrowed.
  stage_wrapper(Model& model, const std::vector<std::string>& parts, process_group& data,
                ddp_options reductions, const std::optional<fsdp_options>& sharding,
                call_site site) {
    std::vector<std::string> whole = parts;
    if (sharding) {
      whole.clear();
      bool is_any_cut = false;
      part_type(model, parts).for_each_parameter([&](const std::string& path, auto& each) {
        if (each.reduction_group().empty()) is_any_cut = true;
        else whole.push_back(path);
      });
      if (!is_any_cut) {
        whole = parts;
      } else {
        sharded_part_.reset(new part_type(model, parts, whole));
        fsdp_options own = *sharding;
        own.finish = reduction_finish::when_asked;
        own.units = detail::narrowed(own.units, detail::unit_candidates(*sharded_part_));
        sharded_.reset(new fsdp<part_type>(*sharded_part_, data, std::move(own), site));
      }
    }
    if (!whole.empty()) {
      reductions.finish = reduction_finish::when_asked;
      summed_part_.reset(new part_type(model, std::move(whole)));
      summed_.reset(new ddp<part_type>(*summed_part_, data, std::move(reductions), site));
    }
  }

  /// Calls use(wrapper) with the ddp and the fsdp, as far as there are.
  template <typename Use>
  void for_each_wrapper(Use use) const {
    if (sharded_) use(*sharded_);
    if (summed_) use(*summed_);
  }
  void raise_flag() {
    sharded_ ? sharded_->raise_flag() : summed_->raise_flag();
  }
  [[nodiscard]] bool flag_raised() {
    return sharded_ ? sharded_->flag_raised() : summed_->flag_raised();
  }

  /// Runs `forward`, in which the stage's values are there. Collective where they are gathered.
  template <typename Forward>
  void around_forward(Forward forward) {
    if (sharded_) sharded_->call(forward);
    else forward();
  }
  /// Runs `backward`, whose gradients are added to those before and not summed over ranks.
  template <typename Backward>
  void without_sums(Backward backward) {
    const auto within = [](auto* wrapper, auto inner) {
      if (wrapper == nullptr) return inner();
      const auto adding = wrapper->no_sync();
      inner();
    };
    within(sharded_.get(), [&] { within(summed_.get(), backward); });
  }
  /// Begins to sum gradients that were all made in without_sums().
  void reduce() {
    for_each_wrapper([](auto& wrapper) { wrapper.reduce(); });
  }
  /// Blocks until gradients are what the optimizer should see.
  void finish() {
    for_each_wrapper([](auto& wrapper) { wrapper.finish(); });
  }
  /// Before values are written by something other than an optimizer.
  void before_write() {
    if (sharded_) sharded_->before_write();
  }

  /// The parameters for an optimizer: this rank's parts, and whole ones.
  template <typename Visitor>
  void for_each_parameter(Visitor&& visitor) {
    if (sharded_) sharded_->module().for_each_parameter(visitor);
    if (summed_) summed_part_->for_each_parameter(visitor);
  }
  void zero_grad() {
    for_each_wrapper([](auto& wrapper) { wrapper.zero_grad(); });
  }
  /// Seconds in which collectives of an fsdp ran; a ddp's are those of its groups.
  [[nodiscard]] double own_communication() const noexcept {
    return sharded_ ? sharded_->times().communication : 0;
  }

 private:
  std::unique_ptr<part_type> summed_part_, sharded_part_;
  std::unique_ptr<ddp<part_type>> summed_;
  std::unique_ptr<fsdp<part_type>> sharded_;
};

}  // namespace parx
