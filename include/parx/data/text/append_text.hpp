// append_text: a text's tokens on their way into rows, and a word where it is no UTF-8.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <parx/core/log.hpp>
#include <parx/data/text/token_rows.hpp>
#include <parx/data/text/tokenizer.hpp>
#include <parx/data/text/unicode.hpp>

namespace parx::inline PARX_ABI::data {

/// Appends the ids of `text` to `ids` and counts in `made` what of it the tokenizer drops because
/// it is no UTF-8; for the first such text a warning names `place`, as "train.csv", line 7, by who
/// makes the rows alone, or else by rank 0.
template <tokenizer Tokenizer>
void append_text(token_rows_data& made, const Tokenizer& tokens, std::string_view text,
                 std::vector<token_id>& ids, const std::string& place) {
  const std::size_t dropped = append_ids(tokens, text, ids);
  if (dropped > 0 && made.counts.invalid == 0 && made.tells()) {
    log(log_level::warn,
        "{}: byte {} of the text is no UTF-8. Such pieces are dropped, here and further on; "
        "convert the text if it is in another encoding (iconv -f latin1 -t utf8)",
        place, find_invalid_utf8(text) + 1);
  }
  made.counts.invalid += dropped;
}

/// After all texts of `source`, those of a cache too.
inline void tell_what_was_dropped(const text_counts& counts, const std::string& source) {
  if (counts.invalid > 0)
    log0(log_level::warn, "{}: {} pieces are no UTF-8 and were dropped", source, counts.invalid);
}

}  // namespace parx::data
