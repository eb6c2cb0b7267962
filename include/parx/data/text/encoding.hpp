// encoding: token ids as a model takes them: special tokens around, token types, attention mask.
//
// The words and the rules are Hugging Face's: [CLS] a [SEP] or [CLS] a [SEP] b [SEP], types 0 and
// 1, mask 1 for tokens and 0 for padding. Truncation as in the Rust library (utils/truncation.rs):
// with longest_first an odd token goes to the longer sequence, and to the second of two equally
// long ones. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
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

enum class truncation {
  longest_first,  ///< shorten the longer of a pair
  only_first,
  only_second,
  refuse,  ///< a sequence that is too long is an error
};
enum class padding { none, max_length };
enum class special_tokens { add, leave_out };

struct encode_options {
  std::size_t max_length = 0;  ///< tokens, special ones included; 0: no limit
  data::truncation truncation = truncation::longest_first;
  data::padding padding = padding::none;
  data::special_tokens special_tokens = special_tokens::add;
};

/// The lengths to which two sequences of `first` and `second` tokens are cut so that both together
/// have at most `limit`. Throws errc::bad_data where that cannot be done.
[[nodiscard]] inline std::pair<std::size_t, std::size_t> truncated_lengths(std::size_t first,
                                                                           std::size_t second,
                                                                           std::size_t limit,
                                                                           truncation how) {
  if (first + second <= limit) return {first, second};
  const std::size_t excess = first + second - limit;
  switch (how) {
    case truncation::only_first:
      if (excess <= first) return {first - excess, second};
      break;
    case truncation::only_second:
      if (excess <= second) return {first, second - excess};
      break;
    case truncation::longest_first: {
      const std::size_t shorter = std::min(first, second);
      if (shorter > limit / 2)
        return {limit / 2 + (first > second ? limit % 2 : 0),
                limit / 2 + (first > second ? 0 : limit % 2)};
      const std::size_t rest = limit - shorter;
      return first > second ? std::pair{rest, shorter} : std::pair{shorter, rest};
    }
    case truncation::refuse:
      break;
  }
  throw_error(errc::bad_data,
              "a sequence of {}{} tokens does not fit into the {} that max_length leaves{}. Raise "
              "max_length, or choose a truncation that may cut it.",
              first, second > 0 ? fmt::format(" + {}", second) : "", limit,
              how == truncation::refuse ? "" : " by cutting only one of the pair");
}

/// The ids of a tokenizer's special tokens; -1 where it has none.
struct special_ids {
  token_id start = -1;      ///< [CLS], <s>: before the first sequence
  token_id separator = -1;  ///< [SEP], </s>: after each sequence
  token_id pad = 0;         ///< [PAD]: masked, so any id will do
};

/// One sequence, or two where `second` has a value, as a model's input.
[[nodiscard]] inline encoding put_together(std::span<const token_id> first,
                                           const std::span<const token_id>* second,
                                           const special_ids& special,
                                           const encode_options& options) {
  const bool add = options.special_tokens == special_tokens::add;
  const bool start = add && special.start >= 0;
  const bool separator = add && special.separator >= 0;
  const std::size_t extra =
      std::size_t{start} + (separator ? (second != nullptr ? std::size_t{2} : std::size_t{1}) : 0);
  const std::size_t tokens = first.size() + (second != nullptr ? second->size() : 0);
  require(options.max_length == 0 || options.max_length >= extra,
          "max_length {} has no room for the {} special tokens", options.max_length, extra);
  const std::size_t limit = options.max_length == 0 ? tokens : options.max_length - extra;
  const auto [a, b] =
      truncated_lengths(first.size(), tokens - first.size(), limit, options.truncation);
  encoding result;
  auto& ids = result.input_ids;
  ids.reserve(std::max(a + b + extra, options.padding == padding::none ? 0 : options.max_length));
  if (start) ids.push_back(special.start);
  ids.insert(ids.end(), first.begin(), first.begin() + static_cast<std::ptrdiff_t>(a));
  if (separator) ids.push_back(special.separator);
  const std::size_t border = ids.size();
  if (second != nullptr) {
    ids.insert(ids.end(), second->begin(), second->begin() + static_cast<std::ptrdiff_t>(b));
    if (separator) ids.push_back(special.separator);
  }
  result.truncated = tokens - a - b;
  result.token_type_ids.assign(ids.size(), 1);
  std::fill_n(result.token_type_ids.begin(), border, std::uint8_t{0});
  result.attention_mask.assign(ids.size(), 1);
  if (options.padding == padding::max_length && ids.size() < options.max_length) {
    ids.resize(options.max_length, special.pad);
    result.token_type_ids.resize(options.max_length, 0);
    result.attention_mask.resize(options.max_length, 0);
  }
  return result;
}

}  // namespace parx::data
