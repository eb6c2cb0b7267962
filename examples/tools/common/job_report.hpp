// job_report: how a job of parxrun has ended, as records: of each rank, node and generation, and
// which of them was the cause. parxrun writes them, parx_slurm reads them; nobody searches for the
// sentences that are beside them. Pure.
//
// The whole is report.json in the folder of --log-dir (DIR, or DIR/ID of a job that may have
// several nodes or starts). The outcome alone is also a line of parxrun's standard error, where
// that is no terminal: so it is in the log of whoever keeps one.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/common/exit_status.hpp"
#include "tools/common/json_fields.hpp"
#include <parx/core/failure_record.hpp>

namespace parx::inline PARX_ABI {

[[nodiscard]] inline json::value to_json(const failure_record& record) {
  return json::parse(to_text(record));
}
inline void read_json(const json::value& from, failure_record& into) {
  auto record = failure_from_text(json::dump(from));
  if (!record) throw json::error("this is no record of a failure");
  into = std::move(*record);
}

namespace detail {

struct rank_end {
  int rank = 0;
  pid_t pid = 0;
  exit_status status;
  bool was_signalled = false;  ///< parxrun had signalled it before it ended
  double seconds = 0;          ///< from the start of the generation
  bool is_silent = false;      ///< it is known to have written nothing to standard error
  std::optional<failure_record> record = std::nullopt;  ///< what it has left of its failure
  std::string log_file = {};                 ///< of its standard error; empty where it has none
  std::vector<std::string> last_lines = {};  ///< of its standard error
  bool is_in_sight = false;  ///< they are among the last lines that parxrun has shown

  [[nodiscard]] bool failed_by_itself() const noexcept {
    return !status.success() && !status.has_saved() && !was_signalled;
  }

  static void for_each_field(auto& self, auto&& visit) {
    visit("rank", self.rank);
    visit("pid", self.pid);
    visit("status", self.status);
    visit("was_signalled", self.was_signalled);
    visit("seconds", self.seconds);
    visit("is_silent", self.is_silent);
    visit("record", self.record);
    visit("log_file", self.log_file);
    visit("last_lines", self.last_lines);
    visit("is_in_sight", self.is_in_sight);
  }
};

/// What an agent tells the coordinator of how its ranks have ended.
struct node_report {
  std::string node;
  std::vector<rank_end> ranks = {};
  std::string recorder = {};  ///< directory of the node's flight recorders; empty: there is none
  std::string reason = {};    ///< why the first failed rank was killed, where that is known

  static void for_each_field(auto& self, auto&& visit) {
    visit("node", self.node);
    visit("ranks", self.ranks);
    visit("recorder", self.recorder);
    visit("reason", self.reason);
  }
};

}  // namespace detail

/// How a generation of a job's ranks has ended.
struct job_outcome {
  int generation = 1;
  int restarts = 0;      ///< after failures, with the one that follows
  bool goes_on = false;  ///< another generation follows
  int code = 0;          ///< of all parxruns, where none does
  int world_size = 0;
  bool has_failed = false;  ///< by `rank`, else by the loss of `node`, else since nodes are missing
  int rank = -1;            ///< whose failure is the cause
  std::string node = {};
  int signal = 0;        ///< that has killed the rank
  int told_by = -1;      ///< the rank whose record blames `rank`; -1: it failed by itself
  std::string why = {};  ///< for people

  static void for_each_field(auto& self, auto&& visit) {
    visit("generation", self.generation);
    visit("restarts", self.restarts);
    visit("goes_on", self.goes_on);
    visit("code", self.code);
    visit("world_size", self.world_size);
    visit("has_failed", self.has_failed);
    visit("rank", self.rank);
    visit("node", self.node);
    visit("signal", self.signal);
    visit("told_by", self.told_by);
    visit("why", self.why);
  }
};

/// Before the JSON of an outcome in a log.
inline constexpr std::string_view outcome_mark = "parxrun: record ";

/// With a line feed. Short enough for srun to keep it whole: see host_facts.hpp.
[[nodiscard]] inline std::string line_of(job_outcome outcome) {
  constexpr std::size_t longest = 300;
  if (outcome.why.size() > longest) outcome.why.resize(longest);
  return std::string(outcome_mark) + json::dump(json::to_json(outcome)) + "\n";
}
/// nullopt for another line.
[[nodiscard]] inline std::optional<job_outcome> outcome_of_line(std::string_view line) {
  if (!line.starts_with(outcome_mark)) return std::nullopt;
  try {
    return json::from_json<job_outcome>(json::parse(line.substr(outcome_mark.size())));
  } catch (const json::error&) {
    return std::nullopt;  // cut off, or of another version
  }
}

struct job_member {
  std::string node;
  int ranks = 0;

  static void for_each_field(auto& self, auto&& visit) {
    visit("node", self.node);
    visit("ranks", self.ranks);
  }
};

struct generation_report {
  int generation = 1;
  int restarts = 0;
  double start = 0;                      ///< in Unix time
  std::optional<double> end = {};        ///< empty while its ranks run
  std::vector<job_member> members = {};  ///< in the order of their ranks
  std::optional<job_outcome> outcome = {};
  std::vector<detail::node_report> nodes = {};  ///< of those that could send one

  static void for_each_field(auto& self, auto&& visit) {
    visit("generation", self.generation);
    visit("restarts", self.restarts);
    visit("start", self.start);
    visit("end", self.end);
    visit("members", self.members);
    visit("outcome", self.outcome);
    visit("nodes", self.nodes);
  }
};

struct job_report {
  std::string id;
  std::string command = {};
  std::string parx = {};  ///< its version
  std::vector<generation_report> generations = {};

  static void for_each_field(auto& self, auto&& visit) {
    visit("id", self.id);
    visit("command", self.command);
    visit("parx", self.parx);
    visit("generations", self.generations);
  }
};

}  // namespace parx
