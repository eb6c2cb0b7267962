// call_record: what this rank has called in one of its groups: how many collectives, the
// fingerprints of the last ones, and how many messages to whom.
//
// It is the one answer to where the rank is. A stuck rank publishes it with its report, together
// with the counts of its other groups, for the proof of a deadlock. Each call is also written to
// the rank's flight recorder, whose file outlives the process, and a failure to its failure_log.
//
// Why the fingerprints: ranks whose calls differ may never read a header of each other that shows
// it. Example: two ranks each take themselves for the root of a broadcast; both send, return and go
// on. The first number for which two ranks have different fingerprints is where their calls
// diverged.
//
// A clock takes 20 ns, as long as 4 bytes take to the next core. So of a short call it is read
// once, after the call's first step (call::timed_after_start), while the bytes are under way. That
// is also the time of its end, unless it has to wait for so long that a clock is read meanwhile.
//
// Threads: enter(), finish() and what counts are for one thread at a time, under the group's lock;
// the fingerprints are the driving thread's. The counts are read, and fail() called, by any thread.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/comm/detail/progress/call.hpp>
#include <parx/comm/detail/progress/parting.hpp>
#include <parx/comm/detail/progress/wait_report.hpp>
#include <parx/comm/flight/failure_log.hpp>
#include <parx/comm/flight/recorder.hpp>
#include <parx/comm/options.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/formatted.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

class call_record;

/// The groups of one rank that descend from the same first one. Threads: safe from any.
class groups_of_rank {
 public:
  static constexpr std::size_t most_gone = 64;  ///< groups that have ended and are remembered

  void add(const call_record& next) {
    const std::lock_guard lock(mutex_);
    all_.push_back(&next);
  }
  void remove(const call_record& gone) noexcept;
  /// Writes into a report of group `own` how far the rank is there and in each group that no thread
  /// drives. Those that are driven have reports of their own, or will be stuck soon.
  void describe(const call_record& own, wait_report& mine) const;

 private:
  mutable std::mutex mutex_;
  std::vector<const call_record*> all_;
  wait_report gone_{.has_all_groups = true};  ///< the groups that were destroyed
};

class call_record {
 public:
  /// All references must outlive it.
  call_record(const links& network, const std::string& name, std::uint64_t group,
              const group_options& options, std::shared_ptr<groups_of_rank> siblings)
      : network_(network),
        name_(name),
        group_(group),
        options_(options),
        siblings_(std::move(siblings)) {
    if (options_.recorder)
      options_.recorder->add_group(group, name_, network.size(), network.rank());
    siblings_->add(*this);
  }
  ~call_record() {
    siblings_->remove(*this);
    delete[] sent_.load();
  }
  call_record(const call_record&) = delete;
  call_record& operator=(const call_record&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::uint64_t group() const noexcept { return group_; }
  [[nodiscard]] const std::shared_ptr<groups_of_rank>& siblings() const noexcept {
    return siblings_;
  }

  /// What the tags of collectives stand for, by number.
  void name_tags(std::vector<std::string> names) {
    const std::lock_guard lock(tag_names_mutex_);
    tag_names_ = std::move(names);
  }
  /// describe(header), with the name of its tag. From any thread.
  [[nodiscard]] std::string text_of(const call_header& header) const {
    const std::lock_guard lock(tag_names_mutex_);
    const bool is_named = header.group == group_ && has_tag(header) &&
                          static_cast<std::size_t>(header.root) < tag_names_.size();
    return parx::detail::describe(
        header, is_named ? tag_names_[static_cast<std::size_t>(header.root)] : std::string_view());
  }

  /// A call is issued: numbers it. Its time begins, unless it is timed after its start.
  void enter(call& request) noexcept {
    if (!request.timed_after_start) latest_.store(request.issued = clock::now(), relaxed);
    if (is_message(request)) {
      name_call(request);
    } else {
      if (!request.sets_up_memory) calls_.store(calls() + 1, relaxed);  // one thread writes
      request.header.sequence = 2 * calls() + (request.sets_up_memory ? 1 : 0);
    }
    request.header.group = group_;
    if (options_.recorder == nullptr) return;
    const std::size_t bytes =
        is_message(request) ? request.bytes : request.header.count * request.data.element_size;
    request.flight_ticket = options_.recorder->enter(request.header, bytes, request.peer, latest());
  }
  /// The first step of a call that is timed after its start was made.
  void begin_time(call& request) noexcept {
    latest_.store(request.issued = clock::now(), relaxed);
    if (options_.recorder) options_.recorder->begin_time(request.flight_ticket, request.issued);
  }
  /// A collective begins to run.
  void start(const call_header& call) noexcept {
    // Set-up calls (odd sequence numbers) may be missing on some ranks.
    if (call.sequence % 2 == 0) recent_[call.number() % recent_.size()] = call;
  }
  /// The driving thread takes over a message to that rank.
  void send_to(int peer) {
    counter* all = sent_.load(relaxed);
    if (all == nullptr) {
      all = new counter[static_cast<std::size_t>(network_.size())]{};
      sent_.store(all, std::memory_order_release);
    }
    all[peer].store(all[peer].load(relaxed) + 1, relaxed);
  }
  void finish(const call& request, flight_state state) const noexcept {
    if (options_.recorder == nullptr) return;
    options_.recorder->finish(request.flight_ticket, state,
                              request.timed_after_start ? request.issued : clock::now());
  }
  void fail(const failure_record& reason) const noexcept {
    // The recorder keeps the first text, and what is said for now may be replaced.
    if (options_.recorder && !reason.is_for_now) options_.recorder->fail(reason.text);
    if (options_.failures) options_.failures->write(reason);
  }

  /// Collectives issued.
  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_.load(relaxed); }
  /// When the last call began whose time has begun.
  [[nodiscard]] deadline::clock::time_point latest() const noexcept {
    return latest_.load(relaxed);
  }
  /// A thread drives the group's progress.
  [[nodiscard]] bool is_driven() const noexcept { return driven_.load(relaxed); }
  void set_driven(bool now) noexcept { driven_.store(now, relaxed); }

  /// Writes all of it into a report.
  [[gnu::cold]] void describe(wait_report& mine) const {
    mine.recent.assign(recent_.begin(), recent_.end());
    std::erase_if(mine.recent, [](const call_header& each) { return each.sequence == 0; });
    std::sort(mine.recent.begin(), mine.recent.end(),
              [](const call_header& a, const call_header& b) { return a.sequence < b.sequence; });
    siblings_->describe(*this, mine);
  }
  [[gnu::cold]] void describe_counts(wait_report& mine) const {
    mine.calls.push_back({group_, calls(), 1});
    const counter* const all = sent_.load(std::memory_order_acquire);
    if (all == nullptr) return;
    for (int peer = 0; peer < network_.size(); ++peer) {
      if (const auto count = all[peer].load(relaxed); count > 0) {
        mine.sent.push_back({group_, network_.job_rank(peer), count});
      }
    }
  }
  /// For job::note_end_of: all of the group's calls are done.
  [[nodiscard, gnu::cold]] std::string parting_words() const {
    wait_report counts;
    describe_counts(counts);
    return parting::from(counts).to_text();
  }
  /// The first of the recent calls of `peer` (oldest first) that differs from this rank's call of
  /// the same number; nullopt if none is known to.
  [[nodiscard, gnu::cold]] std::optional<header_mismatch> first_difference(
      int peer, const std::vector<call_header>& theirs) const {
    for (const call_header& each : theirs) {
      const call_header& mine = recent_[each.number() % recent_.size()];
      if (each.sequence > 0 && mine.sequence == each.sequence && !mine.matches(each)) {
        return header_mismatch{peer, mine, each, true};
      }
    }
    return std::nullopt;
  }
  /// Where the recorded calls are, for error messages; empty without a recorder.
  [[nodiscard]] std::string where() const {
    if (options_.recorder == nullptr) return {};
    return formatted(". The ranks' last operations: parx_doctor recorder {}",
                     options_.recorder->directory());
  }

 private:
  using clock = deadline::clock;
  using counter = std::atomic<std::uint32_t>;
  static constexpr auto relaxed = std::memory_order_relaxed;

  const links& network_;
  const std::string& name_;
  const std::uint64_t group_;
  const group_options& options_;
  const std::shared_ptr<groups_of_rank> siblings_;
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<clock::time_point> latest_{clock::time_point{}};
  std::array<call_header, 32> recent_{};  ///< by number, modulo its size
  std::atomic<counter*> sent_{nullptr};   ///< by receiver; null before the first message
  std::atomic<bool> driven_{false};
  mutable std::mutex tag_names_mutex_;
  std::vector<std::string> tag_names_;
};

inline void groups_of_rank::remove(const call_record& gone) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(all_, &gone);
  try {
    if (gone_.calls.size() < most_gone) return gone.describe_counts(gone_);
  } catch (const std::bad_alloc&) {
  }
  gone_.has_all_groups = false;
}
inline void groups_of_rank::describe(const call_record& own, wait_report& mine) const {
  const std::lock_guard lock(mutex_);
  mine.has_all_groups = gone_.has_all_groups;
  mine.calls = gone_.calls;
  mine.sent = gone_.sent;
  for (const call_record* each : all_) {
    if (each == &own || !each->is_driven()) each->describe_counts(mine);
    else mine.calls.push_back({.group = each->group()});
  }
}

}  // namespace parx::detail
