// read: rows of a CSV or LibSVM file, or of a folder of such files, as a table; .gz too.
//
//   const auto mine = parx::trees::read(world, "higgs.csv", {.label = 0});  // this rank's part
//   const auto all = parx::trees::read("adult.csv", {.label = "income", .classes = {"no", "yes"},
//                                                    .categorical = {"job", "country"}});
//   const auto test = parx::trees::read("adult.test", {.label = "income", .like = &all});
//
// The ranks' parts follow each other in the order of the file, so that a row has the same number at
// any number of ranks. A plain file is cut by bytes, and each rank reads its part alone; a gzip
// file and one with queries are cut by rows, for which each rank reads through all of it; the files
// of a folder, in alphabetical order, are dealt out whole. A rank may get no rows.
//
// A line is a record: a quoted field ends on its line. A LibSVM line is
//   label[:weight] [qid:query] column:value ...  # comment
// with columns from 0 on, as they are; a column that a line does not name is missing there.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/comm/process_group.hpp>
#include <parx/trees/table.hpp>

namespace parx::inline PARX_ABI::trees {

/// automatic: LibSVM where the first line is, `label column:value ...`.
enum class file_format { automatic, csv, libsvm };
/// automatic: the first line of a CSV names the columns if no field of it is a number.
enum class header_line { automatic, present, absent };

/// A column of a CSV by its number, from 0 on, or by its name in the header line.
struct file_column {
  file_column(int given) : number(given) {}                               // NOLINT(*-explicit-*)
  file_column(std::string given) : number(-1), name(std::move(given)) {}  // NOLINT(*-explicit-*)
  file_column(const char* given) : number(-1), name(given) {}             // NOLINT(*-explicit-*)

  int number;        ///< -1: by name
  std::string name;  ///< "": by number
};

/// Of a CSV, unless said. All columns that are named for nothing else are the table's, in order.
struct read_options {
  file_format format = file_format::automatic;
  char delimiter = '\0';  ///< '\0': a tab where the first line has one, else a comma
  header_line header = header_line::automatic;
  std::optional<file_column> label = file_column(0);  ///< nullopt: the rows have none
  /// The label's texts, class 0 first, a full stop behind them aside; empty: labels are numbers.
  std::vector<std::string> classes = {};
  std::optional<file_column> weight = {};
  std::optional<file_column> query = {};  ///< a text; the rows of a query follow each other
  std::vector<file_column> ignore = {};
  /// Their texts, in alphabetical order over all ranks, get the codes 0, 1, ...; whole numbers stay
  /// as they are.
  std::vector<file_column> categorical = {};
  std::vector<std::string> missing = {"", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "?"};
  /// CSV and LibSVM: a file with the number of rows of each query, a line each; "": none.
  std::string query_file = {};
  /// A table whose columns these are: kinds and categories are its own. A text that is none of its
  /// categories is missing.
  const table* like = nullptr;
};

/// Local. All rows of `path`, a file or a folder. Throws errc::io, or errc::bad_data with file,
/// line and column; usage_error for a column that the file does not have.
[[nodiscard]] table read(const std::string& path, const read_options& options = {});

/// Collective. The part of this rank. Throws on all ranks, or on none.
[[nodiscard]] table read(process_group& group, const std::string& path,
                         const read_options& options = {});

}  // namespace parx::trees

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/trees/detail/read_impl.hpp>
#endif
