// Definitions of unit_plan.hpp.
#pragma once

#include <algorithm>

#include <fmt/format.h>

#include <parx/core/check.hpp>
#include <parx/fsdp/unit_choice.hpp>
#include <parx/fsdp/unit_plan.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE unit_plan::unit_plan(const std::vector<unit_parameter>& parameters,
                                 const std::vector<std::string>& unit_paths, std::size_t ranks) {
  units_.push_back({});
  for (const std::string& path : unit_paths) {
    if (path.empty()) continue;  // the root is one in any case
    const std::size_t parent = unit_of(path);
    units_.push_back({path, parent, units_[parent].depth + 1, {}});
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) add(parameters[i], i);
  for (unit_flat& each : flats_) {
    const std::size_t step = alignment / size_of(each.type);
    each.ranks = ranks;
    each.part = (each.count + ranks * step - 1) / (ranks * step) * step;
  }
}

PARX_INLINE std::size_t unit_plan::depth() const noexcept {
  std::size_t most = 0;
  for (const planned_unit& each : units_) most = std::max(most, each.depth);
  return most;
}

PARX_INLINE bool unit_plan::is_within(std::size_t inner, std::size_t outer) const noexcept {
  while (inner != outer && inner != 0) inner = units_[inner].parent;
  return inner == outer;
}

PARX_INLINE std::size_t unit_plan::whole_bytes(std::size_t unit) const noexcept {
  std::size_t bytes = 0;
  for (const std::size_t flat : units_[unit].flats) bytes += flats_[flat].whole_bytes();
  return bytes;
}

PARX_INLINE std::string unit_plan::name(std::size_t unit) const {
  return unit == 0 ? "the root unit" : formatted("unit \"{}\"", units_[unit].path);
}

PARX_INLINE shard_spec unit_plan::part(const shard_spec& here, std::size_t parameter,
                                       std::size_t rank) const {
  const unit_place& place = places_[parameter];
  const std::size_t own = flats_[place.flat].part * rank;
  const std::size_t size = here.size();
  const auto within = [&](std::size_t at) {
    return std::clamp(at, place.offset, place.offset + size) - place.offset;
  };
  return here.flat(within(own), within(own + flats_[place.flat].part));
}

PARX_INLINE std::size_t unit_plan::part_offset(std::size_t parameter,
                                               std::size_t rank) const noexcept {
  const unit_place& place = places_[parameter];
  const std::size_t own = flats_[place.flat].part * rank;
  return place.offset > own ? std::min(place.offset - own, flats_[place.flat].part) : 0;
}

PARX_INLINE std::size_t unit_plan::unit_of(std::string_view path) const {
  std::size_t found = 0;
  for (std::size_t i = 1; i < units_.size(); ++i) {
    const std::string& outer = units_[i].path;
    const bool is_inner = outer.size() >= units_[found].path.size();
    if (is_inner && is_in_module(path, outer)) found = i;
  }
  return found;
}

PARX_INLINE void unit_plan::add(const unit_parameter& each, std::size_t index) {
  std::size_t unit = unit_of(each.name);
  for (const std::string& path : each.other_paths) {
    const std::size_t other = unit_of(path);
    require(is_within(other, unit) || is_within(unit, other),
            "fsdp: parameter \"{}\" is in {} and, as \"{}\", in {}. A shared parameter belongs "
            "to one unit: make a unit of the module that has both, or leave both in the root",
            each.name, name(unit), path, name(other));
    if (is_within(unit, other)) unit = other;
  }
  places_.push_back({unit, unit_place::nowhere, 0});
  if (each.is_apart) return;
  std::size_t flat = unit_place::nowhere;
  for (const std::size_t known : units_[unit].flats) {
    if (flats_[known].type == each.type && flats_[known].is_trained == each.is_trained) {
      flat = known;
    }
  }
  if (flat == unit_place::nowhere) {
    flat = flats_.size();
    units_[unit].flats.push_back(flat);
    flats_.push_back({.unit = unit, .type = each.type, .is_trained = each.is_trained, .items = {}});
  }
  unit_flat& to = flats_[flat];
  const std::size_t step = alignment / size_of(each.type);
  const std::size_t offset = (to.count + step - 1) / step * step;
  to.items.push_back({index, offset});
  to.count = offset + each.extents.size();
  places_.back().flat = flat;
  places_.back().offset = offset;
}

}  // namespace parx
