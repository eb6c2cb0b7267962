// source_target: a source text and its target text, before tokenisation. One thread.
#pragma once

#include <string>
#include <vector>

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
[[nodiscard]] std::vector<source_target> read_source_targets(
    const std::string& path, const source_target_options& options = {});

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/detail/source_target_impl.hpp>
#endif
