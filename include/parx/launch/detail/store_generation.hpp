// store_generation: which start of a job this is, in a store that outlives the starts.
//
// torchrun's agents keep one store over restarts. Each agent counts only the failures of its own
// workers (TORCHELASTIC_RESTART_COUNT), so after one has rejoined the counts differ, and no other
// variable tells one start from the next. What all ranks share is the store: rank 0 takes the next
// number there, and tells it to each rank that asks, until all have come. An agent starts its ranks
// once all agents have ended those of the last start, so only one rank 0 answers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <parx/core/deadline.hpp>
#include <parx/launch/detail/job_keys.hpp>
#include <parx/store/prefix.hpp>
#include <parx/store/tcp.hpp>

namespace parx::inline PARX_ABI::detail {

class store_generation {
 public:
  /// On a rank other than 0 it blocks until rank 0 answers. Throws store_error with errc::timeout
  /// where it does not before `limit`.
  [[gnu::cold]] store_generation(tcp_store_options where, const std::string& job, int rank,
                               const deadline& limit)
      : whole_(std::move(where), limit), part_(keys::starts_prefix(job), whole_) {
    if (rank == 0) {
      number_ = std::to_string(part_.add(keys::number, 1, limit));
    } else {
      number_ = part_.get(keys::answer(part_.add(keys::asked, 1, limit)), limit);
    }
  }

  /// The same on all ranks of one start.
  [[nodiscard]] const std::string& number() const noexcept { return number_; }

  /// Of rank 0: answers the ranks that have asked since the last call, and those that have asked
  /// before this start began.
  [[gnu::cold]] void answer(const deadline& limit) {
    for (const auto asked = part_.add(keys::asked, 0, limit); answered_ < asked;) {
      part_.set(keys::answer(++answered_), number_, limit);
    }
  }

 private:
  tcp_store whole_;
  prefix_store part_;
  std::string number_;
  std::int64_t answered_ = 0;
};

}  // namespace parx::detail
