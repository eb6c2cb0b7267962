// text_classification: labelled texts, tokenised once and padded batch by batch.
//
//   parx::data::text_classification train("train.csv", tokenizer, parx::data::ag_news());
//   for (auto& batch : loader.epoch(e))
//     auto loss = parx::nn::cross_entropy(model(batch.input_ids, batch.attention_mask),
//                                         batch.labels, {.row_weights = batch.weights});
//
// Immutable; fetch() from any number of threads.
#pragma once

#include <algorithm>
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
#include <parx/core/log.hpp>
#include <parx/core/source.hpp>
#include <parx/data/dataset.hpp>
#include <parx/data/text/append_text.hpp>
#include <parx/data/text/padding.hpp>
#include <parx/data/text/records.hpp>
#include <parx/data/text/token_cache.hpp>
#include <parx/data/text/tokenizer.hpp>

namespace parx::inline PARX_ABI::data {

/// `input_ids` and `attention_mask` are [n, longest], `labels` and `weights` [n].
struct text_batch {
  tensor<token_id> input_ids;
  tensor<std::uint8_t> attention_mask;
  tensor<std::int64_t> labels;
  tensor<float> weights;

  [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }
  /// Samples that count.
  [[nodiscard]] float count() const { return sum_of_weights(weights); }
  /// Tokens without padding.
  [[nodiscard]] std::size_t tokens() const;
  /// Called by parx::parallel for the samples of one virtual replica, which are padded to the
  /// longest of all in the rank's batch: leaves the padding that they have among themselves.
  void trim_padding() {
    if (!input_ids.defined()) return;
    const std::size_t length = longest_row(attention_mask);
    cut_rows_to(input_ids, length);
    cut_rows_to(attention_mask, length);
  }
};

/// What becomes of classes that no row has.
enum class empty_classes { refuse, allow };

struct text_classification_options {
  std::string label = "label";                ///< column of the class
  std::vector<std::string> texts = {"text"};  ///< columns that are joined by a space
  std::vector<std::string> classes = {};  ///< the label's texts, class 0 first; empty: 0, 1, 2, ...
  std::size_t class_count = 0;            ///< where classes is empty; 0: the largest label + 1
  data::empty_classes empty_classes = data::empty_classes::refuse;  ///< a class without a sample
  csv_header header = csv_header::present;
  text_format format = text_format::by_name;
  std::size_t max_length = 128;  ///< tokens of a text, special ones included
  data::truncation truncation = data::truncation::longest_first;  ///< or refuse
  padding_options padding = {};
  /// Folder for tokenised texts, shared by the ranks of a host; empty: none.
  std::string cache = {};
};

/// AG News as it is published: "class","title","description", classes 1 to 4, no header.
[[nodiscard]] text_classification_options ag_news(std::size_t max_length = 128);

class text_classification {
 public:
  /// Reads and tokenises `path`, or reads its tokens from the cache. Throws errc::io;
  /// errc::bad_data with the line for a wrong record, a label that is none of the classes, a text
  /// that is too long and may not be cut; errc::bad_data for a class without samples; usage_error
  /// for a missing column.
  template <tokenizer Tokenizer>
  text_classification(const std::string& path, const Tokenizer& tokens,
                      text_classification_options options, call_site = call_site::current())
      : options_(std::move(options)), pad_(special_ids(tokens.special()).pad) {
    require(!options_.texts.empty(), "text_classification: no text columns were given");
    for (auto each = options_.classes.begin(); each != options_.classes.end(); ++each) {
      require(std::find(options_.classes.begin(), each, *each) == each,
              "text_classification: the class \"{}\" is named twice, as number {} and number {}",
              *each, std::find(options_.classes.begin(), each, *each) - options_.classes.begin(),
              each - options_.classes.begin());
    }
    require(options_.max_length > 0, "text_classification: max_length must be at least 1");
    const std::uint64_t key =
        options_.cache.empty() ? 0 : content_hash(path) ^ tokens.fingerprint() ^ options_hash(path);
    rows_ = cached_rows(options_.cache, key,
                        [&](token_rows_data& made) { read(made, path, tokens); });
    count_classes(formatted("\"{}\"", path));
    const text_counts& counts = rows_.counts();
    if (counts.truncated_rows > 0)
      log0(log_level::info, "\"{}\": {} of {} texts were cut to {} tokens ({} tokens in all)", path,
           counts.truncated_rows, size(), options_.max_length, counts.truncated_tokens);
    warn_of_invalid_utf8(counts, formatted("\"{}\"", path));
  }

  /// The same for texts in memory: samples have a `text` and a `label`, a class number.
  template <typename Sample, tokenizer Tokenizer>
  text_classification(const std::vector<Sample>& samples, const Tokenizer& tokens,
                      text_classification_options options = {}, call_site = call_site::current())
      : options_(std::move(options)), pad_(special_ids(tokens.special()).pad) {
    require(options_.max_length > 0, "text_classification: max_length must be at least 1");
    token_rows_data made;
    std::vector<token_id> ids;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::string place = formatted("text {}", i);
      made.labels.push_back(
          read_label(place, std::to_string(samples[i].label), "Give the right number of classes"));
      add_row(made, ids, tokens, samples[i].text, place);
    }
    finish(made, "the list of texts");
    rows_ = token_rows(std::move(made));
    count_classes("the list of texts");
  }

  [[nodiscard]] std::size_t size() const noexcept { return rows_.size(); }
  [[nodiscard]] std::size_t classes() const noexcept { return classes_; }
  [[nodiscard]] std::int64_t label(std::size_t index) const { return rows_.labels()[index]; }
  [[nodiscard]] std::span<const token_id> tokens(std::size_t index) const { return rows_[index]; }
  [[nodiscard]] const text_counts& counts() const noexcept { return rows_.counts(); }
  [[nodiscard]] cache_use cached() const noexcept { return rows_.cached(); }

  /// Tokens of each sample, for sampler_options::group_by_length.
  [[nodiscard]] std::shared_ptr<const std::vector<std::uint32_t>> lengths() const;

  [[nodiscard]] text_batch fetch(std::span<const std::size_t> indices) const;

 private:
  [[nodiscard]] std::uint64_t options_hash(const std::string& path) const;

  template <typename Tokenizer>
  void read(token_rows_data& made, const std::string& path, const Tokenizer& tokens) const {
    std::vector<std::string> columns{options_.label};
    columns.insert(columns.end(), options_.texts.begin(), options_.texts.end());
    text_records file(path, std::move(columns), options_.format, options_.header);
    std::vector<token_id> ids;
    std::string text;
    for (std::vector<std::string> fields; file.next(fields);) {
      const bool perhaps_names = made.labels.empty() && options_.header == csv_header::absent;
      made.labels.push_back(read_label(
          file.place(), fields[0],
          perhaps_names ? "If this line names the columns, say that the file has a header"
                        : "Name all classes that the file has, or mend this line"));
      text = fields[1];
      for (std::size_t i = 2; i < fields.size(); ++i) text.append(" ").append(fields[i]);
      add_row(made, ids, tokens, text, file.place());
    }
    finish(made, formatted("\"{}\"", path));
  }

  /// `place` names the text in messages; `ids` is scratch memory.
  template <typename Tokenizer>
  void add_row(token_rows_data& made, std::vector<token_id>& ids, const Tokenizer& tokens,
               const std::string& text, const std::string& place) const {
    const encode_options limits{.max_length = options_.max_length,
                                .truncation = options_.truncation};
    ids.clear();
    append_text(made, tokens, text, ids, place);
    try {
      const encoding row = put_together(ids, nullptr, tokens.special(), limits);
      made.ids.insert(made.ids.end(), row.input_ids.begin(), row.input_ids.end());
      made.counts.truncated_tokens += row.truncated;
      made.counts.truncated_rows += row.truncated > 0 ? 1 : 0;
    } catch (const error& failure) {
      throw_error(errc::bad_data, "{}: {}", place, failure.what());
    }
    made.end_row();
  }
  static void finish(token_rows_data& made, const std::string& source);

  /// `advice` ends the message about a wrong label.
  [[nodiscard]] std::int64_t read_label(const std::string& place, const std::string& text,
                                        const char* advice) const;

  void count_classes(const std::string& source);

  text_classification_options options_;
  token_id pad_;
  token_rows rows_;
  std::size_t classes_ = 0;
};

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/detail/text_classification_impl.hpp>
#endif
