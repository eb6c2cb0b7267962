// agree_on_parts: into how many micro-batches the ranks of a pipeline split this batch.
//
// The last batch of an epoch may have fewer rows than a step has micro-batches; it is split into as
// many as it has rows. A rank in the middle may have no samples, so the first stage counts its rows
// and tells the others: one small message, which arrives before the first micro-batch does.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/source.hpp>
#include <parx/pipeline/options.hpp>

namespace parx::inline PARX_ABI {

enum class batch_use { step, evaluation };

/// What a rank knows of a batch before the step.
struct batch_parts {
  std::optional<std::size_t> rows{};  ///< nullopt where this rank has no samples
  int parts = 1;                      ///< wanted
  batch_use use = batch_use::step;
};

/// As many parts as rows, at least one and at most `most`.
[[nodiscard]] inline batch_parts parts_of_rows(std::optional<std::size_t> rows, int most) {
  const std::size_t wanted = std::min(rows.value_or(SIZE_MAX), static_cast<std::size_t>(most));
  return {rows, static_cast<int>(std::max<std::size_t>(wanted, 1))};
}

/// Whether replicas need equally many micro-batches, because each of those gathers the values of
/// sharded stages or sums their gradients, or because a user's table has the order of the sums.
/// They do as well where a stage looks up rows of a table that is cut over them.
[[nodiscard]] inline bool needs_equal_parts(const pipeline_options& options, batch_use use) {
  const auto& cut = options.sharding;
  if (cut && cut->stage == 3) return true;
  return use == batch_use::step &&
         (options.table || (cut && cut->accumulate == accumulated_gradients::sharded));
}

namespace detail {

/// Closes the group on all ranks, and throws.
[[noreturn]] inline void fail_for_all(process_group& group, const std::string& said) {
  if (!group.closed()) group.abort(said);
  throw_error(errc::mismatch, "{}", said);
}

}  // namespace detail

/// Collective over `group`, in which rank `first` has the first stage. Returns the number of parts,
/// the same on all its ranks. Where replicas need the same number although they have other samples,
/// `equal` is their group, over which the ranks of the first stage agree; null: they may differ. If
/// this rank has another number of rows than the first stage, or another use for them, closes the
/// group and throws parx::error (errc::mismatch).
[[nodiscard]] inline int agree_on_parts(const batch_parts& mine, process_group& group, int first,
                                        process_group* equal, call_site site) {
  constexpr std::int64_t unknown = -1;
  const std::int64_t rows = mine.rows ? static_cast<std::int64_t>(*mine.rows) : unknown;
  std::array<std::int64_t, 3> told{rows, mine.parts, static_cast<std::int64_t>(mine.use)};
  if (equal != nullptr && group.rank() == first) {
    all_reduce(*equal, std::span(&told[1], 1), {.op = reduce_op::max}, site);
  }
  broadcast(group, told, {.root = first}, site);
  if (told[2] != static_cast<std::int64_t>(mine.use)) {
    const bool steps = mine.use == batch_use::step;
    detail::fail_for_all(
        group, formatted("pipeline at {}: rank {} of group \"{}\" runs {}, and rank {}, which has "
                         "the first stage, {}: all ranks of a model call the same",
                         site, group.rank(), group.name(), steps ? "a step" : "an evaluation",
                         first, steps ? "an evaluation" : "a step"));
  }
  if (rows != unknown && told[0] != unknown && rows != told[0]) {
    detail::fail_for_all(
        group, formatted("pipeline at {}: rank {} of group \"{}\" got a batch of {} rows, and rank "
                         "{}, which has the first stage, one of {}. The ranks of one model need "
                         "the same samples: give the sampler data_group() of the model, not "
                         "the group of all ranks, or the loader the model itself",
                         site, group.rank(), group.name(), rows, first, told[0]));
  }
  return static_cast<int>(told[1]);
}

}  // namespace parx
