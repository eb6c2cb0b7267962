#include "tools/parx_slurm/commands/run.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "common/shell_text.hpp"
#include "tools/common/contents_hash.hpp"
#include "tools/common/read_problem.hpp"
#include "tools/parx_slurm/command_line.hpp"
#include "tools/parx_slurm/commands/where.hpp"
#include "tools/parx_slurm/copy_failure.hpp"
#include "tools/parx_slurm/logs/job_code.hpp"
#include "tools/parx_slurm/nodes/salloc.hpp"
#include "tools/parx_slurm/nodes/where_text.hpp"
#include "tools/parx_slurm/preflight/preflight.hpp"
#include "tools/parx_slurm/script/through_srun.hpp"
#include "tools/parx_slurm/staging.hpp"
#include <parx/core/env.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/hostlist.hpp>
#include <parx/core/random_hex.hpp>

namespace examples {

void add_run_flags(cxxopts::Options& options) {
  const auto several = cxxopts::value<std::vector<std::string>>();
  const auto yes = cxxopts::value<bool>();
  add_check_flags(options);
  options.add_options()(
      "N,nodes",
      "how many, where this is not inside a job; MIN:MAX: go on with MIN where nodes are lost",
      text("1"))("p,partition", "else the one that parx_slurm where finds", text(""))(
      "x,exclude", "nodes to leave out: n[3,7]", text(""))(
      "A,account", "the account that is billed", text(""))("gpu-nodes",
                                                           "nodes with GPUs count as well", yes)(
      "stage",
      "a file or folder to copy to the nodes where one does not see it; may be given several "
      "times",
      several)("max-restarts",
               "how often the ranks are started again after a failure; 3 with -N MIN:MAX, else 0",
               text(""))("drop-bad", "go on without nodes that are not fit", yes)(
      "dry-run", "print the commands only", yes);
}

run_options run_options_of(const cxxopts::ParseResult& given,
                           const std::vector<std::string>& command) {
  run_options options;
  options.command = command;
  options.check = check_options_of(given, command);
  const bool of_image =
      options.check.box.is_used() && parx::slurm::is_of_image(options.check.program);
  std::uint64_t size = 0;
  const std::string problem =
      of_image ? std::string() : detail::read_problem(options.check.program, size);
  parx::require(problem.empty(), "the program {}: {}: give its path, or a name in PATH",
                command.front(), problem);
  options.command.front() = options.check.program;
  const node_range nodes = nodes_of(given);
  options.request.nodes = nodes.most;
  options.least_nodes = nodes.least;
  options.request.cores = options.check.takes.ranks * options.check.takes.threads;
  options.request.memory_mb = options.check.takes.memory_mb;
  options.request.time = std::chrono::seconds(options.check.takes.time_s);
  options.request.partition = given["partition"].as<std::string>();
  options.request.account = given["account"].as<std::string>();
  options.request.gpu_nodes = given["gpu-nodes"].as<bool>();
  options.request.exclude = parx::expand_hostlist(given["exclude"].as<std::string>());
  options.request.groups = groups_of_this_user();
  options.request.is_root = ::geteuid() == 0;
  options.request.level = level_of_file(options.check.program);
  for (const std::string& each : list(given, "stage")) {
    options.stage.push_back(absolute_path(each));
    parx::require(std::filesystem::exists(options.stage.back()),
                  "--stage {}: this host does not see it either", options.stage.back());
    options.check.needs.push_back(options.stage.back());
  }
  options.only_prints = given["dry-run"].as<bool>();
  options.drops_bad_nodes = given["drop-bad"].as<bool>();
  if (!given["max-restarts"].as<std::string>().empty()) {
    options.max_restarts = number(given, "max-restarts", 0, 1'000'000);
  } else if (options.least_nodes > 0) {
    options.max_restarts = parx::slurm::restarts_after_a_loss;
  }
  const auto env = parx::process_environment();
  options.inside_job = !given["jobid"].as<std::string>().empty() ||
                       parx::env_string(env, "SLURM_JOB_ID").has_value();
  if (options.inside_job) {
    find_job(given["jobid"].as<std::string>(), options.check);
    parx::require(options.check.takes.nodes >= options.least_nodes,
                  "--nodes {}: job {} has {} alone", given["nodes"].as<std::string>(),
                  options.check.job, options.check.takes.nodes);
  }
  return options;
}

namespace {

/// Prints a command as a user could type it.
void show(const std::vector<std::string>& words) {
  fmt::print("$ {}\n", parx::slurm::shell_text(words));
  std::fflush(stdout);
}

/// The salloc line whose command is this one again; empty, and said why, where no partition has the
/// nodes.
std::vector<std::string> allocation_command(const run_options& options,
                                            const std::vector<std::string>& all) {
  const search_result found = search_nodes(options.request);
  const auto what = parx::slurm::verdict(found.ranked, found.nodes, options.request);
  if (!what.found) {
    fmt::print("{}{}\n", parx::slurm::where_table(found.ranked, options.request, found.at),
               what.text);
    return {};
  }
  std::vector<std::string> words{"salloc"};
  for (std::string& each :
       parx::slurm::salloc_options(found.ranked.front(), found.nodes, options.request)) {
    words.push_back(std::move(each));
  }
  if (options.least_nodes > 0) words.push_back("--no-kill");
  words.insert(words.end(), all.begin(), all.end());
  return words;
}

/// The ranks of all nodes: a parxrun on each, which is sent along, or is that of the image.
/// `sent`: what has been sent to the nodes.
std::vector<std::string> launch_command(const run_options& options,
                                        const std::vector<std::string>& bad,
                                        const std::vector<std::string>& sent) {
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const auto& takes = options.check.takes;
  const std::size_t nodes = options.check.nodes.size() - bad.size();
  auto words = parx::slurm::srun_step(options.check.job, nodes);
  words.insert(
      words.end(),
      // All parxruns end together. Where the first could not even begin, the others would
      // wait for it.
      {"-c", std::to_string(takes.ranks * takes.threads), "--kill-on-bad-exit=0", "--wait=10"});
  if (!bad.empty()) words.push_back("--exclude=" + parx::slurm::compress_hostlist(bad));
  // By parxrun, too, because a job that Slurm ends can start no further step.
  std::vector<std::string> more;
  for (const std::string& each : sent) more.push_back("--remove-at-end=" + each);
  if (options.least_nodes > 0) {
    words.push_back("--no-kill");
    for (std::string& each : parx::slurm::options_to_go_on(
             options.least_nodes, static_cast<int>(nodes), options.max_restarts)) {
      more.push_back(std::move(each));
    }
  } else if (options.max_restarts > 0) {
    more.insert(more.end(), {"--max-restarts", std::to_string(options.max_restarts)});
  }
  std::string parxrun = "parxrun";
  if (!options.check.box.is_used()) {
    words.push_back("--bcast=" + parx::slurm::helper_path("parxrun", options.check.job));
    parxrun = (here / "parxrun").string();
  }
  for (std::string& each :
       parx::slurm::ranks_in(options.check.box, parxrun, takes.ranks, takes.threads, more,
                             parx::slurm::through_srun(options.command))) {
    words.push_back(std::move(each));
  }
  return words;
}

}  // namespace

std::vector<parx::slurm::staged_path> to_stage(const run_options& options,
                                               const check_result& result) {
  std::vector<std::string> wanted;
  const std::string usual = parx::slurm::usual_hash(result.facts);
  for (const auto& node : result.facts) {
    if (!node.program.empty() && (!node.program_problem.empty() || node.program_hash != usual)) {
      wanted.push_back(options.check.program);
    }
    for (const auto& need : node.needs) {
      const bool may =
          std::find(options.stage.begin(), options.stage.end(), need.path) != options.stage.end();
      std::uint64_t size = 0;
      static_cast<void>(detail::read_problem(need.path, size));
      // Another size: an older copy, or an empty folder where nothing is mounted.
      if (may && (!need.problem.empty() || need.size != size)) wanted.push_back(need.path);
    }
  }
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  std::vector<parx::slurm::staged_path> staged;
  for (const std::string& path : wanted) {
    const bool folder = std::filesystem::is_directory(path);
    // A folder's copy is of this run alone; a file's name says what is in it.
    const std::string contents = folder ? path : parx::detail::file_text(path).value_or("");
    staged.push_back(parx::slurm::stage_at(
        options.check.job, path, contents_hash(contents),
        folder ? parx::slurm::path_kind::folder : parx::slurm::path_kind::file));
  }
  return staged;
}

namespace {

/// Runs a command that must succeed in a job; prints it.
void run_step(const std::vector<std::string>& words, const std::string& job,
              const parx::slurm::held_signals& signals) {
  show(words);
  const auto answer = parx::slurm::run_command(words, std::chrono::minutes(10), {}, &signals);
  if (answer.success()) return;
  std::string text = answer.timed_out ? "no end within 10 minutes" : answer.err;
  if (!text.empty() && !text.ends_with('\n')) text += '\n';
  for (const auto& each : parx::slurm::copy_failures(answer.err)) {
    text += parx::slurm::sentences_of({copy_finding(job, each)}).front() + "\n";
  }
  parx::throw_error(parx::errc::io, "{}: {}", words.front(),
                    parx::printable(text, parx::line_breaks::indent));
}

}  // namespace

int run_here(const std::vector<std::string>& words, parx::slurm::passed_on receiver) {
  show(words);
  return parx::slurm::run_in_foreground(words, receiver);
}

namespace {

/// What goes on from a run's checkpoint: its command, which says so by --resume.
std::string what_goes_on(const std::vector<std::string>& command) {
  const bool resumes = std::find(command.begin(), command.end(), "--resume") != command.end();
  return resumes ? "the same command goes on"
                 : "the same command goes on with --resume behind it, the flag of parx's trainers";
}

}  // namespace

int run_ranks(const std::vector<std::string>& words, std::size_t nodes) {
  show(words);
  parx::slurm::job_code job;
  const int of_srun = parx::slurm::run_in_foreground(
      words, parx::slurm::passed_on::to_command, [&](std::string_view text) { job.read(text); });
  // On one node srun's is parxrun's.
  const int code = nodes == 1 ? of_srun : job.value(of_srun);
  if (code == 75) {
    fmt::print("{}: {}\n",
               job.was_first_killed()
                   ? "the first node's parxrun was lost, after the last checkpoint"
                   : "the ranks were stopped and have saved their work",
               what_goes_on(words));
  }
  return code;
}

namespace {

/// When Slurm will end the job, by what the nodes know now.
std::chrono::steady_clock::time_point end_of_job_of(
    const std::vector<parx::slurm::host_facts>& facts) {
  auto end = std::chrono::steady_clock::time_point::max();
  for (const auto& each : facts) {
    if (each.time_left_s < 0) continue;
    end = std::min(end, std::chrono::steady_clock::now() + std::chrono::seconds(each.time_left_s));
  }
  return end;
}

/// Inside the job: checks, copies, ranks, and removes the copies. Returns the ranks' code, 4 where
/// the nodes are not fit.
int run_in_job(const run_options& given) {
  run_options options = given;
  const parx::slurm::held_signals signals;  // end this program when the nodes are clean
  sent_files sent(given.check);
  check_result result = check_nodes(options.check, signals);
  sent.leave_out(parx::slurm::silent_nodes(result.found));
  const auto staged = to_stage(options, result);
  const std::size_t nodes = options.check.nodes.size();
  if (!staged.empty()) {
    for (const auto& each : staged) {
      sent.add(each);
      for (const auto& words : parx::slurm::staging_commands(each, options.check.job, nodes)) {
        run_step(words, options.check.job, signals);
      }
    }
    // Once more with the copies: are they there, whole, and can they be started?
    const auto copied = [&](std::vector<std::string> words) {
      return parx::slurm::with_copies(std::move(words), staged, std::filesystem::current_path());
    };
    options.check.program = copied({options.check.program}).front();
    options.check.needs = copied(options.check.needs);
    options.check.arguments = copied(options.check.arguments);
    options.command = copied(options.command);
    std::vector<std::string> paths = options.check.needs;
    paths.push_back(options.check.output);
    options.check.box =
        container_of(copied({options.check.box.image}).front(), options.command, paths);
    result = check_nodes(options.check, signals);
  }
  if (signals.one_waits()) return 1;
  print_check(options.check, result);
  const auto bad = parx::slurm::bad_nodes(result.found);
  int code = 4;
  const auto end_of_job = end_of_job_of(result.facts);
  // The ranks share a secret, which srun hands on, so that nobody else of the cluster can join
  // them.
  if (!parx::env_string(parx::process_environment(), "PARX_SECRET_FILE")) {
    ::setenv("PARX_SECRET", parx::detail::random_hex().c_str(), 0);
  }
  const auto least = static_cast<std::size_t>(std::max(options.least_nodes, 1));
  if (bad.empty() || (options.drops_bad_nodes && bad.size() + least <= nodes)) {
    if (!bad.empty()) {
      fmt::print("going on without {}\n", parx::slurm::compress_hostlist(bad));
    }
    code = run_ranks(launch_command(options, bad, sent.paths()), nodes - bad.size());
  }
  if (code != 0 && std::chrono::steady_clock::now() + std::chrono::seconds(5) > end_of_job) {
    fmt::print(
        "job {} on {} has come to its time limit: give a longer -t, or let the program save "
        "and go on (parx_slurm batch)\n",
        options.check.job, parx::slurm::compress_hostlist(options.check.nodes));
  }
  return code;
}

/// A command as a user could type it inside that job.
std::string text_in_job(const std::vector<std::string>& words) {
  std::string text = parx::slurm::shell_text(words);
  for (auto at = text.find(job_to_come); at != text.npos; at = text.find(job_to_come, at)) {
    text.replace(at, job_to_come.size(), "$SLURM_JOB_ID");
  }
  return text;
}

}  // namespace

int run(const run_options& options, const std::vector<std::string>& all) {
  if (!options.inside_job) {
    auto words = allocation_command(options, all);
    if (words.empty()) return 3;
    if (!options.only_prints) return run_here(words, parx::slurm::passed_on::to_its_child);
    words.resize(words.size() - all.size());
    fmt::print("$ {}\n# and inside that job:\n", parx::slurm::shell_text(words));
    run_options inside = options;
    inside.check.job = job_to_come;
    inside.check.nodes.assign(static_cast<std::size_t>(options.request.nodes), "node");
    fmt::print("$ {}\n$ {}\n", text_in_job(check_command(inside.check)),
               text_in_job(launch_command(inside, {}, {})));
    return 0;
  }
  if (!options.only_prints) return run_in_job(options);
  fmt::print("$ {}\n$ {}\n", parx::slurm::shell_text(check_command(options.check)),
             parx::slurm::shell_text(launch_command(options, {}, {})));
  return 0;
}

}  // namespace examples
