// Definitions of language_model.hpp.
#pragma once

#include <utility>

#include <parx/core/check.hpp>
#include <parx/data/language_model.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE language_model::language_model(token_shards tokens, language_model_options options)
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
  require(end - begin_ >= window,
          "language_model: a text of {} tokens is shorter than one sample, a context of {} tokens "
          "and the label of the last; take a shorter context or more text",
          end - begin_, options.context_length);
  size_ = (end - begin_ - window) / options_.stride + 1;
}

PARX_INLINE language_model_batch language_model::fetch(std::span<const std::size_t> indices) const {
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

}  // namespace parx::data
