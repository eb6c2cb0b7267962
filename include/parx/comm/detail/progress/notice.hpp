// notice: what a stuck rank publishes about its call, and the search for the rank that causes a
// wait.
//
// A notice has the fingerprint of the call that the rank is in, those of the collectives before it,
// the name of the group and the ranks it waits for, which are none once it has made progress. For
// the proof of a deadlock it has all messages that are waited for, and how far the rank is in its
// other groups. Ranks are numbered as in the job, so that a wait can be followed from group to
// group. Pure: the job stores the notices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/comm/detail/progress/call_header.hpp>

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

struct notice {
  call_header call{};
  std::vector<int> awaited{};  ///< ranks of the job; empty: it has made progress since
  std::vector<call_header> recent{};  ///< collectives of the group, the oldest first
  std::string group{};
  bool blocks = false;  ///< a thread of the program waits for the call
  bool all_blocked = false;  ///< and no other thread of it can go on: see blocked_threads.hpp
  std::uint64_t look = 0;    ///< how many notices of the group the rank has posted
  std::uint64_t moves = 0;   ///< how often the group went on after it was stuck
  std::vector<message_wait> messages{};
  std::vector<int> refused{};  ///< ranks whose messages are neither received nor buffered
  bool has_all_groups = false;  ///< the rank has, and had, no groups beside those in `calls`
  std::vector<calls_issued> calls{};  ///< of all groups of the rank
  std::vector<messages_sent> sent{};  ///< of those whose calls are known

  [[nodiscard]] bool waits() const noexcept { return !awaited.empty(); }

  [[nodiscard]] std::string to_text() const {
    const auto count = [](const auto& values) { return static_cast<std::uint32_t>(values.size()); };
    const layout front{call,          count(awaited), count(recent), blocks ? 1u : 0u,
                       all_blocked ? 1u : 0u, look,   moves,         count(messages),
                       count(refused),        count(calls),          count(sent),
                       has_all_groups ? 1u : 0u, 0};
    std::string text(reinterpret_cast<const char*>(&front), sizeof front);
    append(text, awaited);
    append(text, recent);
    append(text, messages);
    append(text, refused);
    append(text, calls);
    append(text, sent);
    return text + group;
  }
  /// Nullopt if to_text() has not written the text.
  [[nodiscard]] static std::optional<notice> from_text(std::string_view text) {
    layout front;
    if (text.size() < sizeof front) return {};
    std::memcpy(&front, text.data(), sizeof front);
    text.remove_prefix(sizeof front);
    if (front.call.magic != call_header::expected_magic) return {};
    notice found{.call = front.call,
                 .blocks = front.blocks != 0,
                 .all_blocked = front.all_blocked != 0,
                 .look = front.look,
                 .moves = front.moves,
                 .has_all_groups = front.has_all_groups != 0};
    if (!take(text, front.awaited, found.awaited) || !take(text, front.recent, found.recent) ||
        !take(text, front.messages, found.messages) || !take(text, front.refused, found.refused) ||
        !take(text, front.calls, found.calls) || !take(text, front.sent, found.sent)) {
      return {};
    }
    found.group = printable(text.substr(0, longest_name));
    return found;
  }

 private:
  static constexpr std::size_t longest_name = 256;
  struct layout {
    call_header call;
    std::uint32_t awaited;
    std::uint32_t recent;
    std::uint32_t blocks;
    std::uint32_t all_blocked;
    std::uint64_t look;
    std::uint64_t moves;
    std::uint32_t messages;
    std::uint32_t refused;
    std::uint32_t calls;
    std::uint32_t sent;
    std::uint32_t has_all_groups;
    std::uint32_t unused;
  };
  template <typename Value>
  static void append(std::string& text, const std::vector<Value>& values) {
    text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value));
  }
  /// False if the text holds fewer values.
  template <typename Value>
  [[nodiscard]] static bool take(std::string_view& text, std::size_t count,
                                 std::vector<Value>& values) {
    if (count > text.size() / sizeof(Value)) return false;
    values.resize(count);
    const std::size_t bytes = count * sizeof(Value);
    if (bytes > 0) std::memcpy(values.data(), text.data(), bytes);
    text.remove_prefix(bytes);
    return true;
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
[[nodiscard]] wait_chain find_culprit(int own, const std::vector<int>& awaited,
                                      AwaitedBy awaited_by, std::size_t most_asked = 64) {
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
  const auto known = [&](int rank) {
    return std::any_of(steps.begin(), steps.end(),
                       [rank](const step& each) { return each.rank == rank; });
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
      if (!known(rank)) steps.push_back({rank, i});
    }
  }
  return circle;
}

}  // namespace parx::detail
