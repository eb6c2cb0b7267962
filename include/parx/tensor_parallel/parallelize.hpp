// parallelize: cuts the layers of a model over the ranks of a group, according to a plan.
//
//   parx::models::llama<> model{config};                        // shapes only
//   auto tp = parx::parallelize(model, mesh["tp"], parx::tp::ready_plan(model));
//   model.initialize(seed);                                     // or a checkpoint
//   parx::ddp ddp{model, mesh["dp"]};
//   parx::nn::cross_entropy(ddp(batch.x), batch.y).backward();
//   parx::optim::clip_grad_norm(ddp.parameters(), 1.0);
//
// All ranks of the group must get the same samples (a sampler over mesh["dp"], not the world) and
// the same seed. This is not checked, except for labels if classes are cut. The ranks compute the
// loss and the gradients that one process would: initial values and dropout do not depend on the
// number of ranks. Of a cut parameter a rank has its part; an uncut one has the same value and
// gradient on all ranks. When `tp` is destroyed, after the wrappers of the cut model, the model has
// whole layers again, without values.
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <parx/autograd/pinnable.hpp>
#include <parx/checkpoint/shard_files.hpp>
#include <parx/comm/rank_comparison.hpp>
#include <parx/core/check.hpp>
#include <parx/tensor_parallel/axis.hpp>
#include <parx/tensor_parallel/explain.hpp>
#include <parx/tensor_parallel/plan.hpp>

namespace parx::inline PARX_ABI {

/// The result of parallelize(): the model is cut while it, or a copy of it, lives.
class parallelized {
 public:
  /// `cut` has the paths of the parameters of which the ranks have different parts. `restored` is
  /// destroyed with the last copy.
  parallelized(std::shared_ptr<tp::axis> axis, tp::explanation explained, std::set<std::string> cut,
               std::shared_ptr<void> restored)
      : axis_(std::move(axis)),
        explained_(std::move(explained)),
        cut_(std::move(cut)),
        restored_(std::move(restored)) {}

  [[nodiscard]] tp::axis& axis() const noexcept { return *axis_; }
  /// As from tp::explain(): for each layer its rule, this rank's part of its parameters, and what
  /// it sends for one position.
  [[nodiscard]] const tp::explanation& explained() const noexcept { return explained_; }

  /// Whether the ranks of the axis have different parts of a parameter. `name` is its path, or that
  /// of its optimizer state, "path.exp_avg".
  [[nodiscard]] bool is_cut(const std::string& name) const {
    return cut_.contains(name) || cut_.contains(name.substr(0, name.rfind('.')));
  }

  /// For parx::save and checkpoints (checkpoint/sharded.hpp). `world` are all ranks, `replicas`
  /// those that have the same parts (of a ddp its group, of an fsdp its replica_group()). Nothing
  /// is gathered; ranks that have the same parts share the writing. Loads with any number of ranks
  /// and any cut. Valid while this object lives.
  [[nodiscard]] sharding sharded_over(const process_group& world,
                                      const process_group& replicas) const {
    sharding how = spread_over(world, place_in(replicas));
    require(how.file.count % (place_in(axis_->group()).count * place_in(replicas).count) == 0,
            "sharded_over: {} ranks with {} parts and {} copies of each", world.size(),
            axis_->size(), replicas.size());
    return how;
  }
  /// The same, if the axis has all ranks.
  [[nodiscard]] sharding sharded() const { return spread_over(axis_->group(), {}); }

 private:
  [[nodiscard]] sharding spread_over(const process_group& world, shard_place replica) const {
    const shard_place all = place_within(place_in(axis_->group()), replica);
    const auto copies = [=, this](const std::string& name, const shard_spec&) {
      return is_cut(name) ? replica : all;
    };
    return {.file = place_in(world), .copies = copies, .others = place_in(world)};
  }

  std::shared_ptr<tp::axis> axis_;
  tp::explanation explained_;
  std::set<std::string> cut_;
  std::shared_ptr<void> restored_;
};

namespace tp::detail {

/// Makes the layers whole again when the result is destroyed, unless a wrapper still has the model,
/// which then stays cut. The model is borrowed by `who`.
template <typename Model>
[[nodiscard]] std::shared_ptr<void> restore_later(Model& model,
                                                  std::vector<nn::cuttable_layer*> layers,
                                                  const std::string& who) {
  auto pinned = pin(model, who);
  const auto restore = [&model, pinned = std::move(pinned), layers = std::move(layers)](void*) {
    bool is_cut = false, is_wrapped = false;
    model.for_each_parameter([&](const std::string&, const auto& each) {
      is_cut |= !each.spec().is_whole();
      is_wrapped |= each.observer() != nullptr;
    });
    if (is_wrapped) return;
    for (nn::cuttable_layer* const each : layers) each->make_whole();
    model.for_each_parameter([&](const std::string&, const auto& each) {
      if (is_cut) each.become_whole();
      else each.set_places({});
    });
  };
  return {nullptr, restore};
}

}  // namespace tp::detail

/// Collective over the group, which is borrowed and must outlive the model, and over `job`, the
/// ranks that have to have the same plan (null: the group). Where a parameter has values already,
/// which must be the same on all ranks, each keeps those of its part; where it has none, a cut
/// parameter is never whole in memory. Optimizers are made after the cut. Throws usage_error, with
/// a table of all layers, if a line of the plan matches no layer, two lines match the same one, a
/// layer cannot be cut that way, or the ranks' plans differ; the model must not be used afterwards.
template <typename Model>
[[nodiscard]] parallelized parallelize(Model& model, process_group& group, const tp::plan& lines,
                                       call_site site = call_site::current(),
                                       process_group* job = nullptr) {
  process_group& all = job != nullptr ? *job : group;
  const std::vector<tp::detail::planned_layer> layers = tp::detail::planned_layers(model, lines);
  const std::string who = formatted("parallelize at {}", site);
  std::string fault = tp::detail::model_fault(model, layers);
  if (fault.empty()) fault = tp::detail::plan_fault(layers, lines, {group.rank(), group.size()});
  const std::string shown = tp::detail::plan_table(layers, lines);
  const std::string told = (fault.empty() ? "" : "  " + fault) + shown;
  const auto different = detail::compare_over(all, told, site);
  require(!different || fault.empty(), "{}: {}. Rank {} of {} differs from rank 0:{}", who, fault,
          different ? different->rank : 0, all.name(), different ? different->text : "");
  require(!different,
          "{}: the ranks of {} have different plans or models. Rank {} differs from rank 0:{}", who,
          all.name(), different ? different->rank : 0, different ? different->text : "");
  require(fault.empty(), "{}: {}. The layers and their rules:{}", who, fault, shown);

  tp::explanation explained = tp::detail::explained(
      model, layers, lines, {.ranks = group.size(), .rank = group.rank()});
  const auto axis = std::make_shared<tp::axis>(group, site);
  if constexpr (nn::module_type<Model>) axis->watch_seed(model.watch_seed());
  std::vector<nn::cuttable_layer*> planned;
  for (const tp::detail::planned_layer& each : layers) {
    if (!each.lines.empty()) planned.push_back(each.layer);
  }
  auto restored = tp::detail::restore_later(model, std::move(planned), who);
  for (const tp::detail::planned_layer& each : layers) {
    if (!each.lines.empty()) each.layer->shard_over(axis, lines[each.lines[0]].rule, each.path);
  }
  std::set<std::string> cut;
  model.for_each_parameter([&](const std::string& path, const auto& parameter) {
    const bool is_cut = !parameter.spec().is_whole();
    if (is_cut) cut.insert(path);
    if (group.size() > 1) parameter.set_places({{axis, is_cut || group.rank() == 0}});
  });
  return {axis, std::move(explained), std::move(cut), std::move(restored)};
}

}  // namespace parx
