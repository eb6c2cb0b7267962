// pending_calls: the calls of a group that are in progress. Collectives run one at a time, in the
// order of issue, through the engine; all messages run concurrently.
//
// Threads: belongs to the thread that drives the group's progress. step() moves bytes outside the
// group's lock; retire() and end() mark calls as done for the threads that wait, under the lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/comm/detail/progress/call.hpp>
#include <parx/comm/detail/progress/call_record.hpp>
#include <parx/comm/detail/progress/diagnosis.hpp>
#include <parx/comm/detail/progress/engine.hpp>
#include <parx/comm/detail/progress/host_memory.hpp>
#include <parx/comm/detail/progress/messages.hpp>
#include <parx/comm/detail/progress/parting.hpp>
#include <parx/core/abi.hpp>
#include <parx/core/formatted.hpp>
#include <parx/trace/event.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

/// How long asynchronous collectives have run.
///
/// Blocking ones are not counted: their callers can measure them, and small ones save reading a
/// clock. The thread that drives the group starts and stops it; any thread may read it.
class async_time {
 public:
  void start() noexcept { since_ = clock::now(); }
  void stop() noexcept {
    total_.fetch_add((clock::now() - since_).count(), std::memory_order_relaxed);
  }
  [[nodiscard]] double seconds() const noexcept {
    const clock::duration total(total_.load(std::memory_order_relaxed));
    return std::chrono::duration<double>(total).count();
  }

 private:
  using clock = std::chrono::steady_clock;
  clock::time_point since_{};
  std::atomic<clock::rep> total_{0};
};

class pending_calls {
 public:
  /// All arguments must outlive it.
  pending_calls(links& network, const diagnosis& texts, call_record& record)
      : network_(network), diagnosis_(texts), record_(record) {}

  void add(call& next) {
    if (is_message(next)) {
      posted_messages_.push_back(&next);
    } else {
      queue_.push_back(&next);
    }
  }
  [[nodiscard]] bool empty() const noexcept {
    return queue_.empty() && posted_messages_.empty() && messages_.idle();
  }

  /// Moves the first collective and all messages as far as possible without waiting; returns
  /// whether anything moved. Throws what engine and messages throw.
  bool step() {
    bool progressed = false;
    while (!posted_messages_.empty()) {
      const call& next = *posted_messages_.front();
      if (next.what == operation::send) record_.send_to(next.peer);
      messages_.post(*posted_messages_.front(), network_);
      posted_messages_.erase(posted_messages_.begin());
      progressed = true;
    }
    if (!queue_.empty()) {
      if (!started_) {
        start(*queue_.front());
        progressed = true;  // even if there is nothing to do
      }
      progressed |= engine_.step();
      call& front = *queue_.front();
      if (front.timed_after_start && front.issued == deadline::clock::time_point{}) {
        record_.begin_time(front);
      }
    }
    if (!messages_.unused()) progressed |= messages_.step();
    return progressed;
  }

  /// The running collective has been waited for: its time is read at its end.
  void has_waited() noexcept {
    if (started_) queue_.front()->timed_after_start = false;
  }

  /// Marks finished calls as done. True if the first collective was among them.
  bool retire() {
    const bool front_done = started_ && engine_.done();
    if (front_done) {
      if (queue_.front()->timed) async_time_.stop();
      finish(*queue_.front());
      queue_.erase(queue_.begin());
      started_ = false;
      running_.reset();
    }
    retire_messages();
    return front_done;
  }
  void retire_messages() {
    messages_.hand_back_finished([this](call& each) { finish(each); });
  }

  /// Calls give(call) for each call and removes it.
  template <typename Give>
  void end(Give give) {
    for (call* each : queue_) give(*each);
    for (call* each : posted_messages_) give(*each);
    messages_.for_each_pending(give);
    queue_.clear();
    posted_messages_.clear();
    messages_.forget_all();
    started_ = false;
    running_.reset();
  }

  /// Appends the events that can end a sleep.
  void interests(std::vector<link_interest>& out) {
    if (started_) engine_.interests(out);
    messages_.interests(out);
  }

  /// Visits all calls except messages that have not been posted yet.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (call* each : queue_) visit(*each);
    messages_.for_each_pending([&](call& each) { visit(each); });
  }
  [[nodiscard]] const call* oldest() const {
    const call* found = nullptr;
    for_each([&](const call& each) {
      if (found == nullptr) found = &each;
    });
    return found;
  }
  /// The fingerprint of the running collective; null if none runs.
  [[nodiscard]] const call_header* running() const noexcept {
    return started_ ? &queue_.front()->header : nullptr;
  }

  /// The ranks that a pending call waits for; of a queued collective, those that the first waits
  /// for.
  [[nodiscard, gnu::cold]] std::vector<int> missing_peers(const call& request) const {
    if (is_any_source(request)) return diagnosis_.others();
    if (is_message(request)) return {request.peer};
    std::vector<int> peers;
    if (!started_) return peers;
    const bool late = request.until().passed();
    if (request.names_absent_ranks && &request == queue_.front() && late) {
      peers = diagnosis_.absent(request.header.sequence, diagnosis_.others());
      if (!peers.empty()) return peers;
    }
    peers = engine_.missing_peers();
    if (late) diagnosis_.put_absent_first(peers, queue_.front()->header.sequence);
    return peers;
  }
  [[nodiscard, gnu::cold]] std::string waiting_text(const call& request) const {
    if (is_message(request)) {
      return diagnosis_.waiting_for(missing_peers(request), std::nullopt) +
             (request.what == operation::recv ? untaken_text(request.peer) : std::string());
    }
    return diagnosis_.waiting_for(
        missing_peers(request), queue_.front()->header.sequence,
        request.names_absent_ranks ? network_.size() : diagnosis::most_named);
  }
  /// The messages from `peer` (any_source: from all ranks) that no receive takes, if a receive
  /// waits for another one from there: their tags may be wrong. Else empty.
  [[nodiscard, gnu::cold]] std::string untaken_text(int peer) const {
    bool waits = false;
    messages_.for_each_pending([&](const call& each) {
      waits |= each.what == operation::recv &&
               (peer == any_source || each.peer == any_source || each.peer == peer);
    });
    if (!waits) return {};
    std::vector<std::pair<int, call_header>> untaken;
    messages_.for_each_unexpected([&](int sender, const call_header& header) {
      if (peer == any_source || sender == peer) untaken.emplace_back(sender, header);
    });
    return diagnosis::untaken(untaken);
  }
  [[nodiscard]] const link_lost* loss_of(int peer) const { return messages_.loss_of(peer); }
  /// Whether what the call awaits of `peer`, a rank that has left the job with these words, may
  /// still come. Of a queued collective, that for which the running one waits.
  [[nodiscard]] bool may_still_come(const call& request, int peer,
                                    const std::vector<parting>& words) const {
    if (!is_message(request)) return !started_ || parting::may_be_in(words, *running());
    return request.what == operation::recv &&
           parting::may_have_sent(words, request.header.group, network_.job_rank(network_.rank()),
                                  messages_.received_from(peer));
  }
  /// Writes into a report which messages are waited for.
  [[gnu::cold]] void describe_messages(wait_report& mine) const {
    messages_.for_each_wait(
        [&](int peer, message_wait::wait_kind kind, std::uint32_t received) {
          mine.messages.push_back({network_.job_rank(peer), kind, received});
        },
        [&](int peer) { mine.refused.push_back(network_.job_rank(peer)); });
    for (int peer = 0; peer < std::min(network_.size(), diagnosis::most_asked); ++peer) {
      if (!messages_.knows(peer)) mine.refused.push_back(network_.job_rank(peer));
    }
  }

  // From any thread.
  [[nodiscard]] std::size_t bytes_sent() const noexcept {
    return engine_.bytes_sent() + messages_.bytes_sent();
  }
  [[nodiscard]] std::size_t bytes_received() const noexcept {
    return engine_.bytes_received() + messages_.bytes_received();
  }
  [[nodiscard]] double async_seconds() const noexcept { return async_time_.seconds(); }

  /// For the thread that issues calls: the call that must be issued before `next`; usually null.
  [[nodiscard]] call* set_up_before(const call& next) {
    if (is_message(next)) return nullptr;
    return memory_.ahead_of(next, network_.rank(), network_.size());
  }

 private:
  void finish(call& each) noexcept {
    record_.finish(each, flight_state::finished);
    each.done = true;
  }

  /// Named "all_reduce", or "all_reduce on dp" in a group other than the world.
  void open_span(const call& front) {
    const std::string_view name =
        front.sets_up_memory ? "set-up of shared memory" : name_of(front.what);
    const std::string& group = record_.name();
    if (group == "world") running_.emplace(name, trace::literal("comm"));
    else running_.emplace(formatted("{} on {}", name, group), trace::literal("comm"));
    if (!front.sets_up_memory) running_->arg("bytes", front.header.count * front.data.element_size);
    running_->arg("sequence", front.header.number());
  }

  void start(call& front) {
    record_.start(front.header);
    memory_.prepare(front, network_);
    if (trace::enabled()) [[unlikely]]
      open_span(front);
    engine_.start(*front.plan, front.data, front.header, network_, memory_.barrier(),
                  front.timeout);
    if (front.names_absent_ranks) diagnosis_.post({front.header});
    if (front.timed) async_time_.start();
    started_ = true;
  }

  links& network_;
  const diagnosis& diagnosis_;
  call_record& record_;
  std::vector<call*> queue_;            ///< collectives in issue order
  std::vector<call*> posted_messages_;  ///< not yet passed to messages_
  engine engine_;
  messages messages_;
  bool started_ = false;                ///< the front of queue_ runs in engine_
  std::optional<trace::span> running_;  ///< that run, in the trace
  async_time async_time_;
  host_memory memory_;
};

}  // namespace parx::detail
