// Definitions of unit_gradients.hpp.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/core/formatted.hpp>
#include <parx/ddp/frozen_alike.hpp>
#include <parx/fsdp/unit_gradients.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE unit_gradients::unit_gradients(const unit_plan& plan, const parameters& all,
                                           std::vector<trained_table> tables, reduction_layout how,
                                           gradient_memory_of kind, call_site site)
    : plan_(plan),
      all_(all),
      tables_(std::move(tables)),
      how_(std::move(how)),
      kind_(kind),
      site_(site),
      numbers_(all.size()),
      control_(all.size()) {
  allocate();
}

PARX_INLINE void unit_gradients::require_unfrozen(const std::vector<std::size_t>& unfrozen) {
  std::fill(control_.values().begin(), control_.values().end(), 0.0);
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const bool is_frozen = all_[i]->is_frozen() && !all_[i]->has_whole_grad();
    control_.set_use(i, is_frozen ? parameter_use::frozen : parameter_use::unused);
  }
  // Ranks that have unfrozen none are in start(), which calls the same operation.
  all_reduce(how_.all, control_.values(), {.order = how_.order}, site_);
  for (const std::size_t i : unfrozen) {
    if (control_.frozen_ranks(i) == 0) continue;
    const std::string why = formatted(
        "fsdp at {}: parameter \"{}\" is unfrozen on rank {} and frozen on {} of {} ranks. Call "
        "unfreeze() on all ranks or on none",
        site_, all_[i]->name(), how_.all.rank(), control_.frozen_ranks(i), how_.all.size());
    how_.all.abort(why);
    throw_error(errc::mismatch, "{}", why);
  }
}

PARX_INLINE void unit_gradients::extend(std::vector<trained_table> tables) {
  for (const trained_flat& each : flats_) {
    for (const flat_item& item : plan_.flats()[each.flat].items) {
      all_[item.parameter]->unbind_whole_grad();
      all_[item.parameter]->unbind_part_grad();
    }
  }
  flats_.clear();
  slots_.clear();
  memory_.reset();
  parts_.reset();
  tables_ = std::move(tables);
  allocate();
}

PARX_INLINE void unit_gradients::allocate() {
  for (std::size_t flat = plan_.flats().size(); flat-- > 0;) {
    if (plan_.flats()[flat].is_trained) flats_.push_back({.flat = flat});
  }
  assign_slots();
  std::fill(numbers_.begin(), numbers_.end(), launches());
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    numbers_[tables_[i].parameter] = flats_.size() + i;
  }
  std::size_t bytes = 0, part_bytes = 0;
  for (std::size_t i = 0; i < flats_.size(); ++i) {
    slot& its = slot_of(i);
    its.bytes = std::max(its.bytes, planned(i).whole_bytes());
    part_bytes += planned(i).part_bytes();
  }
  for (const slot& each : slots_) bytes += each.bytes;
  memory_.reset(new bucket_memory(how_.first(), bytes, site_));
  if (kind_ == gradient_memory_of::slots) parts_.reset(new zeroed_pages(part_bytes));
  std::byte* at = memory_->data();
  for (slot& each : slots_) each.memory = std::exchange(at, at + each.bytes);
  std::byte* next = parts_ != nullptr ? parts_->data() : nullptr;
  for (std::size_t i = 0; i < flats_.size(); ++i) {
    const std::size_t room = planned(i).part_bytes();
    flats_[i].part = kind_ == gradient_memory_of::slots ? std::exchange(next, next + room)
                                                       : slot_of(i).memory + how_.part * room;
    for (const flat_item& item : planned(i).items) {
      numbers_[item.parameter] = i;
      all_[item.parameter]->bind_part_grad(
          flats_[i].part + plan_.part_offset(item.parameter, how_.part) * size_of(planned(i).type));
    }
    if (kind_ == gradient_memory_of::all_flats) take_slot(i);
  }
}

PARX_INLINE unit_gradients::~unit_gradients() {
  control_sum_ = {};  // waits, as drop() does: operations still write to memory that goes
  for (slot& each : slots_) each.sum.drop();
}

PARX_INLINE void unit_gradients::start(const reduction_state& state, std::uint32_t order_hash,
                                       bool is_mean) {
  control_.order_hash() = own_order_hash_ = order_hash;
  control_.count() = state.count();
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const parameter_use otherwise =
        all_[i]->is_frozen() ? parameter_use::frozen : parameter_use::unused;
    control_.set_use(i, state.is_used(i) ? parameter_use::used : otherwise);
  }
  control_sum_ = async_all_reduce(how_.all, control_.values(), {.order = how_.order}, site_);
  is_last_ = true;
  is_mean_ = is_mean;
  begin();
}

PARX_INLINE void unit_gradients::enter(std::size_t unit) {
  if (!is_running_) return;
  for (std::size_t i = 0; i < flats_.size(); ++i) {
    const slot& its = slot_of(i);
    if (planned(i).unit == unit && !flats_[i].is_launched && its.holder == nobody) take_slot(i);
  }
}

PARX_INLINE void unit_gradients::launch(std::size_t first, std::size_t last) {
  for (; first < last; ++first) {
    if (first < flats_.size())
      launch(first);
    else if (is_last_)
      tables_[first - flats_.size()].rows->announce();
  }
  pass_on_ready();
  how_.all.poll();
}

PARX_INLINE void unit_gradients::finish() {
  control_sum_.wait();
  if (is_last_) {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      require_frozen_alike(how_.all, "fsdp", *all_[i], control_.frozen_ranks(i), site_);
    }
    require_one_order();
    for (const trained_table& each : tables_) each.rows->start();
  }
  for (slot& each : slots_) settle(each);
  if (is_last_) {
    for (const trained_table& each : tables_) {
      each.rows->finish(control_.factor(), control_.users(each.parameter) > 0);
    }
  }
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (numbers_[i] >= flats_.size()) continue;
    // Only the last pass knows which parameters no rank has used.
    if (!is_last_ || control_.users(i) > 0)
      all_[i]->assume_part_grad();
    else if (has_sums_)
      all_[i]->zero_grad();
  }
  has_sums_ = !is_last_;
  is_running_ = false;
}

PARX_INLINE void unit_gradients::abandon() noexcept {
  if (!is_running_) return;
  is_running_ = false;
  for (const trained_table& each : tables_) each.rows->abandon();
  for (slot& each : slots_) {
    each.sum.drop();
    each.summed = nobody;
    if (kind_ == gradient_memory_of::slots) evict(each);
  }
}

PARX_INLINE void unit_gradients::assign_slots() {
  const std::vector<planned_unit>& units = plan_.units();
  std::vector<std::size_t> in_turns;
  std::size_t turn = 0;
  for (std::size_t i = 0; i < flats_.size(); ++i) {
    const std::size_t unit = planned(i).unit;
    const bool has_inner = std::any_of(units.begin() + 1, units.end(),
                                       [&](const auto& each) { return each.parent == unit; });
    const bool is_alone = kind_ == gradient_memory_of::all_flats || has_inner;
    if (is_alone || in_turns.size() < 2) {
      flats_[i].slot = slots_.size();
      slots_.emplace_back(shard_reduction(how_, control_, site_));
      if (is_alone) continue;
      in_turns.push_back(flats_[i].slot);
    }
    flats_[i].slot = in_turns[turn++ % in_turns.size()];
  }
}

PARX_INLINE void unit_gradients::require_one_order() const {
  if (control_.order_hash() == own_order_hash_ * how_.all.size()) return;
  throw_error(errc::mismatch,
              "fsdp on group \"{}\": the ranks have called other modules, or in another order, "
              "since the last step, so values of one unit were gathered into another. Every rank "
              "must call the units in the same order; a rank without samples calls them with an "
              "empty batch",
              how_.all.name());
}

PARX_INLINE void unit_gradients::begin() {
  for (trained_flat& each : flats_) each.is_launched = false;
  passed_on_ = launched_ = 0;
  is_running_ = true;
}

PARX_INLINE void unit_gradients::pass_on(std::size_t last) {
  control_sum_.wait();
  for (; passed_on_ <= last; ++passed_on_) slot_of(passed_on_).sum.pass_on();
}

PARX_INLINE void unit_gradients::pass_on_ready() {
  if (!how_.has_replicas()) return;
  how_.first().poll();
  while (passed_on_ < launched_ && control_sum_.test() && slot_of(passed_on_).sum.is_ready()) {
    pass_on(passed_on_);
  }
}

PARX_INLINE void unit_gradients::settle(slot& each) {
  if (each.summed == nobody) return;
  pass_on(each.summed);
  each.sum.finish();
  each.summed = nobody;
}

PARX_INLINE void unit_gradients::evict(slot& from) noexcept {
  if (from.holder == nobody) return;
  for (const flat_item& item : planned(from.holder).items) {
    all_[item.parameter]->unbind_whole_grad();
  }
  from.holder = nobody;
}

PARX_INLINE void unit_gradients::take_slot(std::size_t i) {
  slot& its = slot_of(i);
  if (its.holder == i) return;
  settle(its);
  evict(its);
  its.holder = i;
  for (const flat_item& item : planned(i).items) {
    all_[item.parameter]->bind_whole_grad(its.memory + item.offset * size_of(planned(i).type));
  }
}

PARX_INLINE void unit_gradients::launch(std::size_t i) {
  const flat_parameter& flat = planned(i);
  take_slot(i);
  slot& its = slot_of(i);
  for (const flat_item& item : flat.items) {
    const sharded_parameter& each = *all_[item.parameter];
    // Other ranks may have a gradient for it.
    if (!each.has_whole_grad()) {
      std::memset(its.memory + item.offset * size_of(flat.type), 0, each.whole_bytes());
    }
    each.forget_whole_grad();
    if (kind_ == gradient_memory_of::slots) each.unbind_whole_grad();
  }
  flats_[i].is_launched = true;
  if (kind_ == gradient_memory_of::slots) its.holder = nobody;
  its.summed = i;
  its.sum.start(flat, its.memory, flats_[i].part,
                {.is_last = is_last_, .adds = has_sums_, .divides = !is_mean_});
  launched_ = i + 1;
}

}  // namespace parx::detail
