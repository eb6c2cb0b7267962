// generate: generates a text token by token with a language model that has a cache (gpt, llama):
// each token is the most probable one, or drawn at random.
//
// A model that is cut over ranks (parx::parallelize) generates on all of them together, each with
// the caches of its own heads: the same text on all ranks. In other layouts of parx::parallel it is
// parx::generate (parallel/generate.hpp).
// Without gradients, in evaluation mode (the model's own mode is restored). Token n is drawn with
// number n of the seed's random stream, so a text is a function of weights, prompt and options.
// Holtzman et al.: The Curious Case of Neural Text Degeneration (arXiv 1904.09751) for top_p.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/autograd/ops/full_logits.hpp>
#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/models/decoding_cache.hpp>
#include <parx/nn/evaluation_mode.hpp>
#include <parx/tensor/random.hpp>
#include <parx/tensor/rank_axis.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI::models {

struct sampling_options {
  std::size_t max_new_tokens = 100;
  double temperature = 0;  ///< divides the logits; 0: always the most probable token
  std::size_t top_k = 0;   ///< draws among this many most probable tokens; 0: among all
  double top_p = 1;        ///< draws among the fewest tokens that have this probability together
  std::uint64_t seed = 0;  ///< of the random draws
  std::int64_t end_token = -1;  ///< ends the text, and is its last token; -1: none
};

namespace detail {

/// The number is equal for equal texts, and most likely for no others.
[[nodiscard]] inline std::uint64_t digest_of(std::span<const std::int64_t> text) {
  return parx::detail::fnv1a({reinterpret_cast<const char*>(text.data()), text.size_bytes()});
}
/// Collective over the ranks of which each has the logits of some tokens; else nothing. Throws
/// usage_error on all of them where they have different texts, or were `given` different options.
template <typename T>
void require_same_text(const tensor<T>& logits, std::span<const std::int64_t> text,
                       std::string_view call, std::uint64_t given = 0) {
  const cut_rows* const cut = logits.cut();
  if (cut == nullptr) return;
  const auto own = static_cast<std::int64_t>((digest_of(text) ^ given) >> 1);
  std::array<std::int64_t, 2> range{own, -own};
  cut->axis->all_reduce(const_view_of(range), view_of(range), rank_axis::reduction::max);
  require(range[0] == -range[1],
          "{}: the {} ranks over which the model is cut go on from different texts: give all of "
          "them the same prompt, options and seed",
          call, cut->axis->size());
}
/// Throws errc::bad_data if a logit is NaN, because NaN cannot be ordered.
template <typename T>
void require_numbers(std::span<const T> logits) {
  const auto is_nan = [](T x) { return std::isnan(static_cast<double>(x)); };
  if (std::any_of(logits.begin(), logits.end(), is_nan))
    throw_error(errc::bad_data,
                "the model gives NaN for what the next token is: its weights are damaged, or its "
                "training had diverged. Take an earlier checkpoint");
}

}  // namespace detail

/// What the ranks that generate one text are given, a line for each argument.
[[nodiscard]] inline std::string generation_arguments(std::span<const std::int64_t> prompt,
                                                      const sampling_options& options) {
  static constexpr std::size_t most_shown = 8;
  return formatted(
      "a prompt of {} tokens: {}{} ({:08x})\nmax_new_tokens {}\ntemperature {}\ntop_k {}\ntop_p "
      "{}\nseed {}\nend_token {}",
      prompt.size(), joined_text(prompt.first(std::min(prompt.size(), most_shown))),
      prompt.size() > most_shown ? ", ..." : "",
      static_cast<std::uint32_t>(detail::digest_of(prompt)), options.max_new_tokens,
      options.temperature, options.top_k, options.top_p, options.seed, options.end_token);
}

/// The next token, drawn by number n of `stream`: temperature, then top_k, then top_p, as in
/// Hugging Face's generate. Pure. Throws usage_error when there are no logits or an option is
/// outside its range, errc::bad_data for NaN.
template <typename T>
[[nodiscard]] std::int64_t choose_token(std::span<const T> logits, const sampling_options& options,
                                        const random_stream& stream, std::uint64_t n) {
  require(!logits.empty(), "choose_token needs at least one logit");
  require(options.temperature >= 0 && options.top_p > 0 && options.top_p <= 1,
          "sampling: a temperature of {} is negative, or a top_p of {} not in (0, 1]",
          options.temperature, options.top_p);
  detail::require_numbers(logits);
  const auto highest = std::max_element(logits.begin(), logits.end());
  if (options.temperature == 0) return highest - logits.begin();
  std::vector<std::pair<double, std::int64_t>> candidates(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double above = static_cast<double>(logits[i]) - static_cast<double>(*highest);
    candidates[i] = {std::exp(above / options.temperature), static_cast<std::int64_t>(i)};
  }
  const auto likelier = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  std::sort(candidates.begin(), candidates.end(), likelier);
  if (options.top_k > 0 && options.top_k < candidates.size()) candidates.resize(options.top_k);
  double total = 0;
  for (const auto& candidate : candidates) total += candidate.first;
  double kept = 0;
  std::size_t count = 0;
  while (count < candidates.size() && (count == 0 || kept < options.top_p * total)) {
    kept += candidates[count++].first;
  }
  double left = 0;
  stream.words(n, 1, [&](const std::uint32_t* word, std::uint64_t, std::size_t) {
    left = kept * (word[0] * 0x1p-32);
  });
  for (std::size_t i = 0; i + 1 < count; ++i) {
    left -= candidates[i].first;
    if (left < 0) return candidates[i].second;
  }
  return candidates[count - 1].second;
}

/// The tokens after `prompt` (at least one token), without the prompt; `each(token)` is called for
/// each new token. When the text exceeds model.max_positions(), the model goes on from the last
/// half of them. Only the last position of the model's result is read. Collective, with equal
/// arguments, where the model is cut over ranks. Throws usage_error for an empty prompt, and where
/// such ranks have different texts.
template <typename Model, typename Each>
std::vector<std::int64_t> generate(Model& model, std::span<const std::int64_t> prompt,
                                   const sampling_options& options, Each&& each) {
  require(!prompt.empty(), "generate needs a prompt of at least one token");
  const nn::evaluation_mode<Model> mode(model);
  const whole_positions positions;
  const random_stream stream(options.seed, "generate");
  // Ranks with other options would end at other tokens, and wait for each other.
  const std::uint64_t given = parx::detail::fnv1a(generation_arguments(prompt, options));
  const std::size_t window =
      std::min(model.max_positions(), prompt.size() + options.max_new_tokens);
  auto cache = model.make_cache(1, window);
  std::vector<std::int64_t> text(prompt.begin(), prompt.end());
  std::size_t seen = text.size() > window ? text.size() - window : 0;
  for (std::size_t n = 0; n < options.max_new_tokens; ++n) {
    if (cache.length() == window) {
      seen = text.size() - std::max<std::size_t>(window / 2, 1);
      cache = model.make_cache(1, window);
    }
    const std::span<std::int64_t> fresh = std::span(text).subspan(seen);
    const auto logits = model(tensor<std::int64_t>::wrap(fresh, {1, fresh.size()}), &cache);
    seen = text.size();
    const auto own = logits.value().select(1, logits.extent(1) - 1);
    detail::require_same_text(own, text, "generate", given);
    const auto last = full_logits(own).contiguous();
    using value_type = typename decltype(last)::value_type;
    text.push_back(choose_token<value_type>(last.span(), options, stream, n));
    each(text.back());
    if (text.back() == options.end_token) break;
  }
  text.erase(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
  return text;
}
template <typename Model>
std::vector<std::int64_t> generate(Model& model, std::span<const std::int64_t> prompt,
                                   const sampling_options& options = {}) {
  return generate(model, prompt, options, [](std::int64_t) {});
}

}  // namespace parx::models
