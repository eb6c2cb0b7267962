#include "tools/parx_slurm/script/through_srun.hpp"

#include <algorithm>

namespace parx::inline PARX_ABI::slurm {

std::vector<std::string> through_srun(const std::vector<std::string>& command) {
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
