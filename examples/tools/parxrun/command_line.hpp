// parxrun's command line: its own options and torchrun's.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "common/options.hpp"
#include "tools/parxrun/run_ranks.hpp"
#include "tools/parxrun/ssh/ssh_hosts.hpp"
#include <parx/core/env.hpp>

namespace examples {

/// The number of arguments that are parxrun's own: all up to "--" or the first that is no option.
int count_own_arguments(int argc, const char* const* argv);

/// The first `count` arguments, where -np, as mpirun has it, is -n.
std::vector<const char*> with_short_n(int count, const char* const* argv);

/// Prints a warning where the program's first arguments have the number of ranks, and parxrun's own
/// have none: parxrun ./program -n 4.
void warn_of_late_n(const std::vector<std::string>& command);

void declare_options(cxxopts::Options& description);

/// torchrun's 0, 1 (out), 2 (err) and 3 (both).
parx::output_streams streams(const cxxopts::ParseResult& given, const char* flag);

/// All that is not about nodes.
parx::agent_options read_options(const cxxopts::ParseResult& given);

/// Over which nodes the job runs, and by which way. `words` is the whole command line.
void read_nodes(const cxxopts::ParseResult& given, const parx::environment& env,
                const std::vector<std::string>& words, parx::agent_options& options);

/// The program and its arguments, run by Python where torchrun would.
std::vector<std::string> command_of(std::vector<std::string> command,
                                    const cxxopts::ParseResult& given,
                                    const parx::environment& env);

}  // namespace examples
