#include "tools/parx_slurm/commands/batch.hpp"

#include <cstdint>
#include <cstdio>
#include <filesystem>

#include <fmt/format.h>

#include "tools/common/instruction_level.hpp"
#include "tools/common/read_problem.hpp"
#include "tools/common/run_command.hpp"
#include "tools/parx_slurm/command_line.hpp"
#include "tools/parx_slurm/commands/check.hpp"
#include "tools/parx_slurm/commands/where.hpp"
#include "tools/parx_slurm/nodes/partition_limit.hpp"
#include "tools/parx_slurm/nodes/incompatible_nodes.hpp"
#include "tools/parx_slurm/nodes/partition.hpp"
#include "tools/parx_slurm/nodes/sinfo.hpp"
#include "tools/parx_slurm/nodes/test_only.hpp"
#include "tools/parx_slurm/nodes/where.hpp"
#include "tools/parx_slurm/script/sbatch_option.hpp"
#include "tools/parx_slurm/script/where_command.hpp"
#include <parx/core/env.hpp>
#include <parx/core/printable.hpp>

namespace examples {

void add_batch_flags(cxxopts::Options& options) {
  options.add_options()("N,nodes", "how many; MIN:MAX: go on with MIN where nodes are lost",
                        text("1"))("n,ranks", "of each node", text("1"))("c,threads", "of a rank",
                                                                         text("1"))(
      "t,time", "of one turn: 30m, 2h, 1-12:00:00; a number is minutes; 0: the partition's default",
      text("0"))("warning", "before the end of a turn the ranks are told to save", text("120s"))(
      "mem", "of each node: 2G; 0: what the site gives", text("0"))(
      "p,partition", "the site's default, if empty; parx_slurm where names the best", text(""))(
      "A,account", "the account that is billed", text(""))(
      "C,constraint", "features of the nodes", text(""))("x,exclude", "nodes to leave out",
                                                         text(""))(
      "container", "an Apptainer image in which the ranks run", text(""))(
      "a,array", "a job for each of these numbers: 0-4", text(""))(
      "J,job-name", "and that of the log; the program's name, if empty", text(""))(
      "checkpoints",
      "the folder of checkpoint-STEP, to watch the progress; the program's --output-dir, if empty",
      text(""));
}

namespace {

/// Fills in the nodes that are older than the program, and the limit; leaves both where Slurm does
/// not tell.
void ask_partitions(batch_job& job) {
  using namespace parx::slurm;
  const std::chrono::seconds limit(10);
  const auto answer = run_command({"sinfo", "-h", "-N", "-o", std::string(sinfo_format)}, limit);
  if (!answer.success()) return;
  const auto shown = run_command({"scontrol", "show", "partition", "-o"}, limit);
  std::string names = job.script.partition;
  if (names.empty()) {
    names = parx::env_string(parx::process_environment(), "SBATCH_PARTITION").value_or("");
  }
  try {
    const auto nodes = parse_sinfo(answer.out);
    const auto rules = parse_partitions(shown.success() ? shown.out : "");
    job.longest = partition_limit(nodes, rules, names);
    const instruction_level level = level_of_file(job.program);
    if (level == instruction_level::baseline) return;
    job.script.older = find_incompatible_nodes(nodes, rules, names, level);
  } catch (const parx::usage_error&) {
    // a sinfo that prints something else
  }
}

}  // namespace

batch_job batch_job_of(const cxxopts::ParseResult& given, const std::vector<std::string>& command,
                       const std::vector<std::string>& written_by) {
  const auto word = [&](const char* flag) { return given[flag].as<std::string>(); };
  batch_job whole;
  parx::slurm::batch_options& job = whole.script;
  job.name = word("job-name");
  if (job.name.empty() && !command.empty()) {
    job.name = parx::slurm::job_name_of(std::filesystem::path(command.front()).stem().string());
  }
  job.partition = word("partition");
  job.account = word("account");
  job.constraint = word("constraint");
  job.exclude = word("exclude");
  job.array = word("array");
  const node_range nodes = nodes_of(given);
  job.nodes = nodes.most;
  job.least_nodes = nodes.least;
  job.parxrun = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "parxrun";
  job.ranks = number(given, "ranks", 1, 4096);
  job.threads = number(given, "threads", 1, 4096);
  job.memory_mb = megabytes(given, "mem");
  job.time = length_of(given, "time");
  job.warning = length_of(given, "warning");
  job.checkpoints = word("checkpoints");
  if (job.checkpoints.empty()) job.checkpoints = output_dir_of(command);
  require_image(word("container"));
  job.box = container_of(word("container"), command, {output_dir_of(command)});
  job.command = command;
  // The job's PATH may be another one; what has a slash begins in the folder of sbatch.
  if (!command.empty() && command.front().find('/') == std::string::npos) {
    job.command.front() = path_of_program(command.front(), word("container"));
  }
  if (!job.box.is_used() && !command.empty()) {
    whole.program = path_of_program(command.front());
    std::uint64_t size = 0;
    const std::string problem = detail::read_problem(whole.program, size);
    if (!problem.empty()) {
      fmt::print(stderr,
                 "parx_slurm: {}: {}; the job looks for it on its nodes, a relative path in the "
                 "folder of sbatch\n",
                 parx::printable(whole.program), problem);
      whole.program.clear();
    }
  }
  job.written_by = written_by;
  ask_partitions(whole);
  return whole;
}

int batch(const batch_job& whole) {
  const parx::slurm::batch_options& job = whole.script;
  const std::string place = job.partition.empty() ? "the default partition" : job.partition;
  if (job.older.all) {
    fmt::print(stderr,
               "parx_slurm: the program was compiled for {}, which no node of {} has: choose "
               "another partition, or compile it without -march=native (-DPARX_NATIVE=OFF)\n",
               to_string(job.older.level), place);
    return 3;
  }
  if (whole.longest && job.time > *whole.longest) {
    auto elsewhere = job;
    elsewhere.partition.clear();
    const std::string longest = parx::slurm::to_time_limit(*whole.longest);
    fmt::print(stderr,
               "parx_slurm: -t {} is longer than the limit of {}, {}: Slurm would take the job and "
               "never start it (PartitionTimeLimit). It would do with -t {}; this looks "
               "for another partition:\n{}\n",
               parx::slurm::to_time_limit(job.time), place, longest, longest,
               parx::slurm::where_command(elsewhere, whole.program));
    return 3;
  }
  const std::string script = parx::slurm::batch_script(job);
  const auto answer =
      parx::slurm::run_command({"sbatch", "--test-only"}, std::chrono::seconds(30), script);
  if (answer.code == 127) {
    fmt::print(stderr, "parx_slurm: no sbatch here, so nobody has tried whether Slurm takes it\n");
  } else if (const auto start = parx::slurm::parse_test_only(answer.err); !start.at) {
    fmt::print(stderr,
               "parx_slurm: Slurm would refuse this job: {}\nThis names the nodes that it cannot "
               "have, and why:\n{}\n",
               start.refusal, parx::slurm::where_command(job, whole.program));
    return 3;
  }
  if (job.checkpoints.empty()) {
    fmt::print(stderr,
               "parx_slurm: the program's arguments have no --output-dir, so nobody watches "
               "whether turns get further (--checkpoints FOLDER)\n");
  }
  if (value_of_flag(job.command, "save-strategy") == "no") {
    fmt::print(stderr,
               "parx_slurm: with --save-strategy no the program saves nothing, so the warning "
               "before the end of the time ends its ranks, and the job does not go on\n");
  }
  fmt::print("{}", script);
  return 0;
}

}  // namespace examples
