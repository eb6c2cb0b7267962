// The layout of a sharded checkpoint: which rank writes what of a tensor, and how a file says so.
//
// A function of the tensor's name, its global shape, the shard_spec of what lies on a rank and the
// number of ranks that hold the same: no rank asks another one. Pure.
//
// A file of a rank says in its __metadata__ what its tensors are parts of, "parx.parts":
//
//   {"0.weight": {"shape": [128, 784], "cuts": [[0, 32, 64]], "elements": [100, 200]}}
//
// The global shape; of each axis that is cut the intervals [axis, begin, end) that lie in the file;
// of the elements that this leaves, in row-major order, the range [begin, end). Members that leave
// everything are left out, and whole tensors have no entry. The elements of a part are in the file
// in the order of the whole.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/json.hpp>
#include <parx/tensor/shape.hpp>
#include <parx/tensor/shard_spec.hpp>
#include <parx/types/chunk.hpp>

namespace parx::inline PARX_ABI {

/// One piece of something that several ranks hold in pieces: number `index`, from 0, of `count`.
struct shard_place {
  std::size_t index = 0;
  std::size_t count = 1;
};

/// "model-00002-of-00004": what piece 1 of 4 of "model" is called, as Hugging Face's libraries
/// number the files of large models.
[[nodiscard]] std::string shard_name(std::string_view name, shard_place place);

/// How something is spread over ranks that save it together.
struct sharding {
  /// The file of this rank: each number belongs to one rank.
  shard_place file = {};
  /// How many ranks hold the same part of a parameter, or of its state, and which of them this rank
  /// is: they share the writing. A spec cannot say that: of a short parameter one rank may have all
  /// and the others nothing. Where nothing is given, nobody else has what lies here.
  std::function<shard_place(const std::string& name, const shard_spec& part)> copies = {};
  /// The same for what belongs to no parameter: buffers, numbers.
  shard_place others = {};
};

namespace detail {

struct parsed_shard_name {
  std::string name;
  shard_place place;
};

/// Of "model-00002-of-00004.safetensors" "model" and {1, 4}; nullopt for a file of another kind.
[[nodiscard]] std::optional<parsed_shard_name> parse_shard_name(std::string_view file);

/// Elements from number `first` on of the part that lies here.
struct piece_to_write {
  shard_spec spec;
  std::size_t first = 0;
};

/// What the holder `copy` of `part` writes of it; nullopt where that is nothing. Small parts have
/// one writer, found by their name; of larger ones each holder writes a range.
[[nodiscard]] std::optional<piece_to_write> piece_of_copy(std::string_view name,
                                                          const shard_spec& part,
                                                          std::size_t element_bytes,
                                                          shard_place copy);

/// What of the whole is in `part`, without the whole's shape.
[[nodiscard]] json::object cuts_to_json(const shard_spec& part);

/// The inverse. Throws json::error, or usage_error for cuts that no tensor of this shape has.
[[nodiscard]] shard_spec cuts_from_json(const parx::shape& whole, const json::value& part);

/// The extents of a tensor of elements of `element_bytes`. Throws json::error for what is none.
[[nodiscard]] parx::shape shape_from_json(const json::value& extents,
                                                 std::size_t element_bytes);
[[nodiscard]] json::array shape_to_json(const parx::shape& shape);

/// A part of a tensor and the file that it is in.
struct placed_part {
  std::size_t file = 0;
  shard_spec spec;
};

/// What is wrong where the parts do not make up the whole of `shape`, each element once: a sentence
/// about the first hole or overlap, or nothing. name_of(file) is what the message calls it.
template <typename NameOf>
[[nodiscard]] std::optional<std::string> coverage_fault(const parx::shape& shape,
                                                        const std::vector<placed_part>& parts,
                                                        NameOf&& name_of) {
  struct piece {
    std::size_t begin, end, file;
  };
  std::vector<piece> pieces;
  for (const placed_part& part : parts) {
    part.spec.for_each_run([&](const shard_run& run) {
      pieces.push_back({run.global, run.global + run.length, part.file});
    });
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const piece& a, const piece& b) { return a.begin < b.begin; });
  std::size_t covered = 0, last = 0;
  const auto hole = [&](std::size_t end) {
    return formatted("elements {}-{} are in none of the files", covered, end - 1);
  };
  for (const piece& each : pieces) {
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
#include <parx/checkpoint/detail/shard_layout_impl.hpp>
#endif
