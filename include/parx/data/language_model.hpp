// language_model: windows of one long text; each token's label is the token that follows.
//
//   parx::data::language_model train(parx::data::token_shards::open(files),
//                                    {.context_length = 256});
//
// Sample i begins at token i * stride: with a stride of context_length every token is a label once
// an epoch; with 1, shuffled, windows begin anywhere. Immutable; fetch() from any number of
// threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/data/dataset.hpp>
#include <parx/data/formats/lines.hpp>
#include <parx/data/formats/token_shards.hpp>
#include <parx/data/text/append_text.hpp>
#include <parx/data/text/token_cache.hpp>
#include <parx/data/text/tokenizer.hpp>

namespace parx::inline PARX_ABI::data {

/// `input_ids` and `labels` are [n, context_length], `weights` [n]. The labels of a sample of
/// weight 0 are -100, which cross_entropy ignores.
struct language_model_batch {
  tensor<token_id> input_ids;
  tensor<std::int64_t> labels;
  tensor<float> weights;

  [[nodiscard]] std::size_t size() const noexcept { return weights.size(); }
  /// Samples that count.
  [[nodiscard]] float count() const { return sum_of_weights(weights); }
  [[nodiscard]] std::size_t tokens() const noexcept { return input_ids.size(); }
  /// Called by the loader.
  void apply_weights() const { ignore_weightless(labels, weights); }
};

struct language_model_options {
  std::size_t context_length = 256;
  std::size_t stride = 0;  ///< tokens from one sample to the next; 0: context_length
  double first = 0;        ///< the part of the text that is used: from this fraction
  double last = 1;         ///< to this one; 0 to 0.9 to train, 0.9 to 1 to validate
};

class language_model {
 public:
  /// Throws usage_error when the part has not even one window.
  explicit language_model(token_shards tokens, language_model_options options = {})
      : tokens_(std::move(tokens)), options_(options) {
    require(options.context_length > 0, "language_model: the context must be at least 1 token");
    require(options.first >= 0 && options.first < options.last && options.last <= 1,
            "language_model: the part from {} to {} is not within 0 to 1", options.first,
            options.last);
    if (options_.stride == 0) options_.stride = options_.context_length;
    const auto all = static_cast<double>(tokens_.size());
    begin_ = static_cast<std::size_t>(all * options.first);
    const std::size_t end =
        options.last == 1 ? tokens_.size() : static_cast<std::size_t>(all * options.last);
    const std::size_t window = options.context_length + 1;  // the last token is only a label
    require(
        end - begin_ >= window,
        "language_model: a text of {} tokens is shorter than one sample, a context of {} tokens "
        "and the label of the last; take a shorter context or more text",
        end - begin_, options.context_length);
    size_ = (end - begin_ - window) / options_.stride + 1;
  }

  /// Tokenises a text file, plain or gzip, with a cache folder or without. Throws errc::io,
  /// errc::bad_data.
  template <tokenizer Tokenizer>
  [[nodiscard]] static language_model read(const std::string& path, const Tokenizer& tokens,
                                           language_model_options options = {},
                                           const std::string& cache = {}) {
    const std::uint64_t key =
        cache.empty() ? 0
                      : content_hash(path) ^ tokens.fingerprint() ^ stable_hash("language_model 1");
    const token_rows rows = cached_rows(cache, key, [&](token_rows_data& made) {
      append_text(made, tokens, read_text(path), made.ids, formatted("\"{}\"", path));
      made.counts.tokens = made.ids.size();
      made.end_row();
    });
    warn_of_invalid_utf8(rows.counts(), formatted("\"{}\"", path));
    return language_model(token_shards::from(rows.ids(), rows.owner()), options);
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t context_length() const noexcept { return options_.context_length; }
  [[nodiscard]] const token_shards& tokens() const noexcept { return tokens_; }

  [[nodiscard]] language_model_batch fetch(std::span<const std::size_t> indices) const {
    const std::size_t length = options_.context_length;
    language_model_batch result{tensor<token_id>::empty({indices.size(), length}),
                                tensor<std::int64_t>::empty({indices.size(), length}),
                                {}};
    for (std::size_t i = 0; i < indices.size(); ++i) {
      require(indices[i] < size(), "sample {} does not exist in a data set of {}", indices[i],
              size());
      const std::size_t begin = begin_ + indices[i] * options_.stride;
      tokens_.copy(begin, std::span(result.input_ids.data() + i * length, length));
      tokens_.copy(begin + 1, std::span(result.labels.data() + i * length, length));
    }
    return result;
  }

 private:
  token_shards tokens_;
  language_model_options options_;
  std::size_t begin_ = 0;
  std::size_t size_ = 0;
};

}  // namespace parx::data
