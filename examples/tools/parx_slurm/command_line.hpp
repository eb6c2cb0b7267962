// For parx_slurm: flags before "--", a program and its arguments behind it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/options.hpp"
#include "tools/common/container.hpp"

namespace examples {

/// The words behind "--", and those before it, the program's own name among them.
struct command_line {
  std::vector<const char*> own;
  std::vector<std::string> command;
};

command_line split_command_line(int argc, const char* const* argv);

/// The value of a flag ("output-dir"; also written --output_dir) among a program's arguments; empty
/// where it has none.
std::string value_of_flag(const std::vector<std::string>& command, std::string_view name);

/// Takes the words that belong to no flag out of `words`, the first of which is the program's name.
/// Each flag but --help has a value: "--price 0.03" or "--price=0.03".
std::vector<std::string> take_plain_words(std::vector<const char*>& words);

inline std::string output_dir_of(const std::vector<std::string>& command) {
  return value_of_flag(command, "output-dir");
}

/// A path as it is without a working directory; empty for an empty one.
inline std::string absolute_path(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
}

/// The absolute path of a program, as a shell finds it; as given where there is none in PATH, and
/// where it is an image's.
std::string path_of_program(const std::string& name, const std::string& image = {});

/// How many nodes a job has, and with how many it goes on where it loses some; 0: with all alone.
struct node_range {
  int least = 0;
  int most = 1;
};

/// -N 3, or -N 2:3. Throws parx::usage_error where it is neither.
node_range nodes_of(const cxxopts::ParseResult& given);

/// Throws parx::usage_error where a word of parx_slurm that runs a program was given none.
void require_program(const command_line& line);

/// Parses the flags of a word that `add` declares, and calls `act` with them; --help prints them.
template <typename Add, typename Act>
int with_flags(const char* name, const char* text, const command_line& line, Add add, Act act) {
  cxxopts::Options options(std::string("parx_slurm ") + name,
                           std::string(text) + "Guide: examples/guide/slurm.md\n");
  options.add_options()("h,help", "print this");
  add(options);
  const auto given = parse(options, static_cast<int>(line.own.size()), line.own.data());
  if (given.count("help") != 0) {
    fmt::print("{}", options.help());
    return 0;
  }
  return act(given);
}

}  // namespace examples
