// group_core: the implementation of a process group.
//
// It numbers the calls, keeps them in issue order and makes progress on them. One thread at a time
// owns the progress and drives it: the thread of a blocking call while nothing asynchronous is
// pending, else the group's progress thread, behind which blocking calls queue. The first failure
// ends the group: it is sent to all ranks, and every pending and later call fails with it.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <parx/comm/detail/issue/choice.hpp>
#include <parx/comm/detail/issue/plan_cache.hpp>
#include <parx/comm/detail/issue/repeats.hpp>
#include <parx/comm/detail/progress/backoff.hpp>
#include <parx/comm/detail/progress/call.hpp>
#include <parx/comm/detail/progress/current_failure.hpp>
#include <parx/comm/detail/progress/diagnosis.hpp>
#include <parx/comm/detail/progress/ending.hpp>
#include <parx/comm/detail/progress/flight_notes.hpp>
#include <parx/comm/detail/progress/inline_groups.hpp>
#include <parx/comm/detail/progress/pending_calls.hpp>
#include <parx/comm/detail/progress/shared_areas.hpp>
#include <parx/comm/detail/progress/sole_user.hpp>
#include <parx/comm/detail/progress/standing.hpp>
#include <parx/comm/detail/progress/call_lock.hpp>
#include <parx/comm/detail/progress/unread_call.hpp>
#include <parx/comm/detail/progress/watch.hpp>
#include <parx/core/coarse_clock.hpp>
#include <parx/core/error.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/own_process.hpp>
#include <parx/core/start_thread.hpp>
#include <parx/trace/event.hpp>

namespace parx::inline PARX_ABI::detail {

class group_core final : private inline_groups::group {
 public:
  group_core(std::unique_ptr<links> network, std::string name, std::uint64_t id,
             group_options options, std::shared_ptr<groups_of_rank> siblings)
      : network_(std::move(network)), name_(std::move(name)), id_(id), options_(options),
        siblings_(std::move(siblings)) {
    flight_.add_group(id_, name_, size(), rank());
    siblings_->add(standing_);
  }

  ~group_core() {
    siblings_->remove(standing_);
    if (moved_by_ != nullptr) moved_by_->remove(*this);
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    (void)all_calls_read();
    network_->close();
  }
  group_core(const group_core&) = delete;
  group_core& operator=(const group_core&) = delete;

  /// Whether everything that peers have sent for this group's calls was read.
  [[nodiscard]] bool all_calls_read() {
    return ending_.has_ended() || anything_pending() ||
           !tell_of_unread_call(*network_, name_, standing_.calls(), flight_);
  }

  /// False in a process that was forked from the rank's.
  [[nodiscard]] bool is_here() const noexcept { return process_.is_this(); }
  /// Throws usage_error in a forked process: it has the rank's sockets and memory, but no threads.
  void require_here() const {
    if (is_here()) [[likely]] return;
    throw_usage("group \"{}\" belongs to the process of rank {}, and this one was forked from it: "
                "only the rank may communicate. Let the forked process hand its results to the "
                "rank, or exec a program that joins a job of its own",
                name_, rank());
  }

  [[nodiscard]] links& network() noexcept { return *network_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] const group_options& options() const noexcept { return options_; }
  [[nodiscard]] const std::shared_ptr<groups_of_rank>& siblings() const noexcept {
    return siblings_;
  }
  [[nodiscard]] int rank() const noexcept { return network_->rank(); }
  [[nodiscard]] int size() const noexcept { return network_->size(); }

  /// The calling thread is in a call while the returned value exists. Throws usage_error while
  /// another thread is in one.
  [[nodiscard]] sole_user::guard enter(operation what, call_site site) {
    return sole_user::guard(user_, [&] {
      throw_usage("{} on group \"{}\" at {}: another thread is in a call of this group. A group "
                  "is used by one thread at a time: give each thread one of its own, by split() or "
                  "subgroup(), or let them take turns",
                  name_of(what), name_, site);
    });
  }

  /// Runs a call and those chained to it to the end; rethrows the failure. The thread makes
  /// progress itself unless another thread already does.
  void run(call& request) {
    const auto inside = enter(request.what, request.site);
    {
      call_lock lock(mutex_, locking_now());
      enqueue(request);
      if (standing_.is_driven()) network_->wake();
      finish(lock, request);
    }
    request.rethrow();
  }

  /// Issues a set-up call; the call that follows it at once makes progress on both.
  void issue(call& request) {
    call_lock lock(mutex_, locking_now());
    enqueue(request);
  }

  /// Issues an asynchronous call. It must exist until it is done.
  void submit(call& request) {
    const auto inside = enter(request.what, request.site);
    if (inline_mode()) let_this_thread_move_it();
    {
      const std::lock_guard lock(mutex_);
      if (!inline_mode() && !thread_.joinable()) start_progress();
      if (!has_other_threads_) has_other_threads_ = true;  // another thread may be reading it
      enqueue(request);
      for (call* each = &request; each != nullptr; each = each->next.get()) each->start_clock();
      if (inline_mode()) return;
      if (standing_.is_driven()) network_->wake();
    }
    changed_.notify_all();
  }

  /// Waits until an issued call is done; does not throw its failure.
  void wait(call& request) {
    call_lock lock(mutex_, locking_now());
    finish(lock, request);
  }

  /// Whether an issued call is done. Never blocks; makes progress if no thread does.
  [[nodiscard]] bool test(const call& request) {
    {
      call_lock lock(mutex_, locking_now());
      poll_owned(lock);
      if (request.all_done()) return true;
    }
    if (inline_mode()) move_others_on();
    // Otherwise a loop around test() would keep the core from the progress thread and from the
    // other ranks.
    std::this_thread::yield();
    return false;
  }
  /// With inline progress: makes progress on pending calls without waiting, also on those of this
  /// thread's other groups.
  void poll() {
    if (!inline_mode()) return;
    move_on();
    move_others_on();
  }

  /// Ends the group for a reason outside of it: where one is being handled, that exception.
  void abort(std::string_view reason) {
    failure_record record = record_of(std::current_exception(), network_->job_rank(rank()));
    record.text = reason;
    network_->job().abort(record);
    ending_.set_if_first(reason);
    flight_.fail(record);
  }

  [[nodiscard]] bool closed() const noexcept { return ending_.has_ended(); }

  /// Bytes that collectives and messages have sent and received over links, headers included.
  [[nodiscard]] std::size_t bytes_sent() const noexcept { return pending_.bytes_sent(); }
  [[nodiscard]] std::size_t bytes_received() const noexcept { return pending_.bytes_received(); }

  [[nodiscard]] double async_seconds() const noexcept { return pending_.async_seconds(); }
  [[nodiscard]] plan_cache& plans() noexcept { return plans_; }
  [[nodiscard]] repeats& repeated() noexcept { return repeats_; }
  [[nodiscard]] bool may_be_shared(const void* data) const noexcept {
    return areas_.may_hold(data);
  }

  [[nodiscard]] std::shared_ptr<const shared_area> share(std::size_t bytes, deadline limit) {
    try {
      return areas_.make(*network_, bytes, limit);
    } catch (const error& refused) {
      // Otherwise the other ranks would wait for this one.
      abort(formatted("rank {} could not share memory: {}", network_->job_rank(rank()),
                      text_of(refused)));
      throw;
    }
  }
  [[nodiscard]] shared_view find_shared(const void* data, std::size_t bytes) const {
    return areas_.find(data, bytes);
  }
  [[nodiscard]] detail::choice& choice() noexcept { return choice_; }
  [[nodiscard]] host_memory& memory() noexcept { return pending_.memory(); }

  /// Counts the groups made with `key`: equal on all ranks that make them in the same order.
  [[nodiscard]] std::uint64_t next_group_number(std::uint64_t key) { return ++made_groups_[key]; }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds longest_sleep{100};
  /// While other groups of this thread have pending operations: their links do not end the sleep.
  static constexpr std::chrono::milliseconds nap{1};

  [[nodiscard]] locking locking_now() const noexcept { return locking{has_other_threads_}; }
  [[nodiscard]] bool inline_mode() const noexcept {
    return options_.progress == progress_mode::inline_poll;
  }

  /// Numbers a call, or refuses it if the group has ended. Locked.
  void admit(call& request) {
    if (ending_.has_ended()) throw diagnosis_.refusal_of(request, ending_.reason());
    if (!request.named) name_call(request, id_, options_.timeout);
    if (!is_message(request)) {
      if (!request.sets_up_memory) standing_.add_call();
      request.header.sequence = 2 * standing_.calls() + (request.sets_up_memory ? 1 : 0);
    }
    flight_.enter(request);
  }

  /// Locked.
  void enqueue(call& request) {
    // abort() may end the group meanwhile: the whole chain is admitted before any of it is pending.
    for (call* each = &request; each != nullptr; each = each->next.get()) admit(*each);
    for (call* each = &request; each != nullptr; each = each->next.get()) {
      incoming_.push_back(each);
      has_incoming_.store(true, std::memory_order_relaxed);
    }
  }

  [[nodiscard]] bool anything_pending() const noexcept {
    return !incoming_.empty() || !pending_.empty();
  }

  /// Locked. Waits for a call: drives the progress, or waits for the thread that does.
  void finish(call_lock& lock, const call& request) {
    while (!request.all_done()) {
      if (standing_.is_driven()) {
        if (++waiting_ == 1) network_->wake();  // the driver may spin from now on
        lock.wait(changed_, [&] { return request.all_done() || !standing_.is_driven(); });
        --waiting_;
      } else {
        drive(lock, idle::back_off, [&] { return request.all_done(); });
      }
    }
  }

  void start_progress() { thread_ = start_thread("of async_ calls", [this] { progress_loop(); }); }
  void progress_loop() {
    trace::name_thread("comm");
    call_lock lock(mutex_, locking::needed);
    for (;;) {
      lock.wait(changed_,
                [&] { return stopping_ || (!standing_.is_driven() && anything_pending()); });
      if (stopping_) return;
      // The computation it overlaps with uses the same cores, so it does not spin until the program
      // waits for it (finish).
      drive(lock, idle::sleep, [&] { return stopping_ || !anything_pending(); });
    }
  }

  /// Makes progress if no thread does. True if anything has moved.
  bool poll_owned(call_lock& lock) {
    if (standing_.is_driven() || !inline_mode() || !anything_pending()) return false;
    bool stepped = false;
    return drive(lock, idle::leave, [&] { return std::exchange(stepped, true); });
  }

  // inline_groups::group
  inline_groups::state move_on() override {
    call_lock lock(mutex_, locking_now());
    if (poll_owned(lock)) return inline_groups::state::moved;
    return standing_.is_driven() || anything_pending() ? inline_groups::state::pending
                                                       : inline_groups::state::idle;
  }
  /// With inline progress: the thread that issues an operation makes progress on it where it waits.
  void let_this_thread_move_it() {
    const auto& own = inline_groups::of_this_thread();
    if (moved_by_ == own) return;
    if (moved_by_ != nullptr) moved_by_->remove(*this);
    moved_by_ = own;
    own->add(*this);
    standing_.set_polled();
  }
  inline_groups::state move_others_on() {
    return inline_groups::of_this_thread()->move_on_all_but(*this);
  }

  enum class idle { back_off, sleep, leave };

  /// Becomes the owner of the progress and drives it until `enough()`. The lock is held on entry
  /// and exit, and released while bytes move. Returns whether the last step moved anything.
  template <typename Enough>
  bool drive(call_lock& lock, idle when_idle, Enough enough) {
    standing_.set_driven(true);
    bool moved = false;
    backoff_.progressed();
    while (!enough()) {
      std::optional<failure> failed;
      bool must_look = false;
      try {
        if (has_incoming_.load(std::memory_order_relaxed)) {
          taken_at_ = coarse_now();
          must_look = taken_at_ >= next_look_;
          take_incoming();
        }
      } catch (...) {
        failed = current_failure(*network_, diagnosis_, pending_);
      }
      lock.unlock();
      bool progressed = false;
      const auto waited_for = [&] {
        return when_idle == idle::back_off ||
               (when_idle == idle::sleep && waiting_.load(std::memory_order_relaxed) > 0);
      };
      try {
        if (must_look) look_at_links();
        progressed = pending_.step();
        // The lock is not needed here: of other threads' actions only a new call ends this wait.
        while (!progressed && waited_for() && !has_incoming_.load(std::memory_order_relaxed)) {
          const auto others = inline_mode() ? move_others_on() : inline_groups::state::idle;
          if (others == inline_groups::state::moved) backoff_.progressed();
          else if (!backoff_.idle(network_->job().may_spin())) {
            sleep(others == inline_groups::state::idle ? longest_sleep : nap, waiter::program);
          }
          progressed = pending_.step();
        }
        if (progressed) {
          backoff_.progressed();
          watch_.progressed();
        } else if (when_idle == idle::leave) {
          glance();
        } else if (when_idle == idle::sleep && !waited_for()) {
          sleep(longest_sleep, waiter::progress_thread);
        }
      } catch (...) {
        failed = current_failure(*network_, diagnosis_, pending_);
      }
      lock.lock();
      if (failed) fail(*failed);
      retire(progressed);
      moved = progressed;
    }
    standing_.set_driven(false);
    tell_others();
    return moved;
  }

  /// Wakes threads that wait for a change.
  void tell_others() {
    if (locking_now() == locking::needed) changed_.notify_all();
  }

  /// Locked.
  void take_incoming() {
    has_incoming_.store(false, std::memory_order_relaxed);
    while (!incoming_.empty()) {
      pending_.add(*incoming_.front());
      incoming_.erase(incoming_.begin());
    }
  }

  /// Locked: marks finished calls as done and wakes their threads.
  void retire(bool progressed) {
    if (!progressed) return;
    if (pending_.retire()) watch_.call_ended();
    tell_others();
  }

  /// Unlocked: sleeps until something can move, then checks the deadlines and the other ranks.
  void sleep(std::chrono::milliseconds limit, waiter who) {
    interests_.clear();
    pending_.interests(interests_);
    pending_.for_each([&](call& request) {
      request.start_clock(issued_at());
      limit = std::min(limit, request.until.remaining());
    });
    network_->wait(interests_, watch_.longest_sleep(limit));
    watch_.look(who);
  }

  /// Since when a blocking call runs whose clock has not been started: from its issue on if that
  /// is longer ago than the coarse clock is late, for instance because the store was asked.
  [[nodiscard]] clock::time_point issued_at() const noexcept {
    static constexpr std::chrono::milliseconds longest_tick{10};
    const auto now = clock::now();
    return now - taken_at_ > longest_tick ? taken_at_ : now;
  }

  /// Unlocked: finds out whether a peer or the job has ended, for calls that end without a sleep:
  /// small sends in shared memory always do until the ring is full.
  void look_at_links() {
    next_look_ = taken_at_ + std::chrono::milliseconds(100);
    interests_.clear();
    for (const channel traffic : {channel::collective, channel::message}) {
      network_->for_each_link(traffic, [&](int peer, link&) {
        interests_.push_back({peer, traffic, true, false});
      });
    }
    network_->wait(interests_, std::chrono::milliseconds(0));
    network_->wake();  // another thread may have called it, which that wait has consumed
    throw_if_aborted(*network_);
  }

  /// As sleep(), without sleeping, once a millisecond: deadlines also hold in a loop around test().
  void glance() {
    const auto now = clock::now();
    if (now < next_glance_) return;
    next_glance_ = now + std::chrono::milliseconds(1);
    sleep(std::chrono::milliseconds(0), waiter::none);
  }

  /// Locked. Ends the group: the first reason is sent to all ranks, and every pending call fails
  /// with it. Out of memory, the group ends without a reason.
  void fail(const failure& reason) noexcept {
    watch_.ended();
    pending_.retire_messages();
    try {
      const failure_record record = diagnosis_.record_of_end(reason, pending_.oldest());
      ending_.set(record.text);
      flight_.fail(record);
      network_->job().abort(record);
    } catch (const std::exception&) {
      ending_.set("");
      network_->job().abort({.text = "out of memory"});  // fits the string's inline buffer
    }
    network_->close();
    const auto end = [&](call& request) {
      if (request.done) return;
      try {
        request.failure = std::make_exception_ptr(diagnosis_.end_of(request, reason));
      } catch (const std::exception&) {
        request.failure = std::current_exception();
      }
      flight_.finish(request, flight_state::failed);
      request.done = true;
    };
    pending_.end([&](call& request) {
      request.start_clock(issued_at());
      end(request);
    });
    for (call* each : incoming_) end(*each);
    incoming_.clear();
    has_incoming_.store(false, std::memory_order_relaxed);
    tell_others();
  }

  const own_process process_;
  std::unique_ptr<links> network_;
  const std::string name_;
  const std::uint64_t id_;
  const group_options options_;
  const std::shared_ptr<groups_of_rank> siblings_;
  group_standing standing_{id_, *network_};  ///< is_driven(): a thread drives the progress
  const flight_notes flight_{options_.recorder, options_.failures};
  const diagnosis diagnosis_{*network_, name_, id_, flight_};
  sole_user user_;
  std::shared_ptr<inline_groups> moved_by_;  ///< with inline progress: the list with this group
  bool has_other_threads_ = false;  ///< others may make progress: since the first asynchronous call

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> waiting_{0};  ///< threads that wait behind the driver
  bool stopping_ = false;
  std::vector<call*> incoming_;  ///< issued, not yet seen by the driver
  std::atomic<bool> has_incoming_{false};
  ending ending_;
  std::thread thread_;

  // Used by the driving thread only.
  pending_calls pending_{*network_, diagnosis_, flight_, standing_};
  backoff backoff_;
  watch watch_{*network_, diagnosis_, pending_, standing_, *siblings_, options_};
  clock::time_point next_glance_{};
  clock::time_point taken_at_{};  ///< when calls were last taken from incoming_; coarse_now()
  clock::time_point next_look_{};
  std::vector<link_interest> interests_;

  plan_cache plans_;
  repeats repeats_;
  std::map<std::uint64_t, std::uint64_t> made_groups_;  ///< key, number made
  detail::choice choice_{options_.choice};
  shared_areas areas_;
};

}  // namespace parx::detail
