// rows_of_file: which rows of which file a rank reads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <parx/core/error.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/printable.hpp>
#include <parx/data/formats/lines.hpp>
#include <parx/trees/detail/file_layout.hpp>

namespace parx::inline PARX_ABI::trees::detail {

inline constexpr std::int64_t any_row = std::numeric_limits<std::int64_t>::max();

/// The rows of a file that a rank reads: those whose lines begin at bytes first_byte ...
/// end_byte - 1, or those with the numbers first_row ... end_row - 1 in the file.
struct rows_of_file {
  std::uint64_t first_byte = 0;
  std::uint64_t end_byte = std::numeric_limits<std::uint64_t>::max();
  std::int64_t first_row = 0;
  std::int64_t end_row = any_row;
};

/// Calls row(line, line number) for the rows of a part; the header line and empty lines are none.
template <typename Row>
void for_each_line(const std::string& path, const file_layout& layout, const rows_of_file& part,
                   const Row& row) {
  data::line_reader lines(path);
  lines.skip_to(part.first_byte);
  std::string line;
  bool before_header = layout.has_header && part.first_byte == 0;
  std::int64_t number = 0;
  while (number < part.end_row && lines.offset() < part.end_byte && lines.next(line)) {
    std::string_view text = line;
    if (layout.is_libsvm) text = text.substr(0, text.find('#'));
    if (without_blanks(text).empty()) continue;
    if (std::exchange(before_header, false)) continue;
    if (number++ >= part.first_row) row(text, lines.number());
  }
}

/// The files of a folder in alphabetical order, or `path` itself.
[[nodiscard]] inline std::vector<std::string> files_of(const std::string& path) {
  std::error_code failure;
  if (!std::filesystem::is_directory(path, failure)) return {path};
  std::vector<std::string> files;
  for (auto each = std::filesystem::directory_iterator(path, failure);
       !failure && each != std::filesystem::directory_iterator(); each.increment(failure)) {
    const std::string name = each->path().filename().string();
    if (each->is_regular_file() && !name.starts_with('.')) files.push_back(each->path().string());
  }
  if (failure) throw_error(errc::io, "cannot list \"{}\": {}", path, failure.message());
  if (files.empty()) throw_error(errc::bad_data, "\"{}\" is a folder without files", path);
  std::sort(files.begin(), files.end());
  return files;
}

/// Where the queries of a query file begin, and the number of all their rows.
[[nodiscard]] inline std::vector<std::int64_t> read_query_file(const std::string& path) {
  data::line_reader lines(path);
  std::vector<std::int64_t> begins{0};
  for (std::string line; lines.next(line);) {
    if (without_blanks(line).empty()) continue;
    const auto count = parx::detail::parse_number<std::int64_t>(without_blanks(line));
    if (!count || *count < 1) {
      throw_error(errc::bad_data, "\"{}\", line {}: \"{}\" is not the number of a query's rows",
                  path, lines.number(), printable(line.substr(0, 80)));
    }
    begins.push_back(begins.back() + *count);
  }
  return begins;
}

/// The text that names the query of a line; "" for none.
[[nodiscard]] inline std::string query_of(std::string_view text, const file_layout& layout) {
  if (layout.is_libsvm) {
    const std::size_t at = text.find("qid:");
    if (at == text.npos) return "";
    return std::string(text.substr(at, text.find_first_of(" \t", at) - at));
  }
  field_splitter splitter(layout.delimiter);
  std::vector<std::string_view> fields;
  if (!splitter.split(text, fields) || *layout.query >= fields.size()) return "";
  return std::string(fields[*layout.query]);
}

/// The rows of a file at which a rank's part may begin: all (empty), or the first ones of queries.
struct row_plan {
  std::int64_t rows = 0;
  std::vector<std::int64_t> begins{};

  /// Where part `index` of `count` begins.
  [[nodiscard]] std::int64_t cut(int index, int count) const {
    const std::int64_t even = rows / count * index + rows % count * index / count;
    if (begins.empty() || even == rows) return even;
    return *std::lower_bound(begins.begin(), begins.end(), even);
  }
};

/// Reads through a file for its rows, and for the queries that they name.
[[nodiscard]] inline row_plan plan_rows(const std::string& path, const file_layout& layout) {
  row_plan plan;
  std::string query;
  for_each_line(path, layout, {}, [&](std::string_view text, std::uint64_t) {
    if (layout.has_query) {
      std::string next = query_of(text, layout);
      if (!next.empty() && (plan.rows == 0 || next != query)) plan.begins.push_back(plan.rows);
      query = std::move(next);
    }
    ++plan.rows;
  });
  if (!plan.begins.empty()) plan.begins.push_back(plan.rows);
  return plan;
}

/// The part of rank `rank` of `ranks`; `begins` are those of the query file, if there is one.
[[nodiscard]] inline rows_of_file part_of(const std::string& path, const file_layout& layout,
                                       const std::vector<std::int64_t>& begins, int rank,
                                       int ranks) {
  if (ranks == 1 && begins.empty()) return {};
  data::line_reader file(path);
  std::string first;
  (void)file.next(first);  // what the file is, is known once something was read
  if (file.is_plain() && !layout.has_query && begins.empty()) {
    const auto size = static_cast<std::uint64_t>(std::filesystem::file_size(path));
    const auto parts = static_cast<std::uint64_t>(ranks), index = static_cast<std::uint64_t>(rank);
    const auto cut = [&](std::uint64_t i) { return size / parts * i + size % parts * i / parts; };
    return {.first_byte = cut(index), .end_byte = cut(index + 1)};
  }
  row_plan plan = plan_rows(path, layout);
  if (!begins.empty()) {
    if (begins.back() != plan.rows) {
      throw_error(errc::bad_data, "\"{}\" has {} rows, the queries of the query file have {}", path,
                  plan.rows, begins.back());
    }
    plan.begins = begins;
  }
  return {.first_row = plan.cut(rank, ranks), .end_row = plan.cut(rank + 1, ranks)};
}

}  // namespace parx::trees::detail
