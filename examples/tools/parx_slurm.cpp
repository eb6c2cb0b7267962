// parx_slurm: what comes before and after a training on a Slurm cluster. It calls Slurm's own
// commands and prints those that start something.
//
//   parx_slurm where -N 3 --cores 8 --time 30m --program ./train
//   parx_slurm check -n 2 -c 4 --needs ~/data -- ./train
//   parx_slurm logs 4711
//   parx_slurm scale --nodes 1,2,4 --ranks-threads 4x2,8x1 -- ./train --max-steps 50
//   parx_slurm batch -N 3 -n 2 -c 4 -t 2h -- ./train --output-dir out --resume >job.sbatch
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

// A path of --needs may have commas in it.
#define CXXOPTS_VECTOR_DELIMITER '\0'
#include "common/did_you_mean.hpp"
#include "common/options.hpp"
#include "slurm_batch.hpp"
#include "slurm_check.hpp"
#include "slurm_logs.hpp"
#include "slurm_scale.hpp"
#include "slurm_where.hpp"

namespace {

constexpr std::string_view usage =
    "What comes before and after a training on a Slurm cluster\nUsage:\n"
    "  parx_slurm where FLAGS                the partition that has the nodes for a job, and the\n"
    "                                        salloc line. Exits with 3 where none has\n"
    "  parx_slurm check FLAGS -- PROGRAM     whether the nodes of a job are fit for a program.\n"
    "                                        Exits with 4 where one is not\n"
    "  parx_slurm batch FLAGS -- PROGRAM     a script for sbatch whose job goes on, turn by turn,\n"
    "                                        until the program has ended\n"
    "  parx_slurm logs JOB                   how a job ended: a number, a log, or a folder of "
    "logs\n"
    "  parx_slurm scale FLAGS -- PROGRAM     runs a training's first steps on several numbers of\n"
    "                                        nodes, ranks and threads, and says which to take\n"
    "  parx_slurm scale FOLDER...            the same from the output folders of earlier runs\n"
    "parx_slurm WORD --help lists the flags\n";

/// The words behind "--", and those before it, the program's own name among them.
struct command_line {
  std::vector<const char*> own;
  std::vector<std::string> command;
};

command_line split_command_line(int argc, const char* const* argv) {
  command_line line;
  int i = 0;
  while (i < argc && std::string_view(argv[i]) != "--") line.own.push_back(argv[i++]);
  if (i < argc) line.command.assign(argv + i + 1, argv + argc);
  return line;
}

/// Parses the flags of a word that `add` declares, and calls `act` with them; --help prints them.
template <typename Add, typename Act>
int with_flags(const char* name, const char* text, const command_line& line, Add add, Act act) {
  cxxopts::Options options(std::string("parx_slurm ") + name, text);
  options.add_options()("h,help", "print this");
  add(options);
  const auto given = examples::parse(options, static_cast<int>(line.own.size()), line.own.data());
  if (given.count("help") != 0) {
    fmt::print("{}", options.help());
    return 0;
  }
  return act(given);
}

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
  return with_flags("batch", "A script for sbatch on standard output\n", line,
                    examples::add_batch_flags, [&](const auto& given) {
                      return examples::batch(examples::batch_options_of(given, line.command, all));
                    });
}

int scale(command_line line) {
  std::vector<std::string> folders;
  if (line.command.empty()) {
    // Without a program: folders of runs.
    while (line.own.size() > 1 && line.own.back()[0] != '-' &&
           line.own[line.own.size() - 2][0] != '-') {
      folders.emplace(folders.begin(), line.own.back());
      line.own.pop_back();
    }
  }
  return with_flags("scale", "How the speed of a training grows with nodes, ranks and threads\n",
                    line, examples::add_scale_flags, [&](const auto& given) {
                      if (!folders.empty()) {
                        return examples::scale_of_runs(folders,
                                                       examples::number(given, "price", 0.0, 1e9));
                      }
                      return examples::scale(examples::scale_options_of(given, line.command));
                    });
}

int run(int argc, const char* const* argv) {
  const std::string word = argc > 1 ? argv[1] : "--help";
  if (word == "-h" || word == "--help") {
    fmt::print("{}", usage);
    return 0;
  }
  const command_line line = split_command_line(argc - 1, argv + 1);
  if (word == "where") return where(line);
  if (word == "check") return check(line);
  if (word == "batch") return batch(line, {argv, argv + argc});
  if (word == "logs") {
    parx::require(argc == 3,
                  "parx_slurm logs JOB: the number of a job, a log, or a folder of logs");
    return examples::logs(argv[2]);
  }
  if (word == "scale") return scale(line);
  const std::string meant =
      examples::did_you_mean(word, {"where", "check", "batch", "logs", "scale"});
  parx::throw_usage("there is no \"{}\"{} parx_slurm --help lists the words", word,
                    examples::question(meant));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const parx::usage_error& wrong) {
    fmt::print(stderr, "parx_slurm: {}\n", wrong.what());
    return 2;
  } catch (const std::exception& failure) {
    fmt::print(stderr, "parx_slurm: {}\n", failure.what());
    return 1;
  }
}
