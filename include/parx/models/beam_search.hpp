// beam_search: searches the most probable text that an encoder_decoder generates from a source,
// keeping the best few prefixes (beams) after every token. One beam is greedy search.
//
// The score of a finished text is its log-probability divided by length^length_penalty (the length
// includes the end token). Of the 2 * beams best continuations the best that do not end go on, as
// in Hugging Face's BeamSearchScorer. Without gradients, in evaluation mode (the model's own mode
// is restored). Wu et al.: Google's Neural Machine Translation System (arXiv 1609.08144) for the
// penalty; Paulus et al. (arXiv 1705.04304) for no_repeat_ngram_size.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <parx/autograd/ops/rows.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hash.hpp>
#include <parx/models/encoder_decoder.hpp>
#include <parx/models/generate.hpp>
#include <parx/nn/evaluation_mode.hpp>

namespace parx::inline PARX_ABI::models {

enum class beam_stop {
  hopeless,  ///< once no beam can beat the worst finished text: early_stopping=False
  enough,    ///< once as many texts as beams are finished: early_stopping=True
};

struct beam_options {
  std::int64_t start_token = 0;  ///< the decoder's first token
  std::int64_t end_token = 1;
  std::size_t max_new_tokens = 64;
  std::size_t beams = 4;
  double length_penalty = 1;             ///< above 0 favours long texts, below 0 short ones
  std::size_t no_repeat_ngram_size = 0;  ///< n-grams of this length occur only once; 0: no limit
  beam_stop stop = beam_stop::hopeless;
};

namespace detail {

struct beam {
  double score = 0;  // the logarithm of its probability
  std::vector<std::int64_t> tokens = {};
};

/// The best finished texts, as many as beams.
class finished_beams {
 public:
  explicit finished_beams(const beam_options& options) : options_(options) {}

  void add(std::vector<std::int64_t> tokens, double sum) {
    best_.push_back({penalised(sum, tokens.size() - 1), std::move(tokens)});
    std::stable_sort(best_.begin(), best_.end(),
                     [](const beam& a, const beam& b) { return a.score > b.score; });
    if (best_.size() > options_.beams) best_.pop_back();
  }
  /// Whether the search is over when the best continuation has `sum` after `length` tokens.
  [[nodiscard]] bool done(double sum, std::size_t length) const {
    if (best_.size() < options_.beams) return false;
    return options_.stop == beam_stop::enough || best_.back().score >= penalised(sum, length);
  }
  [[nodiscard]] std::vector<std::int64_t> best() const {
    return {best_.front().tokens.begin() + 1, best_.front().tokens.end()};
  }

 private:
  [[nodiscard]] double penalised(double sum, std::size_t length) const {
    return sum / std::pow(static_cast<double>(length), options_.length_penalty);
  }
  const beam_options& options_;
  std::vector<beam> best_;
};

struct beam_candidate {
  double score;
  std::size_t from;
  std::int64_t token;
};

/// The tokens that would make the last `n` of `text`, after its start token, the same as `n` in a
/// row before.
[[nodiscard]] inline std::vector<std::int64_t> repeating_tokens(
    const std::vector<std::int64_t>& text, std::size_t n) {
  std::vector<std::int64_t> found;
  if (n == 0 || text.size() <= n) return found;
  const auto last = text.end() - static_cast<std::ptrdiff_t>(n - 1);
  for (auto at = text.begin() + 1; at != last; ++at) {
    if (std::equal(last, text.end(), at)) found.push_back(at[static_cast<std::ptrdiff_t>(n - 1)]);
  }
  return found;
}

/// Likelier first; of equal ones the earlier beam's, then the lower token.
[[nodiscard]] inline bool comes_before(const beam_candidate& a, const beam_candidate& b) noexcept {
  return a.score != b.score ? a.score > b.score
         : a.from != b.from ? a.from < b.from
                            : a.token < b.token;
}

/// The best `count` continuations of the beams, best first. logits is (beams, vocabulary).
template <typename T>
[[nodiscard]] std::vector<beam_candidate> best_candidates(const std::vector<beam>& beams,
                                                          const tensor<T>& logits,
                                                          std::size_t count,
                                                          std::size_t no_repeat) {
  const std::size_t vocabulary = logits.extent(1);
  count = std::min(count, beams.size() * vocabulary);
  std::vector<T> row(vocabulary);
  std::vector<beam_candidate> best;  // a heap: the worst of them is in front
  for (std::size_t b = 0; b < beams.size(); ++b) {
    const T* const x = logits.data() + b * vocabulary;
    require_numbers(std::span<const T>(x, vocabulary));
    const T highest = parx::detail::row_max(x, vocabulary);
    const T sum = parx::detail::row_exp(x, highest, vocabulary, row.data());
    const double shift =
        beams[b].score - static_cast<double>(highest) - std::log(static_cast<double>(sum));
    std::copy_n(x, vocabulary, row.data());
    for (const std::int64_t token : repeating_tokens(beams[b].tokens, no_repeat)) {
      row[static_cast<std::size_t>(token)] = -std::numeric_limits<T>::infinity();
    }
    for (std::size_t v = 0; v < vocabulary; ++v) {
      const double score = static_cast<double>(row[v]) + shift;
      // Beams and tokens are visited in ascending order, so on a tie the earlier one stays.
      if (best.size() == count && !(score > best.front().score)) continue;
      if (best.size() == count) {
        std::pop_heap(best.begin(), best.end(), comes_before);
        best.pop_back();
      }
      best.push_back({score, b, static_cast<std::int64_t>(v)});
      std::push_heap(best.begin(), best.end(), comes_before);
    }
  }
  std::sort_heap(best.begin(), best.end(), comes_before);
  return best;
}

}  // namespace detail

/// The tokens after start_token, up to and including end_token where it was reached. `next(tokens,
/// rows)` returns the logits (beams, vocabulary) of the next token of each row of `tokens` (beams,
/// positions); row b extends row rows[b] of the previous call by one token. Throws usage_error
/// without beams or tokens, errc::bad_data for logits that are NaN.
template <typename Next>
[[nodiscard]] std::vector<std::int64_t> beam_search(const beam_options& options, Next&& next) {
  require(options.beams > 0 && options.max_new_tokens > 0,
          "beam_search: {} beams and {} new tokens; both must be above 0", options.beams,
          options.max_new_tokens);
  detail::finished_beams finished(options);
  std::vector<detail::beam> running{{0, {options.start_token}}};
  std::vector<std::size_t> rows{0};
  bool done = false;
  for (std::size_t length = 1; length <= options.max_new_tokens && !done; ++length) {
    auto tokens = tensor<std::int64_t>::empty({running.size(), length});
    for (std::size_t b = 0; b < running.size(); ++b) {
      std::copy_n(running[b].tokens.data(), length, tokens.data() + b * length);
    }
    const auto candidates = detail::best_candidates(
        running, next(tokens, std::span<const std::size_t>(rows)).contiguous(), 2 * options.beams,
        options.no_repeat_ngram_size);
    std::vector<detail::beam> extended;
    rows.clear();
    for (std::size_t rank = 0; rank < candidates.size() && extended.size() < options.beams;
         ++rank) {
      const detail::beam_candidate& chosen = candidates[rank];
      std::vector<std::int64_t> text = running[chosen.from].tokens;
      text.push_back(chosen.token);
      if (chosen.token != options.end_token) {
        extended.push_back({chosen.score, std::move(text)});
        rows.push_back(chosen.from);
      } else if (rank < options.beams) {
        finished.add(std::move(text), chosen.score);
      }
    }
    running = std::move(extended);
    done = running.empty() || finished.done(candidates.front().score, length);
  }
  if (!done) {
    for (detail::beam& unfinished : running)
      finished.add(std::move(unfinished.tokens), unfinished.score);
  }
  return finished.best();
}

/// The text that `model`, an encoder_decoder or a class with the same interface, generates from
/// `source`, one text without padding. It ends at the model's last position at the latest.
/// Collective, with equal arguments, where the model is cut over ranks.
template <typename Model>
[[nodiscard]] std::vector<std::int64_t> beam_search(Model& model,
                                                    std::span<const std::int64_t> source,
                                                    beam_options options = {}) {
  const nn::evaluation_mode<Model> mode(model);
  const whole_positions positions;
  options.max_new_tokens = std::min(options.max_new_tokens, model.max_positions());
  const auto ids = tensor<std::int64_t>::from(source, {1, source.size()});
  const auto seen = tensor<std::uint8_t>::ones({1, source.size()});
  // Ranks with other options would end at other tokens, and wait for each other.
  const std::uint64_t given = parx::detail::fnv1a(
      formatted("{} {} {} {} {} {} {}", options.start_token, options.end_token,
                options.max_new_tokens, options.beams, options.length_penalty,
                options.no_repeat_ngram_size, static_cast<int>(options.stop)));
  auto cache = model.make_cache(ids, seen, options.max_new_tokens);
  const auto next = [&](const tensor<std::int64_t>& tokens, std::span<const std::size_t> rows) {
    cache.select(rows);
    const std::size_t length = tokens.extent(1);
    const auto logits =
        model.decode(tokens.slice(1, length - 1, length), &cache).value().select(1, 0);
    if (length == 1) detail::require_same_text(logits, source, "beam_search", given);
    return full_logits(logits);
  };
  return beam_search(options, next);
}

}  // namespace parx::models
