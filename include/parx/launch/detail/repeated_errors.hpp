// repeated_errors: finds out which ranks print the same error, so that parxrun shows it once.
//
// Ranks run the same program, so each of them prints a mistake in it. Two errors are the same if
// their texts are, but for the printing rank's own number. Pure.
#pragma once

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
  /// Takes the next line of a rank's standard error. Returns whether another rank has printed the
  /// same line of the same error.
  [[nodiscard]] bool repeats(int rank, std::string_view line) {
    const std::string start = formatted("[parx rank {}] error: ", rank);
    if (line.starts_with(start)) {
      printing_.erase(rank);
      const std::string text = without_own_rank(line.substr(start.size()));
      const auto found = errors_.find(text);
      if (found == errors_.end()) {
        if (errors_.size() < most_errors)
          printing_[rank] = {&errors_.emplace(text, error{rank, {}, {}}).first->second, 0};
        return false;
      }
      if (rank == found->second.first) return false;
      printing_[rank] = {&found->second, 0};
      found->second.others.insert(rank);
      return true;
    }
    const auto now = printing_.find(rank);
    if (now == printing_.end()) return false;
    auto& [current, next] = now->second;
    // The logger indents all lines of a text but the first.
    const bool goes_on = line.starts_with("    ");
    if (goes_on && rank == current->first) {
      if (current->more.size() < most_lines) current->more.emplace_back(line);
      return false;
    }
    if (goes_on && next < current->more.size() && current->more[next] == line) {
      ++next;
      return true;
    }
    printing_.erase(now);
    return false;
  }

  /// A line for each error that was repeated: "[ranks 0,2,3] printed the same error as rank 1".
  [[nodiscard]] std::string summary() const {
    std::string text;
    for (const auto& [line, each] : errors_) {
      if (each.others.empty()) continue;
      const std::vector<int> ranks(each.others.begin(), each.others.end());
      text += formatted("[{} {}] printed the same error as rank {}\n",
                        ranks.size() == 1 ? "rank" : "ranks", rank_list(ranks), each.first);
    }
    return text;
  }

 private:
  // For ranks that print errors all the time.
  static constexpr std::size_t most_errors = 256, most_lines = 64;

  struct error {
    int first;
    std::set<int> others;
    std::vector<std::string> more;  ///< its later lines
  };

  /// Without the number in "all_reduce #3 on group "world" (rank 2 of 4, train.cpp:17)".
  [[nodiscard]] static std::string without_own_rank(std::string_view text) {
    constexpr std::string_view before = "(rank ";
    const std::size_t begin = text.find(before);
    const std::size_t end = text.find(" of ", begin == text.npos ? 0 : begin);
    if (begin == text.npos || end == text.npos) return std::string(text);
    return std::string(text.substr(0, begin + before.size())).append(text.substr(end));
  }

  std::map<std::string, error> errors_;  ///< by their first lines
  /// By rank: the error that it is printing, and the number of the next of its later lines.
  std::map<int, std::pair<error*, std::size_t>> printing_;
};

}  // namespace parx::detail
