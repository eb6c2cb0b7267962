// strategy_maker: makes of a model and a layout what any_parallel works with: values that the ranks
// agree on, layers cut over them, and the strategy.
//
//   agreed_layout (agreed_layout.hpp), chosen_layout for "auto"
//   -> validate() -> agree_on_values() -> cut_layers() -> make()
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/core/check.hpp>
#include <parx/ddp/ddp.hpp>
#include <parx/fsdp/any_fsdp.hpp>
#include <parx/mesh/mesh.hpp>
#include <parx/parallel/any_model.hpp>
#include <parx/parallel/automatic.hpp>
#include <parx/parallel/choices.hpp>
#include <parx/parallel/data_parallel.hpp>
#include <parx/parallel/detail/agreed_layout.hpp>
#include <parx/parallel/pipelined.hpp>
#include <parx/parallel/replica_strategies.hpp>
#include <parx/parallel/strategy.hpp>
#include <parx/pipeline/catalog.hpp>
#include <parx/plan/cluster_of.hpp>
#include <parx/plan/layout.hpp>
#include <parx/plan/require_fits.hpp>
#include <parx/plan/shapes.hpp>
#include <parx/tensor_parallel/parallelize.hpp>

namespace parx::inline PARX_ABI::detail {

/// What "auto" becomes.
template <typename T>
[[nodiscard]] layout chosen_layout(any_model<T>& model, process_group& world,
                                   const parallel_choices& choices) {
  model_abilities abilities{.can_be_cut = model.has_ready_plan() || !choices.tp.empty(),
                            .most_zero = model.has_forward() ? 3 : 2,
                            .ranks = world.size(),
                            .has_even_hosts = are_even(world.hosts())};
  if (model.has_blocks()) abilities.most_stages = static_cast<int>(model.blocks().size());
  return automatic_layout(shapes_of(model), cluster_of(world), choices.work, abilities);
}

template <typename T>
class strategy_maker {
 public:
  using pointer = std::unique_ptr<parallel_strategy<T>>;

  /// All are borrowed. `grid` is null where all ranks have other samples.
  strategy_maker(any_model<T>& model, const layout& how, process_group& world, mesh<>* grid,
                 call_site site)
      : model_(model), how_(how), world_(world), mesh_(grid), site_(site) {}

  /// Throws usage_error for a layout that the model cannot have, or that does not fit into memory.
  void validate() {
    if (!model_.has_forward()) require_layout_of_arrays();
    require_memory();
  }
  /// Collective. Drops values where the ranks have those of different parameters: an earlier layout
  /// in stages has left each rank those of its own.
  void agree_on_values() {
    std::vector<std::uint8_t> missing;
    model_.for_each_parameter([&](const std::string&, auto& each) {
      missing.push_back(static_cast<std::uint8_t>(!each.has_values()));
    });
    std::vector<std::uint8_t> anywhere = missing;
    if (!missing.empty()) {
      all_reduce(world_, anywhere, {.op = reduce_op::max}, site_);
    }
    if (on_any_rank(world_, anywhere != missing, site_)) {
      model_.for_each_parameter([](const std::string&, auto& each) { each.forget_values(); });
    } else if (mesh_ != nullptr) {
      take_values_of_rank_0();
    }
  }
  /// Nothing where tp is 1.
  [[nodiscard]] std::optional<parallelized> cut_layers(const parallel_choices& choices) {
    if (how_.tp == 1) return std::nullopt;
    tp::plan plan = choices.tp;
    require(
        !how_.sp || plan.empty(),
        "layout \"{}\" at {}: sp chooses among the plans that parx knows. A plan of your own says "
        "itself what is cut along the sequence: leave sp out",
        to_string(how_), site_);
    using enum nn::between_cuts;
    if (plan.empty()) plan = model_.ready_plan(how_.sp ? positions : whole);
    require(!plan.empty(),
            "layout \"{}\" at {}: how the layers of this model are cut is not known: give "
            "parallel_choices::tp, a plan of patterns over the names of its members (see "
            "tensor_parallel/plan.hpp). Without tp= it can have ddp, zero=1 to 3 and hybrid{}",
            to_string(how_), site_, model_.has_blocks() ? ", and pp=" : "");
    return parallelize(model_, (*mesh_)["tp"], plan, site_, &mesh_->all());
  }
  [[nodiscard]] pointer make(const parallel_choices& choices) {
    if (how_.pp > 1) return make_stages(choices);
    if (how_.zero == 0) {
      model_.materialize_where([](const std::string&) { return true; });
      return make_data_parallel<ddp>(
          ddp_options{.order = reduction_order::serial, .replicas = how_.replicas});
    }
    return make_data_parallel<any_fsdp>(sharding(choices));
  }

 private:
  [[nodiscard]] process_group& job_group() { return mesh_ != nullptr ? mesh_->all() : world_; }
  [[nodiscard]] process_group& data_group() {
    return mesh_ != nullptr ? (*mesh_)["dp"] : world_;
  }
  void require_layout_of_arrays() const {
    require(
        how_.pp == 1 && how_.tp == 1 && how_.zero < 3,
        "layout \"{}\" at {}: the values of a raw_module stay whole in your memory, and your own "
        "code computes with them, so there is nothing to cut: it can have ddp, zero=1 and "
        "zero=2",
        to_string(how_), site_);
    require(how_.microbatches <= 1 && how_.replicas == 0,
            "layout \"{}\" at {}: microbatches= and replicas= divide a batch that parx computes. "
            "The passes of a raw_module are your own: run all but the last under no_sync()",
            to_string(how_), site_);
  }
  /// Throws usage_error where values, gradients and AdamW's state of a rank do not fit into its
  /// share of the host's memory. Stages are not looked at.
  void require_memory() {
    if (how_.pp > 1) return;
    constexpr std::size_t adamw_bytes = 8;  // of optimizer state for each parameter
    const cluster machine = cluster_of(job_group());
    const bool shares_pages =
        how_.zero == 3 && !how_.gathered && (how_.hybrid || data_group().shares_memory());
    require_fits(to_string(how_), shapes_of(model_), machine,
                 {.how = {.zero = how_.zero},
                  .copies = how_.tp * (how_.hybrid ? machine.hosts : 1),
                  .host_pages = shares_pages},
                 {}, adamw_bytes);
  }
  /// Collective. A ddp and an fsdp do this for their ranks, but not for those that have other
  /// layers, or other parts of them.
  void take_values_of_rank_0() {
    model_.for_each_parameter([&](const std::string&, auto& each) {
      if (!each.has_values()) return;
      broadcast(world_, each.value().span(), {.root = 0}, site_);
      each.note_change();
    });
  }
  [[nodiscard]] fsdp_options sharding(const parallel_choices& choices) {
    return {.stage = how_.zero,
            .units = units(choices),
            .shard_within = how_.hybrid ? shard_scope("host") : shard_scope(),
            .values = how_.gathered ? value_storage::gathered : value_storage::by_hosts,
            .replicas = how_.replicas};
  }
  template <template <typename> typename Wrapper, typename Options>
  [[nodiscard]] pointer make_data_parallel(const Options& options) {
    const auto make = [this, &options]<typename Strategy>(std::type_identity<Strategy>) -> pointer {
      return std::make_unique<Strategy>(model_, data_group(), options, how_.parts(), site_);
    };
    if (how_.replicas == 0) return make(std::type_identity<data_parallel_strategy<T, Wrapper>>());
    return make(std::type_identity<data_parallel_replicas<T, Wrapper>>());
  }
  /// A unit for each block that is one module which no other block uses.
  [[nodiscard]] unit_choice units(const parallel_choices& choices) {
    const unit_choice& given = choices.units;
    if (!given.types.empty() || !given.paths.empty() || given.bytes > 0) return given;
    unit_choice found;
    const auto blocks = model_.blocks();
    std::map<std::string, int> uses;
    for (const auto& block : blocks) {
      for (const std::string& part : block.parts) ++uses[part];
    }
    const auto modules = unit_candidates(model_);
    const auto is_module = [&](const std::string& path) {
      return std::any_of(modules.begin(), modules.end(),
                         [&](const auto& each) { return each.path == path; });
    };
    for (const auto& block : blocks) {
      if (block.parts.size() != 1 || uses[block.parts[0]] > 1) continue;
      if (is_module(block.parts[0])) found.paths.push_back(block.parts[0]);
    }
    return found;
  }

  [[nodiscard]] pointer make_stages(const parallel_choices& choices) {
    require(model_.has_blocks(),
            "layout \"{}\" at {}: this model has no blocks() to make stages of: see nn/blocks.hpp. "
            "It can have ddp, zero=1 to 3 and hybrid",
            to_string(how_), site_);
    const std::size_t stages =
        static_cast<std::size_t>(how_.pp) * static_cast<std::size_t>(how_.chunks);
    const std::size_t blocks = model_.blocks().size();
    require(blocks >= stages, "layout \"{}\" at {}: {} blocks make at most {} stages",
            to_string(how_), site_, blocks, blocks);
    mesh<>& over = *mesh_;
    pipeline_options options{.schedule = schedule_named(how_.schedule),
                             .microbatches = how_.parts(),
                             .chunks = how_.chunks,
                             .hop = choices.pipeline.hop,
                             .table = choices.pipeline.table,
                             .cut = choices.pipeline.cut,
                             .weights = choices.pipeline.weights};
    if (how_.zero > 0) options.sharding = sharding(choices);
    options.reductions.order = reduction_order::serial;
    options.reductions.replicas = how_.replicas;
    options.data_parallel = &over["dp"];
    options.tensor_parallel = &over["tp"];
    options.model_parallel = &over.flatten({"pp", "tp"});
    options.job = &over.all();
    const auto make =
        [this, &over, &options]<typename Strategy>(std::type_identity<Strategy>) -> pointer {
      return std::make_unique<Strategy>(model_, over["pp"], std::move(options), site_);
    };
    return how_.replicas == 0 ? make(std::type_identity<pipelined_strategy<T>>())
                              : make(std::type_identity<pipelined_replicas<T>>());
  }

  any_model<T>& model_;
  const layout& how_;
  process_group& world_;
  mesh<>* const mesh_;  // null where all ranks have other samples
  const call_site site_;
};

}  // namespace parx::detail
