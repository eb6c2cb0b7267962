// Definitions of sharded_units.hpp.
#pragma once

#include <chrono>
#include <cstring>
#include <exception>
#include <numeric>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <parx/autograd/no_grad.hpp>
#include <parx/autograd/recompute.hpp>
#include <parx/comm/abort_reason.hpp>
#include <parx/comm/collectives/barrier.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/comm/collectives/scatter.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/log.hpp>
#include <parx/fsdp/gathered_values.hpp>
#include <parx/fsdp/host_values.hpp>
#include <parx/fsdp/sharded_units.hpp>
#include <parx/trace/event.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE sharded_units::sharded_units(process_group& group, shard_groups groups, unit_plan plan,
                                         parameters all, const fsdp_options& options,
                                         std::string who, call_site site)
    : who_(std::move(who)),
      keeps_(options.after_forward == after_forward::keep),
      group_(group),
      gathering_(std::move(groups.shards)),
      replicas_(std::move(groups.replicas)),
      plan_(std::move(plan)),
      all_(std::move(all)),
      adds_in_parts_(options.accumulate == accumulated_gradients::sharded),
      of_unit_(plan_.units().size()),
      steps_(*this),
      finish_(options.finish) {
  const std::size_t units = plan_.units().size();
  values_ = storage_of(options, site);
  take_values(site);
  summing sums = summing_of(std::move(groups.part_of), options, site);
  std::vector<trained_table> tables = cut_tables(sums.part_of, site);
  gradients_.reset(new unit_gradients(
      plan_, all_, std::move(tables), std::move(sums),
      options.stage == 1 ? gradient_memory_of::all_flats : gradient_memory_of::slots, site));
  uses_.emplace(plan_, *values_, options.prefetch);
  state_.emplace(who_, members(), gradients_->launches());
  for (std::size_t i = 0; i < all_.size(); ++i) {
    all_[i]->attach(*this, steps_, i);
    if (!is_table(i)) of_unit_[plan_.place(i).unit].push_back(all_[i].get());
  }
  for (std::size_t unit = 0; unit < units; ++unit) {
    hooks_.emplace_back(new unit_hook(*this, unit));
  }
}

PARX_INLINE void sharded_units::written() {
  const std::size_t unit = uses_->innermost_active();
  require(unit == use_order::none,
          "{}: values are about to be written while {} is in use. Step, load and initialize "
          "outside of gathered(), call() and forward",
          who_, unit == use_order::none ? "" : plan_.name(unit));
  values_->written();
}

PARX_INLINE void sharded_units::meet(call_site site) {
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
      if (!each->closed()) each->abort(abort_reason(group_.rank()));
    }
    throw;
  }
}

PARX_INLINE void sharded_units::open(std::size_t unit) {
  if (!uses_->enter_forward(unit)) return;
  for (sharded_parameter* const each : of_unit_[unit]) each->open();
}

PARX_INLINE void sharded_units::close(std::size_t unit, bool is_kept) noexcept {
  if (!uses_->leave_forward(unit, is_kept)) return;
  for (sharded_parameter* const each : of_unit_[unit]) each->close();
}

PARX_INLINE void sharded_units::unit_hook::before_forward() {
  outer_.push_back(current_region());
  try {
    owner_.open(unit_);
  } catch (...) {
    outer_.pop_back();
    throw;
  }
  current_region() = region_.number();
}

PARX_INLINE void sharded_units::unit_hook::after_forward() noexcept {
  current_region() = outer_.back();
  outer_.pop_back();
  // A recomputation is followed by its backward, and every backward pass begins in the root.
  const bool is_wanted_next = recording() && (unit_ == 0 || owner_.keeps_);
  owner_.close(unit_, is_recomputing() || is_wanted_next);
}

PARX_INLINE void sharded_units::unit_hook::leave_backward(const backward_region* next) noexcept {
  const auto* const other = dynamic_cast<const unit_hook*>(next);
  const bool is_here = other != nullptr && &other->owner_ == &owner_;
  owner_.uses_->leave_backward(unit_, is_here ? other->unit_ : use_order::none);
}

PARX_INLINE void sharded_units::part_observer::begin_backward(const backward_start& start) {
  throw_usage(
      "{}: backward reaches \"{}\" of fsdp.parameters(), which is this rank's part of "
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

PARX_INLINE summing sharded_units::summing_of(std::vector<std::size_t> part_of,
                                              const fsdp_options& options, call_site site) {
  if (replicas_.size() > 1) {  // separate from the group of the gathers
    std::vector<int> ranks(static_cast<std::size_t>(gathering_.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    shard_sums_.emplace(gathering_.subgroup(ranks, {.name = gathering_.name() + "/sums"}, site));
  }
  return {.all = group_,
          .shards = shard_sums_ ? *shard_sums_ : group_,
          .replicas = replicas_,
          .part_of = std::move(part_of),
          .part = rank_of_part(),
          .order = options.order,
          .wire = group_.size() > 1 ? options.wire : wire_types{},
          .in_parts = adds_in_parts_};
}

PARX_INLINE std::vector<trained_table> sharded_units::cut_tables(
    const std::vector<std::size_t>& part_of, call_site site) {
  std::vector<trained_table> trained;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (!is_table(i)) continue;
    row_table_part& rows = all_[i]->cut_by_rows({gathering_, replicas_, group_, part_of}, site);
    if (all_[i]->is_trained()) trained.push_back({i, &rows});
  }
  return trained;
}

PARX_INLINE void sharded_units::step_without_gradient() const {
  throw_usage(
      "{}: an optimizer was made of the model's own parameters, whose gradients go to "
      "the ranks' parts: make it of fsdp.parameters()",
      who_);
}

PARX_INLINE void sharded_units::begin_backward(const backward_start& start) {
  for (const std::size_t each : start.reached) {
    require(gradients_->number_of(each) < gradients_->launches(),
            "{}: backward reaches \"{}\", which was frozen when the model was wrapped: unfreeze "
            "it before",
            who_, all_[each]->name());
  }
  const pass_kind kind = synchronising_   ? pass_kind::sums
                         : adds_in_parts_ ? pass_kind::parts
                                          : pass_kind::local;
  const std::size_t has_gradient = held();
  const reduction_actions next = state_->begin(kind, start.count, start.reached, has_gradient);
  if (has_gradient == reduction_state::nothing) gradients_->forget_sums();
  if (kind == pass_kind::local) return;
  async_before_ = async_seconds();
  try {
    if (kind == pass_kind::parts) {
      gradients_->start_adding();
    } else {
      gradients_->control().flags() = flag_.exchange(false) ? 1 : 0;
      gradients_->start(*state_, uses_->take_order_hash(), start.of == gradient_of::mean);
    }
    gradients_->launch(next.first, next.last);
  } catch (...) {
    abandon_backward();
    throw;
  }
}

PARX_INLINE void sharded_units::unobserved(std::string_view name,
                                           std::span<const std::size_t> shape) {
  if (std::exchange(has_warned_, true) || group_.rank() != 0) return;
  log(log_level::warn,
      "{}: backward reaches parameter \"{}\" [{}], which the model does not name: it is not "
      "sharded, and its gradient stays this rank's own. If it belongs to a layer of the model, "
      "that is missing in members()",
      who_, name, joined_text(shape));
}

PARX_INLINE void sharded_units::end_backward() {
  under_way_ = state_->end().finish_sums;
  if (!under_way_) state_->reduced();
  else if (finish_ == reduction_finish::with_backward) finish();
}

PARX_INLINE void sharded_units::finish() {
  if (!std::exchange(under_way_, false)) return;
  const trace::span waiting("wait for gradients", "fsdp");
  const auto from = std::chrono::steady_clock::now();
  gradients_->finish();
  times_.waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  times_.communication += async_seconds() - async_before_;
  state_->reduced();
}

PARX_INLINE void sharded_units::abandon_backward() noexcept {
  if (state_->abandon().abort) {
    const std::string reason =
        std::current_exception()
            ? abort_reason(group_.rank())
            : formatted("rank {}: an exception ended its backward pass; see its output",
                        group_.rank());
    for (process_group* const each : {&group_, shard_sums_ ? &*shard_sums_ : nullptr, &replicas_}) {
      if (each != nullptr && each->size() > 1 && !each->closed()) each->abort(reason);
    }
  }
  gradients_->abandon();
}

PARX_INLINE std::size_t sharded_units::held() const {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (all_[i]->has_part_grad() || all_[i]->has_whole_grad()) return i;
  }
  return reduction_state::nothing;
}

PARX_INLINE void sharded_units::take_values(call_site site) {
  const std::size_t rank = rank_of_part();
  for (std::size_t flat = 0; flat < plan_.flats().size(); ++flat) {
    const unit_flat& each = plan_.flats()[flat];
    const std::size_t element = size_of(each.type);
    bool have_values = false;
    for (const flat_item& item : each.items) have_values |= all_[item.parameter]->has_values();
    if (have_values && each.part > 0) {
      lasting_memory whole(rank == 0 ? each.whole_bytes() : 0);
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
