// Generates text with a language model whose stages are on several ranks. Every rank gets the text.
//
//   auto text = parx::generate(pipe, prompt, {.max_new_tokens = 40});
//
// The rank of the last stage chooses each token, as models::generate does, and sends it to the
// others. There is no key-value cache: each token takes a forward pass over the whole text, which
// is good enough for samples during training. To serve, save the model and load it into one
// process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <parx/models/generate.hpp>
#include <parx/nn/evaluation_mode.hpp>
#include <parx/pipeline/pipeline.hpp>

namespace parx::inline PARX_ABI {

/// Collective over the pipeline, with equal arguments on all ranks. Returns the tokens after
/// `prompt`, without it. The model is in evaluation mode meanwhile, and sees the last
/// max_positions() tokens of a longer text. Throws as models::generate does.
template <typename Model, typename Id, typename T>
[[nodiscard]] std::vector<std::int64_t> generate(pipeline<Model, tensor<Id>, T>& pipe,
                                                 std::span<const std::int64_t> prompt,
                                                 const models::sampling_options& options = {}) {
  require(!prompt.empty(), "generate needs a prompt of at least one token");
  struct tokens {
    tensor<Id> input_ids;
  };
  const nn::evaluation_mode<Model> mode(pipe.whole_model());
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
