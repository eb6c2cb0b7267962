// abort_watch: finds out whether a rank of the job has aborted it, by the first rank's record in
// the store.
//
// A thread that sleeps polls descriptor(); reason() then reads the record, once for all groups.
// Threads: safe from any thread.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <parx/core/deadline.hpp>
#include <parx/core/error.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/log.hpp>
#include <parx/store/store.hpp>
#include <parx/transport/detail/job_store.hpp>

namespace parx::inline PARX_ABI::detail {

/// What it means to a rank that the job's store has ended.
enum class store_loss {
  ends_job,  ///< its store is hosted by a rank, or nobody would end the ranks
  is_borne,  ///< an agent on this host sees that too, and gives the ranks the time to save
};

/// The process that keeps the job's store.
struct store_process {
  int rank = 0;                 ///< -1: it is no rank
  std::string name = "rank 0";  ///< for messages
};

class abort_watch {
 public:
  /// `rank` is this one's. Throws parx::error where the store does not answer before `limit`.
  abort_watch(job_store& all, int rank, std::optional<deadline> limit, store_loss loss,
              store_process kept_by)
      : store_(all), rank_(rank), loss_(loss), kept_by_(std::move(kept_by)) {
    begin(store_.require()->watch(first_failure_key, limit));
  }

  /// Becomes readable when a rank has aborted; -1 where the store has none.
  [[nodiscard]] int descriptor() const noexcept {
    return descriptor_.load(std::memory_order_acquire);
  }
  /// descriptor() was seen to be readable.
  void signal() noexcept { may_be_set_.store(true, std::memory_order_release); }

  /// The record of the first rank that aborted; nullopt while none has. Does not block. Without a
  /// signal() it costs an atomic load: to read the watch is a system call.
  [[nodiscard]] std::optional<failure_record> reason() {
    if (!may_be_set_.load(std::memory_order_acquire) && (descriptor() >= 0 || is_blind_)) {
      return std::nullopt;
    }
    const std::lock_guard lock(mutex_);
    if (!reason_) find_reason();
    may_be_set_.store(reason_.has_value(), std::memory_order_release);
    return reason_;
  }

  /// Gives the groups of this process that still exist a reason, unless there is one already.
  void end(failure_record reason) {
    {
      const std::lock_guard lock(mutex_);
      if (!reason_) reason_ = std::move(reason);
      signal();
    }
    // Shut down, not closed: a thread of such a group may be about to poll it.
    ::shutdown(descriptor(), SHUT_RDWR);
  }

 private:
  static constexpr std::size_t most_watches = 16;
  /// Usually the process that keeps it has ended, which should be reported soon.
  static constexpr std::chrono::milliseconds reconnect_patience{400};

  [[gnu::cold]] void begin(std::unique_ptr<store_watch> next) {
    descriptor_.store(next->descriptor(), std::memory_order_release);
    watches_.push_back(std::move(next));
  }
  /// Locked.
  [[gnu::cold]] void find_reason() {
    switch (watches_.back()->ready()) {
      case watch_state::pending: return;
      case watch_state::set: reason_ = read(); return;
      case watch_state::lost: break;
    }
    if (watches_again()) return;
    if (loss_ == store_loss::is_borne) {
      is_blind_ = true;
      descriptor_.store(-1, std::memory_order_release);  // it would be readable for ever
      return;
    }
    reason_ = failure_record{
        .code = errc::peer_lost,
        .blamed = kept_by_.rank,
        .text = formatted("{}, which keeps the job's store ({}), has ended or was killed, or "
                          "cannot be reached any more",
                          kept_by_.name, store_.require()->describe())};
  }
  /// Connects again, since the connection may have broken although the store is alive.
  [[nodiscard]] bool watches_again() {
    if (watches_.size() == most_watches) return false;
    try {
      const auto all = store_.require();
      begin(all->watch(first_failure_key, deadline::after(reconnect_patience)));
      log(log_level::info, "the connection to {} broke and was made again", all->describe());
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }
  [[nodiscard, gnu::cold]] failure_record read() {
    // Another rank that is unwinding says why as soon as its exception is caught.
    static constexpr std::chrono::milliseconds for_now_patience{1000}, between_reads{5};
    try {
      const auto limit = deadline::after(std::chrono::seconds(2));
      auto record = failure_from_text(watches_.back()->value(limit));
      const auto until = deadline::after(for_now_patience);
      while (record && record->is_for_now && record->rank != rank_ && !until.passed()) {
        std::this_thread::sleep_for(between_reads);
        record = failure_from_text(store_.require()->get(first_failure_key, limit));
      }
      if (record) return std::move(*record);
      return {.text = "another rank has failed, and its record cannot be understood"};
    } catch (const std::exception& failure) {
      return {.text = formatted("another rank has failed, but its record cannot be read: {}",
                                failure.what())};
    }
  }

  job_store& store_;
  const int rank_;
  const store_loss loss_;
  const store_process kept_by_;
  std::atomic<bool> is_blind_{false};  ///< the store has ended
  /// The last one is current. Others stay open: a thread may be about to poll their descriptors.
  std::vector<std::unique_ptr<store_watch>> watches_;
  std::atomic<int> descriptor_{-1};
  std::atomic<bool> may_be_set_{false};
  std::mutex mutex_;
  std::optional<failure_record> reason_;
};

}  // namespace parx::detail
