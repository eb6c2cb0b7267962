// run_log: where the lines of a run go, on rank 0.
//
//   the console       {'loss': 1.2164, 'learning_rate': 4.5e-05, 'epoch': 0.21}, above the bar
//   train.jsonl       every line with its step and time, exact
//   train.csv         the training lines as a table; eval.csv the evaluations
//   ranks.jsonl       what each rank did, for the report
//   runs/<time>/      event files for TensorBoard
//
// All append, so a run that is resumed goes on in the same files. An inactive log does nothing. One
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/json.hpp>
#include <parx/trace/progress.hpp>
#include <parx/train/detail/append_file.hpp>
#include <parx/train/detail/log_lines.hpp>
#include <parx/train/options.hpp>
#include <parx/train/record.hpp>
#include <parx/train/tensorboard.hpp>

namespace parx::inline PARX_ABI::train {

namespace detail {

/// A table whose columns are those of its first line; what later lines have beside them is left
/// out.
class csv_table {
 public:
  csv_table() = default;
  /// Goes on with the columns of a table that is there.
  explicit csv_table(const std::string& path);

  void append(const record& line);

 private:
  append_file file_;
  std::vector<std::string> columns_;
};

/// The figures that people read line by line, and how late the loader is where it is.
[[nodiscard]] record spoken(const record& line);

}  // namespace detail

class run_log {
 public:
  run_log() = default;
  /// Opens the files in options.output_dir, where one is given, and goes on after `step`. A bar, if
  /// there is one, must outlive it. Throws errc::io.
  run_log(const trainer_options& options, progress* bar, std::uint64_t step);

  /// Whether an earlier run has written lines into `folder`.
  [[nodiscard]] static bool has_lines(const std::string& folder);

  /// Deletes what earlier runs have written into `folder`: lines, tables and TensorBoard's events.
  static void clear(const std::string& folder);

  enum class kind { train, eval };

  /// A line of figures after `step` steps, `seconds` after the start; in the files the time of the
  /// runs before a resume is added. The console gets what detail::spoken leaves, the files all.
  void write(const record& line, kind what, std::uint64_t step, double seconds);

  /// What each rank did up to `step`.
  void write_ranks(const json::value& table, std::uint64_t step, double seconds);

  /// A line for people alone.
  void print(std::string_view text);
  /// For TensorBoard's page "Text".
  void text(std::string_view tag, std::string_view markdown, std::uint64_t step) {
    if (events_ != nullptr) events_->text(tag, markdown, step);
  }

 private:
  static constexpr std::array<const char*, 4> file_names{"train.jsonl", "ranks.jsonl", "train.csv",
                                                         "eval.csv"};

  bool console_ = false;
  double seconds_before_ = 0;  // that the lines kept from earlier runs span
  progress* bar_ = nullptr;
  detail::append_file lines_;
  detail::append_file ranks_;
  detail::csv_table train_table_;
  detail::csv_table eval_table_;
  std::unique_ptr<event_writer> events_;
};

}  // namespace parx::train

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/run_log_impl.hpp>
#endif
