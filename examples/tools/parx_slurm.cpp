// parx_slurm: what comes before and after a training on a Slurm cluster.
//
//   parx_slurm where -N 3 --cores 8 --time 30m --program ./train
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "common/did_you_mean.hpp"
#include "common/options.hpp"
#include "slurm_where.hpp"

namespace {

constexpr std::string_view usage =
    "What comes before and after a training on a Slurm cluster\nUsage:\n"
    "  parx_slurm where FLAGS   the partition that has the nodes, and the salloc line. Exits with "
    "3\n"
    "                           where none has\n"
    "parx_slurm WORD --help lists the flags\n";

int where(int argc, const char* const* argv) {
  cxxopts::Options options("parx_slurm where", "The partition that has the nodes for a job\n");
  options.add_options()("h,help", "print this");
  examples::add_request_flags(options);
  const auto given = examples::parse(options, argc, argv);
  if (given.count("help") != 0) {
    fmt::print("{}", options.help());
    return 0;
  }
  return examples::where(examples::request_of(given));
}

int run(int argc, const char* const* argv) {
  const std::string word = argc > 1 ? argv[1] : "--help";
  if (word == "-h" || word == "--help") {
    fmt::print("{}", usage);
    return 0;
  }
  if (word == "where") return where(argc - 1, argv + 1);
  const std::string meant = examples::did_you_mean(word, {"where"});
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
