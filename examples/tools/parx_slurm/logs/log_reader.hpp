// log_reader: reads a log into a summary, as it comes from a file. Pure.
//
// A log may have gigabytes, and few of its lines tell anything. So it is taken in blocks, and where
// neither a block nor its neighbours have a line that does, its lines are only counted. The first
// blocks, in which the ranks begin, and the last ones, which have each rank's last lines, are read
// in any case.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/parx_slurm/logs/log_summary.hpp"
#include "tools/parx_slurm/logs/text_marks.hpp"

namespace parx::inline PARX_ABI::slurm {

class log_reader {
 public:
  /// A turn that begins in the log forgets the errors of the one before it. `report` is parxrun's
  /// of the generation whose log this is, where there is one.
  log_reader(const std::string& file, log_summary& summary,
             const generation_report* report = nullptr)
      : summary_(summary), of_file_(writer_of_file(file, report)) {
    summary.errors.begin_file(file);
    if (report != nullptr) add_report(*report, summary);
  }
  log_reader(const log_reader&) = delete;
  log_reader& operator=(const log_reader&) = delete;

  /// The next bytes, in pieces of any size.
  void read(std::string_view bytes) {
    const bool has_line = bytes.find('\n') != bytes.npos;
    begun_ += bytes;
    if (begun_.size() < block_bytes || (!has_line && begun_.size() < longest_line)) return;
    const std::size_t size = has_line ? begun_.rfind('\n') + 1 : begun_.size();
    std::string rest = begun_.substr(size);
    begun_.resize(size);
    add_block(std::exchange(begun_, std::move(rest)));
  }

  /// Its end has come.
  void end() {
    if (!begun_.empty()) add_block(std::exchange(begun_, {}));
    for (const block& each : waiting_) read_lines(each.text);
    waiting_.clear();
  }

 private:
  static constexpr std::size_t block_bytes = std::size_t{1} << 20;
  static constexpr std::size_t longest_line = 16 * block_bytes;
  static constexpr std::size_t first_blocks = 4;
  static constexpr std::size_t last_blocks = 8;

  struct block {
    std::string text;  ///< whole lines
    bool tells = false;
  };

  [[nodiscard]] static bool tells(std::string_view text) {
    static const text_marks marks = [] {
      std::vector<std::string_view> all{
          " of job ", "parxrun: ", "srun: ", "slurmstepd", "sbatch: ", log_line_error};
      all.insert(all.end(), detail::error_marks.begin(), detail::error_marks.end());
      all.insert(all.end(), detail::echo_marks.begin(), detail::echo_marks.end());
      return text_marks(all);
    }();
    return marks.any_in(text);
  }

  void add_block(std::string text) {
    const bool told = tells(text);
    waiting_.push_back({std::move(text), told});
    if (waiting_.size() <= last_blocks) return;
    const block first = std::move(waiting_.front());
    waiting_.pop_front();
    if (blocks_ < first_blocks || before_tells_ || first.tells || waiting_.front().tells) {
      read_lines(first.text);
    } else {
      const auto lines =
          static_cast<std::size_t>(std::count(first.text.begin(), first.text.end(), '\n'));
      number_ += lines;
      summary_.lines += lines;
    }
    ++blocks_;
    before_tells_ = first.tells;
  }

  void read_lines(std::string_view text) {
    while (!text.empty()) {
      const auto end = std::min(text.find('\n'), text.size());
      read_line(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }

  void read_line(std::string_view line) {
    ++number_;
    ++summary_.lines;
    const bool begins_turn = line.starts_with("turn ") && line.find(" of job ") != line.npos;
    if (begins_turn) {
      ++summary_.turns;
      begin_anew();
      summary_.slurm_lines.clear();
      summary_.launcher_lines.clear();
      summary_.survived.clear();
      summary_.earlier_error.reset();
      in_report_ = false;
    }
    if (auto outcome = outcome_of_line(line)) return read_outcome(std::move(*outcome));
    log_writer writer = writer_of_line(line);
    summary_.nodes.read(line, writer);
    if (!writer.rank || (writer.rank == of_file_.rank && writer.node.empty())) writer = of_file_;
    if (writer.rank) summary_.ranks.insert(*writer.rank);
    note_size(detail::number_behind(line, "WORLD_SIZE=").value_or(0));
    const bool of_slurm = detail::is_slurm_line(line);
    // parxrun's report: its first line, and the lines below it that are indented.
    const bool headline = line.starts_with("parxrun: ");
    in_report_ = headline || (in_report_ && line.starts_with(" "));
    if (of_slurm) {
      summary_.slurm_lines.push_back(detail::shown_line(line));
    } else if (in_report_) {
      summary_.launcher_lines.push_back(detail::shown_line(line));
    } else {
      return summary_.errors.read(line, number_, writer);
    }
    summary_.errors.pass(line, writer);
  }

  void read_outcome(job_outcome outcome) {
    in_report_ = false;
    note_size(outcome.world_size);
    if (!outcome.goes_on) {
      summary_.outcome = std::move(outcome);
      return;
    }
    if (const log_error* const own = summary_.errors.first_own()) {
      summary_.earlier_error = own->line;
    }
    if (static_cast<std::size_t>(outcome.restarts) > summary_.survived.size()) {
      summary_.survived.push_back(
          outcome.rank < 0
              ? outcome.why
              : formatted("{}: {}", name_of({outcome.rank, outcome.node}), outcome.why));
    }
    begin_anew();
  }
  void begin_anew() {
    summary_.errors.begin_turn();
    summary_.nodes = {};
    summary_.outcome.reset();
  }
  void note_size(int size) {
    if (size <= most_ranks) summary_.world_size = std::max(summary_.world_size, size);
  }

  log_summary& summary_;
  log_writer of_file_;
  std::string begun_;          ///< up to a block
  std::deque<block> waiting_;  ///< the last blocks, which may be the log's last ones
  std::size_t blocks_ = 0;     ///< before them
  bool before_tells_ = false;  ///< the last one of these
  std::size_t number_ = 0;     ///< of the line
  bool in_report_ = false;
};

/// Reads one more log, a whole text, into `summary`.
void read_log(std::string_view text, const std::string& file, log_summary& summary,
              const generation_report* report = nullptr);

}  // namespace parx::slurm
