// same_batches: the ranks of a pipeline need the same samples, of which the first stage reads the
// inputs and the last the labels. A sampler over the wrong group gives them different ones, and the
// loss belongs to no batch. Batches are therefore compared, in the first steps and then from time
// to time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/core/error.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/batch.hpp>

namespace parx::inline PARX_ABI {

/// Collective over the ranks of one model. Throws parx::error (errc::mismatch), on all of them,
/// where the micro-batches of ranks that have any differ in a member. Members that are undefined
/// and `weights` are not compared, nor batches that are no aggregates of tensors.
template <typename Batch>
void require_same_batches(std::string_view who, std::span<const Batch> microbatches,
                          process_group& model, call_site site) {
  constexpr std::size_t most_members = 6;
  // The largest of a hash and of its negative, by member. What is undefined is below all.
  static constexpr std::int64_t undefined = std::numeric_limits<std::int64_t>::min();
  std::array<std::int64_t, 2 * most_members> most;
  most.fill(undefined);
  if constexpr (is_batch_of_tensors<Batch>) {
    for (const Batch& each : microbatches) {
      const void* weights = nullptr;
      if constexpr (requires { each.weights; }) weights = &each.weights;
      with_batch_members(each, [&](const auto&... members) {
        std::size_t member = 0;
        const auto add = [&](const auto& part) {
          std::int64_t* const hash = &most[2 * member++];
          if (!part.defined() || static_cast<const void*>(&part) == weights) return;
          const auto values = part.contiguous();
          const std::string_view bytes{reinterpret_cast<const char*>(values.data()),
                                       values.size() * sizeof(*values.data())};
          const auto before = static_cast<std::uint64_t>(hash[0] == undefined ? 0 : hash[0]);
          hash[0] = static_cast<std::int64_t>(detail::fnv1a(bytes, before) >> 1);
          hash[1] = -hash[0];
        };
        (add(members), ...);
      });
    }
  }
  all_reduce(model, most, {.op = reduce_op::max}, site);
  std::size_t compared = 0, differ = 0;
  for (std::size_t member = 0; member < most_members; ++member) {
    if (most[2 * member] == undefined) continue;
    ++compared;
    if (most[2 * member] != -most[2 * member + 1]) ++differ;
  }
  if (differ == 0) return;
  throw_error(
      errc::mismatch,
      "{} at {}: the {} ranks of one model (group \"{}\") got different samples: {} of {} "
      "members of their batches differ. They need the same: give the loader the model, or the "
      "sampler its data_group(), not the group of all ranks; let no rank skip a batch; and leave "
      "a tensor that a rank does not use undefined",
      who, site, model.size(), model.name(), differ, compared);
}

}  // namespace parx
