#include "tools/parx_slurm/commands/logs.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "tools/common/job_report.hpp"
#include "tools/common/rank_list.hpp"
#include "tools/common/run_command.hpp"
#include "tools/parx_slurm/commands/where.hpp"
#include "tools/parx_slurm/logs/log_reader.hpp"
#include "tools/parx_slurm/logs/log_text.hpp"
#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>
#include <parx/core/error.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/printable.hpp>

namespace examples {

std::vector<parx::slurm::job_record> records_of(const std::string& job) {
  using parx::slurm::run_command;
  const std::chrono::seconds limit(20);
  const auto shown = run_command({"scontrol", "show", "job", "-o", job}, limit);
  const auto accounts = run_command(
      {"sacct", "-j", job, "-X", "-n", "-P", "-o", "JobID,State,ExitCode,NodeList"}, limit);
  return parx::slurm::job_records(shown.success() ? shown.out : "",
                                  accounts.success() ? accounts.out : "");
}

namespace {

/// Whether a file's name has the number of a job in it: "train-7.log", "lab.7.n1.0.out".
bool names_job(const std::string& file, const std::string& job) {
  for (auto at = file.find(job); at != file.npos; at = file.find(job, at + 1)) {
    const auto digit = [&](std::size_t i) {
      return i < file.size() && file[i] >= '0' && file[i] <= '9';
    };
    if ((at == 0 || !digit(at - 1)) && !digit(at + job.size())) return true;
  }
  return false;
}

/// The logs of a job or at a path, in the order of their names. `looked` gets the places, with what
/// kept it from looking there.
std::vector<std::filesystem::path> find_logs(const std::string& what,
                                             const std::vector<parx::slurm::job_record>& records,
                                             std::vector<std::string>& looked) {
  namespace fs = std::filesystem;
  std::error_code none;
  std::vector<fs::path> found;
  for (const auto& each : records) {
    if (each.log.empty()) continue;
    looked.push_back(each.log);
    if (fs::is_regular_file(each.log, none)) found.emplace_back(each.log);
  }
  const auto take_all = [&](const fs::path& folder, bool any) {
    std::error_code failure;
    for (const auto& each : fs::directory_iterator(folder, failure)) {
      const std::string name = each.path().filename().string();
      const std::string kind = each.path().extension().string();
      const bool is_log = kind == ".log" || kind == ".out" || kind == ".err";
      if (is_log && each.is_regular_file(none) && (any || names_job(name, what))) {
        found.push_back(each.path());
      }
    }
    const bool is_missing = failure == std::errc::no_such_file_or_directory;
    looked.push_back(folder.string() +
                     (failure && !is_missing ? " (" + failure.message() + ")" : ""));
  };
  if (!found.empty()) {
    // where Slurm says
  } else if (fs::is_directory(what, none)) {
    take_all(what, true);
  } else if (fs::is_regular_file(what, none)) {
    found.emplace_back(what);
  } else {
    const auto home = parx::env_string(parx::process_environment(), "HOME").value_or(".");
    for (const fs::path& folder :
         {fs::path("."), fs::path("slurm_logs"), fs::path("logs"), fs::path(home) / "slurm_logs"}) {
      take_all(folder, false);
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

/// Reads the first `limit` bytes of a file, in pieces. Returns why it cannot be read; empty: it
/// can.
std::string read_pieces(const std::filesystem::path& file, std::uint64_t limit,
                        const std::function<void(std::string_view)>& take) {
  const parx::descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.valid()) return parx::errno_text(errno);
  std::vector<char> piece(std::size_t{1} << 18);
  while (limit > 0) {
    const ssize_t got =
        ::read(opened.get(), piece.data(),
               static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), limit)));
    if (got == 0) break;
    if (got < 0 && errno != EINTR) return parx::errno_text(errno);
    if (got < 0) continue;
    take({piece.data(), static_cast<std::size_t>(got)});
    limit -= static_cast<std::uint64_t>(got);
  }
  return {};
}

/// What parxrun has recorded in report.json of the generation whose log this is: in its folder, or
/// where that is one generation's (attempt_RESTARTS.GENERATION), in the one above it.
std::optional<parx::generation_report> report_beside(const std::filesystem::path& file) {
  const auto folder = std::filesystem::absolute(file).parent_path();
  const bool is_of_one = folder.filename().string().starts_with("attempt_");
  const auto text = parx::detail::file_text(
      ((is_of_one ? folder.parent_path() : folder) / "report.json").string());
  if (!text) return std::nullopt;
  try {
    const auto job = parx::json::from_json<parx::job_report>(parx::json::parse(*text));
    for (const auto& each : job.generations) {
      if (folder.extension() == "." + std::to_string(each.generation)) return each;
    }
    if (job.generations.size() == 1) return job.generations.front();
  } catch (const parx::json::error&) {
    // Of another version, or of another program.
  }
  return std::nullopt;
}

/// One for each job and task of an array whose logs or records there are. Of a job that is no array
/// all files are its own, whoever has written them.
std::vector<told_job> told_jobs(bool is_job, const std::vector<parx::slurm::job_record>& records,
                                const std::vector<std::filesystem::path>& files) {
  std::vector<told_job> jobs;
  const auto job_named = [&](const std::string& name) -> told_job& {
    const auto found = std::find_if(jobs.begin(), jobs.end(),
                                    [&](const told_job& each) { return each.name == name; });
    if (found != jobs.end()) return *found;
    jobs.push_back({.name = name, .record = {}, .files = {}, .unreadable = {}, .summary = {}});
    return jobs.back();
  };
  for (const auto& each : records) job_named(each.task).record = each;
  for (const auto& file : files) {
    std::string first_lines;
    static_cast<void>(
        read_pieces(file, 65536, [&](std::string_view piece) { first_lines += piece; }));
    std::string name = parx::slurm::job_of_log(file.filename().string(), first_lines);
    const auto of_log = std::find_if(records.begin(), records.end(),
                                     [&](const auto& each) { return each.log == file; });
    if (of_log != records.end()) name = of_log->task;
    else if (is_job && name.find('_') == name.npos) name.clear();
    job_named(name).files.push_back(file);
  }
  for (told_job& job : jobs) {
    for (const auto& file : job.files) {
      const auto report = report_beside(file);
      parx::slurm::log_reader reader(file.string(), job.summary, report ? &*report : nullptr);
      const std::string problem =
          read_pieces(file, UINT64_MAX, [&](std::string_view piece) { reader.read(piece); });
      reader.end();
      if (!problem.empty()) job.unreadable[file] = problem;
    }
  }
  return jobs;
}

/// Prints what is known of a job.
void print_job(const told_job& job, const std::vector<std::string>& looked) {
  using parx::printable;
  const parx::slurm::log_summary& summary = job.summary;
  const std::string state = job.state();
  const bool is_waiting = state == "PENDING";
  if (!state.empty()) {
    const std::string meaning = parx::slurm::meaning_of_state(state);
    const auto& [reason, code] = std::tie(job.record.reason, job.record.exit_code);
    const bool has_reason = is_waiting && !reason.empty() && reason != "None";
    const bool has_ended = state != "RUNNING" && state != "PENDING" && state != "COMPLETING";
    fmt::print("  state   {}{}{}{}{}\n", printable(state),
               has_reason ? " (" + printable(reason) + ")" : "",
               code.empty() || !has_ended ? "" : ", exit code " + printable(code),
               meaning.empty() ? "" : ": ", meaning);
  }
  if (!job.record.nodes.empty() && job.record.nodes != "(null)") {
    fmt::print("  nodes   {}\n", printable(job.record.nodes));
  }
  if (summary.turns > 0) fmt::print("  turns   {}\n", summary.turns);
  if (job.files.empty() && !is_waiting) {
    fmt::print("  log     none found: {}\n", printable(parx::slurm::no_log_text(looked)));
  }
  for (const auto& file : job.files) {
    const auto problem = job.unreadable.find(file);
    fmt::print("  log     {}{}\n", printable(file.string()),
               problem == job.unreadable.end() ? "" : " cannot be read: " + problem->second);
  }
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
  if (!job.is_read()) return;
  for (const std::string& line : parx::slurm::earlier_lines(summary)) {
    fmt::print("{}\n", printable(line));
  }
  for (const std::string& line : parx::slurm::culprit_lines(summary)) {
    fmt::print("{}\n", printable(line));
  }
  const std::string end = parx::slurm::end_text(summary, state);
  if (!end.empty()) fmt::print("{}\n", end);
}

/// Prints a line for each of several jobs, and all that is known of the one that ended worst.
void print_jobs(const std::vector<told_job>& jobs, const std::vector<std::string>& looked) {
  const told_job* worst = &jobs.front();
  for (const told_job& job : jobs) {
    if (job.badness() > worst->badness()) worst = &job;
    const std::string state = job.state(), code = job.record.exit_code;
    const auto culprit = parx::slurm::culprit_lines(job.summary);
    std::string text =
        culprit.empty() ? parx::slurm::end_text(job.summary, state) : culprit.front();
    if (text.ends_with(':')) text.pop_back();
    if (!job.is_read()) text = job.files.empty() ? "no log" : "its log cannot be read";
    if (state == "PENDING") text = "it has not begun";
    fmt::print("  {}{}: {}\n", parx::printable(job.name.empty() ? "the other logs" : job.name),
               state.empty() ? ""
                             : "  " + parx::printable(state) +
                                   (code.empty() || code == "0:0" ? "" : ", exit code " + code),
               parx::printable(text));
  }
  if (!worst->has_failed()) return;
  fmt::print("the worst of them, {}\n",
             parx::printable(worst->name.empty() ? "the other logs" : worst->name));
  print_job(*worst, looked);
}

}  // namespace

int logs(const std::string& what) {
  using parx::printable;
  if (what == "-h" || what == "--help") {
    fmt::print("{}", logs_usage);
    return 0;
  }
  const bool is_job = !what.empty() && what.find_first_not_of("0123456789_") == what.npos;
  const auto records = is_job ? records_of(what) : std::vector<parx::slurm::job_record>();
  std::vector<std::string> looked;
  const auto files = find_logs(what, records, looked);
  if (files.empty() && records.empty()) {
    fmt::print(stderr, "parx_slurm: no logs of {}: {}\n", printable(what),
               printable(parx::slurm::no_log_text(looked)));
    return 3;
  }
  const auto jobs = told_jobs(is_job, records, files);
  std::vector<std::string> states;
  for (const told_job& job : jobs) {
    if (!job.record.state.empty()) states.push_back(job.record.state);
  }
  const bool is_alone = jobs.size() == 1;
  fmt::print("{}{}{}\n", is_job ? "job " : "", printable(what),
             is_alone || states.empty() ? "" : ": " + printable(parx::slurm::states_text(states)));
  if (is_alone) print_job(jobs.front(), looked);
  else print_jobs(jobs, looked);
  const auto any = [&](auto&& is_so) { return std::any_of(jobs.begin(), jobs.end(), is_so); };
  if (any([](const told_job& job) { return job.has_failed(); })) return 4;
  return any([](const told_job& job) { return !job.unreadable.empty(); }) ? 3 : 0;
}

}  // namespace examples
