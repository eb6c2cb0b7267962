// find_program: the file that a command names, by PATH as a shell finds it.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include <parx/core/env.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI {

/// The program of a job cannot be started. exit_code() follows the shell: 127 where there is no
/// such program, 126 where it cannot be executed.
class program_error : public usage_error {
 public:
  program_error(int exit_code, const std::string& text)
      : usage_error(text), exit_code_(exit_code) {}
  [[nodiscard]] int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

namespace detail {

/// The file that a shell would run for `program`. Throws program_error where it would not.
[[nodiscard]] inline std::string find_program(const std::string& program, const environment& env) {
  std::vector<std::string> candidates{program};
  if (program.find('/') == std::string::npos) {
    candidates.clear();
    const std::string path = env_string(env, "PATH").value_or("/usr/local/bin:/usr/bin:/bin");
    for (std::size_t begin = 0; begin <= path.size();) {
      const auto end = std::min(path.find(':', begin), path.size());
      const std::string folder = path.substr(begin, end - begin);
      candidates.push_back((folder.empty() ? "." : folder) + "/" + program);
      begin = end + 1;
    }
  }
  bool found = false;
  for (const std::string& file : candidates) {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0) continue;
    found = true;
    if (S_ISREG(status.st_mode) && ::access(file.c_str(), X_OK) == 0) return file;
  }
  if (!found && program.find('/') == std::string::npos) {
    const bool here = ::access(program.c_str(), F_OK) == 0;
    throw program_error(
        127,
        formatted("program \"{}\" was not found in PATH{}", program,
                    here ? "; to run the one in this folder, write ./" + program : std::string()));
  }
  if (!found) {
    throw program_error(127, formatted("program \"{}\" was not found: {}", program,
                                       std::generic_category().message(errno)));
  }
  throw program_error(
      126,
      formatted("\"{}\" is not an executable file; chmod +x it if it is a program", program));
}

}  // namespace detail
}  // namespace parx
