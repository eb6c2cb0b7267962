// gradient_slots: the memory in which backward writes the gradients of flat parameters, and that of
// this rank's parts.
//
// In stage 1 every flat has memory of its own, and the parts stay in it. In stages 2 and 3 the
// flats take turns in a few slots, and the parts have memory of their own. A unit that contains
// others, such as the root, is in use while those take turns, so its flats have slots of their own.
// While a flat has no slot, its gradients are in ordinary memory, as those of micro-batches under
// no_sync are. Flats are numbered in the order in which their sums are launched.
// Threads: the one that runs backward.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <parx/fsdp/sharded_parameter.hpp>
#include <parx/fsdp/unit_plan.hpp>
#include <parx/fsdp/zeroed_pages.hpp>
#include <parx/reduction/group_memory.hpp>

namespace parx::inline PARX_ABI::detail {

enum class gradient_memory_of { all_flats, slots };

class gradient_slots {
 public:
  using parameters = std::vector<std::unique_ptr<sharded_parameter>>;
  static constexpr std::size_t nobody = static_cast<std::size_t>(-1);

  /// Collective over `group`, the ranks that sum directly from the slots. `flats` are those of the
  /// plan that are trained. Plan and parameters are borrowed; `part` is this rank's.
  gradient_slots(const unit_plan& plan, const parameters& all, std::vector<std::size_t> flats,
                 gradient_memory_of kind, process_group& group, std::size_t part, call_site site)
      : plan_(plan), all_(all), flats_(std::move(flats)), kind_(kind) {
    assign();
    std::size_t bytes = 0, part_bytes = 0;
    for (std::size_t i = 0; i < flats_.size(); ++i) {
      std::size_t& room = slots_[slot_of_[i]].bytes;
      room = std::max(room, flat(i).whole_bytes());
      part_bytes += flat(i).part_bytes();
    }
    for (const slot& each : slots_) bytes += each.bytes;
    memory_.emplace(group, bytes, site);
    std::byte* next = memory_->data();
    for (slot& each : slots_) each.memory = std::exchange(next, next + each.bytes);
    if (!is_kept()) next = pages_.emplace(part_bytes).data();
    for (std::size_t i = 0; i < flats_.size(); ++i) {
      const std::size_t room = flat(i).part_bytes();
      parts_.push_back(is_kept() ? memory(i) + part * room : std::exchange(next, next + room));
      for (const flat_item& item : flat(i).items) {
        all_[item.parameter]->bind_part_grad(
            parts_[i] + plan_.part_offset(item.parameter, part) * size_of(flat(i).type));
      }
      if (is_kept()) take(i);
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return flats_.size(); }
  [[nodiscard]] const flat_parameter& flat(std::size_t i) const noexcept {
    return plan_.flats()[flats_[i]];
  }
  /// The memory of the flat's slot, and this rank's part of its sum.
  [[nodiscard]] std::byte* memory(std::size_t i) const noexcept {
    return slots_[slot_of_[i]].memory;
  }
  [[nodiscard]] std::byte* part(std::size_t i) const noexcept { return parts_[i]; }
  /// The flat whose gradients are in the slot of flat i, or nobody.
  [[nodiscard]] std::size_t holder(std::size_t i) const noexcept {
    return slots_[slot_of_[i]].holder;
  }
  /// The flat whose sum uses the memory of the slot of flat i, or nobody; set by the caller.
  [[nodiscard]] std::size_t& summed(std::size_t i) noexcept { return slots_[slot_of_[i]].summed; }

  /// The flat's gradients move to its slot, which no sum uses. Those of the holder move out of it.
  void take(std::size_t i) {
    slot& its = slots_[slot_of_[i]];
    if (its.holder == i) return;
    evict(its);
    its.holder = i;
    for (const flat_item& item : flat(i).items) {
      all_[item.parameter]->bind_whole_grad(its.memory + item.offset * size_of(flat(i).type));
    }
  }
  /// The flat's gradients are complete in its slot; those that this rank lacks become zero, since
  /// other ranks may have them. The memory belongs to the sum from now on.
  void hand_over(std::size_t i) {
    slot& its = slots_[slot_of_[i]];
    for (const flat_item& item : flat(i).items) {
      const sharded_parameter& each = *all_[item.parameter];
      if (!each.has_whole_grad()) {
        std::memset(its.memory + item.offset * size_of(flat(i).type), 0, each.whole_bytes());
      }
      each.forget_whole_grad();
      if (!is_kept()) each.unbind_whole_grad();
    }
    if (!is_kept()) its.holder = nobody;
    its.summed = i;
  }
  /// No sum uses any slot. Gradients that were not handed over stay with the parameters.
  void abandon() noexcept {
    for (slot& each : slots_) {
      each.summed = nobody;
      if (!is_kept()) evict(each);
    }
  }
  /// Before this object is replaced by another one: gradients move to the parameters' own memory.
  void unbind() const {
    for (std::size_t i = 0; i < flats_.size(); ++i) {
      for (const flat_item& item : flat(i).items) {
        all_[item.parameter]->unbind_whole_grad();
        all_[item.parameter]->unbind_part_grad();
      }
    }
  }

 private:
  struct slot {
    std::size_t bytes = 0;
    std::byte* memory = nullptr;
    std::size_t holder = nobody;
    std::size_t summed = nobody;
  };

  [[nodiscard]] bool is_kept() const noexcept { return kind_ == gradient_memory_of::all_flats; }
  void assign() {
    const std::vector<planned_unit>& units = plan_.units();
    std::vector<std::size_t> in_turns;
    std::size_t turn = 0;
    for (std::size_t i = 0; i < flats_.size(); ++i) {
      const bool has_inner =
          std::any_of(units.begin() + 1, units.end(),
                      [&, this](const planned_unit& each) { return each.parent == flat(i).unit; });
      const bool is_alone = is_kept() || has_inner;
      if (!is_alone && in_turns.size() == 2) {
        slot_of_.push_back(in_turns[turn++ % 2]);
        continue;
      }
      if (!is_alone) in_turns.push_back(slots_.size());
      slot_of_.push_back(slots_.size());
      slots_.emplace_back();
    }
  }
  /// Moves the holder's gradients to the parameters' own memory.
  void evict(slot& from) noexcept {
    if (from.holder == nobody) return;
    for (const flat_item& item : flat(from.holder).items) {
      all_[item.parameter]->unbind_whole_grad();
    }
    from.holder = nobody;
  }

  const unit_plan& plan_;
  const parameters& all_;
  const std::vector<std::size_t> flats_;  ///< indices in the plan
  const gradient_memory_of kind_;
  std::vector<std::size_t> slot_of_;  ///< by flat
  std::vector<slot> slots_;
  std::vector<std::byte*> parts_;  ///< by flat
  std::optional<group_memory> memory_;
  std::optional<zeroed_pages> pages_;
};

}  // namespace parx::detail
