// source_target: a source text and its target text, before tokenisation. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/error.hpp>
#include <parx/core/log.hpp>
#include <parx/core/source.hpp>
#include <parx/data/text/records.hpp>

namespace parx::inline PARX_ABI::data {

struct source_target {
  std::string source;
  std::string target;
};

struct source_target_options {
  std::string source = "source";  ///< columns, as text_records names them
  std::string target = "target";
  csv_header header = csv_header::absent;
  text_format format = text_format::by_name;
};

/// All pairs of a file. Those with nothing but spaces on one side are left out, and counted in a
/// warning. Throws as text_records does, and errc::bad_data where no pair is left.
[[nodiscard]] inline std::vector<source_target> read_source_targets(
    const std::string& path, const source_target_options& options = {},
    call_site = call_site::current()) {
  const auto is_blank = [](std::string_view text) {
    return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
  };
  text_records file(path, {options.source, options.target}, options.format, options.header);
  std::vector<source_target> pairs;
  std::size_t blank = 0;
  for (std::vector<std::string> fields; file.next(fields);) {
    if (is_blank(fields[0]) || is_blank(fields[1])) {
      ++blank;
    } else {
      pairs.push_back({std::move(fields[0]), std::move(fields[1])});
    }
  }
  if (pairs.empty())
    throw_error(errc::bad_data,
                "\"{}\" has no pairs: in all of its {} records \"{}\" or \"{}\" is empty.", path,
                blank, options.source, options.target);
  if (blank > 0)
    log0(log_level::warn, "\"{}\": {} of {} pairs are left out, since \"{}\" or \"{}\" is empty",
         path, blank, blank + pairs.size(), options.source, options.target);
  return pairs;
}

}  // namespace parx::data
