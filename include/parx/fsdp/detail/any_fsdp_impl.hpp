// Definitions of any_fsdp.hpp.
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
#include <string_view>
#include <utility>
#include <vector>

#include <parx/autograd/distributed_module.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hash.hpp>
#include <parx/fsdp/any_fsdp.hpp>
#include <parx/fsdp/options.hpp>
#include <parx/fsdp/same_model.hpp>
#include <parx/fsdp/shard_groups.hpp>
#include <parx/fsdp/sharded_parameter.hpp>
#include <parx/fsdp/unit_choice.hpp>
#include <parx/fsdp/unit_plan.hpp>
#include <parx/nn/init.hpp>
#include <parx/nn/module_view.hpp>
#include <parx/plan/cluster_of.hpp>
#include <parx/plan/require_fits.hpp>
#include <parx/reduction/group_axis.hpp>
#include <parx/reduction/rows/row_sparse.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// Hashes a table that is cut by rows, a block of rows at a time.
template <typename T>
[[nodiscard]] std::uint64_t hash_rows(const parameter<T>& table, std::uint64_t hash) {
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

/// Refuses an fsdp that does not fit into memory, before any is allocated. `all` are the parameters
/// in the order of the plan. Optimizer and activations are unknown here and count as 0. Throws as
/// require_fits does.
inline void require_memory(const unit_plan& plan,
                           const std::vector<std::unique_ptr<sharded_parameter>>& all,
                           const process_group& group, const fsdp_options& options,
                           const std::string& who) {
  model_shapes shapes;
  shapes.units.clear();
  for (const planned_unit& each : plan.units()) shapes.units.push_back(each.path);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const unit_place& place = plan.place(i);
    const bool by_rows = place.flat == unit_place::nowhere;
    shapes.parameters.push_back({.path = all[i]->name(),
                                 .extents = all[i]->extents(),
                                 .type = all[i]->type(),
                                 .rows = by_rows ? table_rows::of_a_batch : table_rows::none,
                                 .trainable = all[i]->is_trained(),
                                 .unit = place.unit});
  }
  const bool shared = options.stage == 3 && options.values != value_storage::gathered &&
                      group.shares_memory();
  require_fits(who, shapes, cluster_of(group),
               {.how = {.zero = options.stage}, .host_pages = shared});
}

/// A layout's.
[[nodiscard]] inline std::string_view word_of(int stage) noexcept {
  return stage == 1 ? "zero=1" : stage == 2 ? "zero=2" : "fsdp";
}

}  // namespace detail

template <typename Model>
any_fsdp<Model>::any_fsdp(Model model, process_group& group, fsdp_options options, call_site site)
    : model_(std::move(model)),
      group_(group),
      who_(formatted("{} at {}", detail::word_of(options.stage), site)),
      pin_(pin(model_, who_)) {
  detail::validate(options, group.size(), who_);
  std::vector<std::unique_ptr<detail::sharded_parameter>> all;
  shard_groups groups = make_shard_groups(group, options.shard_within, site);
  unit_plan plan = make_plan(options, groups.shards.size(), all);
  check_layout(plan, all, options, site);
  detail::require_memory(plan, all, group, options,
                         formatted("{}, stage {},", who_, options.stage));
  for (const auto& each : all) had_values_.push_back(each->has_values());
  units_.reset(new detail::sharded_units(group, std::move(groups), std::move(plan),
                                         std::move(all), options, who_, site));
  reduce_by(units_->reducer());
  shards_.reset(new sharded_module<Model>(model_, units_->all()));
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

template <typename Model>
any_fsdp<Model>::~any_fsdp() {
  for (const auto& [path, hooked] : hooked_) hooked->set_hook(nullptr);
}

template <typename Model>
void any_fsdp<Model>::initialize(std::uint64_t seed) {
  units_->about_to_write();
  fill(seed, [](std::size_t) { return true; });
  model_.reseed(seed);
}

template <typename Model>
void any_fsdp<Model>::broadcast_buffers(call_site site) {
  model_.for_each_buffer([&](const std::string&, auto& buffer) {
    broadcast(group_, buffer.value().span(), {.root = 0}, site);
  });
}

template <typename Model>
std::uint64_t any_fsdp<Model>::values_hash() {
  std::uint64_t hash = detail::fnv1a({});
  std::size_t next = 0, unit = unit_place::nowhere;
  std::optional<gathered_values_scope> whole_unit;
  model_.for_each_parameter([&](const std::string&, auto& whole) {
    const unit_place& place = units_->plan().place(next++);
    if (place.flat == unit_place::nowhere) {
      hash = detail::hash_rows(whole, hash);
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

template <typename Model>
std::size_t any_fsdp<Model>::unit_of(const void* node) {
  std::size_t found = unit_place::nowhere, next = 0;
  model_.for_each_parameter([&, this](const std::string&, auto& each) {
    if (each.node().get() == node) found = units_->plan().place(next).unit;
    ++next;
  });
  require(found != unit_place::nowhere, "{}: gathered() takes parameters of the model", who_);
  return found;
}

template <typename Model>
unit_plan any_fsdp<Model>::make_plan(
    const fsdp_options& options, int shards,
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

template <typename Model>
bool any_fsdp<Model>::stays_in_place(
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

template <typename Model>
void any_fsdp<Model>::check_layout(
    const unit_plan& plan, const std::vector<std::unique_ptr<detail::sharded_parameter>>& all,
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
  detail::require_same_model(group_, text, who_, site);
}

template <typename Model>
void any_fsdp<Model>::fill(std::uint64_t seed, function_ref<bool(std::size_t)> is_wanted) {
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

template <typename Model>
void any_fsdp<Model>::hook_modules() {
  for (const auto& [path, hooked] : hooked_) hooked->set_hook(&units_->inner_hook());
  for (std::size_t unit = 0; unit < units_->plan().units().size(); ++unit) {
    const auto module = hooked_.find(units_->plan().units()[unit].path);
    if (module != hooked_.end()) module->second->set_hook(&units_->hook(unit));
  }
}

}  // namespace parx
