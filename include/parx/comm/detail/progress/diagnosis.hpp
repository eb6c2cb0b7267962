// diagnosis: the texts that say what a group is doing and what went wrong.
//
// An error is a sentence that names the operation, its number and call site, the ranks to blame and
// their hosts. Nothing here changes a group. The calls that other ranks are in are read from their
// reports.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/comm/detail/progress/call.hpp>
#include <parx/comm/detail/progress/call_record.hpp>
#include <parx/comm/detail/progress/deadlock.hpp>
#include <parx/comm/detail/progress/engine.hpp>
#include <parx/comm/detail/progress/failure.hpp>
#include <parx/comm/detail/progress/messages.hpp>
#include <parx/comm/detail/progress/wait_report.hpp>
#include <parx/core/error.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/find.hpp>
#include <parx/core/formatted.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

class diagnosis {
 public:
  static constexpr int most_named = 8;
  static constexpr int most_asked = 64;  ///< ranks of a group

  diagnosis(links& network, const call_record& record) : network_(network), record_(record) {}

  /// all_reduce #812 on group "dp" (rank 3 of 8, train.cpp:88)
  [[nodiscard, gnu::cold]] std::string title(const call& request) const {
    const std::string number =
        is_message(request) ? std::string() : formatted(" #{}", request.header.number());
    const int rank = network_.rank(), job_rank = network_.job_rank(rank);
    const std::string of_job =
        rank == job_rank ? std::string() : formatted(", rank {} of the job", job_rank);
    return formatted("{}{} on group \"{}\" (rank {} of {}{}, {})", name_of(request), number,
                     record_.name(), rank, network_.size(), of_job, request.site);
  }

  [[nodiscard, gnu::cold]] error_context context_of(const call& request, int peer) const {
    return {.operation = name_of(request),
            .group = record_.name(),
            .sequence = request.header.number(),
            .rank = network_.rank(),
            .peer = peer,
            .host = peer >= 0 ? network_.job().host_of(network_.job_rank(peer)) : std::string(),
            .elapsed_seconds = request.until().elapsed_seconds(),
            .advice = "The group is closed; restart the job to go on" + record_.where()};
  }
  /// The error of a pending call when the group ends because of `reason`.
  [[nodiscard, gnu::cold]] error end_of(const call& request, const failure& reason) const {
    const bool second = reason.code == errc::aborted;
    const bool by_rank = second && (!reason.told || reason.told->culprit() >= 0);
    return {reason.code,
            formatted("{} {} after {:.1f} s{}{}", title(request), second ? "was ended" : "failed",
                      request.until().elapsed_seconds(),
                      by_rank ? " because another rank failed first: " : ": ", reason.text),
            context_of(request, reason.peer), reason.cause};
  }
  /// What this rank leaves behind of a failure. `pending`: the oldest pending call, or null.
  [[nodiscard, gnu::cold]] failure_record record_of_end(const failure& reason,
                                                        const call* pending) const {
    failure_record record = record_of(nullptr, network_.job_rank(network_.rank()));
    record.code = reason.code;
    record.group = record_.name();
    record.text = reason.whole();
    if (reason.code != errc::aborted && pending != nullptr) {
      record.text = formatted("{}: {}", title(*pending), record.text);
    }
    if (reason.peer >= 0) record.blamed = network_.job_rank(reason.peer);
    if (reason.told) {
      // A rank may read its own reason, if another group of it has failed before.
      if (reason.told->rank == record.rank) return *reason.told;
      record.blamed = reason.told->culprit();
      record.host = reason.told->host;
    } else if (reason.peer >= 0) {
      record.host = network_.job().host_of(network_.job_rank(reason.peer));
    }
    if (pending == nullptr) return record;
    record.operation = name_of(*pending);
    record.sequence = is_message(*pending) ? 0 : pending->header.number();
    record.site = formatted("{}", pending->site);
    return record;
  }
  /// The error of a call that was issued after the group had ended.
  [[nodiscard, gnu::cold]] error refusal_of(const call& request, const std::string& reason) const {
    return {errc::closed,
            formatted("{} on group \"{}\" at {} was refused because of an earlier failure: {}",
                      name_of(request), record_.name(), request.site, reason),
            context_of(request, -1)};
  }

  /// The report of a rank about a call of this group in which it is, or was, stuck.
  [[nodiscard]] std::optional<wait_report> wait_report_of(int peer) const {
    for (wait_report& each : wait_reports_of(network_.job_rank(peer))) {
      if (each.call.group == record_.group()) return std::move(each);
    }
    return std::nullopt;
  }
  /// Publishes a report whose `awaited` are ranks of this group.
  void post(wait_report mine) const {
    for (int& each : mine.awaited) each = network_.job_rank(each);
    mine.group = record_.name();
    network_.job().post_wait_report(network_.group(), mine.to_text());
  }

  /// "waiting for rank 3 (node2, pid 71), which is in #15, barrier at train.cpp:90; for ...", and
  /// the ranks that those wait for. Messages have no sequence number.
  [[nodiscard, gnu::cold]] std::string waiting_for(const std::vector<int>& peers,
                                                   std::optional<std::uint64_t> sequence,
                                                   int most = most_named) const {
    const auto named = std::min(peers.size(), static_cast<std::size_t>(most));
    std::string text = "waiting for ";
    for (std::size_t i = 0; i < named; ++i) {
      text += formatted(
          "{}{}{}", i > 0 ? "; for " : "", network_.describe(peers[i]),
          sequence ? whereabouts(peers[i], *sequence) : whereabouts(network_.job_rank(peers[i])));
    }
    if (peers.size() > named) text += formatted("; and {} more", peers.size() - named);
    text += cause_of_wait(peers);
    if (!network_.job().has_wait_reports()) text += wait_reports_are_missing;
    return text;
  }

  /// "; rank 0 has sent 4 float32 with tag 3 at train.cpp:88, which no receive has taken": the
  /// messages `sent`, each with its sender.
  [[nodiscard, gnu::cold]] static std::string untaken(
      const std::vector<std::pair<int, call_header>>& sent) {
    static constexpr std::size_t most_listed = 3;
    std::string text;
    for (std::size_t i = 0; i < std::min(sent.size(), most_listed); ++i) {
      const auto& [sender, message] = sent[i];
      text += formatted("; rank {} has sent {} {} with tag {} at {}:{}, which no receive has taken",
                        sender, message.count, name_of(static_cast<dtype>(message.type)),
                        message.root, message.file_name(), message.line);
    }
    if (sent.size() > most_listed) text += formatted("; nor {} more", sent.size() - most_listed);
    return text;
  }

  /// Moves the ranks that have not entered call `sequence` to the front of `peers`: the others wait
  /// for them. If all of `peers` have entered it, looks for such ranks in the whole group, unless
  /// it is too large.
  [[gnu::cold]] void put_absent_first(std::vector<int>& peers, std::uint64_t sequence) const {
    std::vector<int> late = absent(sequence, peers);
    if (!network_.job().has_wait_reports()) return;
    if (late.empty() && network_.size() <= most_asked) late = absent(sequence, others());
    std::erase_if(peers, [&](int each) { return is_in(each, late); });
    peers.insert(peers.begin(), late.begin(), late.end());
  }
  /// Those of `peers` without a report that they are in call `sequence` or a later one; empty if
  /// reports cannot be read.
  [[nodiscard, gnu::cold]] std::vector<int> absent(std::uint64_t sequence,
                                                   std::vector<int> peers) const {
    std::erase_if(peers, [&](int each) {
      const auto theirs = wait_report_of(each);
      return theirs && theirs->call.sequence >= sequence;
    });
    return network_.job().has_wait_reports() ? peers : std::vector<int>();
  }

  /// All ranks of the group but this one.
  [[nodiscard, gnu::cold]] std::vector<int> others() const {
    std::vector<int> found;
    for (int rank = 0; rank < network_.size(); ++rank) {
      if (rank != network_.rank()) found.push_back(rank);
    }
    return found;
  }

  /// The proven deadlock that this rank is in, if any.
  [[nodiscard]] deadlock find_deadlock() const {
    return deadlock_search::find(network_.job_rank(network_.rank()),
                                 [this](int rank) { return wait_reports_of(rank); });
  }
  [[nodiscard, gnu::cold]] std::string text_of_deadlock(const deadlock& found) const {
    const auto named = std::min(found.circle.size(), static_cast<std::size_t>(most_named));
    std::string text = "these ranks wait for each other for good, with all their threads:" +
                       list_of_waits(std::span(found.circle).first(named));
    const std::size_t others = found.circle.size() - named;
    if (others > 0) text += formatted("; and {} more", others);
    return text +
           ". Call these operations in an order in which each finds its partners "
           "(PARX_DEADLOCK=warn makes this a warning)";
  }

  [[nodiscard, gnu::cold]] std::string mismatch(header_mismatch found) const {
    // The other rank's call may have the number of an earlier call of this rank.
    if (found.theirs.sequence != found.mine.sequence) {
      found = record_.first_difference(found.peer, {found.theirs}).value_or(found);
    }
    const call_header& mine = found.mine;
    if (found.theirs.magic != call_header::expected_magic) {
      return formatted("{} sent bytes that are no parx call", network_.describe(found.peer));
    }
    if (found.is_past) {
      return formatted(
          "the ranks called different operations: their call #{} was {} on rank {}, but {} on {}{}"
          ". Every rank must issue the same collectives in the same order with the same count, "
          "dtype and root",
          mine.number(), record_.text_of(mine), network_.rank(), record_.text_of(found.theirs),
          network_.describe(found.peer), hidden_difference(mine, found.theirs));
    }
    const std::string number = found.theirs.sequence == mine.sequence
                                   ? std::string()
                                   : formatted(" (its #{})", found.theirs.number());
    return formatted(
        "the ranks called different operations: rank {} is in {}, but {} is in {}{}{}. Every rank "
        "must issue the same collectives in the same order with the same count, dtype and root",
        network_.rank(), record_.text_of(mine), network_.describe(found.peer),
        record_.text_of(found.theirs), number, hidden_difference(mine, found.theirs));
  }

  [[nodiscard, gnu::cold]] std::string mismatch(const message_mismatch& found) const {
    const call_header& mine = found.receive->header;
    const call_header& theirs = found.theirs;
    const auto type_of = [](const call_header& of) { return name_of(static_cast<dtype>(of.type)); };
    std::string wanted = formatted("recv for {} {}", mine.count, type_of(mine));
    std::string advice = "Both sides must name the same count and dtype";
    if (const any_shape_receive* const any = found.receive->any_shape) {
      wanted = formatted("recv_any_shape for at most {} bytes{}", any->max_bytes,
                         any->type ? formatted(" of {}", name_of(*any->type)) : std::string());
      advice = "What it takes is set by .type and .max_bytes";
    }
    return formatted(
        "rank {} waits in {} with tag {} (at {}), but {} sent {} {} (at {}:{}). {}",
        network_.rank(), wanted, mine.root, found.receive->site, network_.describe(found.peer),
        theirs.count, type_of(theirs), theirs.file_name(), theirs.line, advice);
  }

 private:
  /// Differences between two headers that describe() does not show.
  [[nodiscard]] static std::string hidden_difference(const call_header& mine,
                                                     const call_header& theirs) {
    if (mine.operation != theirs.operation) return {};
    if (static_cast<operation>(mine.operation) == operation::broadcast &&
        mine.count != theirs.count) {
      return "; for what only the root knows the size of there is broadcast_object";
    }
    if (mine.sizes != theirs.sizes) {
      return "; the calls differ in their uneven counts, in the sizes of their buffers or structs, "
             "or in where they lie in a shared buffer";
    }
    if (mine.arithmetic != theirs.arithmetic) {
      return "; the calls differ in the factor, in divide_by, in the order of the reduction or in "
             "the kind of the user's operation";
    }
    if (static_cast<operation>(mine.operation) == operation::all_to_all && mine.sizes != 0) {
      return formatted("; it sends {} elements where {} are expected from it", theirs.count,
                       mine.count);
    }
    return {};
  }

  static constexpr std::string_view elsewhere = "(computing, stopped, or gone without closing";

  [[nodiscard, gnu::cold]] std::vector<wait_report> wait_reports_of(int job_rank) const {
    return wait_report::all_in(network_.job().wait_reports_of(job_rank));
  }
  /// The call that a rank waits in: one of this group, else one of another group that a thread of
  /// its program waits for. If it does not wait: its last known call of this group.
  [[nodiscard, gnu::cold]] std::optional<wait_report> wait_of(int job_rank) const {
    std::optional<wait_report> found;
    for (wait_report& each : wait_reports_of(job_rank)) {
      const bool here = each.call.group == record_.group();
      if (here ? each.waits() || !found : each.waits() && each.blocks) found = std::move(each);
      if (here && found->waits()) break;
    }
    return found;
  }

  /// Where a rank is that a collective waits for.
  [[nodiscard, gnu::cold]] std::string whereabouts(int peer, std::uint64_t sequence) const {
    const auto here = wait_report_of(peer);
    if (!network_.job().has_wait_reports()) return {};
    if (here && here->call.sequence >= sequence) return ", which is in " + place_of(*here);
    const auto theirs = wait_of(network_.job_rank(peer));
    if (theirs && theirs->waits()) {
      return formatted(", which has not entered the operation: it waits in {}", place_of(*theirs));
    }
    // It may have left that call since: a report says where the rank was stuck.
    return formatted(", which has not entered the operation {}{})", elsewhere,
                     here ? "; it was last seen waiting in " + place_of(*here) : "");
  }
  /// Where a rank is whose message is waited for.
  [[nodiscard, gnu::cold]] std::string whereabouts(int job_rank) const {
    const auto theirs = wait_of(job_rank);
    if (!network_.job().has_wait_reports()) return {};
    if (theirs && theirs->waits()) return ", which waits in " + place_of(*theirs);
    return formatted(", which waits in no call {})", elsewhere);
  }
  /// "#15, barrier at train.cpp:90 on group "tp", for rank 2, for rank 3"; this group is not named.
  [[nodiscard, gnu::cold]] std::string place_of(const wait_report& theirs) const {
    static constexpr std::size_t most_listed = 4;
    std::string text = theirs.call.sequence > 0 ? formatted("#{}, ", theirs.call.number()) : "";
    text += record_.text_of(theirs.call);
    if (theirs.call.group != record_.group()) text += formatted(" on group \"{}\"", theirs.group);
    if (!theirs.waits() || theirs.awaited.size() > most_listed) return text;
    for (const int rank : theirs.awaited) text += ", for " + name_of_rank(rank);
    return text;
  }
  /// The rank in this group of a rank of the job; -1 if it is not a member.
  [[nodiscard]] int member(int job_rank) const noexcept {
    for (int rank = 0; rank < network_.size(); ++rank) {
      if (network_.job_rank(rank) == job_rank) return rank;
    }
    return -1;
  }
  [[nodiscard]] std::string name_of_rank(int job_rank) const {
    return formatted("rank {}{}", job_rank, member(job_rank) == job_rank ? "" : " of the job");
  }
  /// " rank 0 in #15, barrier at train.cpp:90; rank 1 in ...", of ranks of the job.
  [[nodiscard, gnu::cold]] std::string list_of_waits(std::span<const int> job_ranks) const {
    std::string text;
    for (const int rank : job_ranks) {
      const auto theirs = wait_of(rank);
      text += formatted("{} {}{}", text.empty() ? "" : ";", name_of_rank(rank),
                        theirs && theirs->waits() ? " in " + place_of(*theirs) : "");
    }
    return text;
  }

  /// The ranks that `peers` wait for, by their reports; empty if one of `peers` itself is the
  /// cause.
  [[nodiscard, gnu::cold]] std::string cause_of_wait(std::vector<int> peers) const {
    for (int& each : peers) each = network_.job_rank(each);
    const auto awaited_by = [this](int rank) {
      const auto theirs = wait_of(rank);
      return theirs ? theirs->awaited : std::vector<int>{};
    };
    const int own = network_.job_rank(network_.rank());
    const wait_chain chain = find_culprit(own, peers, awaited_by);
    if (!network_.job().has_wait_reports()) return {};
    if (chain.circle) {
      return ". These wait for each other in a circle:" + list_of_waits(chain.ranks);
    }
    std::string text;
    for (std::size_t i = 1; i < chain.ranks.size(); ++i) {
      const int rank = member(chain.ranks[i]);
      text += formatted("; behind that is {}{}",
                        rank >= 0 ? network_.describe(rank) : name_of_rank(chain.ranks[i]),
                        whereabouts(chain.ranks[i]));
    }
    return text;
  }

  links& network_;
  const call_record& record_;
};

}  // namespace parx::detail
