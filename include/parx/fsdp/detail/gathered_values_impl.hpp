// Definitions of gathered_values.hpp.
#pragma once

#include <algorithm>
#include <bit>
#include <exception>
#include <map>
#include <utility>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/fsdp/gathered_values.hpp>
#include <parx/types/buffer.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE gathered_values::gathered_values(const unit_plan& plan, process_group& group,
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
      const unit_flat& each = plan.flats()[flat];
      const bool within = is_part_within(each);
      flats_[flat] = {whole, within ? whole + rank * each.part_bytes() : part};
      whole += each.whole_bytes();
      if (!within) part += each.part_bytes();
    }
    if (is_kept_[unit]) kept = whole;
  }
}

PARX_INLINE gathered_values::~gathered_values() {
  for (held& each : units_) drop(each);  // gathers write to memory that is destroyed first
}

PARX_INLINE void gathered_values::start(std::size_t unit) {
  held& here = units_[unit];
  if (here.is_started) return;
  if (here.memory && !here.memory->attached()) attach(here);
  here.is_started = true;
  for (const std::size_t flat : plan_.units()[unit].flats) {
    const unit_flat& each = plan_.flats()[flat];
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
    here.gathers.push_back(async_all_gather(group_, own, all, {}, site_));
  }
}

PARX_INLINE void gathered_values::wait(std::size_t unit) {
  start(unit);
  if (units_[unit].gathers.empty()) return;
  for (work& each : units_[unit].gathers) each.wait();
  units_[unit].gathers.clear();
  for (const std::size_t flat : plan_.units()[unit].flats) {
    const unit_flat& each = plan_.flats()[flat];
    std::byte* const whole = flats_[flat].whole;
    if (is_narrowed(wire_, each.type)) widen(whole, whole, each.whole());
  }
}

PARX_INLINE void gathered_values::release(std::size_t unit) noexcept {
  held& here = units_[unit];
  if (!here.memory || !here.is_started) return;
  drop(here);
  try {
    here.memory->detach();
  } catch (const std::exception&) {  // the block stays attached, and attach() will find it so
  }
}

PARX_INLINE void gathered_values::written() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    release(unit);
    drop(units_[unit]);
  }
}

PARX_INLINE void gathered_values::make_pools(std::size_t blocks) {
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

PARX_INLINE void gathered_values::attach(held& here) {
  here.memory->attach();
  for (const page_pool& other : pools_) {
    if (other.block_bytes() != here.pool->block_bytes()) other.drop_free();
  }
}

PARX_INLINE std::size_t gathered_values::bytes_of_kept() const noexcept {
  std::size_t bytes = 0;
  for (std::size_t unit = 0; unit < is_kept_.size(); ++unit) {
    if (is_kept_[unit]) bytes += plan_.whole_bytes(unit);
  }
  return bytes;
}

PARX_INLINE std::size_t gathered_values::bytes_of_parts() const noexcept {
  std::size_t bytes = 0;
  for (const unit_flat& each : plan_.flats()) {
    if (!is_part_within(each)) bytes += each.part_bytes();
  }
  return bytes;
}

}  // namespace parx::detail
