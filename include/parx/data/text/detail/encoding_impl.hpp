// Definitions of encoding.hpp.
#pragma once

#include <algorithm>

#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/data/text/encoding.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE std::pair<std::size_t, std::size_t> truncated_lengths(std::size_t first,
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
              first, second > 0 ? formatted(" + {}", second) : "", limit,
              how == truncation::refuse ? "" : " by cutting only one of the pair");
}

PARX_INLINE encoding put_together(std::span<const token_id> first,
                                  const std::span<const token_id>* second,
                                  const special_ids& special, const encode_options& options) {
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
