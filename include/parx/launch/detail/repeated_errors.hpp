// repeated_errors: finds out which ranks print the same error, so that parxrun shows it once.
//
// Ranks run the same program, so each of them prints a mistake in it. Two errors are the same if
// their whole texts are, but for the printing rank's own number. Pure.
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

#include <parx/core/formatted.hpp>
#include <parx/launch/detail/failure_report.hpp>

namespace parx::inline PARX_ABI::detail {

class repeated_errors {
 public:
  using clock = std::chrono::steady_clock;

  /// Takes the next line of a rank's standard error. Returns whether it is a part of an error,
  /// which is to be shown only if end_of_error() says so.
  [[nodiscard]] bool takes(int rank, std::string_view line) {
    const std::string start = formatted("[parx rank {}] error: ", rank);
    std::vector<std::string>& lines = printing_[rank];
    // The logger indents all lines of a text but the first.
    const bool goes_on = lines.empty() ? line.starts_with(start) : line.starts_with("    ");
    if (!goes_on) return false;
    lines.emplace_back(line);
    return true;
  }

  /// The lines that a rank's takes() has kept, unless another rank has just printed the same ones.
  /// Each rank's error is left out once.
  [[nodiscard]] std::vector<std::string> end_of_error(int rank, clock::time_point now) {
    std::vector<std::string> lines = std::exchange(printing_[rank], {});
    if (lines.empty()) return lines;
    const std::string head = lines[0].substr(lines[0].find("error: ") + 7);
    std::string text = without_own_rank(head);
    for (std::size_t i = 1; i < lines.size(); ++i) text += lines[i];
    const auto found = errors_.find(text);
    if (found == errors_.end()) {
      if (errors_.size() < most_errors && text.size() < longest)
        errors_.emplace(std::move(text), error{rank, now, head, {}});
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
      std::size_t shown = std::min<std::size_t>(head.size(), 60);
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

  /// Without the number in "all_reduce #3 on group "world" (rank 2 of 4, train.cpp:17)".
  [[nodiscard]] static std::string without_own_rank(std::string text) {
    const std::size_t begin = text.find("(rank ");
    if (begin == text.npos) return text;
    const std::size_t number = begin + 6, end = text.find_first_not_of("0123456789", number);
    if (end == text.npos || text.compare(end, 4, " of ") != 0 || text.size() == end + 4)
      return text;
    const char size = text[end + 4];
    return size < '0' || size > '9' ? text : text.erase(number, end - number);
  }

  std::map<std::string, error> errors_;
  std::map<int, std::vector<std::string>> printing_;  ///< by rank
};

}  // namespace parx::detail
