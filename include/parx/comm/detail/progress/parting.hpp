// parting: how far a rank was in its groups when it left the job by itself, for the ranks that
// still wait for its last bytes.
//
// A rank leaves once its own calls are done. Others may be in them still: a rank that has all it
// needs of a collective has sent all that it owes, and the network keeps that for the receiver. So
// the end of a rank is evidence of a lost call only if it took no part in the call.
//
//   in the call of number n     the rank finished n calls or more   its bytes are here or will come
//                               fewer                               it took another way
//   in a receive from the rank  it has sent more than has come      as above
//                               all that it has sent has come       it took another way
//
// Of a group that the words do not tell of, anything may still come. Pure: the job stores the
// words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/comm/detail/progress/call_header.hpp>
#include <parx/comm/detail/progress/wait_report.hpp>
#include <parx/core/find.hpp>

namespace parx::inline PARX_ABI::detail {

/// A group that its rank has ended in order, with all its calls done.
struct parting {
  /// A longer list of receivers is left out: it would be large in the store of a large job.
  static constexpr std::size_t most_receivers = 64;

  std::uint64_t group = 0;
  std::uint64_t calls = 0;         ///< collectives
  std::uint64_t has_messages = 0;  ///< `sent` is complete
  std::vector<messages_sent> sent{};

  /// `counts` are those of one group, as a report has them.
  [[nodiscard]] static parting from(const wait_report& counts) {
    parting made;
    if (!counts.calls.empty()) {
      made.group = counts.calls.front().group;
      made.calls = counts.calls.front().calls;
    }
    made.has_messages = counts.sent.size() <= most_receivers ? 1 : 0;
    if (made.has_messages != 0) made.sent = counts.sent;
    return made;
  }

  [[nodiscard]] std::string to_text() const {
    std::string text;
    const auto append = [&text](const auto& field) {
      text.append(reinterpret_cast<const char*>(&field), sizeof field);
    };
    append(group);
    append(calls);
    append(has_messages);
    append(std::uint64_t{sent.size()});
    for (const messages_sent& each : sent) {
      append(std::int64_t{each.peer});
      append(std::uint64_t{each.count});
    }
    return text;
  }
  /// The groups in some of their texts, which follow one another. Ends at what is none.
  [[nodiscard, gnu::cold]] static std::vector<parting> all_in(std::string_view text) {
    const auto take = [&text]<typename Field>(Field& field) {
      if (text.size() < sizeof field) return false;
      std::memcpy(&field, text.data(), sizeof field);
      text.remove_prefix(sizeof field);
      return true;
    };
    std::vector<parting> found;
    for (;;) {
      parting next;
      std::uint64_t receivers = 0;
      if (!take(next.group) || !take(next.calls) || !take(next.has_messages) || !take(receivers) ||
          receivers > most_receivers) {
        return found;
      }
      for (std::uint64_t i = 0; i < receivers; ++i) {
        std::int64_t peer = 0;
        std::uint64_t count = 0;
        if (!take(peer) || !take(count)) return found;
        next.sent.push_back(
            {next.group, static_cast<int>(peer), static_cast<std::uint32_t>(count)});
      }
      found.push_back(std::move(next));
    }
  }

  /// Whether bytes for this collective may still come from a rank that has left with these words.
  [[nodiscard]] static bool may_be_in(const std::vector<parting>& words, const call_header& call) {
    const auto of_group = find_by(words, &parting::group, call.group);
    return of_group == words.end() || of_group->calls >= call.number();
  }
  /// The same for a message to `receiver`, which has received `received` of its messages.
  [[nodiscard]] static bool may_have_sent(const std::vector<parting>& words, std::uint64_t group,
                                          int receiver, std::uint32_t received) {
    const auto of_group = find_by(words, &parting::group, group);
    if (of_group == words.end() || of_group->has_messages == 0) return true;
    const auto sent = find_by(of_group->sent, &messages_sent::peer, receiver);
    return (sent != of_group->sent.end() ? sent->count : 0) != received;
  }
};

}  // namespace parx::detail
