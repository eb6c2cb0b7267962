// wait_report: what a stuck rank publishes about its call, and the search for the rank that causes
// a wait.
//
// A report has the fingerprint of the call that the rank is in, those of the collectives before it,
// the name of the group and the ranks it waits for, which are none once it has made progress. For
// the proof of a deadlock it has all messages that are waited for, and how far the rank is in its
// other groups. Ranks are numbered as in the job, so that a wait can be followed from group to
// group. Pure: the job stores the reports.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/comm/detail/progress/call_header.hpp>
#include <parx/core/find.hpp>

namespace parx::inline PARX_ABI::detail {

/// A message that has not come or has not left.
struct message_wait {
  enum wait_kind : std::uint32_t { send, receive };  // of any rank: one such wait for each
  int peer = -1;
  std::uint32_t kind = send;
  std::uint32_t received = 0;  ///< messages that have come from this peer, in this group

  friend bool operator==(const message_wait&, const message_wait&) = default;
};
/// How many collectives a rank has issued in a group.
struct calls_issued {
  std::uint64_t group = 0;
  std::uint64_t calls = 0;
  std::uint64_t known = 0;  ///< 0: a thread drives the group at the moment
};
struct messages_sent {
  std::uint64_t group = 0;
  int peer = -1;
  std::uint32_t count = 0;
};

struct wait_report {
  using flag = std::uint8_t;  ///< a bool, also where another process has sent other bytes

  call_header call{};
  std::vector<int> awaited{};  ///< ranks of the job; empty: it has made progress since
  std::vector<call_header> recent{};  ///< collectives of the group, the oldest first
  std::string group{};
  flag blocks = false;       ///< a thread of the program waits for the call
  flag all_blocked = false;  ///< and no other thread of it can go on: see blocked_threads.hpp
  std::uint64_t look = 0;    ///< how many reports of the group the rank has posted
  std::uint64_t moves = 0;   ///< how often the group went on after it was stuck
  std::vector<message_wait> messages{};
  std::vector<int> refused{};  ///< ranks whose messages are neither received nor buffered
  flag has_all_groups = false;  ///< the rank has, and had, no groups beside those in `calls`
  std::vector<calls_issued> calls{};  ///< of all groups of the rank
  std::vector<messages_sent> sent{};  ///< of those whose calls are known

  [[nodiscard]] bool waits() const noexcept { return !awaited.empty(); }

  [[nodiscard, gnu::cold]] std::string to_text() const {
    std::string text;
    const auto append = [&text](const auto* from, std::size_t count) {
      if (count > 0) text.append(reinterpret_cast<const char*>(from), count * sizeof *from);
    };
    for_each_field(*this, [&](const auto& field) {
      if constexpr (requires { field.data(); }) {
        const std::size_t size = field.size();
        append(&size, 1);
        append(field.data(), size);
      } else {
        append(&field, 1);
      }
      return true;
    });
    return text;
  }
  /// The reports in some of their texts, which follow one another. Ends at what is none.
  [[nodiscard, gnu::cold]] static std::vector<wait_report> all_in(std::string_view text) {
    const auto take = [&text](auto* to, std::size_t count) {
      if (count > text.size() / sizeof *to) return false;
      if (count > 0) std::memcpy(to, text.data(), count * sizeof *to);
      text.remove_prefix(count * sizeof *to);
      return true;
    };
    const auto take_field = [&](auto& field) {
      if constexpr (requires { field.data(); }) {
        std::size_t size = 0;
        if (!take(&size, 1) || size > text.size()) return false;
        field.resize(size);
        return take(field.data(), size);
      } else {
        return take(&field, 1);
      }
    };
    std::vector<wait_report> found;
    for (wait_report next;
         for_each_field(next, take_field) && next.call.magic == call_header::expected_magic;
         next = {}) {
      next.group = printable(std::string_view(next.group).substr(0, longest_name));
      found.push_back(std::move(next));
    }
    return found;
  }

 private:
  static constexpr std::size_t longest_name = 256;
  /// Until visit(field) returns false.
  template <typename Report, typename Visit>
  static bool for_each_field(Report& each, Visit visit) {
    return visit(each.call) && visit(each.awaited) && visit(each.recent) && visit(each.group) &&
           visit(each.blocks) && visit(each.all_blocked) && visit(each.look) && visit(each.moves) &&
           visit(each.messages) && visit(each.refused) && visit(each.has_all_groups) &&
           visit(each.calls) && visit(each.sent);
  }
};

/// Ranks, each of which waits for the next.
struct wait_chain {
  std::vector<int> ranks;
  bool circle = false;  ///< the last one waits for the first
};

/// Why rank `own` waits for `awaited`: the shortest chain from one of these to a rank that waits
/// for nobody. If there is none, a cycle of ranks that wait for each other. `awaited_by(rank)`
/// returns the ranks that a rank waits for; it is called for at most `most_asked` ranks.
template <typename AwaitedBy>
[[nodiscard, gnu::cold]] wait_chain find_culprit(int own, const std::vector<int>& awaited,
                                                 AwaitedBy awaited_by,
                                                 std::size_t most_asked = 64) {
  struct step {
    int rank;
    std::size_t before;  // index in `steps` of the rank that waits for it
  };
  static constexpr std::size_t nobody = ~std::size_t{0};
  std::vector<step> steps{{own, nobody}};
  const auto chain_to = [&](std::size_t last) {
    std::vector<int> ranks;
    for (; last != nobody; last = steps[last].before) ranks.push_back(steps[last].rank);
    std::reverse(ranks.begin(), ranks.end());
    return ranks;
  };
  wait_chain circle;
  for (std::size_t i = 0; i < std::min(steps.size(), most_asked); ++i) {
    const std::vector<int> next = i == 0 ? awaited : awaited_by(steps[i].rank);
    if (next.empty()) {
      auto ranks = chain_to(i);
      ranks.erase(ranks.begin());  // itself
      return {std::move(ranks), false};
    }
    for (const int rank : next) {
      const auto before = chain_to(i);
      const auto again = std::find(before.begin(), before.end(), rank);
      if (again != before.end() && circle.ranks.empty()) circle = {{again, before.end()}, true};
      if (find_by(steps, &step::rank, rank) == steps.end()) steps.push_back({rank, i});
    }
  }
  return circle;
}

}  // namespace parx::detail
