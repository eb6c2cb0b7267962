// Definitions of run_log.hpp.
#pragma once

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include <parx/checkpoint/atomic_file.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/train/detail/log_lines.hpp>
#include <parx/train/run_log.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE std::string time_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y%m%d_%H%M%S", &local)};
}

PARX_INLINE csv_table::csv_table(const std::string& path) : file_(path) {
  std::ifstream present(path);
  std::string names;
  if (!std::getline(present, names)) return;
  std::stringstream cells(names);
  for (std::string name; std::getline(cells, name, ',');) columns_.push_back(name);
}

PARX_INLINE void csv_table::append(const record& line) {
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

PARX_INLINE record console_figures(const record& line) {
  record figures;
  for (const auto& [name, value] : line.entries()) {
    const bool is_for_files =
        name == "step_ms" || name == "eta_seconds" || name.ends_with("_wait_percent");
    const bool is_late = name == "data_wait_percent" && value > late_loader_percent;
    if (!is_for_files || is_late) figures.set(name, value);
  }
  return figures;
}

}  // namespace parx::train::detail

namespace parx::inline PARX_ABI::train {

PARX_INLINE bool run_log::has_lines(const std::string& folder) {
  return std::any_of(file_names.begin(), file_names.end(), [&](const char* name) {
    std::error_code missing;
    const auto bytes = std::filesystem::file_size(folder + "/" + name, missing);
    return !missing && bytes > 0;
  });
}

PARX_INLINE void run_log::keep_settings(const json::object& settings) {
  if (folder_.empty()) return;
  parx::detail::write_atomically(folder_ + "/run.json", json::dump(settings, 2) + "\n");
}

PARX_INLINE void run_log::write_ranks(const json::value& table, std::uint64_t step,
                                      double seconds) {
  if (!ranks_.is_open()) return;
  json::object line{{"step", step}, {"seconds", rounded(seconds_before_ + seconds, 6)}};
  for (const json::member& column : table.members()) line[column.key] = column.held;
  ranks_.append(json::dump(line) + "\n");
}

PARX_INLINE void run_log::print(std::string_view text) {
  if (!console_) return;
  if (bar_ != nullptr) return bar_->print(text);
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

PARX_INLINE void run_log::text(std::string_view tag, std::string_view markdown,
                               std::uint64_t step) {
  if (events_ != nullptr) events_->text(tag, markdown, step);
}

PARX_INLINE run_log::run_log(const trainer_options& options, progress* bar, std::uint64_t step)
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
    events_ = std::make_unique<event_writer>(options.output_dir + "/runs/" + detail::time_stamp());
  }
}

PARX_INLINE void run_log::clear(const std::string& folder) {
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

PARX_INLINE void run_log::write(const record& line, kind what, std::uint64_t step, double seconds) {
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

}  // namespace parx::train
