// parxrun: starts N ranks of a program on this host.
//
//   parxrun -n 4 ./train --epochs 5
//
// Everything it does is in parx/launch/agent.hpp; here is its command line.
#include <parx/core/version.hpp>
#include <parx/launch/agent.hpp>

// A value of --env may have commas in it.
#define CXXOPTS_VECTOR_DELIMITER '\0'
#include "common/options.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace {

constexpr int wrong_usage = 2;

/// The number of arguments that are parxrun's own: all up to "--" or the first that is no option.
int count_own_arguments(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--" || !argument.starts_with('-')) return i;
    for (const std::string_view takes_value :
         {"-n", "-np", "--ranks", "--threads", "--log-dir", "--grace", "--env", "--on-loss"}) {
      if (argument == takes_value) ++i;
    }
  }
  return argc;
}

/// The first `count` arguments, where -np, as mpirun has it, is -n.
std::vector<const char*> with_short_n(int count, const char* const* argv) {
  std::vector<const char*> arguments(argv, argv + count);
  for (const char*& each : arguments) {
    if (std::string_view(each) == "-np") each = "-n";
  }
  return arguments;
}

/// Prints a warning where the program's first arguments have the number of ranks, and parxrun's own
/// have none: parxrun ./program -n 4.
void warn_of_late_n(const std::vector<std::string>& command) {
  static constexpr std::size_t looked_at = 4;
  for (std::size_t i = 1; i + 1 < std::min(command.size(), looked_at + 1); ++i) {
    const std::string& number = command[i + 1];
    if (command[i] != "-n" && command[i] != "-np") continue;
    if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string text = fmt::format(
        "parxrun: starts 1 rank: {0} {1} comes after the program, so it is an argument of it; "
        "write parxrun {0} {1} {2}\n",
        command[i], number, command[0]);
    std::fputs(text.c_str(), stderr);
    return;
  }
}

parx::agent_options read_options(const cxxopts::ParseResult& given) {
  parx::agent_options options;
  options.ranks = examples::number(given, "n", 1, 4096);
  if (given.count("threads") != 0) options.threads = examples::number(given, "threads", 1, 4096);
  options.log_dir = given["log-dir"].as<std::string>();
  options.tags = examples::choice(given, "tag-output", {"true", "false"}) == "true"
                     ? parx::output_tags::rank
                     : parx::output_tags::none;
  options.grace = std::chrono::milliseconds(
      static_cast<long long>(examples::number(given, "grace", 0.0, 1e6) * 1000));
  if (examples::choice(given, "on-loss", {"end", "continue"}) == "continue") {
    options.on_loss = parx::on_loss::go_on;
  }
  if (given.count("env") == 0) return options;
  for (const std::string& setting : given["env"].as<std::vector<std::string>>()) {
    const auto equals = setting.find('=');
    parx::require(equals != std::string::npos && equals > 0, "--env {}: write NAME=VALUE", setting);
    options.variables.insert_or_assign(setting.substr(0, equals), setting.substr(equals + 1));
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    cxxopts::Options description("parxrun", "Starts N ranks of a program on this host.\n");
    description.custom_help("-n N [OPTION...] [--] PROGRAM [ARGUMENT...]");
    auto option = description.add_options();
    option("n,ranks", "Number of ranks, before the program; -np, as mpirun has it, is the same",
           cxxopts::value<std::string>()->default_value("1"), "N");
    option("threads", "Threads of each rank (the cores divided by the ranks)",
           cxxopts::value<std::string>(), "N");
    option("log-dir", "Write each rank's output to DIR/rank_R.out and rank_R.err instead of here",
           cxxopts::value<std::string>()->default_value(""), "DIR");
    option("tag-output", "Put \"[rank R] \" before each line; --tag-output=false leaves it out",
           cxxopts::value<std::string>()->default_value("true")->implicit_value("true"));
    option("grace", "Seconds from passing on SIGINT or SIGTERM to SIGKILL",
           cxxopts::value<std::string>()->default_value("30"), "S");
    option("on-loss", "When a rank fails: end the others, or let them continue (world.shrink())",
           cxxopts::value<std::string>()->default_value("end"), "WHAT");
    option("env", "Set a variable for the ranks; may be given often",
           cxxopts::value<std::vector<std::string>>(), "NAME=VALUE");
    option("version", "Print the version");
    option("h,help", "Print this");
    const int own = count_own_arguments(argc, argv);
    const auto own_arguments = with_short_n(own, argv);
    const auto given = examples::parse(description, own, own_arguments.data());
    if (given.count("help") != 0) {
      fmt::print(
          "{}\nA rank that fails ends the others within a second, and its exit code is parxrun's,\n"
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
    parx::agent_options options = read_options(given);
    const int program = own < argc && std::string_view(argv[own]) == "--" ? own + 1 : own;
    options.command.assign(argv + program, argv + argc);
    if (given.count("n") == 0) warn_of_late_n(options.command);
    return parx::run_ranks(options);
  } catch (const parx::program_error& e) {
    std::fprintf(stderr, "parxrun: %s\n", e.what());
    return e.exit_code();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "parxrun: %s\n", e.what());
    return wrong_usage;
  }
}
