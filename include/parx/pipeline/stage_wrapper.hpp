// stage_wrapper: one or several stages of a rank, wrapped over the data-parallel ranks: in a ddp,
// or in an fsdp (ZeRO).
//
// An fsdp gathers the values of a stage when its first forward after a step begins. Parameters that
// have a reduction group, such as those that are tied over stages, stay whole, in a ddp beside the
// fsdp. Sums begin with the last backward, or reduce(), and are waited for in finish().
// Threads: one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/checkpoint/shard_files.hpp>
#include <parx/core/source.hpp>
#include <parx/ddp/ddp.hpp>
#include <parx/fsdp/any_fsdp.hpp>
#include <parx/nn/any_module.hpp>
#include <parx/pipeline/stage_submodule.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI {

template <typename T>
class stage_wrapper {
  using part_type = stage_submodule<T>;

 public:
  /// Collective over `data` and the reduction groups. `parts` are the stages' paths in the model.
  /// Model and groups are borrowed.
  stage_wrapper(nn::any_module<T> model, const std::vector<std::string>& parts,
                process_group& data, ddp_options reductions,
                const std::optional<fsdp_options>& sharding, call_site site) {
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
        part_type cut(model, parts, whole);
        fsdp_options own = *sharding;
        own.finish = reduction_finish::when_asked;
        own.units = detail::narrowed(own.units, detail::unit_candidates(cut));
        sharded_.reset(new any_fsdp<part_type>(std::move(cut), data, std::move(own), site));
      }
    }
    if (!whole.empty()) {
      reductions.finish = reduction_finish::when_asked;
      summed_part_.reset(new part_type(model, std::move(whole)));
      // Beside an fsdp it has a group of its own: which of the two a pass reaches first may differ
      // between the ranks.
      if (sharded_) {
        apart_.emplace(data.subgroup(all_ranks(data.size()), {.name = data.name()}, site));
      }
      summed_.reset(new ddp<part_type>(*summed_part_, apart_ ? *apart_ : data,
                                       std::move(reductions), site));
    }
  }

  /// Calls use(wrapper) with the fsdp and the ddp that exist.
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

  /// Whether lookups of a table are collective: it is cut by rows.
  [[nodiscard]] bool has_cut_tables() const { return sharded_ && sharded_->has_cut_tables(); }
  /// Runs `forward` while the stage's values are gathered. Collective if there is an fsdp.
  template <typename Forward>
  void around_forward(Forward forward) {
    if (sharded_) sharded_->call(forward);
    else forward();
  }
  /// Runs `backward` of a loss of so many samples. A wrapper none of whose parameters it reaches
  /// counts them nevertheless: the gradient is the mean over all samples.
  template <typename Backward>
  void count_pass(double count, Backward backward) {
    const auto passes_of = [](auto* wrapper) { return wrapper ? wrapper->passes() : 0; };
    const auto sharded = passes_of(sharded_.get()), summed = passes_of(summed_.get());
    backward();
    if (sharded_ && sharded_->passes() == sharded) sharded_->add_pass(count);
    if (summed_ && summed_->passes() == summed) summed_->add_pass(count);
  }
  /// Runs `backward` and adds its gradients to the earlier ones, without summing over ranks.
  template <typename Backward>
  void without_sums(Backward backward) {
    const auto within = [](auto* wrapper, auto inner) {
      if (wrapper == nullptr) return inner();
      const auto adding = wrapper->no_sync();
      inner();
    };
    within(sharded_.get(), [&] { within(summed_.get(), backward); });
  }
  /// Begins to sum gradients that were all computed in without_sums().
  void reduce() {
    for_each_wrapper([](auto& wrapper) { wrapper.reduce(); });
  }
  /// Blocks until the gradients are ready for the optimizer.
  void finish() {
    for_each_wrapper([](auto& wrapper) { wrapper.finish(); });
  }
  /// Call this before values are written by anything other than an optimizer.
  void before_write() {
    if (sharded_) sharded_->before_write();
  }

  /// The parameters for an optimizer: this rank's parts, then whole ones.
  template <typename Visitor>
  void for_each_parameter(Visitor&& visitor) {
    if (sharded_) sharded_->module().for_each_parameter(visitor);
    if (summed_) summed_part_->for_each_parameter(visitor);
  }
  void zero_grad() {
    for_each_wrapper([](auto& wrapper) { wrapper.zero_grad(); });
  }
  /// The ranks that have the same shards: null without an fsdp.
  [[nodiscard]] std::optional<shard_place> shard_replica() const {
    if (!sharded_) return std::nullopt;
    return place_in(sharded_->replica_group());
  }
  /// Seconds in which the fsdp's collectives ran. For a ddp, see the async_seconds() of its groups.
  [[nodiscard]] double own_communication() const noexcept {
    return sharded_ ? sharded_->times().communication : 0;
  }

 private:
  std::unique_ptr<part_type> summed_part_;
  std::optional<process_group> apart_;
  std::unique_ptr<ddp<part_type>> summed_;
  std::unique_ptr<any_fsdp<part_type>> sharded_;
};

}  // namespace parx
