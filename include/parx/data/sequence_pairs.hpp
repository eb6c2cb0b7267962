// sequence_pairs: pairs of a source text and its target text, for encoder-decoder models.
//
//   parx::data::sequence_pairs train("train.jsonl.gz", tokenizer,
//                                    {.source = "document", .target = "summary"});
//
// The pairs come from a file or from memory. The labels are the target's tokens and the end token;
// the decoder reads the same sequence shifted right by one, behind the start token (teacher
// forcing). Immutable; fetch() from any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/data/dataset.hpp>
#include <parx/data/source_target.hpp>
#include <parx/data/text/append_text.hpp>
#include <parx/data/text/padding.hpp>
#include <parx/data/text/records.hpp>
#include <parx/data/text/token_cache.hpp>
#include <parx/data/text/tokenizer.hpp>

namespace parx::inline PARX_ABI::data {

/// `input_ids` and `attention_mask` are [n, longest source]; `decoder_input_ids`,
/// `decoder_attention_mask` and `labels` [n, longest target]; `weights` [n]. Labels of padding, and
/// of samples of weight 0, are -100, which cross_entropy ignores.
struct sequence_pair_batch {
  tensor<token_id> input_ids;
  tensor<std::uint8_t> attention_mask;
  tensor<token_id> decoder_input_ids;
  tensor<std::uint8_t> decoder_attention_mask;
  tensor<std::int64_t> labels;
  tensor<float> weights;

  [[nodiscard]] std::size_t size() const noexcept { return weights.size(); }
  /// Samples that count.
  [[nodiscard]] float count() const { return sum_of_weights(weights); }
  /// Tokens of both sides, without padding.
  [[nodiscard]] std::size_t tokens() const;
  /// Called by the loader.
  void apply_weights() const { ignore_weightless(labels, weights); }
  /// As text_batch's, of both sides.
  void trim_padding() {
    if (!input_ids.defined()) return;
    const std::size_t sources = longest_row(attention_mask);
    cut_rows_to(input_ids, sources);
    cut_rows_to(attention_mask, sources);
    const std::size_t targets = longest_row(decoder_attention_mask);
    cut_rows_to(decoder_input_ids, targets);
    cut_rows_to(decoder_attention_mask, targets);
    cut_rows_to(labels, targets);
  }
};

struct sequence_pair_options {
  std::string source = "source";  ///< column of the source text
  std::string target = "target";  ///< column of the target text
  /// Of CSV and TSV; without a header, columns are "0", "1", ...
  csv_header header = csv_header::absent;
  text_format format = text_format::by_name;
  std::size_t max_source_length = 256;  ///< tokens, special ones included
  std::size_t max_target_length = 64;   ///< tokens, the end token included
  data::truncation truncation = data::truncation::longest_first;  ///< or refuse
  padding_options padding = {};
  /// Folder for tokenised texts, shared by the ranks of a host; empty: none.
  std::string cache = {};
};

class sequence_pairs {
 public:
  /// Reads and tokenises `path`, or reads its tokens from the cache. Throws errc::io;
  /// errc::bad_data with the line for a wrong record or a text that is too long and may not be cut;
  /// usage_error for a missing column or a tokenizer without an end token.
  template <tokenizer Tokenizer>
  sequence_pairs(const std::string& path, const Tokenizer& tokens, sequence_pair_options options)
      : sequence_pairs(std::move(options), tokens.special()) {
    const std::uint64_t key =
        options_.cache.empty() ? 0 : content_hash(path) ^ tokens.fingerprint() ^ options_hash(path);
    rows_ = cached_rows(options_.cache, key,
                        [&](token_rows_data& made) { read(made, path, tokens); });
    log_truncation(formatted("\"{}\"", path));
    warn_of_invalid_utf8(rows_.counts(), formatted("\"{}\"", path));
  }
  /// The same for pairs in memory, of which only the tokens are kept. Ignores the options of files
  /// (columns, header, format, cache).
  template <tokenizer Tokenizer>
  sequence_pairs(std::span<const source_target> pairs, const Tokenizer& tokens,
                 sequence_pair_options options)
      : sequence_pairs(std::move(options), tokens.special()) {
    require(!pairs.empty(), "sequence_pairs: there are no pairs");
    token_rows_data made;
    for (const source_target& pair : pairs)
      add(made, tokens, pair.source, pair.target, formatted("pair {}", &pair - pairs.data()));
    made.counts.tokens = made.ids.size();
    rows_ = token_rows(std::move(made));
    log_truncation(formatted("{} pairs", pairs.size()));
    warn_of_invalid_utf8(rows_.counts(), formatted("{} pairs", pairs.size()));
  }

  [[nodiscard]] std::size_t size() const noexcept { return rows_.size() / 2; }
  [[nodiscard]] std::span<const token_id> source(std::size_t index) const {
    return rows_[2 * index];
  }
  /// As source().
  [[nodiscard]] std::span<const token_id> tokens(std::size_t index) const { return source(index); }
  /// The target's tokens and the end token.
  [[nodiscard]] std::span<const token_id> target(std::size_t index) const {
    return rows_[2 * index + 1];
  }
  [[nodiscard]] const text_counts& counts() const noexcept { return rows_.counts(); }
  [[nodiscard]] cache_use cached() const noexcept { return rows_.cached(); }
  /// The decoder's first token: the start token, or the end token where there is none.
  [[nodiscard]] token_id start_id() const noexcept {
    return special_.start >= 0 ? special_.start : special_.separator;
  }
  [[nodiscard]] token_id end_id() const noexcept { return special_.separator; }

  /// Tokens of each source, for sampler_options::group_by_length.
  [[nodiscard]] std::shared_ptr<const std::vector<std::uint32_t>> lengths() const;

  [[nodiscard]] sequence_pair_batch fetch(std::span<const std::size_t> indices) const;

 private:
  sequence_pairs(sequence_pair_options options, const special_ids& special);

  void log_truncation(const std::string& source) const;
  [[nodiscard]] std::uint64_t options_hash(const std::string& path) const;

  template <typename Tokenizer>
  void read(token_rows_data& made, const std::string& path, const Tokenizer& tokens) const {
    text_records file(path, {options_.source, options_.target}, options_.format, options_.header);
    for (std::vector<std::string> fields; file.next(fields);) {
      try {
        add(made, tokens, fields[0], fields[1], file.place());
      } catch (const error& failure) {
        throw_error(errc::bad_data, "{}: {}", file.place(), failure.what());
      }
    }
    if (made.ids.empty()) throw_error(errc::bad_data, "\"{}\" has no records.", path);
    made.counts.tokens = made.ids.size();
  }

  /// Adds the two rows of a pair; `place` names it in messages.
  template <typename Tokenizer>
  void add(token_rows_data& made, const Tokenizer& tokens, const std::string& source,
           const std::string& target, const std::string& place) const {
    const auto add_row = [&](const std::string& text, const special_ids& special,
                             std::size_t length) {
      std::vector<token_id> pieces;
      append_text(made, tokens, text, pieces, place);
      const encoding row = put_together(pieces, nullptr, special,
                                        {.max_length = length, .truncation = options_.truncation});
      made.ids.insert(made.ids.end(), row.input_ids.begin(), row.input_ids.end());
      made.counts.truncated_tokens += row.truncated;
      made.counts.truncated_rows += row.truncated > 0 ? 1 : 0;
      made.end_row();
    };
    add_row(source, special_, options_.max_source_length);
    add_row(target, {.start = -1, .separator = special_.separator, .pad = special_.pad},
            options_.max_target_length);
  }

  sequence_pair_options options_;
  special_ids special_;
  token_rows rows_;
};

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/detail/sequence_pairs_impl.hpp>
#endif
