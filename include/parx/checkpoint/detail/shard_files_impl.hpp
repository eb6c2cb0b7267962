// Definitions of shard_files.hpp.
#pragma once

#include <utility>

#include <parx/checkpoint/shard_files.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/types/chunk.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE std::string shard_name(std::string_view name, shard_place place) {
  require(place.index < place.count, "shard_name: \"{}\" has {} pieces, so none with number {}",
          name, place.count, place.index);
  return formatted("{}-{:05}-of-{:05}", name, place.index + 1, place.count);
}

PARX_INLINE sharding sharded_over(const process_group& group) {
  const shard_place place = place_in(group);
  return {.file = place, .copies = {}, .others = place};
}

}  // namespace parx

namespace parx::inline PARX_ABI::detail {

PARX_INLINE std::optional<parsed_shard_name> parse_shard_name(std::string_view file) {
  constexpr std::string_view between = "-of-", ending = ".safetensors";
  if (!file.ends_with(ending)) return std::nullopt;
  file.remove_suffix(ending.size());
  const std::size_t of = file.rfind(between);
  const std::size_t dash = of == 0 || of == file.npos ? file.npos : file.rfind('-', of - 1);
  if (dash == file.npos) return std::nullopt;
  const auto index = parse_number<std::size_t>(file.substr(dash + 1, of - dash - 1));
  const auto count = parse_number<std::size_t>(file.substr(of + between.size()));
  if (!index || !count || *index == 0 || *index > *count) return std::nullopt;
  return parsed_shard_name{std::string(file.substr(0, dash)), {*index - 1, *count}};
}

PARX_INLINE std::optional<elements_to_write> elements_of_copy(std::string_view name,
                                                        const shard_spec& part,
                                                        std::size_t element_bytes,
                                                        shard_place copy) {
  constexpr std::size_t worth_sharing = 64 * 1024;  // bytes
  require(copy.index < copy.count, "\"{}\": copy {} of {} does not exist", name, copy.index,
          copy.count);
  // An empty tensor also has a writer, so that its name is in the checkpoint.
  const bool is_nothing = part.size() == 0 && part.global_shape().size() > 0;
  if (is_nothing) return std::nullopt;
  if (copy.count == 1) return elements_to_write{part};
  if (part.size() * element_bytes < worth_sharing) {
    if (fnv1a(name) % copy.count != copy.index) return std::nullopt;
    return elements_to_write{part};
  }
  const auto index = static_cast<int>(copy.index), count = static_cast<int>(copy.count);
  const std::size_t begin = chunk_begin(part.size(), count, index);
  const std::size_t end = chunk_begin(part.size(), count, index + 1);
  if (begin == end) return std::nullopt;
  return elements_to_write{part.flat(begin, end), begin};
}

PARX_INLINE json::object cuts_to_json(const shard_spec& part) {
  json::object members;
  if (!part.cuts().empty()) {
    json::array cuts;
    for (const axis_interval& each : part.cuts())
      cuts.push_back(json::array{each.axis, each.begin, each.end});
    members["cuts"] = std::move(cuts);
  }
  if (part.is_flat())
    members["elements"] = json::array{part.flat_begin(), part.flat_begin() + part.size()};
  return members;
}

PARX_INLINE shard_spec cuts_from_json(const parx::shape& whole, const json::value& part) {
  const auto numbers = [](const json::value& list, std::size_t count) {
    std::vector<std::size_t> read;
    for (const json::value& each : list.elements()) read.push_back(each.as<std::size_t>());
    if (read.size() != count)
      throw json::error(formatted("{} is not a list of {} numbers", json::dump(list), count));
    return read;
  };
  std::vector<axis_interval> cuts;
  if (const json::value* const list = part.find("cuts")) {
    for (const json::value& each : list->elements()) {
      const auto cut = numbers(each, 3);
      cuts.push_back({cut[0], cut[1], cut[2]});
    }
  }
  shard_spec spec = shard_spec::of_cuts(whole, cuts);
  if (const json::value* const range = part.find("elements")) {
    const auto elements = numbers(*range, 2);
    spec = spec.flat(elements[0], elements[1]);
  }
  return spec;
}

PARX_INLINE parx::shape shape_from_json(const json::value& extents, std::size_t element_bytes) {
  parx::shape read;
  for (const json::value& each : extents.elements()) read.push_back(each.as<std::size_t>());
  (void)byte_count(read, element_bytes);
  return read;
}

PARX_INLINE json::array shape_to_json(const parx::shape& shape) {
  json::array extents;
  for (const std::size_t extent : shape) extents.push_back(extent);
  return extents;
}

}  // namespace parx::detail
