// parx_slurm: what comes before and after a training on a Slurm cluster. It calls Slurm's own
// commands and prints those that start something.
//
//   parx_slurm where -N 3 --cores 8 --time 30m --program ./train
//   parx_slurm prepare -- ./train --data news --cache tokens
//   parx_slurm check -n 2 -c 4 --needs ~/data -- ./train
//   parx_slurm logs 4711
//   parx_slurm scale --nodes 1,2,4 --ranks-threads 4x2,8x1 -- ./train --max-steps 50
//   parx_slurm run -N 3 -n 2 -c 4 -t 30m -- ./train args
//   parx_slurm batch -N 3 -n 2 -c 4 -t 2h -- ./train --output-dir out --resume >job.sbatch
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "common/options.hpp"
#include "tools/parx_slurm/command_line.hpp"
#include "tools/parx_slurm/commands/batch.hpp"
#include "tools/parx_slurm/commands/check.hpp"
#include "tools/parx_slurm/commands/logs.hpp"
#include "tools/parx_slurm/commands/prepare.hpp"
#include "tools/parx_slurm/commands/run.hpp"
#include "tools/parx_slurm/commands/scale.hpp"
#include "tools/parx_slurm/commands/where.hpp"

namespace {

using examples::command_line;
using examples::with_flags;

constexpr std::string_view usage =
    "What comes before and after a training on a Slurm cluster\nUsage:\n"
    "  parx_slurm where FLAGS                the partition that has the nodes for a job, and the\n"
    "                                        salloc line. Exits with 3 where none has\n"
    "  parx_slurm prepare -- PROGRAM         makes a program's token caches here, before its job\n"
    "  parx_slurm check FLAGS -- PROGRAM     whether the nodes of a job are fit for a program.\n"
    "                                        Exits with 4 where one is not\n"
    "  parx_slurm run FLAGS -- PROGRAM       allocates, checks, copies what nodes do not see, and "
    "runs\n"
    "                                        the ranks by parxrun\n"
    "  parx_slurm batch FLAGS -- PROGRAM     a script for sbatch whose job goes on, turn by turn,\n"
    "                                        until the program has ended\n"
    "  parx_slurm logs JOB                   how a job ended: a number, a log, or a folder of\n"
    "                                        logs. Exits with 4 where it has failed\n"
    "  parx_slurm scale FLAGS -- PROGRAM     runs a training's first steps on several numbers of\n"
    "                                        nodes, ranks and threads, and says which to take\n"
    "  parx_slurm scale FOLDER...            the same from the output folders of earlier runs\n"
    "parx_slurm WORD --help lists the flags\n"
    "Guide: examples/guide/slurm.md\n";

int where(const command_line& line) {
  parx::require(line.command.empty(), "parx_slurm where runs nothing: --program names a program");
  return with_flags("where", "The partition that has the nodes for a job\n", line,
                    examples::add_request_flags,
                    [](const auto& given) { return examples::where(examples::request_of(given)); });
}

int check(const command_line& line) {
  return with_flags("check", "Whether the nodes of a job are fit for a program\n", line,
                    examples::add_check_flags, [&](const auto& given) {
                      auto options = examples::check_options_of(given, line.command);
                      examples::find_job(given["jobid"].template as<std::string>(), options);
                      return examples::check(options);
                    });
}

int batch(const command_line& line, const std::vector<std::string>& all) {
  examples::require_program(line);
  return with_flags("batch", "A script for sbatch on standard output\n", line,
                    examples::add_batch_flags, [&](const auto& given) {
                      return examples::batch(examples::batch_job_of(given, line.command, all));
                    });
}

int run(const command_line& line, const std::vector<std::string>& all) {
  examples::require_program(line);
  return with_flags("run", "Runs a program on the nodes of a job, from an allocation to the end\n",
                    line, examples::add_run_flags, [&](const auto& given) {
                      return examples::run(examples::run_options_of(given, line.command), all);
                    });
}

int scale(command_line line) {
  std::vector<std::string> folders;
  // Without a program: folders of runs.
  if (line.command.empty()) folders = examples::take_plain_words(line.own);
  return with_flags("scale", "How the speed of a training grows with nodes, ranks and threads\n",
                    line, examples::add_scale_flags, [&](const auto& given) {
                      if (!folders.empty()) {
                        return examples::scale_of_runs(folders,
                                                       examples::number(given, "price", 0.0, 1e9));
                      }
                      return examples::scale(examples::scale_options_of(given, line.command));
                    });
}

int run_word(int argc, const char* const* argv) {
  if (argc < 2) {
    fmt::print(stderr, "{}", usage);
    return 2;
  }
  const std::string word = argv[1];
  if (word == "-h" || word == "--help") {
    fmt::print("{}", usage);
    return 0;
  }
  const command_line line = examples::split_command_line(argc - 1, argv + 1);
  if (word == "where") return where(line);
  if (word == "check") return check(line);
  if (word == "prepare") {
    return with_flags(
        "prepare", "Makes a program's token caches on this host\n", line, [](auto&) {},
        [&](const auto&) { return examples::prepare(line.command); });
  }
  if (word == "batch") return batch(line, {argv, argv + argc});
  if (word == "logs") {
    parx::require(argc == 3,
                  "parx_slurm logs JOB: the number of a job, a log, or a folder of logs");
    return examples::logs(argv[2]);
  }
  if (word == "run") return run(line, {argv, argv + argc});
  if (word == "scale") return scale(line);
  const std::string meant =
      parx::did_you_mean(word, {"where", "prepare", "check", "batch", "logs", "run", "scale"});
  parx::throw_usage("there is no \"{}\"{} parx_slurm --help lists the words", word,
                    parx::meant_question(meant));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_word(argc, argv);
  } catch (const parx::usage_error& wrong) {
    fmt::print(stderr, "parx_slurm: {}\n", wrong.what());
    return 2;
  } catch (const std::exception& failure) {
    fmt::print(stderr, "parx_slurm: {}\n", failure.what());
    return 1;
  }
}
