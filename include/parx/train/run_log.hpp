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

#include <fmt/ranges.h>

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
      text = fmt::format("{}\n", fmt::join(columns_, ","));
    }
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const auto value = line.find(columns_[i]);
      text += fmt::format("{}{}", i > 0 ? "," : "", value ? fmt::format("{}", *value) : "");
    }
    file_.append(text + "\n");
  }

 private:
  append_file file_;
  std::vector<std::string> columns_;
};

/// The figures that people read line by line, and how late the loader is where it is.
[[nodiscard]] inline record spoken(const record& line) {
  record figures;
  for (const auto& [name, value] : line.entries()) {
    const bool is_for_files =
        name == "step_ms" || name == "eta_seconds" || name.ends_with("_wait_percent");
    const bool is_late = name == "data_wait_percent" && value > late_loader_percent;
    if (!is_for_files || is_late) figures.set(name, value);
  }
  return figures;
}

/// "20261121_143210", local time.
[[nodiscard]] inline std::string time_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y%m%d_%H%M%S", &local)};
}

}  // namespace detail

class run_log {
 public:
  run_log() = default;
  /// Opens the files in options.output_dir, where one is given, and goes on after `step`. A bar, if
  /// there is one, must outlive it. Throws errc::io.
  run_log(const trainer_options& options, progress* bar, std::uint64_t step)
      : console_(options.log_to_console), bar_(bar) {
    if (options.output_dir.empty()) return;
    for (const std::string name : file_names) {
      const auto last = detail::forget_after(options.output_dir + "/" + name, step);
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

  /// Deletes what earlier runs have written into `folder`: lines, tables and TensorBoard's events.
  static void clear(const std::string& folder) {
    std::error_code missing;
    for (const char* name : file_names) std::filesystem::remove(folder + "/" + name, missing);
    std::vector<std::filesystem::path> events;
    for (const auto& run : std::filesystem::directory_iterator(folder + "/runs", missing)) {
      std::error_code unreadable;
      for (const auto& file : std::filesystem::directory_iterator(run.path(), unreadable)) {
        if (event_writer::is_name(file.path().filename().string())) events.push_back(file.path());
      }
    }
    for (const auto& file : events) {
      std::filesystem::remove(file, missing);
      std::filesystem::remove(file.parent_path(), missing);  // where nothing else is in it
    }
  }

  enum class kind { train, eval };

  /// A line of figures after `step` steps, `seconds` after the start; in the files the time of the
  /// runs before a resume is added. The console gets what detail::spoken leaves, the files all.
  void write(const record& line, kind what, std::uint64_t step, double seconds) {
    print(dict_text(detail::spoken(line)));
    record whole{{"step", static_cast<double>(step)},
                 {"seconds", rounded(seconds_before_ + seconds, 6)}};
    for (const auto& [name, value] : line.entries()) whole.set(name, value);
    lines_.append(json::dump(to_json(whole)) + "\n");
    (what == kind::train ? train_table_ : eval_table_).append(whole);
    if (events_ == nullptr) return;
    const std::string_view group = what == kind::train ? "train" : "eval";
    for (const auto& [name, value] : line.entries()) {
      const bool repeats = name.rfind("eval_", 0) == 0;
      events_->scalar(fmt::format("{}/{}", group, repeats ? name.substr(5) : name), value, step);
    }
  }

  /// What each rank did up to `step`.
  void write_ranks(const json::value& table, std::uint64_t step, double seconds) {
    if (!ranks_.is_open()) return;
    json::object line{{"step", step}, {"seconds", rounded(seconds_before_ + seconds, 6)}};
    for (const json::member& column : table.members()) line[column.key] = column.held;
    ranks_.append(json::dump(line) + "\n");
  }

  /// A line for people alone.
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
  double seconds_before_ = 0;  // that the lines kept from earlier runs span
  progress* bar_ = nullptr;
  detail::append_file lines_;
  detail::append_file ranks_;
  detail::csv_table train_table_;
  detail::csv_table eval_table_;
  std::unique_ptr<event_writer> events_;
};

}  // namespace parx::train
