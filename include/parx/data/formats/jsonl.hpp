// jsonl_reader: reads a file of JSON values, one per line, plain or gzip.
//
// Strict JSON, UTF-8; empty lines are skipped. Each error names file, line and column. A reader
// belongs to one thread. Source: jsonlines.org.
#pragma once

#include <cstdint>
#include <string>

#include <parx/core/error.hpp>
#include <parx/core/json.hpp>
#include <parx/data/formats/lines.hpp>

namespace parx::inline PARX_ABI::data {

class jsonl_reader {
 public:
  /// Opens `path`. Throws errc::io.
  explicit jsonl_reader(const std::string& path) : lines_(path) {}

  /// Reads the next value; false after the last. Throws errc::bad_data where a line is not JSON.
  bool next(json::value& row) {
    while (lines_.next(line_)) {
      if (line_.find_first_not_of(" \t") == std::string::npos) continue;
      try {
        row = json::parse(line_);
      } catch (const json::error& failure) {
        throw_error(errc::bad_data, "\"{}\", line {}: not JSON: {} of this line.", path(), line(),
                    failure.what());
      }
      return true;
    }
    return false;
  }

  /// The number of the last line read, counted from 1.
  [[nodiscard]] std::uint64_t line() const noexcept { return lines_.number(); }
  [[nodiscard]] const std::string& path() const noexcept { return lines_.path(); }

 private:
  line_reader lines_;
  std::string line_;
};

}  // namespace parx::data
