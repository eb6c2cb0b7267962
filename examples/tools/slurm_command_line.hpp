// For parx_slurm: flags before "--", a program and its arguments behind it.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/options.hpp"
#include <parx/core/env.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/launch/detail/child_process.hpp>
#include <parx/slurm.hpp>

namespace examples {

/// The words behind "--", and those before it, the program's own name among them.
struct command_line {
  std::vector<const char*> own;
  std::vector<std::string> command;
};

inline command_line split_command_line(int argc, const char* const* argv) {
  command_line line;
  int i = 0;
  while (i < argc && std::string_view(argv[i]) != "--") line.own.push_back(argv[i++]);
  if (i < argc) line.command.assign(argv + i + 1, argv + argc);
  return line;
}

/// The value of a flag ("output-dir"; also written --output_dir) among a program's arguments; empty
/// where it has none.
inline std::string value_of_flag(const std::vector<std::string>& command, std::string_view name) {
  for (std::size_t i = 1; i < command.size(); ++i) {
    std::string word = command[i].substr(0, command[i].find('='));
    std::replace(word.begin(), word.end(), '_', '-');
    if (word != "--" + std::string(name)) continue;
    if (word.size() < command[i].size()) return command[i].substr(word.size() + 1);
    if (i + 1 < command.size()) return command[i + 1];
  }
  return {};
}

/// Takes the words that belong to no flag out of `words`, the first of which is the program's name.
/// Each flag but --help has a value: "--price 0.03" or "--price=0.03".
inline std::vector<std::string> take_plain_words(std::vector<const char*>& words) {
  std::vector<std::string> plain;
  std::vector<const char*> rest;
  bool is_value = true;
  for (const char* const each : words) {
    const std::string_view word = each;
    const bool is_flag = word.size() > 1 && word[0] == '-';
    if (is_value || is_flag) {
      rest.push_back(each);
    } else {
      plain.emplace_back(each);
    }
    is_value =
        !is_value && is_flag && word != "-h" && word != "--help" && word.find('=') == word.npos;
  }
  words = std::move(rest);
  return plain;
}

inline std::string output_dir_of(const std::vector<std::string>& command) {
  return value_of_flag(command, "output-dir");
}

/// A path as it is without a working directory; empty for an empty one.
inline std::string absolute_path(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
}

/// The absolute path of a program, as a shell finds it; as given where there is none in PATH, and
/// where it is an image's.
inline std::string path_of_program(const std::string& name, const std::string& image = {}) {
  if (!image.empty() && parx::slurm::is_of_image(name)) return name;
  if (name.empty()) return name;
  try {
    return absolute_path(parx::detail::find_program(name, parx::process_environment()));
  } catch (const parx::program_error&) {
    return name.find('/') == name.npos ? name : absolute_path(name);  // the nodes may see it
  }
}

/// How many nodes a job has, and with how many it goes on where it loses some; 0: with all alone.
struct node_range {
  int least = 0;
  int most = 1;
};

/// -N 3, or -N 2:3. Throws parx::usage_error where it is neither.
inline node_range nodes_of(const cxxopts::ParseResult& given) {
  const std::string text = given["nodes"].as<std::string>();
  const auto colon = text.find(':');
  if (colon == text.npos) {
    const int all = number(given, "nodes", 1, 100'000);
    return {.least = 0, .most = all};
  }
  const auto least = parx::detail::parse_number<int>(text.substr(0, colon));
  const auto most = parx::detail::parse_number<int>(text.substr(colon + 1));
  parx::require(least && most && *least >= 1 && *most >= *least && *most <= 4096,
                "--nodes \"{}\": give their number, or MIN:MAX as 2:3, to go on with MIN where "
                "nodes are lost",
                text);
  return {.least = *least, .most = *most};
}

/// Throws parx::usage_error where a word of parx_slurm that runs a program was given none.
inline void require_program(const command_line& line) {
  for (const std::string_view each : line.own) {
    if (each == "--help" || each == "-h") return;
  }
  parx::require(!line.command.empty(),
                "there is no program: -- comes before it: parx_slurm {} -N 2 -n 2 -- ./train args",
                line.own.front());
}

/// Parses the flags of a word that `add` declares, and calls `act` with them; --help prints them.
template <typename Add, typename Act>
int with_flags(const char* name, const char* text, const command_line& line, Add add, Act act) {
  cxxopts::Options options(std::string("parx_slurm ") + name, text);
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
