// through_srun: a command as srun must be given it, so that it starts just that. Pure.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::slurm {

/// srun takes an argument ":" anywhere in its line, also behind "--", for the beginning of another
/// part of a heterogeneous step. A shell puts it back: sh -c 'exec "$0" "$1" : "$2"' ./train a b
[[nodiscard]] inline std::vector<std::string> through_srun(
    const std::vector<std::string>& command) {
  if (std::find(command.begin(), command.end(), ":") == command.end()) return command;
  std::string line = "exec";
  std::vector<std::string> words;
  for (const std::string& each : command) {
    if (each == ":") {
      line += " :";
    } else {
      const std::string number = std::to_string(words.size());
      line += number.size() == 1 ? " \"$" + number + "\"" : " \"${" + number + "}\"";
      words.push_back(each);
    }
  }
  words.insert(words.begin(), {"sh", "-c", line});
  return words;
}

}  // namespace parx::slurm
