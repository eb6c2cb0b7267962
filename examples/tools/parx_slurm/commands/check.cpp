#include "tools/parx_slurm/commands/check.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>

#include <fmt/format.h>

#include "common/shell_text.hpp"
#include "tools/common/find_program.hpp"
#include "tools/common/read_problem.hpp"
#include "tools/common/run_command.hpp"
#include "tools/parx_slurm/command_line.hpp"
#include "tools/parx_slurm/commands/where.hpp"
#include "tools/parx_slurm/nodes/salloc.hpp"
#include "tools/parx_slurm/staging.hpp"
#include <parx/core/env.hpp>
#include <parx/core/hostlist.hpp>
#include <parx/core/json.hpp>
#include <parx/core/printable.hpp>

namespace examples {

void add_check_flags(cxxopts::Options& options) {
  const auto several = cxxopts::value<std::vector<std::string>>();
  options.add_options()("n,ranks", "of each node", text("1"))("c,threads", "of a rank", text("1"))(
      "container", "an Apptainer image in which the ranks run", text(""))(
      "needs", "a path that every node must be able to read; may be given several times", several)(
      "output", "the folder that every node must be able to write into", text(""))(
      "imports", "a Python module that every node must have; may be given several times", several)(
      "python", "the interpreter of --imports", text("python3"))(
      "mem", "memory that the job takes of a node: 2G", text("0"))(
      "tmp", "room that the job takes in TMPDIR of a node: 2G", text("0"))(
      "t,time", "how long the job takes: 30m, 2h; a number is minutes", text("0"))(
      "jobid", "a job that runs, where this is not inside it", text(""));
}

namespace {

/// What the arguments of a program name and is here, absolute: "data", "--data=data/a", "/x".
std::vector<std::string> paths_of_arguments(const std::vector<std::string>& command) {
  std::vector<std::string> paths;
  for (std::size_t i = 1; i < command.size(); ++i) {
    const std::string word = command[i].substr(command[i].find('=') + 1);
    const std::string path = absolute_path(word);
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) paths.push_back(path);
  }
  return paths;
}

}  // namespace

parx::slurm::container container_of(const std::string& image,
                                    const std::vector<std::string>& command,
                                    std::vector<std::string> paths) {
  parx::slurm::container box;
  if (image.empty()) return box;
  box.image = absolute_path(image);
  box.folder = std::filesystem::current_path().string();
  box.runtime = "apptainer";
  const auto env = parx::process_environment();
  for (const char* const each : {"singularity", "apptainer"}) {
    try {
      static_cast<void>(parx::detail::find_program(each, env));
      box.runtime = each;
    } catch (const parx::program_error&) {
      // The nodes may have it all the same.
    }
  }
  paths.push_back(box.folder);
  if (!command.empty() && !parx::slurm::is_of_image(command.front())) {
    paths.push_back(std::filesystem::path(absolute_path(command.front())).parent_path());
  }
  for (std::string& each : paths_of_arguments(command)) paths.push_back(std::move(each));
  for (std::string& each : paths) {
    each = absolute_path(each);
    while (!std::filesystem::exists(each) && each.size() > 1) {
      each = std::filesystem::path(each).parent_path();
    }
  }
  box.paths = parx::slurm::bound_paths(std::move(paths));
  return box;
}

void require_image(const std::string& image) {
  std::uint64_t size = 0;
  const std::string problem = image.empty() ? "" : detail::read_problem(absolute_path(image), size);
  parx::require(problem.empty(), "--container {}: {}", image, problem);
}

namespace {

/// The --cache of a program, which parx_slurm prepare fills, where there is none yet; else empty.
std::string cache_to_make(const std::vector<std::string>& command) {
  std::string path = absolute_path(value_of_flag(command, "cache"));
  if (path.ends_with('/')) path.pop_back();
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? std::string() : path;
}

}  // namespace

void find_job(const std::string& asked, check_options& options) {
  const auto env = parx::process_environment();
  const auto here = parx::env_string(env, "SLURM_JOB_ID");
  options.job = asked.empty() ? here.value_or("") : asked;
  parx::require(
      !options.job.empty(),
      "this is not inside a job of Slurm: salloc first (parx_slurm where prints the line), "
      "or name one that runs by --jobid");
  std::string list;
  if (here == options.job) list = parx::env_string(env, "SLURM_JOB_NODELIST").value_or("");
  if (list.empty()) {
    list = slurm_output({"squeue", "-h", "-j", options.job, "-t", "R", "-o", "%N"});
    list.erase(std::min(list.find('\n'), list.size()));
  }
  parx::require(!list.empty(), "job {} does not run, so it has no nodes yet (squeue -j {})",
                options.job, options.job);
  options.nodes = parx::expand_hostlist(list);
  options.takes.nodes = static_cast<int>(options.nodes.size());
}

check_options check_options_of(const cxxopts::ParseResult& given,
                               const std::vector<std::string>& command) {
  check_options options;
  options.takes.ranks = number(given, "ranks", 1, 4096);
  options.takes.threads = number(given, "threads", 1, 4096);
  options.takes.memory_mb = megabytes(given, "mem");
  options.takes.tmp_mb = megabytes(given, "tmp");
  options.takes.time_s = length_of(given, "time").count();
  const std::string image = given["container"].as<std::string>();
  options.program = path_of_program(command.empty() ? "" : command.front(), image);
  for (const std::string& path : list(given, "needs")) {
    options.needs.push_back(absolute_path(path));
  }
  options.takes.cache = cache_to_make(command);
  options.output = absolute_path(given["output"].as<std::string>());
  const std::string output_dir = absolute_path(output_dir_of(command));
  for (const std::string& each : paths_of_arguments(command)) {
    const bool is_of_image = !image.empty() && parx::slurm::is_of_image(each);
    if (each != output_dir && !is_of_image) options.arguments.push_back(each);
  }
  std::vector<std::string> paths = options.needs;
  paths.push_back(options.output);
  options.box = container_of(image, command, paths);
  options.imports = list(given, "imports");
  options.python = given["python"].as<std::string>();
  return options;
}

namespace {

/// This user's jobs, "4711,4712"; empty where Slurm does not tell.
std::string live_jobs() {
  const auto answer = parx::slurm::run_command(
      {"squeue", "-h", "-u", std::to_string(::geteuid()), "-o", "%A"}, std::chrono::seconds(10));
  std::string jobs = answer.success() ? answer.out : std::string();
  jobs.erase(jobs.find_last_not_of('\n') + 1);
  std::replace(jobs.begin(), jobs.end(), '\n', ',');
  return jobs;
}

}  // namespace

void remove_from_nodes(const check_options& options, const std::vector<std::string>& paths,
                       std::vector<std::string> silent) {
  if (silent.size() == options.nodes.size()) silent.clear();  // nobody was waited for
  static_cast<void>(parx::slurm::run_command(
      parx::slurm::removing_command(paths, options.job, options.nodes.size(), silent),
      std::chrono::seconds(20)));
}

std::vector<std::string> check_command(const check_options& options) {
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  // Below the range from which kernels give ports.
  std::random_device seed;
  const int port = std::uniform_int_distribution<int>(20'000, 32'000)(seed);
  auto words = parx::slurm::on_each_node(options.job, options.nodes.size());
  words.insert(words.end(),
               {"--mem=0", "--cpu-bind=none", "--kill-on-bad-exit=0",
                "--bcast=" + parx::slurm::helper_path("parx_doctor", options.job),
                (here / "parx_doctor").string(), "host", "--port=" + std::to_string(port)});
  if (const std::string jobs = live_jobs(); !jobs.empty()) words.push_back("--jobs=" + jobs);
  if (!options.program.empty()) words.push_back("--program=" + options.program);
  if (options.box.is_used()) {
    words.insert(words.end(), {"--image=" + options.box.image, "--runtime=" + options.box.runtime,
                               "--folder=" + options.box.folder});
    for (const std::string& each : options.box.paths) words.push_back("--bind=" + each);
  }
  for (const std::string& each : options.needs) words.push_back("--needs=" + each);
  for (const std::string& each : options.arguments) words.push_back("--argument=" + each);
  if (!options.output.empty()) words.push_back("--output=" + options.output);
  for (const std::string& each : options.imports) words.push_back("--imports=" + each);
  if (!options.imports.empty()) words.push_back("--python=" + options.python);
  return words;
}

namespace {

/// What srun has said of a node that did not answer.
std::string srun_says(std::string_view errors, const std::string& node) {
  for (const std::string_view line : parx::detail::split_at(errors, '\n')) {
    const auto at = line.find(node);
    if (at == line.npos) continue;
    const char behind = at + node.size() < line.size() ? line[at + node.size()] : ' ';
    if (behind < '0' || behind > '9') return std::string(line);
  }
  return {};
}

/// The lines of srun that say which node is at fault: where one has failed, Slurm ends the step on
/// all nodes and says so of each.
std::string lines_of_blame(const std::string& errors) {
  std::string failures;
  for (const std::string_view line : parx::detail::split_at(errors, '\n')) {
    if (line.find("Node failure on ") != line.npos) failures.append(line) += '\n';
  }
  return failures.empty() ? errors : failures;
}

/// Of the nodes that Slurm itself has lost, a line each: "node2 is down*". Where it has ended the
/// job for one, srun may end without a word.
std::string lost_nodes(const std::vector<std::string>& nodes) {
  const auto answer = parx::slurm::run_command(
      {"sinfo", "-h", "-N", "-n", parx::slurm::compress_hostlist(nodes), "-o", "%N is %t"},
      std::chrono::seconds(10));
  std::string lost;
  for (const std::string_view line : parx::detail::split_at(answer.out, '\n')) {
    if (line.find(" is down") != line.npos || line.ends_with('*')) lost.append(line) += '\n';
  }
  return lost;
}

/// Slurm 22.05 does not tell its steps when the job ends.
void add_time_left(const std::string& job, std::vector<parx::slurm::host_facts>& facts) {
  if (facts.empty() || facts.front().time_left_s >= 0) return;
  const auto answer =
      parx::slurm::run_command({"squeue", "-h", "-j", job, "-o", "%L"}, std::chrono::seconds(10));
  const auto left = parx::slurm::parse_time_limit(answer.out.substr(0, answer.out.find('\n')));
  if (!answer.success() || !left || *left == parx::slurm::no_time_limit) return;
  for (auto& each : facts) each.time_left_s = left->count();
}

}  // namespace

parx::slurm::finding copy_finding(const std::string& job,
                                  const parx::slurm::copy_failure& failure) {
  auto words = parx::slurm::on_each_node(job, 1);
  words.insert(words.end(), {"-w", failure.node, "df", "-Pk", "/tmp"});
  const auto answer = parx::slurm::run_command(words, std::chrono::seconds(10));
  constexpr std::int64_t enough_mb = 64;  // for what parx_slurm sends along
  const auto free_mb = parx::slurm::free_mb_of_df(answer.out);
  parx::slurm::finding found{failure.node, {}, {}};
  if (free_mb && *free_mb < enough_mb) {
    found.fact = "are free in its /tmp, so nothing can be copied there";
    found.remedy = "Make room there, or leave it out";
    found.free_mb = *free_mb;
  } else {
    found.fact = "nothing can be copied to its /tmp (" + failure.says + ")";
    found.remedy = "Leave it out, or look whether its /tmp is full, or read-only";
  }
  return found;
}

check_result check_nodes(const check_options& options, const parx::slurm::held_signals& signals) {
  const auto words = check_command(options);
  fmt::print("$ {}\n", parx::slurm::shell_text(words));
  std::fflush(stdout);
  // Imports of Python and images may take long on a slow file system.
  const bool tries = !options.imports.empty() || options.box.is_used();
  const std::chrono::seconds limit(tries ? 60 : 20);
  const auto answer = parx::slurm::run_command(words, limit, {}, &signals);
  check_result result;
  result.facts = parx::slurm::facts_among(answer.out);
  add_time_left(options.job, result.facts);
  std::string blame = lines_of_blame(answer.err);
  // What a node has said before it went does not count: its end has ended the step on all nodes.
  if (blame != answer.err) {
    std::erase_if(result.facts, [&](const auto& each) {
      return !each.exchanged && !srun_says(blame, each.node).empty();
    });
  }
  result.found = parx::slurm::preflight(options.nodes, result.facts, options.takes);
  const auto is_named = [&](const auto& each) { return !srun_says(blame, each.node).empty(); };
  if (result.facts.empty() && !signals.one_waits() &&
      std::none_of(result.found.begin(), result.found.end(), is_named)) {
    blame = lost_nodes(options.nodes);
  }
  const auto not_copied = parx::slurm::copy_failures(blame);
  for (auto& each : result.found) {
    if (!each.is_silent) continue;
    const auto failure = std::find_if(not_copied.begin(), not_copied.end(),
                                      [&](const auto& one) { return one.node == each.node; });
    if (failure != not_copied.end()) {
      each = copy_finding(options.job, *failure);
      continue;
    }
    if (const std::string said = srun_says(blame, each.node); !said.empty()) {
      each.fact += " (" + said + ")";
    }
  }
  // One node that Slurm cannot reach keeps srun from starting anything on the others.
  if (result.facts.empty() && std::any_of(result.found.begin(), result.found.end(), is_named)) {
    std::erase_if(result.found, [&](const auto& each) { return !is_named(each); });
  }
  if (result.facts.empty() && !answer.err.empty()) {
    fmt::print(stderr, "{}\n", parx::printable(answer.err, parx::line_breaks::indent));
  }
  return result;
}

void print_check(const check_options& options, const check_result& result) {
  using parx::printable;
  for (const std::string& name : options.nodes) {
    const auto node = std::find_if(result.facts.begin(), result.facts.end(),
                                   [&](const auto& each) { return each.node == name; });
    if (node != result.facts.end()) {
      fmt::print("{}\n", printable(parx::slurm::node_line(*node, result.found)));
    }
  }
  for (const std::string& each : parx::slurm::sentences_of(result.found)) {
    fmt::print("{}\n", printable(each));
  }
  const auto bad = parx::slurm::bad_nodes(result.found);
  if (bad.empty()) {
    fmt::print("{} node{} fit\n", options.nodes.size(),
               options.nodes.size() == 1 ? " is" : "s are");
  } else if (bad.size() == options.nodes.size()) {
    fmt::print("no node is fit: mend that first\n");
  } else {
    fmt::print("{} of {} nodes {} not fit: mend that, or leave {} out by --exclude={}\n",
               bad.size(), options.nodes.size(), bad.size() == 1 ? "is" : "are",
               bad.size() == 1 ? "it" : "them", parx::slurm::compress_hostlist(bad));
  }
}

int check(const check_options& options) {
  const parx::slurm::held_signals signals;  // end this program when the nodes are clean
  const check_result result = check_nodes(options, signals);
  const bool is_over = signals.one_waits();
  if (!is_over) print_check(options, result);
  std::fflush(stdout);
  remove_from_nodes(options, {parx::slurm::helper_path("parx_doctor", options.job)},
                    parx::slurm::silent_nodes(result.found));
  if (is_over || signals.one_waits()) return 1;
  return parx::slurm::bad_nodes(result.found).empty() ? 0 : 4;
}

}  // namespace examples
