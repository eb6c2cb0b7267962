// job: what a rank knows of the other ranks of its job, whichever network carries their bytes: that
// one has aborted, that one has ended, what each waits for, and where it is.
//
// What a rank tells the others goes through the job's store, once for all of its groups. That it
// was killed it cannot tell: see below. Ranks are numbered as in the job. Threads: safe from any
// thread.
//
// A rank's life, as the others see it:
//
//   record in the store -> listens -> "left/N" in the store -> does not listen  it left by itself
//                                  -> does not listen, no "left/N"              it was killed
//
// "left/N" tells how far the rank was in its groups: a rank may leave while others still wait for
// what it has sent them (comm/detail/progress/parting.hpp).
//
// That it does not listen is found by a probe of its address (has_ended), or by a network: by
// shared memory when the kernel closes its wake channel, by TCP when a connection is refused
// (report_ended). UCX tells of a loss whose reason it does not know (report_loss): the ranks that
// wait then probe at once.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/store/store.hpp>
#include <parx/transport/detail/abort_watch.hpp>
#include <parx/transport/detail/job_store.hpp>
#include <parx/transport/detail/peer_directory.hpp>
#include <parx/transport/detail/sockets.hpp>
#include <parx/transport/detail/unanswered_probes.hpp>

namespace parx::inline PARX_ABI {

/// The network that joins the ranks of a job that are threads of one process.
struct thread_network {
  std::function<bool(int rank)> has_ended;  ///< and all that it sent has been received
  std::function<void()> wake_all;  ///< ends each rank's links::wait(); must not throw
};

struct job_options {
  std::shared_ptr<parx::store> store;  ///< prefixed: holds the keys of this job only
  int rank = 0;
  int world_size = 1;
  bool may_spin = false;  ///< whether each rank of this host has a core of its own
  detail::store_loss loss = detail::store_loss::ends_job;
  detail::store_process kept_by = {};
  /// Where ranks are threads: they have no record in the store.
  std::optional<thread_network> threads = {};
};

class job {
 public:
  /// Throws parx::error where the store does not answer before `limit`, by default within its
  /// timeout.
  [[gnu::cold]] explicit job(job_options options, std::optional<deadline> limit = {})
      : options_(std::move(options)),
        store_(options_.store),
        peers_(store_, options_.world_size),
        abort_(store_, options_.rank, limit, options_.loss, options_.kept_by),
        unanswered_(options_.world_size),
        ended_(static_cast<std::size_t>(options_.world_size)) {
    options_.store.reset();
  }
  job(const job&) = delete;
  job& operator=(const job&) = delete;

  [[nodiscard]] int rank() const noexcept { return options_.rank; }
  [[nodiscard]] int world_size() const noexcept { return options_.world_size; }
  /// Whether busy waiting costs no other rank a core.
  [[nodiscard]] bool may_spin() const noexcept { return options_.may_spin; }
  [[nodiscard]] detail::job_store& store() noexcept { return store_; }
  [[nodiscard]] detail::peer_directory& peers() noexcept { return peers_; }

  /// Tells every rank of the job that this one has failed, and why. The first record is kept, and
  /// replaces that of abort_for_now().
  void abort(const failure_record& reason) noexcept {
    if (reason.is_for_now) return;  // of a group that abort_for_now() has ended
    publish_failure(reason);
    const std::lock_guard lock(for_now_mutex_);
    awaits_reason_ = false;
  }
  /// As abort() where the reason is not known yet: the other ranks wait for abort() up to a second.
  /// This rank's groups end at once.
  [[gnu::cold]] void abort_for_now(const failure_record& place) noexcept {
    publish_failure(place);
    try {
      abort_.end(place);
    } catch (const std::exception&) {  // out of memory
      abort_.end({.is_for_now = true});
    }
    if (options_.threads) options_.threads->wake_all();
  }
  /// Whether abort_for_now() was called and abort() was not yet.
  [[nodiscard]] bool awaits_reason() const noexcept {
    const std::lock_guard lock(for_now_mutex_);
    return awaits_reason_;
  }
  /// The record of the first rank that aborted; nullopt while none has. Does not block.
  [[nodiscard]] std::optional<failure_record> abort_reason() {
    abort_.signal();
    return abort_.reason();
  }
  /// The same for the hot path, an atomic load: nullopt also while no thread has found
  /// abort_descriptor() readable and said so by abort_signalled().
  [[nodiscard]] std::optional<failure_record> known_abort_reason() { return abort_.reason(); }
  /// Becomes readable when a rank has aborted; -1 where ranks are threads.
  [[nodiscard]] int abort_descriptor() const noexcept { return abort_.descriptor(); }
  void abort_signalled() noexcept { abort_.signal(); }

  /// Whether the rank has certainly ended. Also for one to which this rank has no link, whose loss
  /// no link can report. May take some milliseconds.
  [[nodiscard]] bool has_ended(int rank) {
    if (flag_of(rank).load(std::memory_order_relaxed)) return true;
    if (!(options_.threads ? options_.threads->has_ended(rank) : listens_no_more(rank))) {
      return false;
    }
    report_ended(rank);
    return true;
  }
  /// For how long the rank's host has not answered has_ended(), while that was asked again and
  /// again; 0 where it has.
  [[nodiscard]] std::chrono::nanoseconds silence_of(int rank) { return unanswered_.of(rank); }
  /// Whether the last has_ended() had no answer from the rank's host.
  [[nodiscard]] bool is_silent(int rank) { return unanswered_.has_begun(rank); }
  /// For a network that has found that the rank's process has certainly ended. A link that broke is
  /// not enough for that.
  void report_ended(int rank) noexcept { flag_of(rank).store(true, std::memory_order_relaxed); }
  /// For a network that has lost a rank, which may have ended: who waits should look at once.
  void report_loss() noexcept { losses_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t losses() const noexcept {
    return losses_.load(std::memory_order_relaxed);
  }
  /// The words that a rank which has_ended() has left: those of its groups, one after the other.
  /// Nullopt where it was certainly killed, that is, did not leave by itself; "", which tells of no
  /// group, where the store does not answer.
  [[nodiscard, gnu::cold]] std::optional<std::string> parting_words_of(int rank) {
    {
      const std::lock_guard lock(partings_mutex_);
      if (const auto known = partings_.find(rank); known != partings_.end()) return known->second;
    }
    std::optional<std::string> words;
    // A rank publishes that it leaves before it stops listening.
    const bool answered = store_.ask_for_diagnosis([&](parx::store& all, const deadline& limit) {
      const std::vector<std::string> keys{exit_key(rank)};
      if (all.check(keys, limit)) words = all.get(keys.front(), limit);
    });
    if (!answered) return "";
    const std::lock_guard lock(partings_mutex_);
    return partings_.emplace(rank, std::move(words)).first->second;
  }
  /// Keeps what a group of this rank tells those that still wait for it, until this rank leaves.
  /// `words` are not empty. Of more than 64 groups the latest are kept: a peer lags behind by a
  /// few.
  [[gnu::cold]] void note_end_of(std::string words) {
    const std::lock_guard lock(partings_mutex_);
    if (own_words_.size() == 64) own_words_.erase(own_words_.begin());
    own_words_.push_back(std::move(words));
  }
  /// To be called before this rank stops listening.
  [[gnu::cold]] void publish_exit() noexcept {
    if (const auto all = store_.get()) publish_exit(*all);
  }
  /// publish_exit(), and releases the store, which may then end. Groups of this process that still
  /// exist are aborted.
  [[gnu::cold]] void leave() {
    const auto last = store_.release();
    try {
      abort_.end(
          {.rank = rank(),
           .text = formatted("rank {} has left the job, since its parx::world is gone", rank())});
    } catch (const std::exception&) {  // out of memory
      abort_.end({.rank = rank()});
    }
    if (last != nullptr) publish_exit(*last);
  }

  /// Publishes which call of a group this rank waits in, for all ranks of the job to read. Replaces
  /// the group's previous wait report; beyond 16 groups the oldest one is dropped, since a group
  /// that ends does not remove its own. Only for diagnosis.
  [[gnu::cold]] void post_wait_report(std::uint64_t group, std::string_view text) {
    // Held until it is published, so that the last text has the latest reports of all groups.
    const std::lock_guard lock(notices_mutex_);
    std::erase_if(notices_, [group](const auto& each) { return each.first == group; });
    if (notices_.size() == 16) notices_.erase(notices_.begin());
    notices_.emplace_back(group, text);
    std::string all_texts;
    for (const auto& [of, each] : notices_) all_texts += each;
    store_.ask_for_diagnosis([&](parx::store& all, const deadline& limit) {
      all.set(wait_key(rank()), all_texts, limit);
    });
  }
  /// The wait reports that the groups of a rank have posted, one after the other.
  [[nodiscard, gnu::cold]] std::string wait_reports_of(int rank) {
    std::string found;
    store_.ask_for_diagnosis([&](parx::store& all, const deadline& limit) {
      const std::vector<std::string> keys{wait_key(rank)};
      if (all.check(keys, limit)) found = all.get(keys.front(), limit);
    });
    return found;
  }
  /// False while wait reports cannot be read, because the store does not answer.
  [[nodiscard]] bool has_wait_reports() const noexcept { return !store_.is_silent(); }

  /// "rank 3 (node2, pid 4711)", or less where less is known. `called`: its number in the caller's
  /// group. Never throws.
  [[nodiscard, gnu::cold]] std::string describe(int rank, int called) {
    const auto* record = record_of(rank);
    std::string where;
    // Logs and output are labelled with the rank in the job, so name that one as well.
    if (rank != called) where = formatted("rank {} of the job", rank);
    if (record != nullptr) {
      where += formatted("{}{}, pid {}", where.empty() ? "" : ", ", record->host, record->pid);
    }
    return where.empty() ? formatted("rank {}", called) : formatted("rank {} ({})", called, where);
  }
  /// The name of the rank's host; empty where it is not known. Never throws.
  [[nodiscard]] std::string host_of(int rank) {
    const auto* record = record_of(rank);
    return record != nullptr ? record->host : std::string();
  }

 private:
  [[nodiscard]] static std::string exit_key(int rank) { return formatted("left/{}", rank); }
  [[nodiscard]] static std::string wait_key(int rank) { return formatted("waits/{}", rank); }

  [[gnu::cold]] void publish_failure(const failure_record& record) noexcept {
    const auto all = store_.get();
    if (all == nullptr) return;
    // Where the store is gone, its clients notice that by themselves.
    store_.is_answered([&] {
      const std::lock_guard lock(for_now_mutex_);
      awaits_reason_ |= record.is_for_now;
      std::string text = to_text(record);
      all->compare_set(first_failure_key, for_now_, text, store_.parting_deadline());
      if (record.is_for_now) for_now_ = std::move(text);
    });
    if (options_.threads) options_.threads->wake_all();
  }
  [[gnu::cold]] void publish_exit(parx::store& all) noexcept {
    // Where the store is gone, nobody can ask for it.
    store_.is_answered([&] {
      std::string words;
      {
        const std::lock_guard lock(partings_mutex_);
        for (const std::string& each : own_words_) words += each;
      }
      all.set(exit_key(rank()), words, store_.parting_deadline());
    });
  }
  [[nodiscard]] const detail::peer_record* record_of(int rank) {
    return options_.threads ? nullptr : peers_.find(rank);
  }
  [[nodiscard]] std::atomic<bool>& flag_of(int rank) noexcept {
    return ended_[static_cast<std::size_t>(rank)];
  }

  /// Whether the rank's host answers, but nothing listens at the rank's port; or does not answer,
  /// and whoever keeps the store knows that it is lost.
  [[nodiscard, gnu::cold]] bool listens_no_more(int rank) {
    static constexpr int patience_ms = 200;
    const auto* record = record_of(rank);
    if (record == nullptr) return false;
    const auto address = detail::socket_address::tcp(record->address, record->port);
    const int found = detail::probe_address(address.data(), address.length, patience_ms);
    if (found == 0 || found == ECONNREFUSED) {
      unanswered_.note_answer(rank);
      return found != 0;
    }
    const bool has_no_answer =
        found == EINPROGRESS || found == EHOSTUNREACH || found == ENETUNREACH;
    if (has_no_answer) unanswered_.note_no_answer(rank);
    bool lost = false;
    store_.ask_for_diagnosis([&](parx::store& all, const deadline& limit) {
      lost = all.check(std::vector{lost_key(rank)}, limit);
    });
    return lost;
  }

  job_options options_;
  detail::job_store store_;
  detail::peer_directory peers_;
  detail::abort_watch abort_;
  std::mutex notices_mutex_;
  std::vector<std::pair<std::uint64_t, std::string>> notices_;  ///< by group, the oldest first
  std::mutex partings_mutex_;
  std::vector<std::string> own_words_;  ///< of groups that have ended, the oldest first
  std::map<int, std::optional<std::string>> partings_;  ///< by rank, as found in the store
  detail::unanswered_probes unanswered_;
  std::vector<std::atomic<bool>> ended_;  ///< by rank
  std::atomic<std::uint32_t> losses_{0};
  mutable std::mutex for_now_mutex_;
  std::string for_now_;  ///< what abort_for_now() has published
  bool awaits_reason_ = false;
};

}  // namespace parx
