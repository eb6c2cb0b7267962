// missing_instructions: why a rank ended by SIGILL, where it was compiled for another processor.
#pragma once

#include <string>
#include <vector>

#include "tools/common/find_program.hpp"
#include "tools/common/instructions.hpp"
#include "tools/common/child_process.hpp"
#include <parx/core/env.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI::detail {

/// "./train was compiled for avx2, fma, which this processor does not have: ..." where one of the
/// files that `command` names was; empty where none was. The program may come after a wrapper:
/// numactl -N 0 ./train.
template <typename Has>
[[nodiscard]] std::string missing_instructions(const std::vector<std::string>& command,
                                               const environment& env, Has has) {
  for (const std::string& word : command) {
    std::string path;
    try {
      path = find_program(word, env);
    } catch (const program_error&) {
      continue;
    }
    std::vector<std::string> names = instructions_of(file_text(path).value_or(""));
    std::erase_if(names, [&](const std::string& name) { return has(name); });
    if (names.empty()) continue;
    return formatted(
        "{} was compiled for {}, which this processor does not have: compile it here, "
        "or without -march=native",
        word, joined_text(names));
  }
  return {};
}

/// The same for a rank that has ended like this, perhaps behind a shell; empty for any other end.
[[nodiscard]] std::string missing_instructions(const exit_status& status,
                                               const std::vector<std::string>& command,
                                               const environment& env);

}  // namespace parx::detail
