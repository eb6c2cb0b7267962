// csv_reader: records of a CSV or TSV file, one at a time, plain or gzip.
//
// RFC 4180: a field in quotes may hold delimiters, line breaks and doubled quotes; lines end in LF
// or CRLF. Every record has as many fields as the first. Empty lines and a UTF-8 byte order mark
// are skipped; UTF-16 and NUL bytes are an error that names the encoding. Each error says line and
// field, counted from 1, lines as a text editor counts them. Memory is one record and one buffer,
// whatever the file's size. A reader belongs to one thread.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <parx/data/formats/gzip.hpp>

namespace parx::inline PARX_ABI::data {

/// Whether the first line names the columns; `absent`: it is a record, the columns are "0", "1".
enum class csv_header { present, absent };
/// `none`: a quote is an ordinary character, as in most TSV.
enum class csv_quotes { rfc4180, none };
/// Spaces around unquoted fields: `a, b` is "a" and " b" (keep), or "a" and "b" (strip).
enum class csv_spaces { keep, strip };

/// A csv_header; a bool is a compile-time error.
class csv_header_choice {
 public:
  constexpr csv_header_choice(csv_header choice) noexcept  // NOLINT(google-explicit-constructor)
      : choice_(choice) {}
  template <std::same_as<bool> Flag>
  constexpr csv_header_choice(Flag /*flag*/) {  // NOLINT(google-explicit-constructor)
    static_assert(std::is_void_v<Flag>,
                  "a file's header is csv_header::present or csv_header::absent");
  }
  constexpr operator csv_header() const noexcept { return choice_; }

 private:
  csv_header choice_ = csv_header::present;
};

struct csv_options {
  char delimiter = ',';
  csv_header_choice header = csv_header::present;
  csv_quotes quotes = csv_quotes::rfc4180;
  csv_spaces spaces = csv_spaces::keep;
};

/// Tab-separated values as they are commonly written: no quoting.
[[nodiscard]] constexpr csv_options tsv(csv_header header = csv_header::present) {
  return {.delimiter = '\t', .header = header, .quotes = csv_quotes::none};
}

class csv_reader {
 public:
  /// Opens `path` and reads its header, if it has one. Throws errc::io or errc::bad_data.
  explicit csv_reader(const std::string& path, csv_options options = {});

  /// Reads the next record into `fields`; false at the end of the file. Throws errc::bad_data for
  /// an unclosed quote, text after a closing quote, or another number of fields than the first
  /// record's.
  bool next(std::vector<std::string>& fields);

  /// The names of the header line; empty where the file has none.
  [[nodiscard]] const std::vector<std::string>& header() const noexcept { return header_; }

  /// The column called `name`; in a file without a header, a number from 0 as text ("0").
  /// Throws usage_error that lists the columns when there is none, or two.
  [[nodiscard]] std::size_t column(std::string_view name) const;

  /// The line on which the last record began.
  [[nodiscard]] std::uint64_t line() const noexcept { return record_line_; }
  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }

  /// `text`, field number `column` of the last record, as a finite number. Throws errc::bad_data
  /// with line and column when it is not one.
  [[nodiscard]] float number(std::string_view text, std::size_t column) const;

  /// "column 3 (age)", for messages.
  [[nodiscard]] std::string column_name(std::size_t column) const;

 private:
  static constexpr int end_of_file = -1;

  int peek();

  int take();

  /// Takes LF or CRLF, if the next character begins one.
  bool take_line_end();

  bool skip_empty_line() { return (peek() == '\n' || peek() == '\r') && take_line_end(); }

  void read_record(std::vector<std::string>& fields);

  bool begins_quoted();

  void read_plain(std::string& field);

  void read_quoted(std::string& field, std::size_t number);

  static std::string shown(char character);

  gzip_reader file_;
  csv_options options_;
  std::vector<std::string> header_;
  std::size_t width_ = 0;
  std::uint64_t line_ = 1;
  std::uint64_t record_line_ = 0;
  std::vector<char> buffer_ = std::vector<char>(std::size_t{1} << 16U);
  std::size_t position_ = 0;
  std::size_t filled_ = 0;
};

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/formats/detail/csv_impl.hpp>
#endif
