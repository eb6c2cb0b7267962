// parxrun: starts N ranks of a program on this host, or on each node of a job.
//
//   parxrun -n 4 ./train --epochs 5
//   srun --ntasks-per-node=1 parxrun -n 2 ./train
//   parxrun --nnodes 2 --rdzv-endpoint node1:29400 -n 2 ./train      on each of two nodes
//   parxrun --hosts node1,node2 -n 2 ./train                         by ssh
//
// Everything it does is behind run_ranks.hpp; its command line is in command_line.hpp.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "tools/common/find_program.hpp"
#include "tools/parxrun/command_line.hpp"
#include "tools/parxrun/run_ranks.hpp"
#include "tools/parxrun/ssh/take_order.hpp"
#include <parx/core/version.hpp>

namespace {

constexpr int wrong_usage = 2;

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::string> words(argv, argv + argc);
    const auto order = parx::detail::take_order(words);
    if (order) words = order->arguments;
    std::vector<const char*> arguments;
    for (const std::string& each : words) arguments.push_back(each.c_str());
    cxxopts::Options description("parxrun", "Starts N ranks of a program on each node of a job.\n"
                                 "Guide: examples/guide/cluster.md\n");
    description.custom_help("-n N [OPTION...] [--] PROGRAM [ARGUMENT...]");
    examples::declare_options(description);
    const auto count = static_cast<int>(arguments.size());
    const int own = examples::count_own_arguments(count, arguments.data());
    const auto own_arguments = examples::with_short_n(own, arguments.data());
    const auto given = examples::parse(description, own, own_arguments.data());
    if (given.count("help") != 0) {
      fmt::print(
          "{}\nOn several nodes parxrun is started on each, with the same options, or once with "
          "--hosts; inside\nsrun --ntasks-per-node=1 -n alone is enough.\n"
          "A rank that fails ends the others within a second, and its exit code is parxrun's,\n"
          "unless --on-loss is continue.\n"
          "A second SIGINT or SIGTERM does not wait for --grace. Exit code 75 says that the ranks "
          "were\n"
          "stopped and have saved their work: started again, they go on.\n"
          "Rank 0 has parxrun's standard input unless that is a terminal; the others have none.\n",
          description.help());
      return 0;
    }
    if (given.count("version") != 0) {
      fmt::print("parxrun {}\n", PARX_VERSION);
      return 0;
    }
    const parx::environment env = parx::process_environment();
    parx::agent_options options = examples::read_options(given);
    if (order) {
      order->apply(options);
    } else {
      examples::read_nodes(given, env, words, options);
    }
    const std::ptrdiff_t program =
        own < count && words[static_cast<std::size_t>(own)] == "--" ? own + 1 : own;
    options.command = examples::command_of({words.begin() + program, words.end()}, given, env);
    if (given.count("n") + given.count("nproc-per-node") == 0)
      examples::warn_of_late_n(options.command);
    const int code = parx::run_ranks(options);
    std::error_code ignored;
    for (const std::string& each : examples::list(given, "remove-at-end")) {
      std::filesystem::remove_all(each, ignored);
    }
    return code;
  } catch (const parx::program_error& e) {
    std::fprintf(stderr, "parxrun: %s\n", e.what());
    return e.exit_code();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "parxrun: %s\n", e.what());
    return wrong_usage;
  }
}
