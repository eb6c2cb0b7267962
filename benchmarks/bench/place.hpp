// place: the arguments of a call, in the buffers of a rank.
#pragma once

#include <cstddef>
#include <cstring>

#include <bench/backend.hpp>
#include <bench/options.hpp>

namespace bench {

/// Two buffers, each large enough for a whole vector after rounding.
struct buffer_pair {
  memory first;
  memory second;
  std::size_t bytes = 0;

  /// Collective. `most` is the longest vector in bytes.
  buffer_pair(backend& ranks, const options& given, std::size_t most)
      : bytes(most + static_cast<std::size_t>(ranks.size()) * parx::size_of(given.type)) {
    first = ranks.allocate(bytes);
    second = ranks.allocate(bytes);
  }
};

[[nodiscard]] inline call place_call(operation op, placement where, const shape& elements,
                                     const options& given, int rank, const buffer_pair& buffers) {
  const std::size_t size = parx::size_of(given.type);
  std::byte* input = buffers.first.get();
  std::byte* output = where == placement::in_place ? input : buffers.second.get();
  const std::size_t mine = static_cast<std::size_t>(rank) * elements.count * size;
  if (where == placement::in_place && row_of(op).data == layout::gathered) input += mine;
  if (where == placement::in_place && row_of(op).data == layout::scattered) output += mine;
  return {op,
          where,
          {input, elements.input, given.type},
          {output, elements.output, given.type},
          given.reduction,
          given.root};
}

/// Sets both buffers to zero. In place, repeated sums would overflow and repeated products become
/// denormals, which are slow; zeros stay zero.
inline void clear(const call& next) {
  if (next.op == operation::barrier) return;
  std::memset(next.output.data, 0, next.output.bytes());
  std::memset(const_cast<void*>(next.input.data), 0, next.input.bytes());
}

/// In place if the library supports that, as a training program would call it.
[[nodiscard]] inline placement usual_placement(const backend& ranks, operation op) {
  return ranks.has(op, placement::in_place) ? placement::in_place : placement::out_of_place;
}

/// Whether the library has the operation at all, with the algorithm in use.
[[nodiscard]] inline bool offers(const backend& ranks, operation op) {
  return ranks.has(op, placement::in_place) || ranks.has(op, placement::out_of_place);
}

/// Calls visit(op, algorithm) for all operations and algorithms of the options. If an operation
/// does not have an algorithm, the pair is skipped if there are several operations; otherwise it is
/// a parx::usage_error.
template <typename Visit>
void for_each_choice(backend& ranks, const options& given, Visit visit) {
  for (const operation op : given.operations) {
    for (const std::string& algorithm : given.algorithms) {
      ranks.use(algorithm);
      const bool offered = offers(ranks, op);
      parx::require(offered || given.operations.size() > 1, "--algo {}: {} has no such {}",
                    algorithm, ranks.name(), name_of(op));
      if (offered) visit(op, algorithm);
    }
  }
}

/// Calls visit(shape) once for each shape: small sizes may be rounded to the same one, and all
/// sizes of a barrier are.
template <typename Visit>
void for_each_shape(const backend& ranks, const options& given, operation op, Visit visit) {
  std::size_t last = static_cast<std::size_t>(-1);
  for (const std::size_t size : sizes_of(given)) {
    const shape elements = shape_of(op, size / parx::size_of(given.type), ranks.size());
    if (elements.whole() == last) continue;
    last = elements.whole();
    visit(elements);
  }
}

}  // namespace bench
