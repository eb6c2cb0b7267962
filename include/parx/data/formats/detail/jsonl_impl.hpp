// Definitions of jsonl.hpp.
#pragma once

#include <parx/core/error.hpp>
#include <parx/data/formats/jsonl.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE bool jsonl_reader::next(json::value& row) {
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

}  // namespace parx::data
