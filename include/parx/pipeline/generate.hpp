// Generation through the stages of a language model: every rank gets the text.
//
//   auto text = parx::generate(pipe, prompt, {.max_new_tokens = 40});
//
// The rank of the last stage chooses each token, as models::generate does, and tells the others.
// Stages keep no keys and values: each token takes a forward pass of all that is before it, which
// suits samples during training. To serve, save the model and load it into one process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <parx/models/generate.hpp>
#include <parx/pipeline/pipeline.hpp>

namespace parx::inline PARX_ABI {

/// Collective over the pipeline; equal arguments on all ranks. The tokens after `prompt`, without
/// it, and the model is in evaluation mode meanwhile. Where the text is longer than max_positions()
/// of the model, the last so many tokens count. Throws as models::generate does.
template <typename Model, typename Id, typename T>
[[nodiscard]] std::vector<std::int64_t> generate(pipeline<Model, tensor<Id>, T>& pipe,
                                                 std::span<const std::int64_t> prompt,
                                                 const models::sampling_options& options = {}) {
  require(!prompt.empty(), "generate needs a prompt of at least one token");
  struct tokens {
    tensor<Id> input_ids;
  };
  const models::detail::evaluating<Model> mode(pipe.whole_model());
  const random_stream stream(options.seed, "generate");
  std::vector<Id> text(prompt.begin(), prompt.end());
  for (std::size_t n = 0; n < options.max_new_tokens; ++n) {
    const std::size_t length = std::min(text.size(), pipe.whole_model().max_positions());
    const std::span<Id> seen = std::span(text).last(length);
    const tokens one{tensor<Id>::wrap(seen, {1, length})};
    const auto chosen = pipe.evaluate(
        std::span(&one, 1), [&](const variable<T>& logits, const tokens&) {
          const auto last = logits.value().select(1, length - 1).contiguous();
          const auto token = models::choose_token<T>(last.span(), options, stream, n);
          return nn::tally{static_cast<double>(token), 1};
        });
    text.push_back(static_cast<Id>(chosen.sum));
    if (static_cast<std::int64_t>(text.back()) == options.end_token) break;
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}

}  // namespace parx
