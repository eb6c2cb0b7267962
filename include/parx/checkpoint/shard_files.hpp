// The layout of a sharded checkpoint: which part of a tensor each rank writes, and how its file
// describes it.
//
// The layout is a function of the tensor's name, its global shape, the shard_spec of a rank's part
// and the number of ranks that hold the same part, so ranks need not communicate. Pure.
//
// The __metadata__ of a rank's file describes the parts under "parx.parts":
//
//   {"0.weight": {"shape": [128, 784], "cuts": [[0, 32, 64]], "elements": [100, 200]}}
//
// "shape" is the global shape; "cuts" has for each axis that is cut the intervals [axis, begin,
// end) that are in the file; "elements" is the range [begin, end) of the remaining elements in
// row-major order. "cuts" or "elements" is omitted if it selects everything, and whole tensors have
// no entry. The elements of a part are in the file in the order of the whole tensor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/comm/process_group.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/json.hpp>
#include <parx/tensor/shape.hpp>
#include <parx/tensor/shard_spec.hpp>

namespace parx::inline PARX_ABI {

/// Piece number `index`, from 0, of `count` pieces.
struct shard_place {
  std::size_t index = 0;
  std::size_t count = 1;
};
[[nodiscard]] inline shard_place place_in(const process_group& group) {
  return {static_cast<std::size_t>(group.rank()), static_cast<std::size_t>(group.size())};
}
/// The place of `inner` in group `outer`, if that is one of several groups of equal sizes.
[[nodiscard]] inline shard_place place_within(shard_place outer, shard_place inner) {
  return {outer.index * inner.count + inner.index, outer.count * inner.count};
}

/// "model-00002-of-00004": the name of piece 1 of 4 of "model", numbered as Hugging Face's
/// libraries number the files of large models.
[[nodiscard]] std::string shard_name(std::string_view name, shard_place place);

/// How a model is distributed over the ranks that save it together.
struct sharding {
  /// The file of this rank. Each rank has a different index.
  shard_place file = {};
  /// The number of ranks that hold the same part of a parameter, or of its state, and this rank's
  /// index among them: they share the writing. The shard_spec does not tell: one rank may have all
  /// of a short parameter and the others nothing. Default: no other rank has the same part.
  std::function<shard_place(const std::string& name, const shard_spec& part)> copies = {};
  /// The same for state that belongs to no parameter: buffers, numbers.
  shard_place others = {};
  /// For buffers, where only some ranks have them: those of a pipeline's stage.
  std::optional<shard_place> buffers = {};
};

/// Parameters are cut over the ranks of `group`; each element is on one rank.
[[nodiscard]] sharding sharded_over(const process_group& group);
/// The same where the ranks of `replicas`, a part of `group`, hold the same parts.
[[nodiscard]] inline sharding sharded_over(const process_group& group,
                                           const process_group& replicas) {
  sharding how = sharded_over(group);
  how.copies = [copy = place_in(replicas)](const auto&, const auto&) { return copy; };
  return how;
}
/// Every rank of `group` has all parameters whole.
[[nodiscard]] inline sharding replicated_over(const process_group& group) {
  return sharded_over(group, group);
}

namespace detail {

struct parsed_shard_name {
  std::string name;
  shard_place place;
};

/// "model" and {1, 4} for "model-00002-of-00004.safetensors"; nullopt for other names.
[[nodiscard]] std::optional<parsed_shard_name> parse_shard_name(std::string_view file);

/// A piece of this rank's part of a tensor: the elements from number `first` of the part on.
struct elements_to_write {
  shard_spec spec;
  std::size_t first = 0;
};

/// The piece of `part` that the rank with copy number `copy` writes; nullopt if none. A small part
/// has one writer, chosen by a hash of its name; of a larger part each rank writes a range.
[[nodiscard]] std::optional<elements_to_write> elements_of_copy(std::string_view name,
                                                          const shard_spec& part,
                                                          std::size_t element_bytes,
                                                          shard_place copy);

/// "cuts" and "elements" of `part`, without the global shape.
[[nodiscard]] json::object cuts_to_json(const shard_spec& part);

/// The inverse. Throws json::error, or usage_error for cuts outside of the shape.
[[nodiscard]] shard_spec cuts_from_json(const parx::shape& whole, const json::value& part);

/// The shape of a tensor with elements of `element_bytes`. Throws json::error if `extents` is not a
/// list of numbers, and usage_error if the tensor is too large.
[[nodiscard]] parx::shape shape_from_json(const json::value& extents, std::size_t element_bytes);
[[nodiscard]] json::array shape_to_json(const parx::shape& shape);

/// A part of a tensor and the file that it is in.
struct placed_shard {
  std::size_t file = 0;
  shard_spec spec;
};

/// Checks that the parts cover a tensor of `shape`, each element once. Returns a sentence about the
/// first hole or overlap, which names files by name_of(file); nullopt if there is none.
template <typename NameOf>
[[nodiscard]] std::optional<std::string> coverage_fault(const parx::shape& shape,
                                                        const std::vector<placed_shard>& parts,
                                                        NameOf&& name_of) {
  struct interval {
    std::size_t begin, end, file;
  };
  std::vector<interval> intervals;
  for (const placed_shard& part : parts) {
    part.spec.for_each_run([&](const shard_run& run) {
      intervals.push_back({run.global, run.global + run.length, part.file});
    });
  }
  std::sort(intervals.begin(), intervals.end(),
            [](const interval& a, const interval& b) { return a.begin < b.begin; });
  std::size_t covered = 0, last = 0;
  const auto hole = [&](std::size_t end) {
    return formatted("elements {}-{} are in none of the files", covered, end - 1);
  };
  for (const interval& each : intervals) {
    if (each.begin > covered) return hole(each.begin);
    if (each.begin < covered) {
      return formatted("elements {}-{} are in {} and again in {}", each.begin,
                       std::min(covered, each.end) - 1, name_of(last), name_of(each.file));
    }
    covered = each.end;
    last = each.file;
  }
  if (covered < shape.size()) return hole(shape.size());
  return std::nullopt;
}

}  // namespace detail

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/shard_files_impl.hpp>
#endif
