// For parx_slurm: "logs", how a job ended, by its logs and Slurm's own records.
#pragma once

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "slurm_where.hpp"
#include <parx/core/check.hpp>
#include <parx/core/env.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/printable.hpp>
#include <parx/launch/rank_list.hpp>
#include <parx/slurm.hpp>

namespace examples {

/// What Slurm knows of a job; empty where it has forgotten it and keeps no accounts.
struct job_record {
  std::string state;
  std::string exit_code;
  std::string nodes;
  std::string restarts;
  std::string log;
  std::string reason;  ///< why it waits
};

inline job_record record_of(const std::string& job) {
  using parx::slurm::run_command;
  const std::chrono::seconds limit(20);
  job_record record;
  const auto shown = run_command({"scontrol", "show", "job", "-o", job}, limit);
  if (shown.success()) {
    auto fields = parx::slurm::parse_record(shown.out.substr(0, shown.out.find('\n')));
    record = {fields["JobState"], fields["ExitCode"], fields["NodeList"],
              fields["Restarts"], fields["StdOut"],   fields["Reason"]};
  }
  const auto accounts =
      run_command({"sacct", "-j", job, "-X", "-n", "-P", "-o", "State,ExitCode,NodeList"}, limit);
  const auto words = parx::detail::split_at(
      std::string_view(accounts.out).substr(0, accounts.out.find('\n')), '|');
  if (accounts.success() && words.size() == 3) {
    record.state = words[0];
    record.exit_code = words[1];
    record.nodes = words[2];
  }
  return record;
}

/// Whether a file's name has the number of a job in it: "train-7.log", "lab.7.n1.0.out".
inline bool names_job(const std::string& file, const std::string& job) {
  for (auto at = file.find(job); at != file.npos; at = file.find(job, at + 1)) {
    const auto digit = [&](std::size_t i) {
      return i < file.size() && file[i] >= '0' && file[i] <= '9';
    };
    if ((at == 0 || !digit(at - 1)) && !digit(at + job.size())) return true;
  }
  return false;
}

/// The logs of a job or at a path, in the order of their names. `looked` gets the places.
inline std::vector<std::filesystem::path> find_logs(const std::string& what,
                                                    const job_record& record,
                                                    std::vector<std::string>& looked) {
  namespace fs = std::filesystem;
  std::vector<fs::path> found;
  if (!record.log.empty()) {
    looked.push_back(record.log);
    if (fs::is_regular_file(record.log)) return {record.log};
  }
  const auto take_all = [&](const fs::path& folder, bool any) {
    looked.push_back(folder.string());
    std::error_code none;
    for (const auto& each : fs::directory_iterator(folder, none)) {
      const std::string name = each.path().filename().string();
      const std::string kind = each.path().extension().string();
      const bool is_log = kind == ".log" || kind == ".out" || kind == ".err";
      if (is_log && each.is_regular_file() && (any || names_job(name, what))) {
        found.push_back(each.path());
      }
    }
  };
  if (fs::is_regular_file(what)) {
    found.push_back(what);
  } else if (fs::is_directory(what)) {
    take_all(what, true);
  } else {
    const auto home = parx::env_string(parx::process_environment(), "HOME").value_or(".");
    for (const fs::path& folder :
         {fs::path("."), fs::path("slurm_logs"), fs::path("logs"), fs::path(home) / "slurm_logs"}) {
      take_all(folder, false);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

inline constexpr std::string_view logs_usage =
    "How a job ended, by its logs and Slurm's records\n\nUsage:\n"
    "  parx_slurm logs 4711         a job; its log is where Slurm says, else in ., slurm_logs,\n"
    "                               logs or ~/slurm_logs, with that number in its name\n"
    "  parx_slurm logs tiny.log     a log\n"
    "  parx_slurm logs slurm_logs   all logs in a folder: .log, .out and .err\n";

/// Prints how the job ended, or for --help what may be asked. Returns 0; 3 where there are neither
/// logs nor records of it.
inline int logs(const std::string& what) {
  using parx::printable;
  if (what == "-h" || what == "--help") {
    fmt::print("{}", logs_usage);
    return 0;
  }
  const bool is_job = !what.empty() && what.find_first_not_of("0123456789_") == what.npos;
  const job_record record = is_job ? record_of(what) : job_record{};
  std::vector<std::string> looked;
  const auto files = find_logs(what, record, looked);
  if (files.empty() && record.state.empty()) {
    fmt::print(stderr, "parx_slurm: no logs of {}: {}\n", printable(what),
               printable(parx::slurm::no_log_text(looked)));
    return 3;
  }
  parx::slurm::log_summary summary;
  for (const auto& file : files) {
    const auto text_of = [](const std::filesystem::path& path) {
      return parx::detail::file_text(path.string()).value_or("");
    };
    parx::slurm::read_log(text_of(file), file.string(), summary,
                          text_of(file.parent_path() / "attempt.json"));
  }
  const std::string state =
      record.state.empty() ? parx::slurm::state_from_lines(summary.slurm_lines) : record.state;
  const bool is_waiting = state == "PENDING";
  fmt::print("{}{}\n", is_job ? "job " : "", printable(what));
  if (!state.empty()) {
    const std::string meaning = parx::slurm::meaning_of_state(state);
    const std::string reason = is_waiting && !record.reason.empty() && record.reason != "None"
                                   ? " (" + record.reason + ")"
                                   : std::string();
    const bool has_ended = state != "RUNNING" && state != "PENDING" && state != "COMPLETING";
    fmt::print(
        "  state   {}{}{}{}{}\n", printable(state), printable(reason),
        record.exit_code.empty() || !has_ended ? "" : ", exit code " + printable(record.exit_code),
        meaning.empty() ? "" : ": ", meaning);
  }
  if (!record.nodes.empty() && record.nodes != "(null)") {
    fmt::print("  nodes   {}\n", printable(record.nodes));
  }
  if (summary.turns > 0) fmt::print("  turns   {}\n", summary.turns);
  if (files.empty() && !is_waiting) {
    fmt::print("  log     none found: {}\n", printable(parx::slurm::no_log_text(looked)));
  }
  for (const auto& file : files) fmt::print("  log     {}\n", printable(file.string()));
  if (!summary.ranks.empty()) {
    const auto world = static_cast<std::size_t>(summary.world_size);
    fmt::print("  ranks   {}\n", parx::slurm::writers_text(summary));
    if (world > summary.ranks.size()) {
      std::vector<int> silent;
      for (int rank = 0; rank < summary.world_size; ++rank) {
        if (!summary.ranks.contains(rank)) silent.push_back(rank);
      }
      fmt::print("          silent: {}\n", parx::rank_list(silent));
    }
  }
  for (const std::string& line : summary.slurm_lines) fmt::print("  slurm   {}\n", printable(line));
  for (const std::string& line : summary.launcher_lines) fmt::print("  {}\n", printable(line));
  const std::string signal = parx::slurm::signal_text(summary, state);
  if (!signal.empty()) fmt::print("  signal  {}\n", signal);
  if (files.empty()) return 0;
  for (const std::string& line : parx::slurm::earlier_lines(summary)) {
    fmt::print("{}\n", printable(line));
  }
  for (const std::string& line : parx::slurm::culprit_lines(summary)) {
    fmt::print("{}\n", printable(line));
  }
  const std::string end = parx::slurm::end_text(summary, state);
  if (!end.empty()) fmt::print("{}\n", end);
  return 0;
}

}  // namespace examples
