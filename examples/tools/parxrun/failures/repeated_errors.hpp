// repeated_errors: finds out which ranks print the same error, so that parxrun shows it once.
//
// Ranks run the same program, so each of them prints a mistake in it. An error is what a rank
// prints at once after it has left the record of its failure. Two errors are the same if their
// whole texts are, but for the printing rank's own number. Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/common/rank_list.hpp"
#include "tools/parxrun/failures/failure_report.hpp"
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

class repeated_errors {
 public:
  using clock = std::chrono::steady_clock;

  /// Keeps the next line of a rank's error until end_of_error().
  void take(int rank, std::string_view line) { printing_[rank].emplace_back(line); }

  /// The lines that a rank's take() has kept, unless another rank has just printed the same ones.
  /// Each rank's error is left out once.
  [[nodiscard]] std::vector<std::string> end_of_error(int rank, clock::time_point now) {
    std::vector<std::string> lines = std::exchange(printing_[rank], {});
    if (lines.empty()) return lines;
    std::string text;
    for (const std::string& line : lines) text += without_number(line, rank) + "\n";
    const auto found = errors_.find(text);
    if (found == errors_.end()) {
      if (errors_.size() < most_errors && text.size() < longest)
        errors_.emplace(std::move(text), error{rank, now, lines.front(), {}});
      return lines;
    }
    error& known = found->second;
    if (rank == known.first || now - known.time > at_once || !known.others.insert(rank).second)
      return lines;
    return {};
  }

  /// A line for each error that was left out: "[ranks 0,2] printed the same error as rank 1: ...".
  [[nodiscard]] std::string summary() const {
    std::string result;
    for (const auto& [text, each] : errors_) {
      if (each.others.empty()) continue;
      const std::string& head = each.head;
      const std::vector<int> ranks(each.others.begin(), each.others.end());
      std::size_t shown = std::min<std::size_t>(head.size(), 80);
      while (shown < head.size() && (head[shown] & 0xC0) == 0x80) --shown;  // whole characters
      result +=
          formatted("[{} {}] printed the same error as rank {}: {}{}\n",
                    ranks.size() == 1 ? "rank" : "ranks", rank_list(ranks), each.first,
                    std::string_view(head).substr(0, shown), shown < head.size() ? " ..." : "");
    }
    return result;
  }

 private:
  // For ranks that print errors all the time.
  static constexpr std::size_t most_errors = 256, longest = 4096;
  static constexpr std::chrono::seconds at_once{5};

  struct error {
    int first;
    clock::time_point time;
    std::string head;  ///< its first line
    std::set<int> others;
  };

  /// `text` with a placeholder for each whole number in it that is `rank`.
  [[nodiscard]] static std::string without_number(std::string_view text, int rank) {
    static constexpr std::string_view digits = "0123456789";
    const std::string own = std::to_string(rank);
    std::string result;
    while (!text.empty()) {
      const std::size_t begin = std::min(text.find_first_of(digits), text.size());
      const std::size_t end = std::min(text.find_first_not_of(digits, begin), text.size());
      const std::string_view number = text.substr(begin, end - begin);
      result += text.substr(0, begin);
      result += number == own ? "#" : number;
      text.remove_prefix(end);
    }
    return result;
  }

  std::map<std::string, error> errors_;
  std::map<int, std::vector<std::string>> printing_;  ///< by rank
};

}  // namespace parx::detail
