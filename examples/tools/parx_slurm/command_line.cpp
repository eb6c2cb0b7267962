#include "tools/parx_slurm/command_line.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tools/common/find_program.hpp"
#include <parx/core/env.hpp>
#include <parx/core/parse_number.hpp>

namespace examples {

command_line split_command_line(int argc, const char* const* argv) {
  command_line line;
  int i = 0;
  while (i < argc && std::string_view(argv[i]) != "--") line.own.push_back(argv[i++]);
  if (i < argc) line.command.assign(argv + i + 1, argv + argc);
  return line;
}

std::string value_of_flag(const std::vector<std::string>& command, std::string_view name) {
  for (std::size_t i = 1; i < command.size(); ++i) {
    std::string word = command[i].substr(0, command[i].find('='));
    std::replace(word.begin(), word.end(), '_', '-');
    if (word != "--" + std::string(name)) continue;
    if (word.size() < command[i].size()) return command[i].substr(word.size() + 1);
    if (i + 1 < command.size()) return command[i + 1];
  }
  return {};
}

std::vector<std::string> take_plain_words(std::vector<const char*>& words) {
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

std::string path_of_program(const std::string& name, const std::string& image) {
  if (!image.empty() && parx::slurm::is_of_image(name)) return name;
  if (name.empty()) return name;
  try {
    return absolute_path(parx::detail::find_program(name, parx::process_environment()));
  } catch (const parx::program_error&) {
    return name.find('/') == name.npos ? name : absolute_path(name);  // the nodes may see it
  }
}

node_range nodes_of(const cxxopts::ParseResult& given) {
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

void require_program(const command_line& line) {
  for (const std::string_view each : line.own) {
    if (each == "--help" || each == "-h") return;
  }
  parx::require(!line.command.empty(),
                "there is no program: -- comes before it: parx_slurm {} -N 2 -n 2 -- ./train args",
                line.own.front());
}

}  // namespace examples
