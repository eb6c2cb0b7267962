// shell_text: words quoted for a shell. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::slurm {

/// Words as a line that a POSIX shell reads as these words.
[[nodiscard]] inline std::string shell_text(const std::vector<std::string>& words) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    if (!word.empty() && word.find_first_not_of(plain) == word.npos) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) {
      if (c == '\'') text += "'\\''";
      else text += c;
    }
    text += '\'';
  }
  return text;
}

}  // namespace parx::slurm
