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

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <parx/checkpoint/atomic_file.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/json.hpp>
#include <parx/trace/progress.hpp>
#include <parx/train/detail/append_file.hpp>
#include <parx/train/detail/log_lines.hpp>
#include <parx/train/options.hpp>
#include <parx/train/record.hpp>
#include <parx/train/tensorboard.hpp>

namespace parx::inline PARX_ABI::train {

namespace detail {

/// "20261121_143210", local time.
[[nodiscard]] inline std::string time_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y%m%d_%H%M%S", &local)};
}

/// A table whose columns are the names of its first line; other names in later lines are dropped.
class csv_table {
 public:
  csv_table() = default;
  /// If the file exists, continues it with its columns.
  explicit csv_table(const std::string& path) : file_(path) {
    std::ifstream present(path);
    std::string names;
    if (!std::getline(present, names)) return;
    std::stringstream cells(names);
    for (std::string name; std::getline(cells, name, ',');) columns_.push_back(name);
  }

  void append(const record& line) {
    std::string text;
    if (columns_.empty()) {
      for (const auto& [name, value] : line.entries()) columns_.push_back(name);
      text = formatted("{}\n", joined_text(columns_, ","));
    }
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const auto value = line.find(columns_[i]);
      text += formatted("{}{}", i > 0 ? "," : "", value ? formatted("{}", *value) : "");
    }
    file_.append(text + "\n");
  }

 private:
  append_file file_;
  std::vector<std::string> columns_;
};

/// The figures that the console shows: without timing details, except that data_wait_percent is
/// shown above late_loader_percent.
[[nodiscard]] inline record console_figures(const record& line) {
  record figures;
  for (const auto& [name, value] : line.entries()) {
    const bool is_for_files =
        name == "step_ms" || name == "eta_seconds" || name.ends_with("_wait_percent");
    const bool is_late = name == "data_wait_percent" && value > late_loader_percent;
    if (!is_for_files || is_late) figures.set(name, value);
  }
  return figures;
}

}  // namespace detail

class run_log {
 public:
  run_log() = default;
  /// Opens the files in options.output_dir, if there is one, and drops their lines after `step`.
  /// The bar, which may be null, must outlive the log. Throws errc::io.
  run_log(const trainer_options& options, progress* bar, std::uint64_t step)
      : console_(options.log_to_console), bar_(bar) {
    if (options.output_dir.empty()) return;
    folder_ = options.output_dir;
    for (const std::string name : file_names) {
      const auto last = detail::drop_lines_after(options.output_dir + "/" + name, step);
      if (name == "train.jsonl") seconds_before_ = detail::seconds_in(last);
    }
    lines_ = detail::append_file(options.output_dir + "/train.jsonl");
    ranks_ = detail::append_file(options.output_dir + "/ranks.jsonl");
    train_table_ = detail::csv_table(options.output_dir + "/train.csv");
    eval_table_ = detail::csv_table(options.output_dir + "/eval.csv");
    if (options.tensorboard) {
      events_ =
          std::make_unique<event_writer>(options.output_dir + "/runs/" + detail::time_stamp());
    }
  }

  /// Whether an earlier run has written lines into `folder`.
  [[nodiscard]] static bool has_lines(const std::string& folder) {
    return std::any_of(file_names.begin(), file_names.end(), [&](const char* name) {
      std::error_code missing;
      const auto bytes = std::filesystem::file_size(folder + "/" + name, missing);
      return !missing && bytes > 0;
    });
  }

  /// Deletes the files that earlier runs have written into `folder`: lines, tables and
  /// TensorBoard's events.
  static void clear(const std::string& folder) {
    std::error_code missing;
    for (const char* name : file_names) std::filesystem::remove(folder + "/" + name, missing);
    std::filesystem::remove(folder + "/run.json", missing);
    std::vector<std::filesystem::path> events;
    for (const auto& run : std::filesystem::directory_iterator(folder + "/runs", missing)) {
      std::error_code unreadable;
      for (const auto& file : std::filesystem::directory_iterator(run.path(), unreadable)) {
        if (event_writer::is_name(file.path().filename().string())) events.push_back(file.path());
      }
    }
    for (const auto& file : events) {
      std::filesystem::remove(file, missing);
      std::filesystem::remove(file.parent_path(), missing);  // fails unless the folder is empty
    }
  }

  enum class kind { train, eval };

  /// Writes a line of figures after `step` steps, `seconds` after the start; in the files the time
  /// of the runs before a resume is added. The console shows detail::console_figures of it, the
  /// files have all figures.
  void write(const record& line, kind what, std::uint64_t step, double seconds) {
    print(dict_text(detail::console_figures(line)));
    record whole{{"step", static_cast<double>(step)},
                 {"seconds", rounded(seconds_before_ + seconds, 6)}};
    for (const auto& [name, value] : line.entries()) whole.set(name, value);
    lines_.append(json::dump(to_json(whole)) + "\n");
    (what == kind::train ? train_table_ : eval_table_).append(whole);
    if (events_ == nullptr) return;
    const std::string_view group = what == kind::train ? "train" : "eval";
    for (const auto& [name, value] : line.entries()) {
      const bool repeats = name.rfind("eval_", 0) == 0;
      events_->scalar(formatted("{}/{}", group, repeats ? name.substr(5) : name), value, step);
    }
  }

  void keep_settings(const json::object& settings) {
    if (folder_.empty()) return;
    parx::detail::write_atomically(folder_ + "/run.json", json::dump(settings, 2) + "\n");
  }

  /// Writes the figures of each rank up to `step`.
  void write_ranks(const json::value& table, std::uint64_t step, double seconds) {
    if (!ranks_.is_open()) return;
    json::object line{{"step", step}, {"seconds", rounded(seconds_before_ + seconds, 6)}};
    for (const json::member& column : table.members()) line[column.key] = column.held;
    ranks_.append(json::dump(line) + "\n");
  }

  /// Prints a line on the console only.
  void print(std::string_view text) {
    if (!console_) return;
    if (bar_ != nullptr) return bar_->print(text);
    fmt::print("{}\n", text);
    std::fflush(stdout);
  }
  /// For TensorBoard's page "Text".
  void text(std::string_view tag, std::string_view markdown, std::uint64_t step) {
    if (events_ != nullptr) events_->text(tag, markdown, step);
  }

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

namespace parx::inline PARX_ABI::train::detail {

}  // namespace parx::train::detail

namespace parx::inline PARX_ABI::train {

}  // namespace parx::train
