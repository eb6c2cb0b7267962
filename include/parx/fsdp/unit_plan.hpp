// unit_plan: which parameters each unit of an fsdp has, and which part of them each rank has. Pure.
//
// The parameters of a unit lie one after the other in flats: one flat for each element type, and
// separate ones for trained and frozen parameters. A frozen flat becomes a trained one when the
// first of its parameters is unfrozen. A flat is cut into equal parts, part r for rank r, without
// regard to the borders of parameters; a rank's part of a parameter may be empty. Parameters start,
// and parts end, at cache lines. Unit 0 is the root: all that is in no other unit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/fsdp/unit_choice.hpp>
#include <parx/tensor/shape.hpp>
#include <parx/tensor/shard_spec.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

/// A parameter, in the order of for_each_parameter.
struct unit_parameter {
  std::string name;                      ///< its first path
  std::vector<std::string> other_paths;  ///< if several modules share the parameter
  dtype type = dtype::float32;
  shape extents;
  bool is_trained = true;
  bool is_apart = false;  ///< in no flat: a table that is cut by rows
};

/// Where a parameter lies in its flat.
struct flat_item {
  std::size_t parameter = 0;
  std::size_t offset = 0;  ///< of its first element in the flat
};

/// Parameters of a unit that travel together.
struct flat_parameter {
  std::size_t unit = 0;
  dtype type = dtype::float32;
  bool is_trained = true;
  std::size_t count = 0;  ///< elements up to the end of the last parameter
  std::size_t part = 0;   ///< elements of a rank's part
  std::size_t ranks = 1;
  std::vector<flat_item> items;

  [[nodiscard]] std::size_t whole() const noexcept { return part * ranks; }
  [[nodiscard]] std::size_t whole_bytes() const noexcept { return whole() * size_of(type); }
  [[nodiscard]] std::size_t part_bytes() const noexcept { return part * size_of(type); }
};

/// Modules whose parameters are gathered and freed together.
struct planned_unit {
  std::string path;          ///< of the module; empty for the root
  std::size_t parent = 0;    ///< the innermost unit around it; 0 for the root itself
  std::size_t depth = 0;     ///< the number of units around it
  std::vector<std::size_t> flats;
};

/// Where a parameter is.
struct unit_place {
  static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

  std::size_t unit = 0;
  std::size_t flat = nowhere;
  std::size_t offset = 0;  ///< of its first element in the flat
};

/// What is done with a parameter that two units share if neither is within the other.
enum class shared_by_units {
  refused,
  in_unit_around  ///< it is in the innermost unit around both
};

class unit_plan {
 public:
  /// A rank's part ends, and a parameter begins, at a multiple of this many bytes.
  static constexpr std::size_t alignment = 64;

  /// `unit_paths` are the modules that are units, outer ones before those within them. Throws
  /// usage_error for a shared parameter that is refused.
  unit_plan(const std::vector<unit_parameter>& parameters,
            const std::vector<std::string>& unit_paths, std::size_t ranks,
            shared_by_units shared = shared_by_units::refused);

  [[nodiscard]] const std::vector<planned_unit>& units() const noexcept { return units_; }
  [[nodiscard]] const std::vector<flat_parameter>& flats() const noexcept { return flats_; }
  [[nodiscard]] const unit_place& place(std::size_t parameter) const noexcept {
    return places_[parameter];
  }
  /// A parameter of the flat is trained from now on.
  void train(std::size_t flat) noexcept { flats_[flat].is_trained = true; }
  /// The deepest nesting of units, the root not counted: the most that are open at once.
  [[nodiscard]] std::size_t depth() const noexcept {
    std::size_t most = 0;
    for (const planned_unit& each : units_) most = std::max(most, each.depth);
    return most;
  }
  [[nodiscard]] bool is_within(std::size_t inner, std::size_t outer) const noexcept {
    while (inner != outer && inner != 0) inner = units_[inner].parent;
    return inner == outer;
  }
  /// The bytes of all flats of a unit.
  [[nodiscard]] std::size_t whole_bytes(std::size_t unit) const noexcept {
    std::size_t bytes = 0;
    for (const std::size_t flat : units_[unit].flats) bytes += flats_[flat].whole_bytes();
    return bytes;
  }
  /// "unit \"model.layers.3\"", "the root unit".
  [[nodiscard]] std::string name(std::size_t unit) const {
    return unit == 0 ? "the root unit" : formatted("unit \"{}\"", units_[unit].path);
  }

  /// The part of a flat's parameter that `rank` has; `here` is what the flat has of the parameter.
  [[nodiscard]] shard_spec part(const shard_spec& here, std::size_t parameter,
                                std::size_t rank) const {
    const unit_place& place = places_[parameter];
    const std::size_t own = flats_[place.flat].part * rank;
    const std::size_t size = here.size();
    const auto within = [&](std::size_t at) {
      return std::clamp(at, place.offset, place.offset + size) - place.offset;
    };
    return here.flat(within(own), within(own + flats_[place.flat].part));
  }
  /// Where that part begins in the rank's part of the flat, in elements; unspecified, but inside,
  /// if the part is empty.
  [[nodiscard]] std::size_t part_offset(std::size_t parameter, std::size_t rank) const noexcept {
    const unit_place& place = places_[parameter];
    const std::size_t own = flats_[place.flat].part * rank;
    return place.offset > own ? std::min(place.offset - own, flats_[place.flat].part) : 0;
  }

 private:
  /// The innermost unit around a module or parameter of this path.
  [[nodiscard]] std::size_t unit_of(std::string_view path) const {
    std::size_t found = 0;
    for (std::size_t i = 1; i < units_.size(); ++i) {
      const std::string& outer = units_[i].path;
      const bool is_inner = outer.size() >= units_[found].path.size();
      if (is_inner && is_in_module(path, outer)) found = i;
    }
    return found;
  }

  void add(const unit_parameter& each, std::size_t index, shared_by_units shared);

  std::vector<planned_unit> units_;
  std::vector<flat_parameter> flats_;
  std::vector<unit_place> places_;
};

inline unit_plan::unit_plan(const std::vector<unit_parameter>& parameters,
                            const std::vector<std::string>& unit_paths, std::size_t ranks,
                            shared_by_units shared) {
  units_.push_back({});
  for (const std::string& path : unit_paths) {
    if (path.empty()) continue;  // the root is one in any case
    const std::size_t parent = unit_of(path);
    units_.push_back({path, parent, units_[parent].depth + 1, {}});
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) add(parameters[i], i, shared);
  for (flat_parameter& each : flats_) {
    const std::size_t step = alignment / size_of(each.type);
    each.ranks = ranks;
    each.part = (each.count + ranks * step - 1) / (ranks * step) * step;
  }
}

inline void unit_plan::add(const unit_parameter& each, std::size_t index,
                           shared_by_units shared) {
  std::size_t unit = unit_of(each.name);
  for (const std::string& path : each.other_paths) {
    const std::size_t other = unit_of(path);
    require(shared == shared_by_units::in_unit_around || is_within(other, unit) ||
                is_within(unit, other),
            "fsdp: parameter \"{}\" is in {} and, as \"{}\", in {}. A shared parameter belongs "
            "to one unit: make a unit of the module that has both, or leave both in the root",
            each.name, name(unit), path, name(other));
    while (!is_within(other, unit)) unit = units_[unit].parent;
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
  flat_parameter& to = flats_[flat];
  const std::size_t step = alignment / size_of(each.type);
  const std::size_t offset = (to.count + step - 1) / step * step;
  to.items.push_back({index, offset});
  to.count = offset + each.extents.size();
  places_.back().flat = flat;
  places_.back().offset = offset;
}

}  // namespace parx
