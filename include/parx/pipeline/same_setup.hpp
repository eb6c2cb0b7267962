// same_setup: all ranks of a job must have the same table, cut and seed. Otherwise some would wait
// for messages that never come, or start with the parts of different models.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/source.hpp>
#include <parx/pipeline/action.hpp>
#include <parx/pipeline/csv.hpp>

namespace parx::inline PARX_ABI {

/// Collective over the job. Throws parx::error (errc::mismatch) on all its ranks where one differs
/// from the first. `seed` is that of the options, `initialized` the one that the model was given.
inline void require_same_setup(const pipeline_table& table, const std::vector<std::size_t>& cut,
                               std::uint64_t seed, std::uint64_t initialized, process_group& job,
                               call_site site) {
  const std::string text = formatted("{}{}", to_csv(table), joined_text(cut, ","));
  const std::array<std::uint64_t, 3> mine{detail::fnv1a(text), seed, initialized};
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(job.size()));
  all_gather(job, mine, all, {}, site);
  for (std::size_t other = mine.size(); other < all.size(); ++other) {
    if (all[other] == all[other % mine.size()]) continue;
    const std::size_t rank = other / mine.size();
    if (other % mine.size() == 0) {
      throw_error(errc::mismatch,
                  "pipeline at {}: rank {} of group \"{}\" has another schedule, number of "
                  "micro-batches or cut than rank 0; rank {} has {} of {} micro-batches, cut at {}",
                  site, rank, job.name(), job.rank(), table.name, table.microbatches,
                  joined_text(cut));
    }
    throw_error(errc::mismatch,
                "pipeline at {}: rank {} of group \"{}\" has the seed {} {}, and rank 0 has {}. "
                "The ranks of a job have parts of one model: give them the same",
                site, rank, job.name(), all[other],
                other % mine.size() == 1 ? "in its pipeline_options" : "of its model.initialize()",
                all[other % mine.size()]);
  }
}

}  // namespace parx
