// lead: the beginning of a text as its summary. This baseline, strong on news, is what a trained
// model must beat. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace examples {

/// The first sentence: up to the first full stop, exclamation or question mark before white space
/// or the end; the whole text where there is none.
[[nodiscard]] inline std::string lead_sentence(std::string_view text) {
  std::size_t end = text.find_first_of(".!?");
  while (end < text.size() && end + 1 < text.size() &&
         std::string_view(" \t\r\n").find(text[end + 1]) == std::string_view::npos) {
    end = text.find_first_of(".!?", end + 1);
  }
  return std::string(end < text.size() ? text.substr(0, end + 1) : text);
}

/// The first `count` words, white space between them as it is.
[[nodiscard]] inline std::string lead_words(std::string_view text, std::size_t count) {
  std::size_t end = 0;
  for (; count > 0 && end < text.size(); --count) {
    end = text.find_first_of(" \t\r\n", text.find_first_not_of(" \t\r\n", end));
  }
  return std::string(text.substr(0, end));
}

}  // namespace examples
