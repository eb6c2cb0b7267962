// shell_text: words quoted for a shell, in one line. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <parx/core/formatted.hpp>
#include <parx/core/printable.hpp>

namespace parx::inline PARX_ABI::slurm {

/// A word as bash, zsh and ksh read it. A line break or another character that printable() would
/// escape is written as $'\n', so that the text stays in its line, also in a comment, and does
/// nothing to a terminal.
[[nodiscard]] inline std::string shell_word(std::string_view word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(plain) == word.npos) return std::string(word);
  const bool is_one_line = printable(word) == word;
  std::string text = is_one_line ? "'" : "$'";
  for (const char c : word) {
    const bool is_ascii = c >= ' ' && c <= '~';
    if (is_one_line) {
      if (c == '\'') text += "'\\''";
      else text += c;
    } else if (c == '\n') {
      text += "\\n";
    } else if (c == '\t') {
      text += "\\t";
    } else if (is_ascii && c != '\'' && c != '\\' && c != '!') {
      text += c;
    } else {
      // Of all others each byte: an interactive shell looks for quotes and "!" before it unescapes,
      // and in some locales a byte beyond ASCII takes a backslash behind it for its second half.
      text += formatted("\\{:03o}", static_cast<unsigned char>(c));
    }
  }
  return text + "'";
}

/// Words as a line that a shell reads as these words.
[[nodiscard]] inline std::string shell_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    text += shell_word(word);
  }
  return text;
}

}  // namespace parx::slurm
