// generate: a text, token by token, from a language model in any layout.
//
//   auto text = parx::generate(model, prompt, {.max_new_tokens = 40});
//
// Every rank caches the keys and values of its layers and heads, and gets the tokens: one forward
// of one position for each, also through stages. The tokens are those of models::generate in one
// process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <parx/autograd/ops/full_logits.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/comm/rank_comparison.hpp>
#include <parx/core/call_context.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/models/generate.hpp>
#include <parx/nn/evaluation_mode.hpp>
#include <parx/nn/model_input.hpp>
#include <parx/parallel/model.hpp>
#include <parx/tensor/rank_axis.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// Collective over `ranks`; null: local. Throws usage_error on all of them, with the lines that
/// differ, where they were given other arguments.
inline void require_same_arguments(process_group* ranks, const std::string& given, call_site site) {
  if (ranks == nullptr) return;
  const auto other = compare_over(*ranks, given, site);
  if (!other) return;
  throw_usage(
      "generate at {}: rank {} of group \"{}\" was given other arguments than its rank 0:{}\nThese "
      "ranks generate one text together: give all of them the same",
      site, other->rank, ranks->name(), other->text);
}

}  // namespace detail

/// Collective, with equal arguments. Returns the tokens after `prompt`, without it. The model is in
/// evaluation mode meanwhile; when the text exceeds its max_positions(), it goes on from the last
/// half of them. Throws usage_error for an empty prompt, for a model that is no language model, and
/// on all ranks of parallel_model::ranks_in_step() where their arguments differ.
template <typename T, typename Id>
[[nodiscard]] std::vector<std::int64_t> generate(parallel_model<T, tensor<Id>>& model,
                                                 std::span<const std::int64_t> prompt,
                                                 const models::sampling_options& options = {},
                                                 call_site site = call_site::current()) {
  require(!prompt.empty(), "generate needs a prompt of at least one token");
  auto& strategy = model.strategy();
  const std::size_t max_positions = model.max_positions();
  require(max_positions > 0,
          "generate: this model has no max_positions() and no caches");
  with_call_context("generate", site, [&] {
    detail::require_same_arguments(model.ranks_in_step(),
                                   models::generation_arguments(prompt, options), site);
  });
  const nn::evaluation_mode mode(model.module());
  const whole_positions positions;
  const random_stream stream(options.seed, "generate");
  const std::size_t window =
      std::min(max_positions, prompt.size() + options.max_new_tokens);
  std::vector<Id> text(prompt.begin(), prompt.end());
  std::size_t seen = text.size() > window ? text.size() - window : 0, cached = 0;
  strategy.begin_text(window);
  for (std::size_t n = 0; n < options.max_new_tokens; ++n) {
    if (cached == window) {
      seen = text.size() - std::max<std::size_t>(window / 2, 1);
      strategy.begin_text(window);
      cached = 0;
    }
    const std::span<Id> fresh = std::span(text).subspan(seen);
    const auto choose = [&](const variable<T>& logits) {
      const std::size_t last = logits.extent(1) - 1;
      const variable<T> row = full_logits(slice(logits, 1, last, last + 1));
      const tensor<T> values = row.value().contiguous();
      return models::choose_token<T>(values.span(), options, stream, n);
    };
    const std::int64_t token = with_call_context("generate", site, [&] {
      const auto ids = tensor<Id>::wrap(fresh, {1, fresh.size()});
      return strategy.decode(any_input(ids), fresh.size(), choose);
    });
    cached += fresh.size();
    seen = text.size();
    text.push_back(static_cast<Id>(token));
    if (token == options.end_token) break;
  }
  strategy.begin_text(0);
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}
/// The same for several prompts, one text after the other.
template <typename T, typename Id>
[[nodiscard]] std::vector<std::vector<std::int64_t>> generate(
    parallel_model<T, tensor<Id>>& model, std::span<const std::vector<std::int64_t>> prompts,
    const models::sampling_options& options = {}, call_site site = call_site::current()) {
  detail::require_same_arguments(model.ranks_in_step(), formatted("{} prompts", prompts.size()),
                                 site);
  std::vector<std::vector<std::int64_t>> texts;
  for (const std::vector<std::int64_t>& each : prompts) {
    texts.push_back(generate(model, std::span<const std::int64_t>(each), options, site));
  }
  return texts;
}

}  // namespace parx
