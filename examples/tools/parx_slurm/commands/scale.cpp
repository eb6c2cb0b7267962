#include "tools/parx_slurm/commands/scale.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <fmt/format.h>

#include "common/shell_text.hpp"
#include "tools/common/run_command.hpp"
#include "tools/parx_slurm/command_line.hpp"
#include "tools/parx_slurm/commands/batch.hpp"
#include "tools/parx_slurm/commands/check.hpp"
#include "tools/parx_slurm/commands/where.hpp"
#include "tools/parx_slurm/script/through_srun.hpp"
#include "tools/parx_slurm/staging.hpp"
#include <parx/core/env.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/thread_count.hpp>

namespace examples {

void add_scale_flags(cxxopts::Options& options) {
  options.add_options()(
      "nodes", "numbers of nodes to try: 1,2,4; of the job inside which this runs", text("1"))(
      "ranks-threads",
      "ranks of a node x threads of a rank: 4x2,8x1; auto: all that fill the cores",
      text("auto"))("rounds", "how often each is run, in turns", text("3"))(
      "limit", "after which a run is given up", text("10m"))(
      "price", "of a core for an hour, for a column of prices", text("0"))(
      "output", "the folder that gets the runs' logs", text("parx-scale"))(
      "container", "an Apptainer image in which the ranks run", text(""))(
      "jobid", "a job that runs, where this is not inside it", text(""));
}

namespace {

/// Cores of a node of the job, by Slurm; of this host where there is no job.
int cores_of_node(const std::string& job) {
  const auto env = parx::process_environment();
  if (job.empty()) return static_cast<int>(parx::allowed_cores().size());
  const auto cpus = parx::env_number<int>(env, "SLURM_CPUS_ON_NODE");
  return cpus.value_or(static_cast<int>(parx::allowed_cores().size()));
}

}  // namespace

scale_options scale_options_of(const cxxopts::ParseResult& given,
                               const std::vector<std::string>& command) {
  const auto word = [&](const char* flag) { return given[flag].as<std::string>(); };
  parx::require(!command.empty(),
                "there is no program: parx_slurm scale --nodes 1,2 -- ./train args");
  parx::require(output_dir_of(command).empty(),
                "leave --output-dir out: each run gets one of its own, below --output {}",
                word("output"));
  scale_options options;
  options.command = command;
  options.rounds = number(given, "rounds", 1, 1000);
  options.limit = length_of(given, "limit");
  options.price = number(given, "price", 0.0, 1e9);
  options.folder = word("output");
  require_image(word("container"));
  options.box = container_of(word("container"), command, {absolute_path(options.folder)});
  const auto env = parx::process_environment();
  options.job =
      word("jobid").empty() ? parx::env_string(env, "SLURM_JOB_ID").value_or("") : word("jobid");
  const auto shapes =
      parx::slurm::parse_ranks_threads(word("ranks-threads"), cores_of_node(options.job));
  const std::string wanted = word("nodes");
  for (const std::string_view each : parx::detail::split_at(wanted, ',')) {
    const auto nodes = parx::detail::parse_number<int>(each);
    parx::require(nodes && *nodes >= 1, "--nodes \"{}\": give numbers of nodes: 1,2,4", wanted);
    parx::require(
        *nodes == 1 || !options.job.empty(),
        "--nodes {}: this is not inside a job of Slurm, so there is only this host: salloc "
        "first (parx_slurm where prints the line)",
        *nodes);
    for (parx::slurm::scale_point point : shapes) {
      point.nodes = *nodes;
      options.points.push_back(point);
    }
  }
  return options;
}

namespace {

std::vector<std::string> scale_command(const scale_options& options,
                                       const parx::slurm::scale_point& point,
                                       const std::string& folder) {
  std::vector<std::string> words, command = options.command;
  command.insert(command.end(), {"--output-dir", folder});
  const bool in_image = options.box.is_used();
  if (!options.job.empty()) {
    const int tasks = in_image ? 1 : point.ranks;
    words = parx::slurm::srun_step(options.job, static_cast<std::size_t>(point.nodes),
                                   static_cast<std::size_t>(tasks));
    words.insert(words.end(), {"-c", std::to_string(point.ranks * point.threads / tasks),
                               "--overlap", "--kill-on-bad-exit=0"});
    command = parx::slurm::through_srun(command);
  }
  if (options.job.empty() || in_image) {
    const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    command = parx::slurm::ranks_in(options.box, in_image ? "parxrun" : here / "parxrun",
                                    point.ranks, point.threads, {}, command);
  }
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

/// Adds the figures below a run's output_dir: of parx's trainer, else those that Hugging Face's
/// Trainer writes at its end. Returns whether there are any.
bool add_figures_of(const std::string& folder, parx::slurm::scale_runs& runs) {
  const auto text = [&](const char* name) {
    return parx::detail::file_text(folder + "/" + name).value_or("");
  };
  if (parx::slurm::add_run(text("train.jsonl"), runs) > 0) return true;
  try {
    const auto results = parx::json::parse(text("train_results.json"));
    runs.samples_per_second.push_back(results.at("train_samples_per_second").as<double>());
    runs.step_ms.push_back(1000 / results.at("train_steps_per_second").as<double>());
    runs.communication_percent.push_back(0);
    return true;
  } catch (const parx::json::error&) {
    return false;
  }
}

}  // namespace

std::optional<double> setting(const parx::json::value& settings, const char* name) {
  if (!settings.is_object() || !settings.contains(name)) return std::nullopt;
  if (!settings.at(name).is_string()) return std::nullopt;
  std::string digits = settings.at(name).text();
  std::erase(digits, ',');
  return parx::detail::parse_number<double>(digits);
}

namespace {

parx::json::value settings_of_run(const std::string& folder) {
  try {
    return parx::json::parse(parx::detail::file_text(folder + "/run.json").value_or("{}"));
  } catch (const parx::json::error&) {
    return parx::json::object{};
  }
}

int print_scaling(const std::vector<parx::slurm::scale_runs>& all, double price) {
  const auto verdict = parx::slurm::recommend(all);
  const std::string table = parx::slurm::scale_table(all, price);
  for (const std::string_view line : parx::detail::split_at(table, '\n')) {
    fmt::print("{}\n", parx::printable(line));
  }
  fmt::print("{}\n", verdict.text);
  return verdict.take ? 0 : 1;
}

}  // namespace

int scale(const scale_options& options) {
  std::vector<parx::slurm::scale_runs> all;
  for (const auto& point : options.points) {
    parx::slurm::scale_runs runs;
    runs.point = point;
    all.push_back(runs);
  }
  for (int round = 1; round <= options.rounds; ++round) {
    for (auto& runs : all) {
      if (!runs.failure.empty()) continue;
      const std::string folder = fmt::format("{}/{}x{}x{}-{}", options.folder, runs.point.nodes,
                                             runs.point.ranks, runs.point.threads, round);
      std::filesystem::remove_all(folder);
      std::filesystem::create_directories(options.folder);
      const auto words = scale_command(options, runs.point, folder);
      fmt::print("$ {}\n", parx::slurm::shell_text(words));
      std::fflush(stdout);
      const auto answer = parx::slurm::run_command(words, options.limit);
      if (answer.success() && add_figures_of(folder, runs)) {
        runs.samples_of_epoch = setting(settings_of_run(folder), "samples of an epoch").value_or(0);
        continue;
      }
      std::string last = answer.err.substr(0, answer.err.find_last_not_of('\n') + 1);
      last.erase(0, last.rfind('\n') + 1);
      runs.failure = answer.timed_out ? fmt::format("not done after {} s", options.limit.count())
                     : answer.success()
                         ? "it wrote neither train.jsonl nor train_results.json into --output-dir"
                         : fmt::format("exit code {}{}{}", answer.code, last.empty() ? "" : ": ",
                                       parx::printable(last));
      // A point whose first run was good keeps its figures.
      if (!runs.samples_per_second.empty()) {
        fmt::print(stderr, "parx_slurm: {}: {}\n", folder, runs.failure);
        runs.failure.clear();
      }
    }
  }
  return print_scaling(all, options.price);
}

int scale_of_runs(const std::vector<std::string>& folders, double price) {
  std::vector<parx::slurm::scale_runs> all;
  for (const std::string& folder : folders) {
    const auto settings = settings_of_run(folder);
    const auto hosts = setting(settings, "hosts"), ranks = setting(settings, "ranks"),
               threads = setting(settings, "threads of a rank");
    parx::require(
        hosts && ranks && threads,
        "{}: its run.json does not say on how many hosts, ranks and threads it ran (or is "
        "not there)",
        folder);
    parx::slurm::scale_runs fresh;
    fresh.point.nodes = static_cast<int>(*hosts);
    fresh.point.ranks = static_cast<int>(*ranks / *hosts);
    fresh.point.threads = static_cast<int>(*threads);
    auto found = std::find_if(all.begin(), all.end(),
                              [&](const auto& each) { return each.point == fresh.point; });
    if (found == all.end()) found = all.insert(all.end(), fresh);
    found->samples_of_epoch = setting(settings, "samples of an epoch").value_or(0);
    if (!add_figures_of(folder, *found)) found->failure = "no figures in " + folder;
  }
  return print_scaling(all, price);
}

}  // namespace examples
