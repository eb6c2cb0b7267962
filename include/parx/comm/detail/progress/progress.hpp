// progress: runs the calls of a group. It numbers them, keeps them in the order of issue, and moves
// their bytes.
//
// One thread at a time drives it: the thread of a blocking call while nothing asynchronous is
// pending, else the group's progress thread, behind which blocking calls queue. The first failure
// ends the group: it is sent to all ranks, and every pending and later call fails with it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <parx/comm/detail/progress/backoff.hpp>
#include <parx/comm/detail/progress/call.hpp>
#include <parx/comm/detail/progress/call_record.hpp>
#include <parx/comm/detail/progress/diagnosis.hpp>
#include <parx/comm/detail/progress/failure.hpp>
#include <parx/comm/detail/progress/group_end.hpp>
#include <parx/comm/detail/progress/pending_calls.hpp>
#include <parx/comm/detail/progress/unread_call.hpp>
#include <parx/comm/detail/progress/watchdog.hpp>
#include <parx/core/error.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/start_thread.hpp>
#include <parx/trace/event.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

enum class locking : bool { not_needed, needed };

/// The lock of a group's calls, taken only if another thread may make progress. Until the first
/// asynchronous call, only the thread that uses the group accesses it. Small calls then avoid
/// locked instructions, which stall until the store buffer has drained.
class call_lock {
 public:
  call_lock(std::mutex& mutex, locking need)
      : lock_(mutex, std::defer_lock), shared_(need == locking::needed) {
    lock();
  }

  void lock() {
    if (shared_) lock_.lock();
  }
  void unlock() {
    if (shared_) lock_.unlock();
  }
  /// Without another thread nothing could make `enough()` true: returns at once.
  template <typename Enough>
  void wait(std::condition_variable& changed, Enough enough) {
    if (shared_) changed.wait(lock_, enough);
  }

 private:
  std::unique_lock<std::mutex> lock_;
  bool shared_;
};

class progress {
 public:
  /// All references must outlive it.
  [[gnu::cold]] progress(links& network, const std::string& name, std::uint64_t id,
                         const group_options& options, std::shared_ptr<groups_of_rank> siblings)
      : network_(network),
        options_(options),
        record_(network, name, id, options, std::move(siblings)) {}
  [[gnu::cold]] ~progress() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    if (all_calls_read()) tell_where_it_ended();
    network_.close();
  }
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;

  /// Runs a call and those chained to it to the end; rethrows the failure. The thread makes
  /// progress itself unless another thread already does.
  void run(call& request) {
    {
      call_lock lock(mutex_, locking_now());
      enqueue(request);
      if (record_.is_driven()) network_.wake();
      await(lock, request);
    }
    request.rethrow();
  }

  /// Issues an asynchronous call. It must exist until it is done.
  void submit(call& request) {
    {
      const std::lock_guard lock(mutex_);
      if (!thread_.joinable()) {
        thread_ = start_thread("of async_ calls", [this] { drive_asynchronous_calls(); });
      }
      if (!has_other_threads_) has_other_threads_ = true;  // another thread may be reading it
      enqueue(request);
      if (record_.is_driven()) network_.wake();
    }
    changed_.notify_all();
  }

  /// Waits until an issued call is done; does not throw its failure.
  void wait(call& request) {
    call_lock lock(mutex_, locking_now());
    await(lock, request);
  }

  /// The same for a call whose handle goes because of an exception. Ranks that throw together have
  /// all issued it, so it has time while bytes move. Where they stand still, the other ranks wait
  /// for calls that this rank does not come to: the job is aborted.
  [[gnu::cold]] void wait_in_unwinding(call& request) noexcept {
    if (!stops_moving(request)) return;
    try {
      abort_for_now(formatted("rank {}: an exception has left the scope of {} before that was done",
                              network_.job_rank(network_.rank()), diagnosis_.title(request)));
    } catch (const std::exception&) {
      abort_for_now("out of memory");
    }
    wait(request);
  }

  /// Whether an issued call is done. Never blocks.
  [[nodiscard]] bool test(const call& request) {
    {
      const call_lock lock(mutex_, locking_now());
      if (request.all_done()) return true;
    }
    // Otherwise a loop around test() would keep the core from the progress thread and from the
    // other ranks.
    std::this_thread::yield();
    return false;
  }

  /// Ends the group for a reason outside of it: where one is being handled, that exception.
  void abort(std::string_view reason) {
    failure_record record = record_of(std::current_exception(), network_.job_rank(network_.rank()));
    record.text = reason;
    const bool is_awaited = network_.job().awaits_reason();
    network_.job().abort(record);
    if (is_awaited) end_.set(reason);
    else end_.set_if_first(reason);
    record_.fail(record);
  }
  /// As process_group::abort_for_now.
  [[gnu::cold]] void abort_for_now(std::string_view place) noexcept {
    try {
      failure_record record = record_of(nullptr, network_.job_rank(network_.rank()));
      record.text = place;
      record.is_for_now = true;
      network_.job().abort_for_now(record);
      end_.set_if_first(place);
      record_.fail(record);
    } catch (const std::exception&) {  // out of memory: this rank's calls end without a reason
      network_.job().abort_for_now({.is_for_now = true});
    }
  }
  [[nodiscard]] bool has_ended() const noexcept { return end_.has_ended(); }

  /// Whether everything that peers have sent for this group's calls was read.
  [[nodiscard]] bool all_calls_read() {
    return has_ended() || anything_pending() ||
           !tell_of_unread_call(network_, diagnosis_, record_);
  }

  void name_tags(std::vector<std::string> names) { record_.name_tags(std::move(names)); }
  [[nodiscard]] const std::shared_ptr<groups_of_rank>& siblings() const noexcept {
    return record_.siblings();
  }
  /// Bytes that collectives and messages have sent and received over links, headers included.
  [[nodiscard]] std::size_t bytes_sent() const noexcept { return pending_.bytes_sent(); }
  [[nodiscard]] std::size_t bytes_received() const noexcept { return pending_.bytes_received(); }
  [[nodiscard]] double async_seconds() const noexcept { return pending_.async_seconds(); }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds longest_sleep{100};

  [[nodiscard]] locking locking_now() const noexcept { return locking{has_other_threads_}; }

  /// Numbers a call, or refuses it if the group has ended. Locked.
  void admit(call& request) {
    if (end_.has_ended()) throw diagnosis_.refusal_of(request, end_.reason());
    if (request.timeout.count() <= 0) request.timeout = options_.timeout;
    record_.enter(request);
  }

  /// Waits for an asynchronous call; true where nothing has moved for a while before it is done.
  [[nodiscard]] bool stops_moving(const call& request) noexcept {
    static constexpr std::chrono::milliseconds patience{250};
    std::unique_lock lock(mutex_);
    for (;;) {
      const std::size_t moved = bytes_sent() + bytes_received();
      if (changed_.wait_for(lock, patience, [&] { return request.all_done(); })) return false;
      if (bytes_sent() + bytes_received() == moved) return true;
    }
  }

  /// Locked.
  void enqueue(call& request) {
    call* const ahead = pending_.set_up_before(request);
    if (ahead != nullptr) admit(*ahead);
    // It may have to wait before its first step, and its deadline begins now.
    if (ahead != nullptr || has_other_threads_) request.timed_after_start = false;
    // abort() may end the group meanwhile: the whole chain is admitted before any of it is pending.
    for (call* each = &request; each != nullptr; each = each->next.get()) admit(*each);
    if (ahead != nullptr) incoming_.push_back(ahead);
    for (call* each = &request; each != nullptr; each = each->next.get()) {
      incoming_.push_back(each);
    }
    has_incoming_.store(true, std::memory_order_relaxed);
  }

  [[nodiscard]] bool anything_pending() const noexcept {
    return !incoming_.empty() || !pending_.empty();
  }

  /// Locked. Waits for a call: drives the progress, or waits for the thread that does.
  void await(call_lock& lock, const call& request) {
    while (!request.all_done()) {
      if (record_.is_driven()) {
        if (++waiting_ == 1) network_.wake();  // the driver may spin from now on
        lock.wait(changed_, [&] { return request.all_done() || !record_.is_driven(); });
        --waiting_;
      } else {
        drive(lock, waiter::program, [&] { return request.all_done(); });
      }
    }
  }

  void drive_asynchronous_calls() {
    trace::name_thread("comm");
    call_lock lock(mutex_, locking::needed);
    for (;;) {
      lock.wait(changed_,
                [&] { return stopping_ || (!record_.is_driven() && anything_pending()); });
      if (stopping_) return;
      drive(lock, waiter::progress_thread, [&] { return stopping_ || !anything_pending(); });
    }
  }

  /// Becomes the owner of the progress and drives it until `enough()`. The lock is held on entry
  /// and exit, and released while bytes move.
  template <typename Enough>
  void drive(call_lock& lock, waiter who, Enough enough) {
    record_.set_driven(true);
    backoff_.progressed();
    while (!enough()) {
      std::optional<failure> failed;
      bool must_look = false, progressed = false;
      try {
        must_look = take_incoming() && record_.latest() >= next_check_;
        if (must_look) next_check_ = record_.latest() + std::chrono::milliseconds(100);
      } catch (...) {
        failed = current_failure();
      }
      lock.unlock();
      try {
        if (must_look) look_at_links();
        if (!failed) progressed = move(who);
      } catch (...) {
        failed = current_failure();
      }
      lock.lock();
      if (failed) fail(*failed);
      if (!progressed) continue;
      if (pending_.retire()) watchdog_.call_ended();
      tell_others();
    }
    record_.set_driven(false);
    tell_others();
  }

  /// Moves what can be moved, or waits until something can or a call is issued. Unlocked.
  bool move(waiter who) {
    // The computation that asynchronous calls overlap with uses the same cores, so their thread
    // does not spin until the program waits for it (await).
    const auto is_waited_for = [&] {
      return who == waiter::program || waiting_.load(std::memory_order_relaxed) > 0;
    };
    bool progressed = pending_.step();
    while (!progressed && is_waited_for() && !has_incoming_.load(std::memory_order_relaxed)) {
      if (!backoff_.idle(network_.job().may_spin())) sleep(waiter::program);
      progressed = pending_.step();
    }
    if (progressed) {
      if (backoff_.has_begun()) pending_.has_waited();
      backoff_.progressed();
      watchdog_.progressed();
    } else if (!is_waited_for()) {
      sleep(waiter::progress_thread);
    }
    return progressed;
  }

  /// Wakes threads that wait for a change.
  void tell_others() {
    if (locking_now() == locking::needed) changed_.notify_all();
  }

  /// Locked. False if no call has been issued.
  bool take_incoming() {
    if (!has_incoming_.load(std::memory_order_relaxed)) return false;
    has_incoming_.store(false, std::memory_order_relaxed);
    for (call* each : incoming_) pending_.add(*each);
    incoming_.clear();
    return true;
  }

  /// Unlocked: sleeps until something can move, then checks the deadlines and the other ranks.
  void sleep(waiter who) {
    auto limit = longest_sleep;
    interests_.clear();
    pending_.interests(interests_);
    pending_.for_each(
        [&](const call& request) { limit = std::min(limit, request.until().remaining()); });
    network_.wait(interests_, watchdog_.longest_sleep(limit));
    watchdog_.look(who);
  }

  /// Unlocked: finds out whether a peer or the job has ended, for calls that end without a sleep:
  /// small sends in shared memory always do until the ring is full.
  void look_at_links() {
    interests_.clear();
    for (const channel traffic : {channel::collective, channel::message}) {
      network_.for_each_link(traffic, [&](int peer, link&) {
        interests_.push_back({peer, traffic, true, false});
      });
    }
    network_.wait(interests_, std::chrono::milliseconds(0));
    network_.wake();  // another thread may have called it, which that wait has consumed
    throw_if_aborted(network_);
  }

  /// In a handler: the exception that is being handled, as the reason why the group ends. Does not
  /// throw, even if there is no memory left for the text.
  [[nodiscard, gnu::cold, gnu::noinline]] failure current_failure() noexcept try {
    try {
      throw;
    } catch (const header_mismatch& found) {
      return {diagnosis_.mismatch(found), errc::mismatch, found.peer};
    } catch (const message_mismatch& found) {
      return {diagnosis_.mismatch(found), errc::mismatch, found.peer};
    } catch (const link_lost& lost) {
      failure found = reason_of(lost, network_);
      if (found.code == errc::peer_lost) found.text += pending_.untaken_text(lost.peer);
      return found;
    } catch (const failure& known) {
      return known;
    } catch (const error& known) {
      return {known.message(), known.code_value(), -1, known.cause()};
    } catch (const std::exception& other) {
      return {other.what(), errc::io, -1, cause_of(other)};  // out of memory, of descriptors
    } catch (...) {  // thrown by a user's function
      return {"an exception that is not a std::exception", errc::io, -1, std::current_exception()};
    }
  } catch (...) {
    return {"out of memory", errc::io, -1};  // short enough for the string's inline buffer
  }

  /// For ranks that still wait in this group when this one has left the job.
  [[gnu::cold]] void tell_where_it_ended() noexcept {
    if (has_ended() || anything_pending()) return;
    try {
      network_.job().note_end_of(record_.parting_words());
    } catch (const std::exception&) {
      // Out of memory: the others take it that anything may still come.
    }
  }

  /// Locked. Ends the group: the first reason is sent to all ranks, and every pending call fails
  /// with it. Out of memory, the group ends without a reason.
  [[gnu::cold]] void fail(const failure& reason) noexcept {
    watchdog_.ended();
    pending_.retire_messages();
    try {
      const failure_record record = diagnosis_.record_of_end(reason, pending_.oldest());
      end_.set(record.text);
      record_.fail(record);
      network_.job().abort(record);
    } catch (const std::exception&) {
      end_.set("");
      network_.job().abort({.text = "out of memory"});  // fits the string's inline buffer
    }
    network_.close();
    const auto end = [&](call& request) {
      if (request.done) return;
      request.timed_after_start = false;  // its end is now
      try {
        request.failure = std::make_exception_ptr(diagnosis_.end_of(request, reason));
      } catch (const std::exception&) {
        request.failure = std::current_exception();
      }
      record_.finish(request, flight_state::failed);
      request.done = true;
    };
    pending_.end(end);
    for (call* each : incoming_) end(*each);
    incoming_.clear();
    has_incoming_.store(false, std::memory_order_relaxed);
    tell_others();
  }

  links& network_;
  const group_options& options_;
  call_record record_;
  const diagnosis diagnosis_{network_, record_};
  bool has_other_threads_ = false;  ///< others may make progress: since the first asynchronous call

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> waiting_{0};  ///< threads that wait behind the driver
  bool stopping_ = false;
  std::vector<call*> incoming_;  ///< issued, not yet seen by the driver
  std::atomic<bool> has_incoming_{false};
  group_end end_;
  std::thread thread_;

  // Used by the driving thread only.
  pending_calls pending_{network_, diagnosis_, record_};
  backoff backoff_;
  watchdog watchdog_{network_, diagnosis_, pending_, record_, options_};
  clock::time_point next_check_{};
  std::vector<link_interest> interests_;
};

}  // namespace parx::detail
