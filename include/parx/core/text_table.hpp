// text_table: aligned columns for a terminal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// Columns two spaces apart, as wide as their widest cell; the last one is not padded.
class text_table {
 public:
  /// The first line. A heading that begins with '>' makes its column right-aligned: numbers.
  explicit text_table(std::vector<std::string> headings) {
    for (std::string& each : headings) {
      right_.push_back(each.starts_with('>'));
      if (right_.back()) each.erase(0, 1);
    }
    rows_.push_back(std::move(headings));
  }

  /// `cells`: one for each heading; missing ones are empty.
  void add(std::vector<std::string> cells) {
    cells.resize(right_.size());
    rows_.push_back(std::move(cells));
  }

  /// All lines, each ended by a newline and without spaces before it.
  [[nodiscard]] std::string text() const {
    std::string text;
    for (const auto& row : rows_) {
      std::string line;
      for (std::size_t column = 0; column < row.size(); ++column) {
        std::size_t width = 0;
        for (const auto& each : rows_) width = std::max(width, each[column].size());
        const std::string gap(width - row[column].size(), ' ');
        if (column > 0) line += "  ";
        line += right_[column] ? gap + row[column] : row[column] + gap;
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    return text;
  }

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace parx
