// peer_directory: the records of a job's ranks, and on which host each rank is, read from the store
// when they are needed and then kept.
//
// Threads: safe from any thread.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <parx/core/deadline.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/store/store.hpp>
#include <parx/transport/detail/job_store.hpp>
#include <parx/transport/detail/peer_record.hpp>

namespace parx::inline PARX_ABI::detail {

class peer_directory {
 public:
  peer_directory(job_store& all, int world_size)
      : store_(all), records_(static_cast<std::size_t>(world_size)) {}

  [[nodiscard]] static std::string key(int rank) { return formatted("rank/{}", rank); }

  /// The record of a rank of the job; the reference stays valid. Throws parx::error where the store
  /// does not return it before `limit`.
  [[nodiscard]] const peer_record& record_of(int rank, deadline limit) {
    peer_record& known = records_[static_cast<std::size_t>(rank)];
    {
      const std::lock_guard lock(mutex_);
      if (known.is_known()) return known;
    }
    auto record = peer_record::from_text(store_.require()->get(key(rank), limit));
    const std::lock_guard lock(mutex_);
    if (!known.is_known()) known = std::move(record);
    return known;
  }
  /// As record_of, for messages and diagnosis: null where the store does not return it.
  [[nodiscard]] const peer_record* find(int rank) {
    const auto limit = deadline::after(std::chrono::seconds(store_.is_silent() ? 0 : 1));
    try {
      return &record_of(rank, limit);
    } catch (const error&) {
      return nullptr;
    }
  }

  /// Where each rank of the job is: from rank 0's table if it has published one, else from all
  /// ranks' records. Throws parx::error where a record is missing.
  [[nodiscard]] const std::vector<placement>& placements() {
    const std::lock_guard lock(placements_mutex_);
    if (!placements_.empty()) return placements_;
    const std::vector<std::string> table{"placements"};
    const auto limit = deadline::after(std::chrono::seconds(30));
    const auto all = store_.require();
    placements_ = all->check(table, limit) ? placements_from_text(all->get(table.front(), limit))
                                           : place_ranks(read_records(*all, limit));
    if (placements_.size() != records_.size()) {
      throw_error(errc::protocol, "the table of hosts in the store has {} ranks instead of {}",
                  placements_.size(), records_.size());
    }
    return placements_;
  }

  /// Once all have arrived: reads all ranks' records, so that links can be opened although the
  /// store's process is stopped later. In a large world that would be too much for the store: there
  /// rank 0 publishes the table of placements, and a record is read when a link needs it.
  void meet_everybody(int own_rank, const deadline& limit) {
    static constexpr std::size_t most_read = 256;  // some 250 bytes each: the store sends 16 MB
    const bool is_large = records_.size() > most_read;
    if (is_large && own_rank != 0) return;
    const auto all = store_.require();
    auto records = read_records(*all, limit);
    auto places = place_ranks(records);
    if (is_large) all->set("placements", to_text(places), limit);
    const std::scoped_lock lock(placements_mutex_, mutex_);
    placements_ = std::move(places);
    for (std::size_t i = 0; i < records_.size(); ++i) {
      if (!records_[i].is_known()) records_[i] = std::move(records[i]);
    }
  }

 private:
  [[nodiscard]] std::vector<peer_record> read_records(store& all, const deadline& limit) const {
    std::vector<std::string> keys;
    for (std::size_t rank = 0; rank < records_.size(); ++rank) {
      keys.push_back(key(static_cast<int>(rank)));
    }
    std::vector<peer_record> records;
    for (const std::string& text : all.multi_get(keys, limit)) {
      records.push_back(peer_record::from_text(text));
    }
    return records;
  }

  job_store& store_;
  std::mutex placements_mutex_;
  std::vector<placement> placements_;
  std::mutex mutex_;
  std::vector<peer_record> records_;  ///< by rank; is_known() once the store has returned it
};

}  // namespace parx::detail
