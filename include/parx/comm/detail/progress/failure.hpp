// failure: why a group ends, as known to the rank that noticed it.
#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include <parx/core/error.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/formatted.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

struct failure {
  std::string text;
  errc code;
  int peer;                              ///< the rank to blame; -1: none in particular
  std::exception_ptr cause{};            ///< of the failure that `text` describes
  std::optional<failure_record> told{};  ///< of the rank that failed first, where it has said so

  /// The text with its causes, for the other ranks.
  [[nodiscard]] std::string whole() const {
    return cause ? text + "; caused by: " + text_of(cause) : text;
  }
};

/// Throws a failure if a rank has aborted the job.
inline void throw_if_aborted(links& network) {
  if (auto reason = network.job().known_abort_reason()) {
    throw failure{reason->text, errc::aborted, -1, {}, reason};
  }
}

/// Said where other ranks' reports cannot be read.
inline constexpr std::string_view wait_reports_are_missing =
    ". Where the others are is unknown: the job's store, which rank 0 or the launcher keeps, does "
    "not answer; its process may be stopped";

/// A link often breaks because another rank failed first: waits briefly for that rank's reason.
[[nodiscard, gnu::cold]] inline failure reason_of(const link_lost& lost, links& network) {
  static constexpr std::chrono::milliseconds grace{100};
  const auto until = std::chrono::steady_clock::now() + grace;
  for (;;) {
    if (auto reason = network.job().known_abort_reason()) {
      return {reason->text, errc::aborted, lost.peer, {}, reason};
    }
    if (std::chrono::steady_clock::now() >= until) break;
    network.wait({}, std::chrono::milliseconds(10));
  }
  std::string why = lost.what();
  if (lost.how == link_end::closed) {
    why += network.job().has_ended(network.job_rank(lost.peer))
               ? ": it ended or was killed (see its output); a rank that has fewer batches than "
                 "the others ends so"
               : ": its process is still there, so it left the group, or the network cut the "
                 "connection (a firewall, a reset)";
  }
  // A rank whose wait for a stopped one has ended closes its links. If that one keeps the store,
  // nobody can say so: find out whether the store answers.
  static_cast<void>(network.job().wait_reports_of(network.job_rank(lost.peer)));
  if (!network.job().has_wait_reports()) why += wait_reports_are_missing;
  return {formatted("lost {}: {}", network.describe(lost.peer), why), errc::peer_lost, lost.peer,
          cause_of(lost)};
}

}  // namespace parx::detail
