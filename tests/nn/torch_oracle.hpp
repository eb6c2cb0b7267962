// PyTorch as an oracle: runs a script with the system's Python and reads the numbers that it
// prints.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace parx_test {

/// Lines "name number number ...", by name.
using oracle_numbers = std::map<std::string, std::vector<double>>;

/// Runs `script`, a file beside the test `test_file` (__FILE__). Where Python or torch is missing:
/// nullopt, and a line that cannot be overlooked. PARX_TEST_PYTHON names another interpreter.
[[nodiscard]] inline std::optional<oracle_numbers> ask_torch(const char* test_file,
                                                             const std::string& script) {
  const char* named = std::getenv("PARX_TEST_PYTHON");
  const std::string python = named != nullptr                              ? named
                             : std::filesystem::exists("/usr/bin/python3") ? "/usr/bin/python3"
                                                                           : "python3";
  const std::string path = (std::filesystem::path(test_file).parent_path() / script).string();
  FILE* output = ::popen(fmt::format("{} '{}'", python, path).c_str(), "r");
  if (output == nullptr) throw std::runtime_error("popen failed");
  std::string text;
  std::vector<char> buffer(1U << 16U);
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), output))
    text.append(buffer.data(), count);
  const int status = ::pclose(output);
  constexpr int no_torch = 77;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == no_torch || code == 127) {
    fmt::print("SKIPPED: {} needs PyTorch (apt-get install python3-torch)\n", script);
    return std::nullopt;
  }
  if (code != 0) throw std::runtime_error(fmt::format("{} failed with exit code {}", path, code));
  oracle_numbers numbers;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string name;
    fields >> name;
    for (double value = 0; fields >> value;) numbers[name].push_back(value);
  }
  return numbers;
}

}  // namespace parx_test
