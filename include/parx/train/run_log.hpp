// run_log: writes the log lines of a run, on rank 0.
//
//   the console       {'loss': 1.2164, 'learning_rate': 4.5e-05, 'epoch': 0.21}, above the bar
//   train.jsonl       every line with its step and time, in full precision
//   train.csv         the training lines as a table; eval.csv the evaluations
//   ranks.jsonl       the figures of each rank, for the report
//   run.json          the settings, for the report
//   runs/<time>/      event files for TensorBoard
//
// All but run.json are appended to, so a resumed run continues them. A default-constructed log does
// nothing. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/json.hpp>
#include <parx/trace/progress.hpp>
#include <parx/train/detail/append_file.hpp>
#include <parx/train/options.hpp>
#include <parx/train/record.hpp>
#include <parx/train/tensorboard.hpp>

namespace parx::inline PARX_ABI::train {

namespace detail {

/// "20261121_143210", local time.
[[nodiscard]] std::string time_stamp();

/// A table whose columns are the names of its first line; other names in later lines are dropped.
class csv_table {
 public:
  csv_table() = default;
  /// If the file exists, continues it with its columns.
  explicit csv_table(const std::string& path);

  void append(const record& line);

 private:
  append_file file_;
  std::vector<std::string> columns_;
};

/// The figures that the console shows: without timing details, except that data_wait_percent is
/// shown above late_loader_percent.
[[nodiscard]] record console_figures(const record& line);

}  // namespace detail

class run_log {
 public:
  run_log() = default;
  /// Opens the files in options.output_dir, if there is one, and drops their lines after `step`.
  /// The bar, which may be null, must outlive the log. Throws errc::io.
  run_log(const trainer_options& options, progress* bar, std::uint64_t step);

  /// Whether an earlier run has written lines into `folder`.
  [[nodiscard]] static bool has_lines(const std::string& folder);

  /// Deletes the files that earlier runs have written into `folder`: lines, tables and
  /// TensorBoard's events.
  static void clear(const std::string& folder);

  enum class kind { train, eval };

  /// Writes a line of figures after `step` steps, `seconds` after the start; in the files the time
  /// of the runs before a resume is added. The console shows detail::console_figures of it, the
  /// files have all figures.
  void write(const record& line, kind what, std::uint64_t step, double seconds);

  void keep_settings(const json::object& settings);

  /// Writes the figures of each rank up to `step`.
  void write_ranks(const json::value& table, std::uint64_t step, double seconds);

  /// Prints a line on the console only.
  void print(std::string_view text);
  /// For TensorBoard's page "Text".
  void text(std::string_view tag, std::string_view markdown, std::uint64_t step);

 private:
  static constexpr std::array<const char*, 4> file_names{"train.jsonl", "ranks.jsonl", "train.csv",
                                                         "eval.csv"};

  bool console_ = false;
  std::string folder_;
  double seconds_before_ = 0;  // the time of the last line kept from earlier runs
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
