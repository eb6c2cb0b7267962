// same_batches: the ranks of a pipeline need the same samples, of which the first stage reads the
// inputs and the last the labels. A sampler over the wrong group gives them different ones, and the
// loss is then that of no batch; so the first batch is compared.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/core/error.hpp>
#include <parx/core/hash.hpp>
#include <parx/pipeline/batch.hpp>

namespace parx::inline PARX_ABI {

/// Collective over the ranks of one model. Throws parx::error (errc::mismatch), on all of them,
/// where ranks that read batches have different values for a member; a rank may leave members
/// undefined. Batches that are no aggregates of tensors are not compared.
template <typename Batch>
void require_same_batches(std::span<const Batch> microbatches, process_group& model, bool reads) {
  if constexpr (detail::is_batch_of_tensors<Batch>) {
    constexpr std::size_t width = detail::batch_width<Batch>();
    // The largest of a hash and of its negative, by member. Undefined members are below all.
    constexpr std::int64_t undefined = std::numeric_limits<std::int64_t>::min();
    std::array<std::int64_t, 2 * width> most;
    most.fill(undefined);
    for (std::size_t i = 0; reads && i < microbatches.size(); ++i) {
      detail::with_batch_members(microbatches[i], [&](const auto&... members) {
        std::size_t member = 0;
        const auto add = [&](const auto& each) {
          std::int64_t* const hash = &most[2 * member++];
          if (!each.defined()) return;
          const auto values = each.contiguous();
          const std::string_view bytes{reinterpret_cast<const char*>(values.data()),
                                       values.size() * sizeof(*values.data())};
          const auto before = static_cast<std::uint64_t>(hash[0] == undefined ? 0 : hash[0]);
          hash[0] = static_cast<std::int64_t>(detail::fnv1a(bytes, before) >> 1);
          hash[1] = -hash[0];
        };
        (add(members), ...);
      });
    }
    all_reduce(model, most, {.op = reduce_op::max});
    for (std::size_t member = 0; member < width; ++member) {
      if (most[2 * member] == undefined || most[2 * member] == -most[2 * member + 1]) continue;
      throw_error(errc::mismatch,
                  "pipeline: the {} ranks of one model (group \"{}\") got different samples: "
                  "member {} of the batch differs. Samples are distributed over the other axis of "
                  "the mesh: give the sampler mesh[\"dp\"], not the group of all ranks",
                  model.size(), model.name(), member + 1);
    }
  }
}

}  // namespace parx
