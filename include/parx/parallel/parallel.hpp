// parallel: a model over the ranks of a job, in any layout. A training program is written once:
//
//   parx::models::llama<> net{{.vocab_size = 256}};                 // shapes alone
//   parx::parallel model{net, world, parx::layout::parse(flag)};    // "ddp", "fsdp", "pp=2,tp=2"
//   model.initialize(seed);                                         // or parx::load(model, path)
//   parx::optim::adamw opt{model.parameters(), {.lr = 3e-4}};
//   for (auto& batch : loader.epoch(e)) {
//     auto loss = model.forward_backward(batch, [](auto& logits, auto& part) {
//       return parx::nn::cross_entropy(logits, part.labels);
//     });                                                           // (sum, count)
//     parx::optim::clip_grad_norm(opt.targets(), 1.0);
//     opt.step();
//   }
//   parx::save(model, "model.safetensors");
//
// Bits of losses, norms and values depend on (dp, tp, sp, microbatches) alone: not on pp, zero,
// hybrid, the schedule (but looped BFS, and tables that are tied over stages) or the network, since
// gradients are summed in one order, by rank (reduction_order::serial). With virtual replicas
// (replicas=) bits of norms and values do not depend on dp either.
// A layout that the ranks or the model do not permit is a usage_error at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/fsdp/fsdp.hpp>
#include <parx/parallel/automatic.hpp>
#include <parx/parallel/model.hpp>
#include <parx/parallel/staged.hpp>
#include <parx/parallel/unstaged.hpp>
#include <parx/pipeline/catalog.hpp>
#include <parx/plan/cluster_of.hpp>
#include <parx/plan/require_fits.hpp>
#include <parx/plan/shapes.hpp>
#include <parx/tensor_parallel/plans.hpp>

namespace parx::inline PARX_ABI {

/// What the library chooses by itself for the models that it knows.
struct parallel_choices {
  /// With tp=: how layers are cut. Empty: tp::ready_plan(model).
  tp::plan tp{};
  /// With zero=: what is gathered together. Empty: each block of the model that is one module.
  unit_choice units{};
  /// With "auto": what a step computes and keeps (plan/work.hpp). Without it traffic and memory
  /// alone count, and neither stages nor cut layers are looked at.
  step_work work{};
};

template <typename Model>
class parallel final
    : public parallel_model<typename nn::value_type_or_float<Model>::type, nn::model_input<Model>> {
  static_assert(nn::module_type<Model>,
                "a parallel model is made of an nn::module, or of a raw_module of your arrays");

 public:
  using value_type = typename nn::value_type_or_float<Model>::type;
  using input_type = nn::model_input<Model>;

  /// Collective over `world`. Model and world are borrowed and must outlive this object; the model
  /// must not move. Values come from initialize() or load(). Parameters that have values before
  /// stay as they are on rank 0, if all ranks have values of the same ones: if not, an earlier
  /// layout has left each rank some, and they are dropped. What has no values is as of
  /// initialize(0). Throws usage_error on all ranks for a layout that ranks or model do not permit,
  /// and if ranks were given different layouts.
  parallel(Model& model, process_group& world, layout how = {}, parallel_choices choices = {},
           call_site site = call_site::current());

  /// Collective. Ends this object early and leaves the model its values, whole on every rank. (The
  /// destructor communicates with nobody: it leaves whole layers, with values only under a ddp,
  /// where each rank has all of them.) Buffers are those of this rank's stages. Optimizers and
  /// averages of parameters() must not be used any more.
  void unwrap(call_site site = call_site::current()) {
    this->broadcast_buffers(site);
    std::vector<tensor<value_type>> values;
    this->for_each_whole_value(
        [&](const std::string&, const tensor<value_type>& whole) { values.push_back(whole); },
        site);
    base::end();
    std::size_t next = 0;
    model_.for_each_parameter([&](const std::string&, parameter<value_type>& each) {
      each.allocate().copy_from(values[next++]);
      each.note_change();
    });
  }

  /// Collective where layers are cut or sharded. The model's forward pass. Throws usage_error if
  /// the model is in stages, of which no rank has all.
  template <typename... Inputs>
  auto operator()(Inputs&&... inputs) {
    require(this->layout_.pp == 1,
            "parallel at {}: with pp={} no rank has all layers: use forward_backward(batch, "
            "criterion) or evaluate(batch, figures)",
            this->site_, this->layout_.pp);
    return model_(std::forward<Inputs>(inputs)...);
  }

 private:
  using base = parallel_model<value_type, input_type>;
  using strategy_pointer = std::unique_ptr<parallel_strategy<value_type, input_type>>;
  static constexpr bool is_raw = std::is_same_v<input_type, no_input>;
  static constexpr bool has_blocks = requires(Model & model) { model.blocks(); };

  [[nodiscard]] static layout chosen(Model& model, process_group& world,
                                     const parallel_choices& choices) {
    model_abilities abilities{.can_be_cut = tp::has_ready_plan<Model> || !choices.tp.empty(),
                              .most_zero = is_raw ? 2 : 3,
                              .ranks = world.size(),
                              .has_even_hosts = detail::are_even(world.hosts())};
    if constexpr (has_blocks) {
      abilities.most_stages = static_cast<int>(model.blocks().size());
    }
    return automatic_layout(shapes_of(model), cluster_of(world), choices.work, abilities);
  }
  void require_layout_of_arrays() const {
    const layout& how = this->layout_;
    require(
        how.pp == 1 && how.tp == 1 && how.zero < 3,
        "layout \"{}\" at {}: the values of a raw_module stay whole in your memory, and your own "
        "code computes with them, so there is nothing to cut: it can have ddp, zero=1 and "
        "zero=2",
        to_string(how), this->site_);
    require(how.microbatches <= 1 && how.replicas == 0,
            "layout \"{}\" at {}: microbatches= and replicas= divide a batch that parx computes. "
            "The passes of a raw_module are your own: run all but the last under no_sync()",
            to_string(how), this->site_);
  }
  /// Throws usage_error where values, gradients and AdamW's state of a rank do not fit into its
  /// share of the host's memory. Stages are not looked at.
  void require_memory() {
    const layout& how = this->layout_;
    if (how.pp > 1) return;
    constexpr std::size_t adamw_bytes = 8;  // of optimizer state for each parameter
    process_group& job = this->job_group();
    const cluster machine = cluster_of(job);
    const bool shares_pages =
        how.zero == 3 && !how.gathered && (how.hybrid || this->data_group().shares_memory());
    require_fits(shapes_of(model_), machine,
                 {.name = to_string(how),
                  .stage = how.zero,
                  .replicas = how.tp * (how.hybrid ? machine.hosts : 1),
                  .host_pages = shares_pages},
                 {}, adamw_bytes);
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
      all_reduce(this->world_, anywhere, {.op = reduce_op::max}, this->site_);
    }
    if (on_any_rank(this->world_, anywhere != missing, this->site_)) {
      model_.for_each_parameter([](const std::string&, auto& each) { each.forget_values(); });
    } else if (this->mesh_) {
      take_values_of_rank_0();
    }
  }
  /// Collective. A ddp and an fsdp do this for their ranks, but not for those that have other
  /// layers, or other parts of them.
  void take_values_of_rank_0() {
    model_.for_each_parameter([&](const std::string&, auto& each) {
      if (!each.has_values()) return;
      broadcast(this->world_, each.value().span(), {.root = 0}, this->site_);
      each.note_change();
    });
  }
  void cut_layers(const parallel_choices& choices) {
    const layout& how = this->layout_;
    if (how.tp == 1) return;
    tp::plan plan = choices.tp;
    require(
        !how.sp || plan.empty(),
        "layout \"{}\" at {}: sp chooses among the plans that parx knows. A plan of your own says "
        "itself what is cut along the sequence: leave sp out",
        to_string(how), this->site_);
    if constexpr (tp::has_ready_plan<Model>) {
      using enum nn::between_cuts;
      if (plan.empty()) plan = tp::ready_plan(model_, how.sp ? positions : whole);
    }
    require(!plan.empty(),
            "layout \"{}\" at {}: how the layers of this model are cut is not known: give "
            "parallel_choices::tp, a plan of patterns over the names of its members (see "
            "tensor_parallel/plan.hpp). Without tp= it can have ddp, zero=1 to 3 and hybrid{}",
            to_string(how), this->site_, has_blocks ? ", and pp=" : "");
    this->cut_.emplace(
        parallelize(model_, (*this->mesh_)["tp"], plan, this->site_, &this->mesh_->all()));
  }

  [[nodiscard]] fsdp_options sharding(const parallel_choices& choices) {
    const layout& how = this->layout_;
    return {.stage = how.zero,
            .units = units(choices),
            .shard_within = how.hybrid ? shard_scope("host") : shard_scope(),
            .values = how.gathered ? value_storage::gathered : value_storage::by_hosts,
            .replicas = how.replicas};
  }
  /// A unit for each block that is one module which no other block uses.
  [[nodiscard]] unit_choice units(const parallel_choices& choices) {
    const unit_choice& given = choices.units;
    if (!given.types.empty() || !given.paths.empty() || given.bytes > 0) return given;
    unit_choice found;
    if constexpr (has_blocks) {
      std::map<std::string, int> uses;
      const auto blocks = model_.blocks();
      for (const auto& block : blocks) {
        for (const std::string& part : block.parts) ++uses[part];
      }
      const auto modules = detail::unit_candidates(model_);
      const auto is_module = [&](const std::string& path) {
        return std::any_of(modules.begin(), modules.end(),
                           [&](const auto& each) { return each.path == path; });
      };
      for (const auto& block : blocks) {
        if (block.parts.size() != 1 || uses[block.parts[0]] > 1) continue;
        if (is_module(block.parts[0])) found.paths.push_back(block.parts[0]);
      }
    }
    return found;
  }

  [[nodiscard]] strategy_pointer make(const parallel_choices& choices) {
    const layout& how = this->layout_;
    if (how.pp > 1) return make_stages(choices);
    process_group& data = this->data_group();
    if (how.zero == 0) {
      model_.materialize_where([](const std::string&) { return true; });
      return std::make_unique<unstaged_strategy<Model, input_type, ddp<Model>>>(
          model_, data,
          ddp_options{.order = reduction_order::serial, .replicas = how.replicas}, how.parts(),
          this->site_);
    }
    return std::make_unique<unstaged_strategy<Model, input_type, fsdp<Model>>>(
        model_, data, sharding(choices), how.parts(), this->site_);
  }
  [[nodiscard]] strategy_pointer make_stages(const parallel_choices& choices) {
    const layout& how = this->layout_;
    if constexpr (has_blocks) {
      const std::size_t stages =
          static_cast<std::size_t>(how.pp) * static_cast<std::size_t>(how.chunks);
      const std::size_t blocks = model_.blocks().size();
      require(blocks >= stages, "layout \"{}\" at {}: {} blocks make at most {} stages",
              to_string(how), this->site_, blocks, blocks);
      mesh<>& over = *this->mesh_;
      pipeline_options options{.schedule = schedule_named(how.schedule),
                               .microbatches = how.parts(),
                               .chunks = how.chunks};
      if (how.zero > 0) options.sharding = sharding(choices);
      options.reductions.order = reduction_order::serial;
      options.reductions.replicas = how.replicas;
      options.data_parallel = &over["dp"];
      options.tensor_parallel = &over["tp"];
      options.model_parallel = &over.flatten({"pp", "tp"});
      options.job = &over.all();
      return std::make_unique<staged_strategy<Model, input_type>>(model_, over["pp"],
                                                                  std::move(options), this->site_);
    } else {
      throw_usage(
          "layout \"{}\" at {}: this model has no blocks() to make stages of: see nn/blocks.hpp. "
          "It can have ddp, zero=1 to 3 and hybrid",
          to_string(how), this->site_);
    }
  }

  Model& model_;
};

// Not inline: all that a layout can become is compiled with it, and for the models of parx once
// (parallel/models.hpp).
template <typename Model>
parallel<Model>::parallel(Model& model, process_group& world, layout how, parallel_choices choices,
                          call_site site)
    : base(
          world, std::move(how), [&] { return chosen(model, world, choices); }, site),
      model_(model) {
  if constexpr (is_raw) require_layout_of_arrays();
  require_memory();
  agree_on_values();
  cut_layers(choices);
  base::set_strategy(make(choices));
}

/// For sharded_over(model) in checkpoint/save.hpp. Valid while the model lives.
template <typename T, typename Input>
[[nodiscard]] sharding sharded_over(parallel_model<T, Input>& model) {
  const shard_place all = place_in(model.job_group());
  shard_place stage = place_in(model.data_group());
  if (model.cut() != nullptr) stage = place_within(stage, place_in(model.cut()->axis().group()));
  return {
      .file = all,
      .copies = [&model](const std::string& name, const shard_spec&) { return model.copies(name); },
      .others = all,
      .buffers = stage};
}

}  // namespace parx
