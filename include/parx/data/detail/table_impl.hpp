// Definitions of table.hpp.
#pragma once

#include <parx/core/joined_text.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/data/table.hpp>

namespace parx::inline PARX_ABI::data::detail {

PARX_INLINE std::int64_t read_class(const csv_reader& file, const std::string& text,
                                    std::size_t column, const std::vector<std::string>& classes) {
  if (!classes.empty()) {
    const auto found = std::find(classes.begin(), classes.end(), text);
    if (found != classes.end()) return found - classes.begin();
    throw_error(errc::bad_data, "\"{}\", line {}, {}: \"{}\" is none of the classes {}.",
                file.path(), file.line(), file.column_name(column), text, joined_text(classes));
  }
  const auto number = parx::detail::parse_number<std::int64_t>(text);
  if (number && *number >= 0) return *number;
  throw_error(
      errc::bad_data,
      "\"{}\", line {}, {}: \"{}\" is not a class number 0, 1, 2, .... Name the texts of the "
      "classes in table_options::classes, or read numbers to predict: read_table<float>.",
      file.path(), file.line(), file.column_name(column), text);
}

}  // namespace parx::data::detail
