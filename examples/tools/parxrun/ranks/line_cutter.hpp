// line_cutter: splits one rank's output into lines, so that lines of several ranks do not mix. No
// I/O.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// How a carriage return is treated.
enum class carriage_return {
  ordinary,  ///< like any other byte: the rank writes to a pipe or file
  rewrites,  ///< it restarts the line: the rank draws a progress bar on a terminal
};

class line_cutter {
 public:
  explicit line_cutter(carriage_return rule = carriage_return::ordinary) : rule_(rule) {}

  /// Calls on_line(text), without the line feed, for each line that `bytes` completes.
  template <typename OnLine>
  void feed(std::string_view bytes, OnLine&& on_line) {
    for (const char byte : bytes) {
      if (byte == '\n' || current_.size() >= longest_line) {
        on_line(std::string_view(current_));
        current_.clear();
        live_ = begin_again_ = false;
        if (byte == '\n') continue;
      }
      if (byte == '\r' && rule_ == carriage_return::rewrites) {
        live_ = begin_again_ = true;
        continue;
      }
      if (begin_again_) current_.clear();
      begin_again_ = false;
      current_.push_back(byte);
    }
  }

  /// The unfinished last line.
  [[nodiscard]] std::string_view partial() const noexcept { return current_; }
  /// Whether the unfinished line is being redrawn in place.
  [[nodiscard]] bool live() const noexcept { return live_ && !current_.empty(); }
  void clear() noexcept {
    current_.clear();
    live_ = begin_again_ = false;
  }

 private:
  // Bounds the memory for a program that never writes a line feed.
  static constexpr std::size_t longest_line = 1 << 20;

  carriage_return rule_;
  std::string current_;
  bool live_ = false;
  bool begin_again_ = false;
};

}  // namespace parx::detail
