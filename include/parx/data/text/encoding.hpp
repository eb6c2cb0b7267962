// encoding: token ids as a model takes them: with special tokens, token types and attention mask.
//
// Names and rules are Hugging Face's: [CLS] a [SEP] or [CLS] a [SEP] b [SEP], types 0 and 1, mask 1
// for tokens and 0 for padding. Truncation as in the Rust library (utils/truncation.rs): with
// longest_first an odd token goes to the longer sequence, and to the second of two equally long
// ones (what of long texts counts: wordpiece.hpp). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <parx/data/text/vocabulary.hpp>

namespace parx::inline PARX_ABI::data {

struct encoding {
  std::vector<token_id> input_ids;
  std::vector<std::uint8_t> token_type_ids;  ///< 0 for the first sequence, 1 for the second
  std::vector<std::uint8_t> attention_mask;  ///< 1 for tokens, 0 for padding
  std::size_t truncated = 0;                 ///< tokens that were cut off
  std::size_t invalid = 0;                   ///< ill-formed pieces of UTF-8 that were dropped

  [[nodiscard]] std::size_t size() const noexcept { return input_ids.size(); }
};

/// What becomes of a text that is too long.
enum class truncation {
  longest_first,  ///< shorten the longer of a pair
  only_first,
  only_second,
  refuse,  ///< a sequence that is too long is an error
};
/// Whether short texts are filled up.
enum class padding { none, max_length };
/// Whether [CLS], [SEP] and their like are added.
enum class special_tokens { add, leave_out };

struct encode_options {
  std::size_t max_length = 0;  ///< tokens, special ones included; 0: no limit
  data::truncation truncation = truncation::longest_first;
  data::padding padding = padding::none;
  data::special_tokens special_tokens = special_tokens::add;
};

/// The lengths to which two sequences of `first` and `second` tokens are cut so that both together
/// have at most `limit`. Throws errc::bad_data where that cannot be done.
[[nodiscard]] std::pair<std::size_t, std::size_t> truncated_lengths(std::size_t first,
                                                                    std::size_t second,
                                                                    std::size_t limit,
                                                                    truncation how);

/// The ids of a tokenizer's special tokens; -1 where it has none.
struct special_ids {
  token_id start = -1;      ///< [CLS], <s>: before the first sequence
  token_id separator = -1;  ///< [SEP], </s>: after each sequence
  token_id pad = 0;         ///< [PAD]: masked, so any id will do
};

/// One sequence, or two where `second` is not null, as a model's input.
[[nodiscard]] encoding put_together(std::span<const token_id> first,
                                    const std::span<const token_id>* second,
                                    const special_ids& special, const encode_options& options);

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/text/detail/encoding_impl.hpp>
#endif
