// A vocabulary of eleven tokens, and four labelled texts to read with it.
#pragma once

#include <string_view>

#include <parx/data/text/wordpiece.hpp>

namespace parx_test {

inline parx::data::wordpiece_tokenizer small() {
  return parx::data::wordpiece_tokenizer(parx::data::vocabulary(
      {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "##a", "e"}));
}

/// As AG News has them: label, title, text.
inline constexpr std::string_view news =
    "\"1\",\"a b\",\"c\"\n\"2\",\"a\",\"b c d a b\"\n\"3\",\"d\",\"\"\n\"4\",\"e e\",\"e\"\n";

}  // namespace parx_test
