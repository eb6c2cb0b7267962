#include "tools/parxrun/failures/divergence_text.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI::detail {

std::vector<flight_log> readable_logs(const std::string& directory) {
  try {
    return read_flight_logs(find_flight_directory(directory), directory).ranks;
  } catch (const std::exception&) {
    return {};
  }
}

std::string differing_calls_text(const flight_divergence& found) {
  struct variant {
    flight_record call;
    std::vector<int> ranks;
  };
  std::vector<variant> variants;
  bool differ = false;
  for (const flight_rank& each : found.ranks) {
    if (!each.here) continue;
    differ |= each.part == flight_part::called_other;
    const auto like_it = std::ranges::find_if(
        variants, [&](const variant& other) { return other.call.call.matches(each.here->call); });
    if (like_it != variants.end()) like_it->ranks.push_back(each.rank);
    else variants.push_back({*each.here, {each.rank}});
  }
  if (!differ) return {};
  std::ranges::stable_sort(
      variants, [](const variant& a, const variant& b) { return a.ranks.size() > b.ranks.size(); });
  if (variants.size() == 2 && variants[1].ranks.size() < variants[0].ranks.size()) {
    return formatted("rank {} called {} where the others called {}, on group \"{}\"",
                     joined_text(variants[1].ranks), describe(variants[1].call.call),
                     numbered(variants[0].call), found.name);
  }
  static constexpr std::size_t most = 4;
  std::string text =
      formatted("the ranks called different operations on group \"{}\": call #{} was", found.name,
                found.call.call.number());
  for (std::size_t i = 0; i < std::min(variants.size(), most); ++i) {
    text += formatted("{} {} on rank {}",
                      i == 0                 ? ""
                      : variants.size() == 2 ? ", but"
                                             : ",",
                      describe(variants[i].call.call), joined_text(variants[i].ranks));
  }
  if (variants.size() > most)
    text += formatted(", and {} others on the other ranks", variants.size() - most);
  return text;
}

std::string differing_calls_text(const std::vector<flight_log>& logs) {
  const std::vector<flight_divergence> all = find_divergences(logs);
  return all.empty() ? std::string() : differing_calls_text(all.front());
}

namespace {

/// Why some ranks have not entered a collective: the ends of the chains of waits for messages.
struct unentered {
  /// Those that no message keeps away; where messages keep all away, all.
  std::vector<const flight_rank*> ranks{};
  /// Set where messages keep all away: one whose message is with `peer`, which has entered
  /// the collective.
  const flight_rank* waiting = nullptr;
  int peer = -1;
};

unentered who_did_not_enter(const flight_divergence& found, const std::vector<flight_log>& logs,
                            const std::vector<int>& stopped) {
  const auto peer_in = [&](const flight_record& message) {
    for (const flight_log& log : logs) {
      for (const flight_group_name& group : log.groups) {
        if (group.id != message.call.group || group.rank != message.peer) continue;
        return std::ranges::find(found.ranks, log.rank, &flight_rank::rank);
      }
    }
    return found.ranks.end();
  };
  unentered ends;
  std::vector<const flight_rank*> in_messages;
  for (const flight_rank& each : found.ranks) {
    if (each.part != flight_part::never_entered) continue;
    const bool is_stopped = std::ranges::find(stopped, each.rank) != stopped.end();
    if (is_stopped || !each.elsewhere || each.elsewhere->call.sequence != 0) {
      ends.ranks.push_back(&each);
      continue;
    }
    in_messages.push_back(&each);
    if (each.elsewhere->peer < 0 || ends.waiting != nullptr) continue;
    const auto peer = peer_in(*each.elsewhere);
    if (peer == found.ranks.end() || peer->part == flight_part::never_entered) continue;
    ends.waiting = &each;
    ends.peer = peer->rank;
  }
  if (ends.ranks.empty()) ends.ranks = std::move(in_messages);
  else ends.waiting = nullptr;
  return ends;
}

}  // namespace

std::string divergence_text(const std::vector<flight_log>& logs, const std::vector<int>& stopped) {
  const std::vector<flight_divergence> all = find_divergences(logs);
  if (all.empty()) return {};
  const flight_divergence& first = all.front();
  if (std::string text = differing_calls_text(first); !text.empty()) return text;
  const auto who = [&](flight_part part) {
    std::vector<const flight_rank*> found;
    for (const flight_rank& each : first.ranks) {
      if (each.part == part) found.push_back(&each);
    }
    return found;
  };
  const auto names = [](const std::vector<const flight_rank*>& ranks) {
    std::vector<int> numbers;
    for (const flight_rank* const each : ranks) numbers.push_back(each->rank);
    return joined_text(numbers);
  };
  const auto is_stopped = [&](int rank) {
    return std::find(stopped.begin(), stopped.end(), rank) != stopped.end();
  };
  static constexpr const char* stopped_text = "its process was stopped (SIGSTOP, a debugger)";
  const std::string there = formatted("on group \"{}\"", first.name);

  const auto absent = who(flight_part::never_entered);
  if (2 * absent.size() > first.ranks.size()) {  // then those that entered are the exception
    std::vector<int> present;
    for (const flight_rank& each : first.ranks) {
      if (each.part != flight_part::never_entered) present.push_back(each.rank);
    }
    std::string text = formatted("rank {} called {}, {}, which the others did not",
                                 joined_text(present), numbered(first.call), there);
    for (const flight_rank* const each : absent) {
      if (!each->elsewhere || each->elsewhere->call.sequence != 0) continue;
      return text + formatted("; rank {} was in {}", each->rank, to_text(*each->elsewhere));
    }
    return text;
  }
  if (!absent.empty()) {
    const unentered ends = who_did_not_enter(first, logs, stopped);
    if (ends.waiting != nullptr) {
      return formatted(
          "rank {} was in {} while rank {}, that message's other end, had gone on to "
          "{}, {}; rank {} did not enter that",
          ends.waiting->rank, to_text(*ends.waiting->elsewhere), ends.peer, numbered(first.call),
          there, names(absent));
    }
    const flight_rank& one = *ends.ranks.front();
    std::string text =
        formatted("rank {} did not enter {}, {}", names(ends.ranks), numbered(first.call), there);
    if (is_stopped(one.rank)) text += formatted("; {}", stopped_text);
    else if (one.elsewhere) text += formatted("; it was in {}", to_text(*one.elsewhere));
    else if (one.last) text += formatted("; its last call there was {}", numbered(*one.last));
    return text;
  }
  for (const flight_rank& each : first.ranks) {
    if (!is_stopped(each.rank) || each.part == flight_part::finished) continue;
    return formatted("rank {} did not finish {}, {}; {}", each.rank, numbered(first.call), there,
                     stopped_text);
  }
  return {};
}

std::string divergence_headline(const judged_end& judged, const std::string& recorders,
                                const std::vector<int>& stopped) {
  const auto& record = judged.cause().record;
  if (!record || record->kind() == failure_kind::own) return {};
  const std::vector<flight_log> logs = readable_logs(recorders);
  // A rank may leave early because its last call was another one, which needed nobody.
  if (std::string text = differing_calls_text(logs); !text.empty()) return text;
  if (record->code != errc::mismatch) {
    if (std::string text = early_exit_text(judged); !text.empty()) return text;
  }
  std::string text = divergence_text(logs, stopped);
  const int blamed = judged.found.blamed;
  return text.empty() && blamed >= 0 ? blame_text(*record, blamed) : text;
}

}  // namespace parx::detail
