// Definitions of text_classification.hpp.
#pragma once

#include <numeric>

#include <parx/core/joined_text.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/data/text_classification.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE std::size_t text_batch::tokens() const {
  return std::accumulate(attention_mask.begin(), attention_mask.end(), std::size_t{0});
}

PARX_INLINE text_classification_options ag_news(std::size_t max_length) {
  text_classification_options options;
  options.label = "0";
  options.texts = {"1", "2"};
  options.classes = {"1", "2", "3", "4"};
  options.header = csv_header::absent;
  options.max_length = max_length;
  return options;
}

PARX_INLINE std::shared_ptr<const std::vector<std::uint32_t>> text_classification::lengths() const {
  auto result = std::make_shared<std::vector<std::uint32_t>>(size());
  for (std::size_t i = 0; i < size(); ++i)
    (*result)[i] = static_cast<std::uint32_t>(rows_.length(i));
  return result;
}

PARX_INLINE text_batch text_classification::fetch(std::span<const std::size_t> indices) const {
  std::vector<std::span<const token_id>> rows;
  auto labels = tensor<std::int64_t>::empty({indices.size()});
  for (std::size_t i = 0; i < indices.size(); ++i) {
    rows.push_back(rows_[indices[i]]);
    labels.data()[i] = rows_.labels()[indices[i]];
  }
  padded_rows padded = pad_rows(rows, pad_, options_.padding);
  return {std::move(padded.ids), std::move(padded.mask), std::move(labels), {}};
}

PARX_INLINE std::uint64_t text_classification::options_hash(const std::string& path) const {
  return stable_hash(formatted(
      "text_classification 2|{}|{}|{}|{}|{}|{}|{}|{}", options_.label,
      joined_text(options_.texts, "\x1f"), joined_text(options_.classes, "\x1f"),
      options_.class_count,
      static_cast<int>(options_.header), static_cast<int>(text_format_of(path, options_.format)),
      options_.max_length, static_cast<int>(options_.truncation)));
}

PARX_INLINE void text_classification::finish(token_rows_data& made, const std::string& source) {
  if (made.labels.empty()) throw_error(errc::bad_data, "{} has no records.", source);
  made.counts.tokens = made.ids.size();
}

PARX_INLINE std::int64_t text_classification::read_label(const std::string& place,
                                                         const std::string& text,
                                                         const char* advice) const {
  const auto& names = options_.classes;
  if (!names.empty()) {
    const auto found = std::find(names.begin(), names.end(), text);
    if (found != names.end()) return found - names.begin();
    throw_error(errc::bad_data, "{}: the label \"{:.60}\" is none of the classes {}. {}.", place,
                text, joined_text(names), advice);
  }
  const auto number = parx::detail::parse_number<std::int64_t>(text);
  const std::int64_t limit = options_.class_count > 0
                                 ? static_cast<std::int64_t>(options_.class_count)
                                 : std::int64_t{1} << 20U;
  if (number && *number >= 0 && *number < limit) return *number;
  throw_error(errc::bad_data, "{}: the label \"{:.60}\" is not a class number from 0 to {}. {}.",
              place, text, limit - 1, advice);
}

PARX_INLINE void text_classification::count_classes(const std::string& source) {
  classes_ = !options_.classes.empty() ? options_.classes.size() : options_.class_count;
  if (classes_ == 0)
    classes_ =
        static_cast<std::size_t>(*std::max_element(rows_.labels().begin(), rows_.labels().end())) +
        1;
  if (options_.empty_classes == empty_classes::allow) return;
  std::vector<std::size_t> count(classes_);
  for (const std::int64_t each : rows_.labels()) ++count[static_cast<std::size_t>(each)];
  for (std::size_t i = 0; i < classes_; ++i) {
    if (count[i] == 0)
      throw_error(errc::bad_data,
                  "{} has no sample of class {}{}. Give the right classes, or allow empty ones.",
                  source, i,
                  options_.classes.empty() ? "" : formatted(" (\"{}\")", options_.classes[i]));
  }
}

}  // namespace parx::data
