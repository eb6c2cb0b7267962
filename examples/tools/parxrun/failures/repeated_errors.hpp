// repeated_errors: finds out which ranks print the same error, or only that another one failed, so
// that parxrun shows it once.
//
// Ranks run the same program, so each of them prints a mistake in it. An error is what a rank
// prints at once after it has left the record of its failure. Two errors are the same if their
// whole texts are, but for the printing rank's own number. An echo is an error of parx whose tag
// blames another rank (failure_record.hpp): one that names no rank quotes what others print
// themselves, and of those that name the same one the first is enough. Pure.
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
#include <parx/core/failure_record.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/log.hpp>

namespace parx::inline PARX_ABI::detail {

class repeated_errors {
 public:
  using clock = std::chrono::steady_clock;

  /// Keeps the next line of a rank's error until end_of_error().
  void take(int rank, std::string_view line) { printing_[rank].emplace_back(line); }

  /// The lines that a rank's take() has kept, unless another rank has just printed the same ones,
  /// or what they say of others is known. Each rank's error is left out once.
  [[nodiscard]] std::vector<std::string> end_of_error(int rank, clock::time_point now) {
    std::vector<std::string> lines = std::exchange(printing_[rank], {});
    if (lines.empty()) return lines;
    if (const auto tag = blame_in_line(lines.front())) {
      if (tag->rank < 0) {
        if (untold_.empty()) untold_ = lines;
      } else if (known_failures_.insert(tag->rank).second) {
        any_shown_ = true;
        return lines;
      }
      if (echoes_.insert(rank).second) return {};
      return lines;
    }
    any_shown_ = true;
    known_failures_.insert(rank);
    const told_error told = without_numbers(lines);
    const auto [begin, end] = errors_.equal_range(told.text);
    const auto found = std::find_if(begin, end, [&](const auto& each) {
      return are_same(each.second.numbers, each.second.first, told.numbers, rank);
    });
    if (found == end) {
      if (errors_.size() < most_errors && told.text.size() < longest)
        errors_.emplace(told.text, error{rank, now, lines.front(), told.numbers, {}});
      return lines;
    }
    error& known = found->second;
    if (rank == known.first || now - known.time > at_once || !known.others.insert(rank).second)
      return lines;
    return {};
  }

  /// Of what was left out, "[ranks 0,2] the same error as rank 1", with its text where there are
  /// several, and "[rank 3] ended because of another rank". An echo of what is unknown comes whole.
  [[nodiscard]] std::string summary() const {
    std::string result;
    for (const auto& [text, each] : errors_) {
      if (each.others.empty()) continue;
      result += of_ranks(each.others) + formatted("the same error as rank {}", each.first);
      if (errors_.size() > 1) result += ": " + excerpt(each.head);
      result += "\n";
    }
    if (!any_shown_) {
      for (const std::string& line : untold_) result += line + "\n";
    }
    if (any_shown_ ? !echoes_.empty() : echoes_.size() > 1) {
      result += of_ranks(echoes_) + "ended because of another rank\n";
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
    std::vector<std::string> numbers;
    std::set<int> others;
  };

  [[nodiscard]] static std::string of_ranks(const std::set<int>& ranks) {
    return formatted("[{} {}] ", ranks.size() == 1 ? "rank" : "ranks",
                     rank_list({ranks.begin(), ranks.end()}));
  }
  /// Its begin, without the tag of its writer.
  [[nodiscard]] static std::string excerpt(std::string_view head) {
    if (const auto at = head.find(log_line_error);
        head.starts_with(log_line_begin) && at != head.npos)
      head.remove_prefix(at + log_line_error.size());
    std::size_t shown = std::min<std::size_t>(head.size(), 80);
    while (shown < head.size() && (head[shown] & 0xC0) == 0x80) --shown;  // whole characters
    return std::string(head.substr(0, shown)) + (shown < head.size() ? " ..." : "");
  }

  /// Its lines with a placeholder for each whole number, and these numbers.
  struct told_error {
    std::string text;
    std::vector<std::string> numbers;
  };

  [[nodiscard]] static told_error without_numbers(const std::vector<std::string>& lines) {
    static constexpr std::string_view digits = "0123456789";
    told_error result;
    for (std::string_view text : lines) {
      while (!text.empty()) {
        const std::size_t begin = std::min(text.find_first_of(digits), text.size());
        const std::size_t end = std::min(text.find_first_not_of(digits, begin), text.size());
        result.text += text.substr(0, begin);
        if (end > begin) {
          result.text += '#';
          result.numbers.emplace_back(text.substr(begin, end - begin));
        }
        text.remove_prefix(end);
      }
      result.text += '\n';
    }
    return result;
  }
  /// Whether they are equal but where each is the own number of its rank.
  [[nodiscard]] static bool are_same(const std::vector<std::string>& a, int rank_a,
                                     const std::vector<std::string>& b, int rank_b) {
    const std::string own_a = std::to_string(rank_a), own_b = std::to_string(rank_b);
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](const std::string& one, const std::string& other) {
                        return one == other || (one == own_a && other == own_b);
                      });
  }

  std::multimap<std::string, error> errors_;          ///< by told_error::text
  std::map<int, std::vector<std::string>> printing_;  ///< by rank
  std::set<int> echoes_;                              ///< the ranks whose echo was left out
  std::set<int> known_failures_;     ///< the ranks whose own error, or an echo of it, was shown
  std::vector<std::string> untold_;  ///< the first echo that names no rank
  bool any_shown_ = false;
};

}  // namespace parx::detail
