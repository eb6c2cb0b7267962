// peer_directory: the records of a job's ranks, and on which host each rank is, read from the store
// when they are needed and then kept.
//
// One rank reads the records one by one, and leaves all of them in one value for the others: if
// each did, the store would look up the square of the number of ranks, for longer than a busy host
// has.
//
// Threads: safe from any thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
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
  [[gnu::cold]] peer_directory(job_store& all, int world_size)
      : store_(all), records_(static_cast<std::size_t>(world_size)) {}

  [[nodiscard]] static std::string key(int rank) { return formatted("rank/{}", rank); }

  /// The record of a rank of the job; the reference stays valid. Throws parx::error where the store
  /// does not return it before `limit`.
  [[nodiscard, gnu::cold]] const peer_record& record_of(int rank, deadline limit) {
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

  /// Where each rank of the job is. Throws parx::error where a record is missing.
  [[nodiscard, gnu::cold]] const std::vector<placement>& placements() {
    const std::lock_guard lock(placements_mutex_);
    if (placements_.empty()) read_all(deadline::after(patience));
    return placements_;
  }

  /// Once all have arrived: reads all ranks' records, so that links can be opened although the
  /// store's process is stopped later. In a large world the store would send too much: there a
  /// record is read when a link needs it.
  [[gnu::cold]] void read_ahead(const deadline& limit) {
    if (is_large()) return;
    const std::lock_guard lock(placements_mutex_);
    if (placements_.empty()) read_all(limit);
  }

 private:
  static constexpr std::chrono::seconds patience{30};

  /// Records have some 250 bytes: those of 256 ranks for each of them are 16 MB.
  [[nodiscard]] bool is_large() const noexcept { return records_.size() > 256; }

  /// Reads all records, or in a large world where the ranks are. Under placements_mutex_.
  [[gnu::cold]] void read_all(const deadline& limit) {
    const auto all = store_.require();
    std::vector<placement> places;
    if (is_large()) {
      const auto table = [&, this] {
        return to_text(place_ranks(records_from_text(read_records(*all))));
      };
      places = placements_from_text(shared_text(*all, "rank/placements", table, limit));
    } else {
      auto records = records_from_text(shared_text(
          *all, "rank/records", [&, this] { return read_records(*all); }, limit));
      places = place_ranks(records);
      const std::lock_guard lock(mutex_);
      for (std::size_t i = 0; i < std::min(records.size(), records_.size()); ++i) {
        if (!records_[i].is_known()) records_[i] = std::move(records[i]);
      }
    }
    if (places.size() != records_.size()) {
      throw_error(errc::protocol, "the table of ranks in the store has {} instead of {}",
                  places.size(), records_.size());
    }
    placements_ = std::move(places);
  }

  /// Of the ranks that ask for it the first one makes it, and the others wait for that one, until
  /// `limit`. One that waits in vain makes it itself once the first one has had time enough: it was
  /// lost meanwhile.
  template <typename Make>
  [[nodiscard]] static std::string shared_text(store& all, const std::string& name, Make make,
                                               const deadline& limit) {
    const std::vector<std::string> published{name};
    if (all.add(name + "/makers", 1, limit) > 1) {
      try {
        all.wait(published, limit);
        return all.get(name, limit);
      } catch (const error& failure) {
        if (failure.code_value() != errc::timeout ||
            limit.elapsed_seconds() < std::chrono::duration<double>(patience).count()) {
          throw;
        }
      }
    }
    const std::string made = make();
    all.set(name, made, deadline::after(patience));
    return made;
  }

  [[nodiscard, gnu::cold]] std::string read_records(store& all) const {
    std::vector<std::string> keys;
    for (std::size_t rank = 0; rank < records_.size(); ++rank) {
      keys.push_back(key(static_cast<int>(rank)));
    }
    std::string text;
    for (const std::string& each : all.multi_get(keys, deadline::after(patience))) text += each;
    return text;
  }

  job_store& store_;
  std::mutex placements_mutex_;
  std::vector<placement> placements_;
  std::mutex mutex_;
  std::vector<peer_record> records_;  ///< by rank; is_known() once the store has returned it
};

}  // namespace parx::detail
