// unit_plan: what a unit of an fsdp consists of and which part of it each rank has, as a pure
// function.
//
// The parameters of a unit lie one behind the other in flats, one for each element type, those that
// are trained apart from those that are frozen. A flat is cut into equal parts, part r for rank r,
// wherever that is; a parameter's part may be empty. Parameters start, and parts end, at cache
// lines. Unit 0 is the root: what belongs to no other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <parx/core/check.hpp>
#include <parx/fsdp/unit_choice.hpp>
#include <parx/tensor/shape.hpp>
#include <parx/tensor/shard_spec.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

/// A parameter, in the order of for_each_parameter.
struct unit_parameter {
  std::string name;                      ///< its first path
  std::vector<std::string> other_paths;  ///< of a parameter that several modules share
  dtype type = dtype::float32;
  shape extents;
  bool is_trained = true;
  bool is_apart = false;  ///< it is in no flat: a table that is cut by rows
};

struct flat_item {
  std::size_t parameter = 0;
  std::size_t offset = 0;  ///< of its first element in the flat
};

/// Parameters of a unit that travel together.
struct unit_flat {
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

struct planned_unit {
  std::string path;          ///< of the module; empty for the root
  std::size_t parent = 0;    ///< the unit that it is within; 0 for the root itself
  std::size_t depth = 0;     ///< how many units it is within
  std::vector<std::size_t> flats;
};

/// Where a parameter is.
struct unit_place {
  static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

  std::size_t unit = 0;
  std::size_t flat = nowhere;
  std::size_t offset = 0;  ///< of its first element in the flat
};

class unit_plan {
 public:
  /// A rank's part ends, and a parameter begins, at a multiple of so many bytes.
  static constexpr std::size_t alignment = 64;

  /// `unit_paths` are those of the modules that are units, outer ones before those within them.
  /// Throws usage_error for a parameter that two units share, neither of which is within the other.
  unit_plan(const std::vector<unit_parameter>& parameters,
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

  [[nodiscard]] const std::vector<planned_unit>& units() const noexcept { return units_; }
  [[nodiscard]] const std::vector<unit_flat>& flats() const noexcept { return flats_; }
  [[nodiscard]] const unit_place& place(std::size_t parameter) const noexcept {
    return places_[parameter];
  }
  /// How many units are open at once at most, the root aside.
  [[nodiscard]] std::size_t depth() const noexcept {
    std::size_t most = 0;
    for (const planned_unit& each : units_) most = std::max(most, each.depth);
    return most;
  }
  [[nodiscard]] bool is_within(std::size_t inner, std::size_t outer) const noexcept {
    while (inner != outer && inner != 0) inner = units_[inner].parent;
    return inner == outer;
  }
  /// Of all flats of a unit, each beginning at an aligned offset.
  [[nodiscard]] std::size_t whole_bytes(std::size_t unit) const noexcept {
    std::size_t bytes = 0;
    for (const std::size_t flat : units_[unit].flats) bytes += flats_[flat].whole_bytes();
    return bytes;
  }
  /// "unit \"model.layers.3\"", "the root unit".
  [[nodiscard]] std::string name(std::size_t unit) const {
    return unit == 0 ? "the root unit" : fmt::format("unit \"{}\"", units_[unit].path);
  }

  /// What `rank` has of a parameter of a flat, of which `here` lies in the flat.
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
  /// Where that part begins in the rank's part of the flat, in elements; of an empty one, anywhere
  /// inside.
  [[nodiscard]] std::size_t part_offset(std::size_t parameter, std::size_t rank) const noexcept {
    const unit_place& place = places_[parameter];
    const std::size_t own = flats_[place.flat].part * rank;
    return place.offset > own ? std::min(place.offset - own, flats_[place.flat].part) : 0;
  }

 private:
  /// The innermost unit that a module or parameter of this path is within.
  [[nodiscard]] std::size_t unit_of(std::string_view path) const {
    std::size_t found = 0;
    for (std::size_t i = 1; i < units_.size(); ++i) {
      const std::string& outer = units_[i].path;
      const bool is_inner = outer.size() >= units_[found].path.size();
      if (is_inner && detail::is_in_module(path, outer)) found = i;
    }
    return found;
  }

  void add(const unit_parameter& each, std::size_t index) {
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
      flats_.push_back(
          {.unit = unit, .type = each.type, .is_trained = each.is_trained, .items = {}});
    }
    unit_flat& to = flats_[flat];
    const std::size_t step = alignment / size_of(each.type);
    const std::size_t offset = (to.count + step - 1) / step * step;
    to.items.push_back({index, offset});
    to.count = offset + each.extents.size();
    places_.back().flat = flat;
    places_.back().offset = offset;
  }

  std::vector<planned_unit> units_;
  std::vector<unit_flat> flats_;
  std::vector<unit_place> places_;
};

}  // namespace parx
