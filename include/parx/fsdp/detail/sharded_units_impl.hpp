// Definitions of sharded_units.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include <parx/comm/abort_reason.hpp>
#include <parx/comm/collectives/barrier.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/comm/collectives/scatter.hpp>
#include <parx/fsdp/gathered_values.hpp>
#include <parx/fsdp/host_values.hpp>
#include <parx/fsdp/replica_gradients.hpp>
#include <parx/fsdp/sharded_units.hpp>
#include <parx/fsdp/unit_gradients.hpp>
#include <parx/fsdp/values_in_place.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE sharded_units::sharded_units(process_group& group, shard_groups groups, unit_plan plan,
                                         parameters all, const fsdp_options& options,
                                         std::string who, call_site site)
    : who_(std::move(who)),
      keeps_(options.reshard_after_forward == reshard_after_forward::no),
      group_(group),
      gathering_(std::move(groups.shards)),
      replicas_(std::move(groups.replicas)),
      plan_(std::move(plan)),
      all_(std::move(all)),
      adds_in_parts_(options.accumulate == accumulated_gradients::sharded || options.replicas > 0),
      of_unit_(plan_.units().size()),
      readers_(plan_.units().size()),
      part_observer_(*this) {
  const std::size_t units = plan_.units().size();
  name_tags();
  values_ = storage_of(options, site);
  take_values(site);
  sum_settings sums = sum_settings_of(std::move(groups.part_of), options, site);
  cut_tables(sums, site);
  uses_.emplace(plan_, *values_, options.prefetch);
  const auto kind = options.stage == 1 ? gradient_memory_of::all_flats : gradient_memory_of::slots;
  const auto make = [this, &sums, kind, site]<typename Made>(std::type_identity<Made>) {
    gradients_.reset(new Made(plan_, all_, trained_tables(), *uses_, std::move(sums), kind, who_,
                              site));
  };
  if (options.replicas == 0) make(std::type_identity<unit_gradients>());
  else make(std::type_identity<replica_gradients>());
  std::vector<reduction_group> others{{"gathers", gathering_}, {"replicas", replicas_}};
  if (shard_sums_) others.push_back({"sums", *shard_sums_});
  reducer_.emplace(*this, reduction_groups(group_, std::move(others), who_), options.finish);
  note_frozen();
  for (std::size_t i = 0; i < all_.size(); ++i) {
    all_[i]->attach(*reducer_, part_observer_, *this, i);
    if (!is_table(i)) of_unit_[plan_.place(i).unit].push_back(all_[i].get());
  }
  for (std::size_t unit = 0; unit < units; ++unit) {
    hooks_.emplace_back(new unit_hook(*this, unit));
  }
}

PARX_INLINE sharded_units::~sharded_units() = default;

PARX_INLINE sharded_units::whole_observer::whole_observer(sharded_units& owner,
                                                          reduction_groups groups,
                                                          reduction_finish finish)
    : gradient_reducer(std::move(groups), *owner.gradients_,
                       {owner.who_, owner.members(), owner.gradients_->launches()},
                       owner.adds_in_parts_ ? pass_kind::parts : pass_kind::local, finish),
      owner_(owner) {}

PARX_INLINE void sharded_units::before_step_without_gradient() const {
  const bool is_dropped =  // by zero_grad()
      reducer_->state().phase() == reduction_phase::added &&
      gradients_->held() == reduction_state::nothing;
  if (!is_dropped) reducer_->before_step();
}

PARX_INLINE void sharded_units::zero_grad() const {
  gradients_->drop_replicas();
  for (const auto& each : all_) each->zero_grad();
}

PARX_INLINE void sharded_units::about_to_write() {
  const std::size_t unit = uses_->innermost_active();
  require(unit == use_order::none,
          "{}: values are about to be written while {} is in use. Step, load and initialize "
          "outside of gathered(), call() and forward",
          who_, unit == use_order::none ? "" : plan_.name(unit));
  values_->about_to_write();
}

PARX_INLINE void sharded_units::synchronize(call_site site) {
  work on_shards = async_barrier(gathering_, {}, site), on_all = async_barrier(group_, {}, site);
  try {
    for (bool shards_met = false, all_met = false; !(shards_met && all_met);) {
      if ((shards_met = on_shards.test())) on_shards.wait();
      if ((all_met = on_all.test())) on_all.wait();
      if (!(shards_met && all_met)) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  } catch (...) {
    // The other barrier would never end.
    for (process_group* const each : {&gathering_, &group_}) {
      if (!each->closed()) each->abort(abort_reason(group_));
    }
    throw;
  }
}

PARX_INLINE void sharded_units::begin_reads(std::size_t unit) noexcept {
  if (readers_[unit]++ > 0) return;
  for (sharded_parameter* const each : of_unit_[unit]) each->open();
}

PARX_INLINE void sharded_units::end_reads(std::size_t unit) noexcept {
  if (--readers_[unit] > 0) return;
  for (sharded_parameter* const each : of_unit_[unit]) each->close();
}

PARX_INLINE void sharded_units::end_call(std::size_t unit) noexcept {
  running_call& ending = calls_.back();
  const bool is_kept = is_wanted_next(unit);
  for (std::size_t i = ending.read.size(); i-- > 0;) close(ending.read[i], is_kept);
  current_region() = ending.outer;
  calls_.pop_back();
}

PARX_INLINE bool sharded_units::open_unit_of(std::size_t parameter) {
  if (calls_.empty() || calls_.back().unit == use_order::none) return false;
  const std::size_t unit = plan_.place(parameter).unit;
  open_for(calls_.back(), unit);
  current_region() = region_reading(unit, current_region());
  return true;
}

PARX_INLINE void sharded_units::open_for(running_call& reader, std::size_t unit) {
  reader.read.reserve(reader.read.size() + 1);
  open(unit);
  reader.read.push_back(unit);
}

PARX_INLINE void sharded_units::note_result(const void* data, std::size_t unit) {
  if (calls_.size() < 2 || calls_.end()[-2].unit == use_order::none) return;
  running_call &ending = calls_.back(), &caller = calls_.end()[-2];
  const auto pass_on = [&, this](std::size_t each) {
    if (!is_in_values(data, each)) return;
    open_for(caller, each);
    ending.outer = region_reading(each, ending.outer);
  };
  if (unit != use_order::none) pass_on(unit);
  for (const std::size_t each : ending.read) pass_on(each);
}

PARX_INLINE bool sharded_units::is_in_values(const void* data, std::size_t unit) const {
  const std::vector<std::size_t>& flats = plan_.units()[unit].flats;
  return std::any_of(flats.begin(), flats.end(), [&](std::size_t flat) {
    const std::byte* const whole = values_->whole(flat);
    return std::less_equal<const void*>()(whole, data) &&
           std::less<const void*>()(data, whole + plan_.flats()[flat].whole_bytes());
  });
}

PARX_INLINE sharded_units::use_region& sharded_units::region_of(std::vector<std::size_t> units) {
  const auto known = regions_.find(units);
  if (known != regions_.end()) return known->second;
  return regions_.try_emplace(units, *this, units).first->second;
}

PARX_INLINE region_number sharded_units::region_within(std::size_t unit, region_number outer) {
  std::vector<std::size_t> units{unit};
  if (const use_region* const around = own_region(outer)) {
    units.insert(units.end(), around->units().begin() + 1, around->units().end());
  }
  return region_of(std::move(units)).number();
}

PARX_INLINE region_number sharded_units::region_reading(std::size_t unit, region_number here) {
  const use_region* const of = own_region(here);
  if (of == nullptr) return here;
  std::vector<std::size_t> units = of->units();
  if (std::find(units.begin(), units.end(), unit) == units.end()) units.push_back(unit);
  std::sort(units.begin() + 1, units.end());
  return region_of(std::move(units)).number();
}

PARX_INLINE const sharded_units::use_region* sharded_units::own_region(
    region_number number) const {
  const auto* const found =
      dynamic_cast<const use_region*>(region_table::instance().find(number));
  return found != nullptr && &found->owner() == this ? found : nullptr;
}

PARX_INLINE void sharded_units::unit_hook::before_forward() {
  owner_.begin_call(unit_);
  try {
    owner_.open(unit_);
    current_region() = owner_.region_within(unit_, current_region());
  } catch (...) {
    owner_.calls_.pop_back();
    throw;
  }
}

PARX_INLINE void sharded_units::unit_hook::after_forward() noexcept {
  owner_.end_call(unit_);
  owner_.close(unit_, owner_.is_wanted_next(unit_));
}

PARX_INLINE void sharded_units::use_region::enter_backward() {
  // A recomputation may read what is around its unit, too.
  for (std::size_t unit : units_) {
    for (; unit != 0; unit = owner_.plan_.units()[unit].parent) owner_.begin_reads(unit);
  }
  owner_.begin_reads(0);
  owner_.uses_->enter_backward(units_);
  owner_.gradients_->enter(units_.front());
}

PARX_INLINE void sharded_units::use_region::leave_backward(const backward_region* next) noexcept {
  for (std::size_t unit : units_) {
    for (; unit != 0; unit = owner_.plan_.units()[unit].parent) owner_.end_reads(unit);
  }
  owner_.end_reads(0);
  const auto* const other = dynamic_cast<const use_region*>(next);
  const bool is_here = other != nullptr && &other->owner_ == &owner_;
  owner_.uses_->leave_backward(units_, is_here ? std::span(other->units_)
                                               : std::span<const std::size_t>());
}

PARX_INLINE void sharded_units::part_observer::begin_backward(const backward_start& start) {
  throw_usage(
      "{}: backward reaches \"{}\" of the wrapper's parameters(), which is this rank's part of "
      "it: compute with the model's own parameter, inside of the model's forward",
      owner_.who_, owner_.all_[start.reached.front()]->name());
}

PARX_INLINE std::vector<reduction_state::member> sharded_units::members() const {
  std::vector<reduction_state::member> named;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    named.push_back({all_[i]->name(), gradients_->number_of(i)});
  }
  return named;
}

PARX_INLINE std::unique_ptr<unit_values> sharded_units::storage_of(const fsdp_options& options,
                                                                   call_site site) {
  if (all_.front()->stays()) {
    std::vector<std::byte*> arrays;
    for (const flat_parameter& flat : plan_.flats()) {
      arrays.push_back(static_cast<std::byte*>(all_[flat.items.front().parameter]->values()));
    }
    return std::make_unique<values_in_place>(plan_, gathering_, std::move(arrays), site);
  }
  const bool may_share = options.stage == 3 && options.values != value_storage::gathered;
  if (options.values == value_storage::shared || (may_share && gathering_.shares_memory())) {
    return std::make_unique<host_values>(plan_, gathering_, site);
  }
  const std::size_t units = plan_.units().size();
  std::vector<bool> is_kept(units, options.stage < 3);
  is_kept[0] = true;
  const std::size_t blocks = keeps_ ? units : plan_.depth() + options.prefetch;
  return std::make_unique<gathered_values>(plan_, gathering_, std::move(is_kept), blocks,
                                           options.wire.gather, site);
}

PARX_INLINE void sharded_units::name_tags() {
  std::vector<std::string> names;
  for (std::size_t unit = 0; unit < plan_.units().size(); ++unit) names.push_back(plan_.name(unit));
  for (const auto& each : all_) names.push_back(formatted("table \"{}\"", each->name()));
  gathering_.name_tags(std::move(names));
}

PARX_INLINE sum_settings sharded_units::sum_settings_of(std::vector<std::size_t> part_of,
                                                      const fsdp_options& options, call_site site) {
  if (replicas_.size() > 1) {  // separate from the group of the gathers
    shard_sums_.emplace(gathering_.subgroup(all_ranks(gathering_.size()),
                                            {.name = gathering_.name() + "/sums"}, site));
  }
  std::optional<replica_plan> virtual_replicas;
  if (options.replicas > 0) {
    virtual_replicas.emplace(options.replicas, group_.rank(), group_.size());
  }
  return {.all = group_,
          .shards = shard_sums_ ? *shard_sums_ : group_,
          .replicas = replicas_,
          .part_of = std::move(part_of),
          .part = rank_of_part(),
          .order = options.order,
          .wire = group_.size() > 1 ? options.wire : wire_types{},
          .in_parts = adds_in_parts_,
          .virtual_replicas = std::move(virtual_replicas)};
}

PARX_INLINE void sharded_units::cut_tables(const sum_settings& sums, call_site site) {
  const int replicas = sums.virtual_replicas ? sums.virtual_replicas->replicas() : 0;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (!is_table(i)) continue;
    const row_groups groups{gathering_, replicas_, group_, sums.part_of, tag_of_table(i), replicas};
    tables_.push_back({i, &all_[i]->cut_by_rows(groups, site)});
  }
}

PARX_INLINE std::vector<trained_table> sharded_units::trained_tables() const {
  std::vector<trained_table> trained;
  for (const trained_table& each : tables_) {
    if (all_[each.parameter]->is_trained()) trained.push_back(each);
  }
  return trained;
}

PARX_INLINE void sharded_units::note_frozen() {
  frozen_.clear();
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (gradients_->number_of(i) == gradients_->launches()) frozen_.push_back(i);
  }
}

PARX_INLINE void sharded_units::train_unfrozen(const backward_start& start) {
  if (reducer_->is_under_way()) return;  // the pass will be refused
  std::vector<std::size_t> unfrozen;
  for (const std::size_t i : frozen_) {
    // A micro-batch may have come between the two calls.
    if (!all_[i]->is_frozen() || all_[i]->has_whole_grad()) unfrozen.push_back(i);
  }
  if (!unfrozen.empty()) {
    gradients_->require_unfrozen(unfrozen);
    for (const std::size_t i : unfrozen) {
      all_[i]->unfreeze_part();
      if (!is_table(i)) plan_.train(plan_.place(i).flat);
    }
    gradients_->extend(trained_tables());
    reducer_->state().regroup(members(), gradients_->launches());
    note_frozen();
  }
  for (const std::size_t each : start.reached) {
    require(gradients_->number_of(each) < gradients_->launches(),
            "{}: backward reaches \"{}\", which was unfrozen in its forward pass and is frozen "
            "now: freeze it after backward",
            who_, all_[each]->name());
  }
}

PARX_INLINE void sharded_units::whole_observer::step_without_gradient() const {
  throw_usage(
      "{}: an optimizer was made of the model's own parameters, whose gradients go to "
      "the ranks' parts: make it of parameters() of what wraps the model",
      owner_.who_);
}

PARX_INLINE void sharded_units::take_values(call_site site) {
  const std::size_t rank = rank_of_part();
  for (std::size_t flat = 0; flat < plan_.flats().size(); ++flat) {
    const flat_parameter& each = plan_.flats()[flat];
    const std::size_t element = size_of(each.type);
    bool have_values = false;
    for (const flat_item& item : each.items) have_values |= all_[item.parameter]->has_values();
    if (all_.front()->stays()) {
      const buffer_view array{values_->whole(flat), each.count, each.type};
      broadcast(group_, array, {.root = 0}, site);
    } else if (have_values && each.part > 0) {
      zeroed_pages whole(rank == 0 ? each.whole_bytes() : 0);
      for (const flat_item& item : each.items) {
        const sharded_parameter& from = *all_[item.parameter];
        if (rank > 0 || !from.has_values()) continue;
        std::memcpy(whole.data() + item.offset * element, from.values(), from.whole_bytes());
      }
      const const_buffer_view all{whole.data(), rank == 0 ? each.whole() : 0, each.type};
      const buffer_view part{values_->part(flat), each.part, each.type};
      scatter(gathering_, all, part, {.root = 0}, site);
      if (replicas_.size() > 1) broadcast(replicas_, part, {.root = 0}, site);
    }
    for (const flat_item& item : each.items) {
      sharded_parameter& placed = *all_[item.parameter];
      placed.place(values_->whole(flat) + item.offset * element,
                   values_->part(flat) + plan_.part_offset(item.parameter, rank) * element,
                   plan_.part(placed.spec(), item.parameter, rank), plan_.name(each.unit));
    }
  }
}

}  // namespace parx::detail
