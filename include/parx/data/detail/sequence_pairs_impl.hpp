// Definitions of sequence_pairs.hpp.
#pragma once

#include <algorithm>
#include <numeric>

#include <parx/core/log.hpp>
#include <parx/data/sequence_pairs.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE std::size_t sequence_pair_batch::tokens() const {
  return std::accumulate(attention_mask.begin(), attention_mask.end(), std::size_t{0}) +
         std::accumulate(decoder_attention_mask.begin(), decoder_attention_mask.end(),
                         std::size_t{0});
}

PARX_INLINE std::shared_ptr<const std::vector<std::uint32_t>> sequence_pairs::lengths() const {
  auto result = std::make_shared<std::vector<std::uint32_t>>(size());
  for (std::size_t i = 0; i < size(); ++i)
    (*result)[i] = static_cast<std::uint32_t>(source(i).size());
  return result;
}

PARX_INLINE sequence_pair_batch sequence_pairs::fetch(std::span<const std::size_t> indices) const {
  std::vector<std::span<const token_id>> sources;
  std::vector<std::span<const token_id>> targets;
  for (const std::size_t index : indices) {
    require(index < size(), "sample {} does not exist in a data set of {}", index, size());
    sources.push_back(source(index));
    targets.push_back(target(index));
  }
  padded_rows source = pad_rows(sources, special_.pad, options_.padding);
  padded_rows target = pad_rows(
      targets, special_.pad,
      {.multiple_of = options_.padding.multiple_of,
       .to_length = options_.padding.to_length > 0 ? options_.max_target_length : std::size_t{0}});
  auto labels = target.ids.cast<std::int64_t>();
  const std::size_t length = target.ids.extent(1);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    std::int64_t* const row = labels.data() + i * length;
    std::fill(row + targets[i].size(), row + length, -100);
    token_id* const ids = target.ids.data() + i * length;
    std::copy_backward(ids, ids + length - 1, ids + length);
    ids[0] = start_id();
    // The end token has moved into the padding.
    if (targets[i].size() < length) ids[targets[i].size()] = special_.pad;
  }
  return {std::move(source.ids),  std::move(source.mask), std::move(target.ids),
          std::move(target.mask), std::move(labels),      {}};
}

PARX_INLINE sequence_pairs::sequence_pairs(sequence_pair_options options,
                                           const special_ids& special)
    : options_(std::move(options)), special_(special) {
  require(special_.separator >= 0,
          "sequence_pairs: the tokenizer has no token to end a target with");
  require(options_.max_target_length > 0, "sequence_pairs: max_target_length must be at least 1");
}

PARX_INLINE void sequence_pairs::log_truncation(const std::string& source) const {
  const text_counts& counts = rows_.counts();
  if (counts.truncated_rows == 0) return;
  log0(log_level::info, "{}: {} of {} texts were cut to {} and {} tokens ({} tokens in all)",
       source, counts.truncated_rows, rows_.size(), options_.max_source_length,
       options_.max_target_length, counts.truncated_tokens);
}

PARX_INLINE std::uint64_t sequence_pairs::options_hash(const std::string& path) const {
  return stable_hash(formatted("sequence_pairs 2|{}|{}|{}|{}|{}|{}|{}", options_.source,
                               options_.target, static_cast<int>(options_.header),
                               static_cast<int>(text_format_of(path, options_.format)),
                               options_.max_source_length, options_.max_target_length,
                               static_cast<int>(options_.truncation)));
}

}  // namespace parx::data
