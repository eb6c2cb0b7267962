// fsdp: a model whose parameters, gradients and optimizer state are sharded over the ranks:
// PyTorch's FullyShardedDataParallel and ZeRO 1 to 3 for C++.
//
//   parx::models::llama<> model{config};          // shapes only: no rank has all of it, ever
//   parx::fsdp fsdp{model, world, {.units = parx::by_type<parx::models::llama_layer<>>}};
//   parx::optim::adamw opt{fsdp.parameters(), {.lr = 3e-4}};
//   for (auto& batch : loader.epoch(e)) {
//     parx::nn::cross_entropy(fsdp(batch.x), batch.y).backward();
//     parx::optim::clip_grad_norm(opt.targets(), 1.0);
//     opt.step();
//   }
//
// As in ddp, each rank trains on its own samples, and a step uses the mean gradient over all of
// them. The results are bit-identical to ddp's with the same reduction order, for every stage,
// choice of units and number of hosts. All ranks call the model together, even without gradients,
// because each has only a part of its values. If the layers are already cut over other ranks
// (tensor_parallel.hpp), fsdp shards this rank's part of each parameter.
//
// Rajbhandari et al.: ZeRO (arXiv 1910.02054). Zhao et al.: PyTorch FSDP (arXiv 2304.11277).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <parx/autograd/lendable.hpp>
#include <parx/autograd/region.hpp>
#include <parx/checkpoint/distributed_wrapper.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/comm/rank_comparison.hpp>
#include <parx/core/hash.hpp>
#include <parx/fsdp/options.hpp>
#include <parx/fsdp/required_memory.hpp>
#include <parx/fsdp/sharded_module.hpp>
#include <parx/fsdp/sharded_units.hpp>
#include <parx/nn/module.hpp>
#include <parx/reduction/data_parallel_wrapper.hpp>
#include <parx/reduction/group_axis.hpp>
#include <parx/reduction/row_sparse.hpp>

namespace parx::inline PARX_ABI {

/// Keeps the values of some units readable: see fsdp::gathered. Backward through what was computed
/// from them must run before this object is destroyed.
class [[nodiscard]] gathered_values_scope : private backward_region {
 public:
  gathered_values_scope(detail::sharded_units& units, const std::vector<std::size_t>& wanted)
      : units_(units), region_(*this), outer_(std::exchange(current_region(), region_.number())) {
    try {
      for (const std::size_t unit : wanted) {
        units.open(unit);
        open_.push_back(unit);
      }
    } catch (...) {
      close();
      throw;
    }
  }
  ~gathered_values_scope() { close(); }
  gathered_values_scope(const gathered_values_scope&) = delete;
  gathered_values_scope& operator=(const gathered_values_scope&) = delete;

 private:
  void close() noexcept {
    for (const std::size_t unit : open_) units_.close(unit);
    current_region() = outer_;
  }
  void enter_backward() override {}
  void leave_backward(const backward_region* /*next*/) noexcept override {}

  detail::sharded_units& units_;
  std::vector<std::size_t> open_;
  const region_registration region_;
  const region_number outer_;
};

template <nn::module_type Module>
class fsdp : public distributed_wrapper, public data_parallel_wrapper {
 public:
  /// Collective over `group`. Checks that all ranks have the same parameters, units and options
  /// (errc::mismatch with the difference otherwise). If the model has no values, each rank
  /// initializes its part as initialize(0) does. If it has values, each rank receives its part of
  /// rank 0's, and the model's own memory is released. Model and group are borrowed and must
  /// outlive this object; the model must not move. Once this object is destroyed, the model has no
  /// values. Throws usage_error for invalid options, or if the model is in another wrapper.
  /// Parameters that are frozen take no memory for gradients until they are unfrozen.
  fsdp(Module& model, process_group& group, fsdp_options options = {},
       call_site site = call_site::current())
      : model_(model),
        group_(group),
        who_(formatted("fsdp at {}", site)),
        loan_(lend(model, who_)) {
    detail::require_possible(options, group.size(), who_);
    std::vector<std::unique_ptr<detail::sharded_parameter>> all;
    detail::shard_groups groups = detail::make_shard_groups(group, options.shard_within, site);
    unit_plan plan = make_plan(options, groups.shards.size(), all);
    check_layout(plan, all, options, site);
    detail::require_memory(plan, all, group, options,
                           formatted("{}, stage {},", who_, options.stage));
    for (const auto& each : all) had_values_.push_back(each->has_values());
    units_.reset(new detail::sharded_units(group, std::move(groups), std::move(plan),
                                           std::move(all), options, who_, site));
    reduce_by(units_->reducer());
    shards_.reset(new sharded_module<Module>(model_, units_->all()));
    const auto axis =
        shard_group().size() > 1 ? std::make_shared<group_axis>(shard_group()) : nullptr;
    for (const auto& each : units_->all()) each->spread_over(axis);
    fill(0, [&](std::size_t i) { return !had_values_[i]; });
    model_.materialize();
    broadcast_buffers(site);
    // Ranks have different samples, so they draw different dropout masks.
    model_.set_replica(static_cast<std::uint64_t>(group.rank()));
    hook_modules();  // last: if a later step threw, the destructor would not run to unhook them
  }
  ~fsdp() {
    for (const auto& [path, hooked] : hooked_) hooked->set_hook(nullptr);
  }
  fsdp(const fsdp&) = delete;
  fsdp& operator=(const fsdp&) = delete;

  /// The model's forward pass. Collective: every rank calls it.
  template <typename... Inputs>
  decltype(auto) operator()(Inputs&&... inputs) {
    return model_(std::forward<Inputs>(inputs)...);
  }
  /// Collective. Runs f(), which may call methods of the model other than forward, and read its
  /// parameters. What f() itself reads stays in memory until f() returns.
  template <typename Function>
  decltype(auto) call(Function&& f) {
    const nn::hooked_call within(&units_->hook(0));
    return std::forward<Function>(f)();
  }

  /// Collective. While the returned object lives, the whole values of these parameters of the
  /// model, and of all others in their units, can be read. Copy what you need longer. Do not write
  /// to them: a write may be lost, or be seen by other ranks; write to parameters() instead. Do not
  /// step or load meanwhile. Throws usage_error for a parameter that is not the model's.
  template <typename... T>
  [[nodiscard]] gathered_values_scope gathered(const parameter<T>&... parameters) {
    return {*units_, {unit_of(parameters.node().get())...}};
  }
  /// Call this on all ranks before writing to parameters() by any means other than an optimizer, an
  /// average of parx::optim or load(): it invalidates the gathered values.
  void before_write() { units_->written(); }
  /// Collective. Call this before an operation that all ranks must take part in, such as a save. If
  /// one rank is there while others run on, all of them throw errc::mismatch that names both
  /// places, instead of waiting for each other.
  void synchronize(call_site site = call_site::current()) { units_->synchronize(site); }
  // For saving (checkpoint/distributed_wrapper.hpp).
  void before_save(call_site site) { synchronize(site); }
  [[nodiscard]] std::string reason_to_stop_at_loss() const {
    return "an fsdp keeps a shard of the parameters on each rank, and a lost rank's is gone";
  }

  /// Local; call it on all ranks. Each rank fills its part of all parameters with the initial
  /// values that the model would get from this seed, and seeds the model's random layers.
  void initialize(std::uint64_t seed) {
    units_->written();
    fill(seed, [](std::size_t) { return true; });
    model_.reseed(seed);
  }

  void zero_grad() { units_->zero_grad(); }

  /// Collective. Gives all ranks rank 0's buffers.
  void broadcast_buffers(call_site site = call_site::current()) {
    model_.for_each_buffer([&](const std::string&, auto& buffer) {
      broadcast(group_, buffer.value().span(), {.root = 0}, site);
    });
  }

  /// Collective. A hash of all values: the same on all ranks, and equal to that of a ddp with the
  /// same values. Gathers one unit at a time.
  [[nodiscard]] std::uint64_t values_hash() {
    std::uint64_t hash = detail::fnv1a({});
    std::size_t next = 0, unit = unit_place::nowhere;
    std::optional<gathered_values_scope> whole_unit;
    model_.for_each_parameter([&](const std::string&, auto& whole) {
      const unit_place& place = units_->plan().place(next++);
      if (place.flat == unit_place::nowhere) {
        hash = hash_rows(whole, hash);
        return;
      }
      if (std::exchange(unit, place.unit) != place.unit) {
        whole_unit.reset();
        whole_unit.emplace(*units_, std::vector{unit});
      }
      const auto values = whole.value().span();
      hash =
          detail::fnv1a({reinterpret_cast<const char*>(values.data()), values.size_bytes()}, hash);
    });
    return hash;
  }

  /// This rank's parts of the parameters, for optimizers, clipping and averages.
  template <typename T = typename sharded_module<Module>::value_type>
  [[nodiscard]] std::vector<parameter<T>> parameters() {
    return shards_->template parameters<T>();
  }
  /// The model as this rank sees it: its parts of the parameters, buffers and modes.
  [[nodiscard]] sharded_module<Module>& module() noexcept { return *shards_; }
  [[nodiscard]] const unit_plan& plan() const noexcept { return units_->plan(); }
  [[nodiscard]] process_group& group() noexcept { return group_; }
  // For the trainer (train/wrapped_model.hpp).
  [[nodiscard]] process_group& data_group() noexcept { return group_; }
  [[nodiscard]] process_group& job_group() noexcept { return group_; }
  /// Whether tables of embeddings are cut by rows: then each lookup is collective, in every stage.
  [[nodiscard]] bool has_cut_tables() const noexcept { return units_->has_cut_tables(); }
  /// The ranks whose parts together make the whole model: group(), unless .shard_within is set.
  [[nodiscard]] process_group& shard_group() noexcept { return units_->shards(); }
  /// The ranks that have the same part as this one.
  [[nodiscard]] process_group& replica_group() noexcept { return units_->replicas(); }
  /// What this rank has sent since the wrapper was made, including what the program itself sends on
  /// group().
  [[nodiscard]] fsdp_traffic bytes_sent() const noexcept { return units_->bytes_sent(); }

 private:
  [[nodiscard]] std::size_t unit_of(const void* node) {
    std::size_t found = unit_place::nowhere, next = 0;
    model_.for_each_parameter([&](const std::string&, auto& each) {
      if (each.node().get() == node) found = units_->plan().place(next).unit;
      ++next;
    });
    require(found != unit_place::nowhere, "{}: gathered() takes parameters of the model", who_);
    return found;
  }
  [[nodiscard]] unit_plan make_plan(const fsdp_options& options, int shards,
                                    std::vector<std::unique_ptr<detail::sharded_parameter>>& all) {
    std::vector<unit_parameter> parameters;
    std::map<const void*, std::size_t> known;
    model_.for_each_parameter([&]<typename T>(const std::string& path, parameter<T>& each) {
      require(each.observer() == nullptr,
              "{}: parameter \"{}\" belongs to another wrapper that still lives. Destroy that one "
              "first",
              who_, path);
      known.emplace(each.node().get(), parameters.size());
      const bool by_rows = options.tables == embedding_tables::by_rows && shards > 1 &&
                           is_exchanged_by_rows(*make_parameter_handle(path, each));
      parameters.push_back({path, {}, dtype_of<T>, each.shape(), each.requires_grad(), by_rows});
      all.emplace_back(new detail::sharded_parameter_of<T>(path, each));
    });
    require(!all.empty(), "{}: the model has no parameters. Does its members() name its layers?",
            who_);
    model_.for_each_parameter_path(
        [&](const std::string& path, auto& each, const nn::initializer&) {
          unit_parameter& of = parameters[known.at(each.node().get())];
          if (path != of.name) of.other_paths.push_back(path);
        });
    model_.for_each_module([&](const std::string& path, const nn::module_view& part) {
      hooked_.emplace(path, &part.module);
    });
    if (stays_in_place(all, options)) {  // each array is a unit
      std::vector<std::string> arrays;
      for (const unit_parameter& each : parameters) arrays.push_back(each.name);
      return {parameters, arrays, static_cast<std::size_t>(shards)};
    }
    const auto modules = detail::unit_candidates(model_);
    detail::require_modules(options.units, modules, who_);
    const auto bytes_of = [&](const std::string& path) {
      std::size_t bytes = 0;
      for (const unit_parameter& each : parameters) {
        if (!is_in_module(each.name, path)) continue;
        bytes += each.extents.size() * size_of(each.type);
      }
      return bytes;
    };
    return {parameters, detail::chosen_units(options.units, modules, bytes_of),
            static_cast<std::size_t>(shards),
            options.units.bytes > 0 ? shared_by_units::in_unit_around : shared_by_units::refused};
  }

  [[nodiscard]] bool stays_in_place(
      const std::vector<std::unique_ptr<detail::sharded_parameter>>& all,
      const fsdp_options& options) const {
    const auto stays = [](const auto& each) { return each->stays(); };
    const auto kept = std::find_if(all.begin(), all.end(), stays);
    if (kept == all.end()) return false;
    if (const auto moved = std::find_if_not(all.begin(), all.end(), stays); moved != all.end()) {
      throw_usage(
          "{}: the values of \"{}\" stay in the caller's memory and those of \"{}\" do not: one "
          "wrapper is for one kind",
          who_, (*kept)->name(), (*moved)->name());
    }
    require(options.stage < 3 && !options.wire.gather,
            "{}: the values of \"{}\" stay whole in your memory, so they are not sharded: take "
            ".stage = 1 (optimizer state) or 2 (and gradients), without .wire.gather",
            who_, (*kept)->name());
    return true;
  }

  void check_layout(const unit_plan& plan,
                    const std::vector<std::unique_ptr<detail::sharded_parameter>>& all,
                    const fsdp_options& options, call_site site) {
    if (group_.size() == 1) return;
    std::string text = formatted(
        "stage {} over {} ranks, values {}, tables {}, {} after forward, {} units ahead, order "
        "{}, accumulated {}, gathered {}, reduced {}, {} virtual replicas\n",
        options.stage, plan.flats().empty() ? 1 : plan.flats().front().ranks,
        static_cast<int>(options.values), static_cast<int>(options.tables),
        options.reshard_after_forward == reshard_after_forward::no ? "kept" : "released",
        options.prefetch, static_cast<int>(options.order),
        options.accumulate == accumulated_gradients::whole ? "whole" : "in parts",
        options.wire.gather ? "as bfloat16" : "as they are",
        options.wire.reduce ? "as bfloat16" : "as they are", options.replicas);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const unit_place& place = plan.place(i);
      const bool by_rows = place.flat == unit_place::nowhere;
      text += formatted("{} {} {}, {}, {}, {}\n", all[i]->name(), all[i]->spec().text(),
                        name_of(all[i]->type()), all[i]->is_trained() ? "trained" : "frozen",
                        all[i]->has_values() ? "with values" : "without values",
                        by_rows ? "by rows" : "in " + plan.name(place.unit));
    }
    detail::rank_comparison comparison(group_, text, text, site);
    comparison.exchange_texts();
    if (const auto found = comparison.difference()) {
      throw_error(errc::mismatch,
                  "{} on group \"{}\": rank {} differs from rank 0. All ranks must build the same "
                  "model, and wrap it alike:{}",
                  who_, group_.name(), found->rank, found->text);
    }
  }

  /// Hashes a table that is cut by rows, a block of rows at a time.
  template <typename T>
  [[nodiscard]] static std::uint64_t hash_rows(const parameter<T>& table, std::uint64_t hash) {
    constexpr std::size_t at_once = 4096;
    const std::size_t rows = table.shape()[0], width = table.size() / rows;
    for (std::size_t begin = 0; begin < rows; begin += at_once) {
      std::vector<std::size_t> some(std::min(at_once, rows - begin));
      std::iota(some.begin(), some.end(), begin);
      const T* const values = table.value_at_rows(some).data() + begin * width;
      hash = detail::fnv1a({reinterpret_cast<const char*>(values), some.size() * width * sizeof(T)},
                           hash);
    }
    return hash;
  }

  /// Initializes this rank's part of each parameter i for which is_wanted(i).
  template <typename IsWanted>
  void fill(std::uint64_t seed, IsWanted&& is_wanted) {
    std::set<const void*> seen;
    std::size_t next = 0;
    model_.for_each_parameter_path([&]<typename T>(const std::string& path, parameter<T>& each,
                                                   const nn::initializer& start) {
      if (!seen.insert(each.node().get()).second) return;
      const std::size_t i = next++;
      if (!is_wanted(i)) return;
      auto& sharded = static_cast<detail::sharded_parameter_of<T>&>(*units_->all()[i]);
      // initialize() leaves parameters alone that came with values and have no initializer.
      require(start.kind != nn::initializer::distribution::keep || had_values_[i],
              "{}: parameter \"{}\" has neither values nor an initializer: name one in members(), "
              "as in visit(\"{}\", member, parx::nn::init::normal(0, 0.02))",
              who_, path, path.substr(path.rfind('.') + 1));
      sharded.fill_part(start, seed);
    });
  }

  void hook_modules() {
    for (const auto& [path, hooked] : hooked_) hooked->set_hook(&units_->inner_hook());
    for (std::size_t unit = 0; unit < units_->plan().units().size(); ++unit) {
      const auto module = hooked_.find(units_->plan().units()[unit].path);
      if (module != hooked_.end()) module->second->set_hook(&units_->hook(unit));
    }
  }

  Module& model_;
  process_group& group_;
  const std::string who_;
  const std::shared_ptr<const std::string> loan_;
  std::vector<bool> had_values_;  ///< by parameter: the model came with values
  std::map<std::string, nn::detail::module_state*> hooked_;  ///< all modules, by path
  std::unique_ptr<detail::sharded_units> units_;
  std::unique_ptr<sharded_module<Module>> shards_;
};

}  // namespace parx
