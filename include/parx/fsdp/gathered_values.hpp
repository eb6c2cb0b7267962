// gathered_values: stores the values of units by gathering their parts from all ranks before use.
//
// A kept unit has memory of its own, in which its part lies; it is gathered in place once after
// each step. The other units have fixed addresses and take a block of a pool while they are used,
// so only the units that compute, and those gathered ahead, are in memory. Units of similar size
// share a pool, and an idle pool takes no memory: a layer does not need a block as large as the
// head of a language model. Ranks of one host gather kept units through shared memory. Values sent
// as bfloat16 are gathered into the first half of their memory. The rank's own values are rounded
// as well, so the exact part then lies elsewhere, in kept units too. A gather has the number of its
// unit as tag: ranks that use different units of one size would mix their values.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <exception>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/comm/work.hpp>
#include <parx/reduction/group_memory.hpp>
#include <parx/fsdp/unit_plan.hpp>
#include <parx/fsdp/unit_values.hpp>
#include <parx/fsdp/wire.hpp>
#include <parx/fsdp/zeroed_pages.hpp>
#include <parx/tensor/page_pool.hpp>
#include <parx/trace/event.hpp>
#include <parx/types/buffer.hpp>

namespace parx::inline PARX_ABI::detail {

class gathered_values final : public unit_values {
 public:
  /// Collective over `group`. Group and plan are borrowed. `is_kept` has an entry for each unit; of
  /// the other units, `blocks` of similar size have memory at once, and more if more are started.
  /// `wire` is wire_types::gather.
  gathered_values(const unit_plan& plan, process_group& group, std::vector<bool> is_kept,
                  std::size_t blocks, std::optional<dtype> wire, call_site site);
  ~gathered_values() override {
    for (held& each : units_) drop(each);  // gathers write to memory that is destroyed first
  }

  [[nodiscard]] std::byte* whole(std::size_t flat) const override { return flats_[flat].whole; }
  [[nodiscard]] std::byte* part(std::size_t flat) const override { return flats_[flat].part; }

  [[nodiscard]] bool has_room(std::size_t unit) const override {
    const held& here = units_[unit];
    return !here.memory || here.memory->attached() || here.pool->free_blocks() > 0;
  }
  bool start(std::size_t unit) override;
  void wait(std::size_t unit) override;
  void release(std::size_t unit) noexcept override;
  void about_to_write() override;

 private:
  struct place {
    std::byte* whole = nullptr;
    std::byte* part = nullptr;
  };
  struct held {
    std::optional<page_pool> pool = {};  ///< if the unit is not kept
    std::optional<fixed_memory> memory = {};
    bool is_started = false;
    std::vector<work> gathers = {};
  };

  /// One pool for the units of each power of two of bytes.
  void make_pools(std::size_t blocks);
  /// Takes a block of the unit's pool, or a new one if all are in use, and gives back the free
  /// memory of the other pools.
  void attach(held& here);
  [[nodiscard]] bool is_part_within(const flat_parameter& flat) const noexcept {
    return is_kept_[flat.unit] && !is_narrowed(wire_, flat.type);
  }
  /// The whole values that are in memory now, as a curve in the trace.
  void trace_bytes() const noexcept;
  static void drop(held& here) noexcept {
    here.gathers.clear();  // waits
    here.is_started = false;
  }
  [[nodiscard]] std::size_t bytes_of_kept() const noexcept;
  [[nodiscard]] std::size_t bytes_of_parts() const noexcept;

  const unit_plan& plan_;
  process_group& group_;
  const call_site site_;
  const std::optional<dtype> wire_;
  const std::vector<bool> is_kept_;
  std::vector<page_pool> pools_;  ///< by size
  std::vector<held> units_;
  std::vector<place> flats_;
  group_memory kept_;
  zeroed_pages parts_;
};

inline gathered_values::gathered_values(const unit_plan& plan, process_group& group,
                                        std::vector<bool> is_kept, std::size_t blocks,
                                        std::optional<dtype> wire, call_site site)
    : plan_(plan),
      group_(group),
      site_(site),
      wire_(group.size() > 1 ? wire : std::optional<dtype>()),
      is_kept_(std::move(is_kept)),
      units_(plan.units().size()),
      flats_(plan.flats().size()),
      kept_(group, bytes_of_kept(), site),
      parts_(bytes_of_parts()) {
  std::byte* kept = kept_.data();
  std::byte* part = parts_.data();
  make_pools(blocks);
  const auto rank = static_cast<std::size_t>(group.rank());
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    std::byte* whole = kept;
    if (units_[unit].pool) {
      units_[unit].memory.emplace(units_[unit].pool->reserve());
      whole = units_[unit].memory->data();
    }
    for (const std::size_t flat : plan.units()[unit].flats) {
      const flat_parameter& each = plan.flats()[flat];
      const bool within = is_part_within(each);
      flats_[flat] = {whole, within ? whole + rank * each.part_bytes() : part};
      whole += each.whole_bytes();
      if (!within) part += each.part_bytes();
    }
    if (is_kept_[unit]) kept = whole;
  }
}

inline bool gathered_values::start(std::size_t unit) {
  held& here = units_[unit];
  if (here.is_started) return false;
  if (here.memory && !here.memory->attached()) attach(here);
  here.is_started = true;
  for (const std::size_t flat : plan_.units()[unit].flats) {
    const flat_parameter& each = plan_.flats()[flat];
    if (each.part == 0) continue;
    const bool is_narrow = is_narrowed(wire_, each.type);
    const dtype type = is_narrow ? dtype::bfloat16 : each.type;
    const std::byte* part = flats_[flat].part;
    if (is_narrow) {
      const auto rank = static_cast<std::size_t>(group_.rank());
      std::byte* const rounded = flats_[flat].whole + rank * each.part * size_of(type);
      narrow(part, rounded, each.part);
      part = rounded;
    }
    const const_buffer_view own{part, each.part, type};
    const buffer_view all{flats_[flat].whole, each.whole(), type};
    here.gathers.push_back(
        async_all_gather(group_, own, all, {.tag = static_cast<int>(unit)}, site_));
  }
  return !here.gathers.empty();
}

inline void gathered_values::wait(std::size_t unit) {
  start(unit);
  if (units_[unit].gathers.empty()) return;
  for (work& each : units_[unit].gathers) each.wait();
  units_[unit].gathers.clear();
  for (const std::size_t flat : plan_.units()[unit].flats) {
    const flat_parameter& each = plan_.flats()[flat];
    std::byte* const whole = flats_[flat].whole;
    if (is_narrowed(wire_, each.type)) widen(whole, whole, each.whole());
  }
}

inline void gathered_values::release(std::size_t unit) noexcept {
  held& here = units_[unit];
  if (!here.memory || !here.is_started) return;
  drop(here);
  try {
    here.memory->detach();
  } catch (const std::exception&) {  // the block stays attached, and attach() will find it so
  }
  trace_bytes();
}

inline void gathered_values::trace_bytes() const noexcept {
  if (!trace::enabled()) return;
  std::size_t bytes = 0;
  for (const held& each : units_) {
    if (each.memory && each.memory->attached()) bytes += each.pool->block_bytes();
  }
  trace::counter("bytes of gathered units", bytes);
}

inline void gathered_values::about_to_write() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    release(unit);
    drop(units_[unit]);
  }
}

inline void gathered_values::make_pools(std::size_t blocks) {
  struct units_of_size {
    std::size_t largest = 0;
    std::vector<std::size_t> units = {};
  };
  std::map<std::size_t, units_of_size> sizes;  // by power of two
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const std::size_t bytes = plan_.whole_bytes(unit);
    if (is_kept_[unit] || bytes == 0) continue;
    units_of_size& size = sizes[static_cast<std::size_t>(std::bit_width(bytes - 1))];
    size.largest = std::max(size.largest, bytes);
    size.units.push_back(unit);
  }
  for (const auto& [exponent, size] : sizes) {
    const page_pool pool(std::min(blocks, size.units.size()), size.largest);
    for (const std::size_t unit : size.units) units_[unit].pool = pool;
    pools_.push_back(pool);
  }
}

inline void gathered_values::attach(held& here) {
  if (here.pool->free_blocks() == 0) here.pool->add_block();
  here.memory->attach();
  for (const page_pool& other : pools_) {
    if (other.block_bytes() != here.pool->block_bytes()) other.drop_free();
  }
  trace_bytes();
}

inline std::size_t gathered_values::bytes_of_kept() const noexcept {
  std::size_t bytes = 0;
  for (std::size_t unit = 0; unit < is_kept_.size(); ++unit) {
    if (is_kept_[unit]) bytes += plan_.whole_bytes(unit);
  }
  return bytes;
}

inline std::size_t gathered_values::bytes_of_parts() const noexcept {
  std::size_t bytes = 0;
  for (const flat_parameter& each : plan_.flats()) {
    if (!is_part_within(each)) bytes += each.part_bytes();
  }
  return bytes;
}

}  // namespace parx::detail
