// append_text: tokenises a text, and warns where it is not valid UTF-8.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <parx/core/log.hpp>
#include <parx/data/text/token_rows.hpp>
#include <parx/data/text/tokenizer.hpp>
#include <parx/data/text/unicode.hpp>

namespace parx::inline PARX_ABI::data {

/// Appends the ids of `text` to `ids`, and counts in `made` the pieces that the tokenizer drops
/// because they are not UTF-8. For the first such text a warning names `place`, such as
/// "train.csv", line 7; it is logged by the process that makes a cache, without a cache by rank 0.
template <tokenizer Tokenizer>
void append_text(token_rows_data& made, const Tokenizer& tokens, std::string_view text,
                 std::vector<token_id>& ids, const std::string& place) {
  const std::size_t dropped = append_ids(tokens, text, ids);
  if (dropped > 0 && made.counts.invalid == 0 && made.logs_warnings()) {
    log(log_level::warn,
        "{}: byte {} of the text is not UTF-8. Such pieces are dropped, here and further on; "
        "convert the text if it is in another encoding (iconv -f latin1 -t utf8)",
        place, find_invalid_utf8(text) + 1);
  }
  made.counts.invalid += dropped;
}

/// Warns about the pieces that were dropped in all texts of `source`, read from a cache or not.
inline void warn_of_invalid_utf8(const text_counts& counts, const std::string& source) {
  if (counts.invalid > 0)
    log0(log_level::warn, "{}: {} pieces are not UTF-8 and were dropped", source, counts.invalid);
}

}  // namespace parx::data
