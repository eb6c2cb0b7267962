// log_errors: the errors in a job's logs, with the lines around them. An echo is an error of a rank
// that only says that another one was lost or failed first. An error of parx says so in its tag
// (log.hpp); only of programs that are not parx's the words are searched. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/parx_slurm/logs/log_writer.hpp"

namespace parx::inline PARX_ABI::slurm {

/// A line that tells of a failure, and where it stands.
struct log_line {
  std::string file;
  std::size_t number = 0;  ///< from 1
  std::string text;
  log_writer writer = {};  ///< by the line or its file
};

/// The first error of a rank, or of a file's lines without a rank.
struct log_error {
  log_line line;
  bool is_echo = false;
  int lost = -1;                   ///< the rank that an echo names; -1: none
  std::deque<std::string> before;  ///< up to ten lines before it, never those of another rank
  std::deque<std::string> after;   ///< of its rank up to its last ten, else the next ten lines
};

namespace detail {

/// A line as it is shown: what a terminal would show of a progress bar, its last state, and no more
/// than fits into some lines.
[[nodiscard]] std::string shown_line(std::string_view line);

/// What tells of a failure: what the labs grep for, and what shells say.
inline constexpr std::array<std::string_view, 12> error_marks{"Traceback (most recent call last)",
                                                              "Error: ",
                                                              "ERROR",
                                                              "Segmentation fault",
                                                              "terminate called",
                                                              "Killed",
                                                              "Illegal instruction",
                                                              "core dumped",
                                                              "No space left on device",
                                                              "command not found",
                                                              "No such file or directory",
                                                              "Permission denied"};

/// What an echo of gloo, NCCL or MPI says.
inline constexpr std::array<std::string_view, 2> echo_marks{"Connection closed by peer",
                                                            "Connection reset by peer"};

[[nodiscard]] bool is_error(std::string_view line);

[[nodiscard]] bool is_echo(std::string_view line);

/// Whether it is the lines below that say what has happened.
[[nodiscard]] bool is_opening(std::string_view line);

/// The rank that an echo of parx names; else -1.
[[nodiscard]] int lost_rank(std::string_view line);

}  // namespace detail

class log_errors {
 public:
  using lines = std::deque<std::string>;

  /// The lines that follow are of `file`.
  void begin_file(const std::string& file) {
    file_ = file;
    own_.clear();
    echo_.clear();
    last_.clear();
    last_of_nobody_.clear();
  }

  /// Forgets the errors: the lines that follow are of another turn or generation.
  void begin_turn() {
    found_.clear();
    own_.clear();
    echo_.clear();
    error_lines_ = 0;
    last_of_rank_.clear();
    last_of_node_.clear();
  }

  /// A line of the program.
  void read(std::string_view line, std::size_t number, const log_writer& writer) {
    const int rank = writer.rank.value_or(-1);
    const bool echoes = detail::is_echo(line);
    for (auto* const each : {&own_, &echo_}) {
      const auto first = each->find(rank);
      if (first == each->end()) continue;
      lines& after = found_[first->second].after;
      if (rank >= 0 || after.size() < kept) keep(after, detail::shown_line(line));
    }
    const auto own = own_.find(rank);
    if (echoes && own != own_.end() && detail::is_opening(found_[own->second].line.text)) {
      log_error& error = found_[own->second];  // a traceback that ends in an echo
      error.is_echo = true;
      error.lost = detail::lost_rank(line);
      echo_.try_emplace(rank, own->second);
      own_.erase(own);
    }
    if (detail::is_error(line)) {
      ++error_lines_;
      if ((echoes ? echo_ : own_).try_emplace(rank, found_.size()).second) {
        found_.push_back({.line = {file_, number, detail::shown_line(line), writer},
                          .is_echo = echoes,
                          .lost = echoes ? detail::lost_rank(line) : -1,
                          .before = before(rank),
                          .after = {}});
      }
    }
    pass(line, writer);
  }

  /// A line that is no error of the program, whatever is in it.
  void pass(std::string_view line, const log_writer& writer) {
    const std::string shown = detail::shown_line(line);
    keep(last_, shown);
    keep(writer.rank ? last_of_rank_[*writer.rank] : last_of_nobody_, shown);
    if (!writer.node.empty()) keep(last_of_node_[writer.node], shown);
  }

  /// Of each rank its first own error and its first echo, in the order of the logs.
  [[nodiscard]] const std::vector<log_error>& found() const noexcept { return found_; }
  /// The first of them that is no echo; null where there is none.
  [[nodiscard]] const log_error* first_own() const noexcept {
    const auto own = std::find_if(found_.begin(), found_.end(),
                                  [](const log_error& each) { return !each.is_echo; });
    return own == found_.end() ? nullptr : &*own;
  }
  /// How many lines tell of an error.
  [[nodiscard]] std::size_t error_lines() const noexcept { return error_lines_; }
  /// The last ten lines of a rank, and of all ranks of a node.
  [[nodiscard]] lines last_of(int rank) const { return value_at(last_of_rank_, rank); }
  [[nodiscard]] lines last_of(const std::string& node) const {
    return value_at(last_of_node_, node);
  }

 private:
  static constexpr std::size_t kept = 10;

  static void keep(lines& some, const std::string& line) {
    if (some.size() < kept) {
      some.push_back(line);
      return;
    }
    std::string first = std::move(some.front());  // its memory takes the new line
    some.pop_front();
    first = line;
    some.push_back(std::move(first));
  }

  template <class K>
  [[nodiscard]] static lines value_at(const std::map<K, lines>& some, const K& key) {
    const auto found = some.find(key);
    return found == some.end() ? lines() : found->second;
  }

  [[nodiscard]] lines before(int rank) const {
    if (rank < 0) return last_;
    return last_of_rank_.contains(rank) ? last_of(rank) : last_of_nobody_;
  }

  std::vector<log_error> found_;
  std::size_t error_lines_ = 0;
  std::map<int, lines> last_of_rank_;
  std::map<std::string, lines> last_of_node_;
  // Of the present file; -1: its lines without a rank.
  std::string file_;
  std::map<int, std::size_t> own_;  ///< in found_
  std::map<int, std::size_t> echo_;
  lines last_;
  lines last_of_nobody_;
};

}  // namespace parx::slurm
