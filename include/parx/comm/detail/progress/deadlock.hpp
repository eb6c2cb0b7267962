// deadlock: the proof that ranks wait for each other for good, from what they have published.
//
// A rank belongs to a deadlock if no thread of its process can go on by itself, which
// blocked_threads.hpp finds out, and each operation that it waits in needs a rank of the deadlock
// to call something that it has not called: to enter a collective, to send a message of which none
// is under way, or to receive one that it does not take. The largest such set is found by removing
// the ranks of which that does not hold. So these are no deadlocks: data that are slow to arrive; a
// rank that computes or is stopped; threads that use different groups, as long as one of them is
// not blocked; and ranks one of which also waits, in whatever group, for one outside of the set.
// Pure: a state that stands in two looks (`stands_since`), between which every rank has published
// it again, has held at one moment on all of them, and will not change.
// Source: the AND-OR waiting graph of MPI's deadlock detectors (Hilbrich et al., MUST, 2009).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <parx/comm/detail/progress/call.hpp>
#include <parx/comm/detail/progress/wait_report.hpp>
#include <parx/core/find.hpp>

namespace parx::inline PARX_ABI::detail {

struct deadlock {
  std::vector<int> circle;  ///< each of these ranks waits for the next, the last for the first
  /// The notices that the proof rests on: their ranks, their texts without `look`, which are equal
  /// as long as nothing has moved there, and `look`, which grows as a rank posts one again.
  std::map<std::pair<int, std::string>, std::uint64_t> proof;

  explicit operator bool() const noexcept { return !circle.empty(); }

  [[nodiscard]] bool is_state_of(const deadlock& earlier) const {
    return proof.size() == earlier.proof.size() &&
           std::equal(proof.begin(), proof.end(), earlier.proof.begin(),
                      [](const entry& now, const entry& then) { return now.first == then.first; });
  }
  /// Whether it is the state that was found earlier, and each rank has published it since.
  [[nodiscard]] bool stands_since(const deadlock& earlier) const {
    return is_state_of(earlier) &&
           std::equal(proof.begin(), proof.end(), earlier.proof.begin(),
                      [](const entry& now, const entry& then) { return now.second > then.second; });
  }

 private:
  using entry = decltype(proof)::value_type;
};

class deadlock_search {
 public:
  /// The deadlock that rank `own` is in, if one is proven. `wait_reports_of(rank)` is called for at
  /// most `most_asked` ranks; those beyond count as not blocked.
  template <typename ReportsOf>
  [[nodiscard, gnu::cold]] static deadlock find(int own, ReportsOf wait_reports_of,
                                                std::size_t most_asked = 64) {
    deadlock_search search;
    search.explore(own, wait_reports_of, most_asked);
    search.remove_the_free();
    if (!search.stuck_.contains(own)) return {};
    deadlock found{search.circle_from(own), {}};
    for (const int rank : search.used_) {
      for (wait_report each : search.known_.at(rank)) {
        const std::uint64_t look = std::exchange(each.look, 0);
        found.proof.emplace(std::pair(rank, each.to_text()), look);
      }
    }
    return found;
  }

 private:
  template <typename ReportsOf>
  [[gnu::cold]] void explore(int own, ReportsOf wait_reports_of, std::size_t most_asked) {
    std::deque<int> next{own};
    while (!next.empty() && known_.size() < most_asked) {
      const int rank = next.front();
      next.pop_front();
      if (known_.contains(rank)) continue;
      auto& all = known_[rank] = wait_reports_of(rank);
      std::erase_if(all, [](const wait_report& each) { return !each.waits(); });
      const auto blocks_all = [](const wait_report& each) { return each.all_blocked; };
      if (!all.empty() && std::all_of(all.begin(), all.end(), blocks_all)) stuck_.insert(rank);
      for (const wait_report& each : all) {
        next.insert(next.end(), each.awaited.begin(), each.awaited.end());
        for (const message_wait& wait : each.messages) next.push_back(wait.peer);
      }
    }
  }

  [[gnu::cold]] void remove_the_free() {
    for (bool removed = true; removed;) {
      removed = false;
      used_ = stuck_;
      for (auto each = stuck_.begin(); each != stuck_.end();) {
        const auto& all = known_.at(*each);
        const bool stays = std::all_of(all.begin(), all.end(), [&, this](const wait_report& mine) {
          return cannot_end(*each, mine);
        });
        removed |= !stays;
        each = stays ? std::next(each) : stuck_.erase(each);
      }
    }
  }
  [[nodiscard, gnu::cold]] bool cannot_end(int rank, const wait_report& mine) {
    const auto waits_for_call = [&, this](const message_wait& wait) {
      return wait.kind == message_wait::send ? is_refused(rank, mine.call.group, wait.peer)
                                             : is_not_sent(rank, mine.call.group, wait);
    };
    return (is_message(mine) || waits_for_absent(mine)) &&
           std::all_of(mine.messages.begin(), mine.messages.end(), waits_for_call);
  }
  [[nodiscard]] static bool is_message(const wait_report& mine) noexcept {
    const auto what = static_cast<operation>(mine.call.operation);
    return what == operation::send || what == operation::recv;
  }

  /// Whether a collective waits, also over other ranks in it, for one of stuck_ that is not in it.
  [[nodiscard, gnu::cold]] bool waits_for_absent(const wait_report& mine) {
    struct step {
      int rank;
      call_header call;
    };
    std::vector<step> steps;
    std::set<int> seen;
    const auto follow = [&](const wait_report& from) {
      for (const int peer : from.awaited) {
        if (seen.insert(peer).second) steps.push_back({peer, from.call});
      }
    };
    follow(mine);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto [peer, call] = steps[i];
      const auto calls = calls_of(peer, call.group);
      if (!calls) continue;
      if (calls->calls < call.number()) {
        if (stuck_.contains(peer)) return true;
        continue;
      }
      const wait_report* const theirs = wait_report_of(peer, call.group);
      if (theirs == nullptr || is_message(*theirs)) continue;
      if (theirs->call.sequence > call.sequence) continue;
      used_.insert(peer);
      follow(*theirs);
    }
    return false;
  }
  /// Whether the receiver of a message must call something before it takes it.
  [[nodiscard]] bool is_refused(int sender, std::uint64_t group, int receiver) const {
    if (!stuck_.contains(receiver)) return false;
    if (const wait_report* const theirs = wait_report_of(receiver, group)) {
      return is_in(sender, theirs->refused);
    }
    return calls_of(receiver, group).has_value();
  }
  /// Whether everything that the rank awaited by a receive has sent was received.
  [[nodiscard]] bool is_not_sent(int receiver, std::uint64_t group,
                                 const message_wait& wait) const {
    if (!stuck_.contains(wait.peer) || !calls_of(wait.peer, group)) return false;
    std::uint32_t count = 0;
    for (const wait_report& each : known_.at(wait.peer)) {
      for (const messages_sent& sent : each.sent) {
        if (sent.group == group && sent.peer == receiver) count = sent.count;
      }
    }
    return count == wait.received;
  }

  [[nodiscard]] const wait_report* wait_report_of(int rank, std::uint64_t group) const {
    const auto found = known_.find(rank);
    if (found == known_.end()) return nullptr;
    for (const wait_report& each : found->second) {
      if (each.call.group == group) return &each;
    }
    return nullptr;
  }
  /// A group that the rank has never made counts as one without calls.
  [[nodiscard]] std::optional<calls_issued> calls_of(int rank, std::uint64_t group) const {
    const auto found = known_.find(rank);
    if (found == known_.end() || found->second.empty()) return std::nullopt;
    const wait_report* const own = wait_report_of(rank, group);
    const wait_report& told = own != nullptr ? *own : found->second.front();
    for (const calls_issued& calls : told.calls) {
      if (calls.group == group) return calls.known != 0 ? std::optional(calls) : std::nullopt;
    }
    return told.has_all_groups ? std::optional(calls_issued{.group = group}) : std::nullopt;
  }

  [[nodiscard, gnu::cold]] std::vector<int> circle_from(int own) const {
    std::vector<int> path{own};
    for (;;) {
      const int last = path.back();
      std::vector<int> next;
      for (const wait_report& each : known_.at(last)) {
        next.insert(next.end(), each.awaited.begin(), each.awaited.end());
        for (const message_wait& wait : each.messages) next.push_back(wait.peer);
      }
      const auto in = std::find_if(next.begin(), next.end(), [&](int each) {
        return stuck_.contains(each) || used_.contains(each);
      });
      if (in == next.end()) return path;
      const auto again = std::find(path.begin(), path.end(), *in);
      if (again != path.end()) return {again, path.end()};
      path.push_back(*in);
    }
  }
  std::map<int, std::vector<wait_report>> known_;  ///< by rank, those that wait
  std::set<int> stuck_;                       ///< may be in the deadlock
  std::set<int> used_;                        ///< whose state the proof rests on
};

}  // namespace parx::detail
