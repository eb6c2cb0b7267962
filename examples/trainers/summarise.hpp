// The evaluation of train_summarizer: ROUGE-L of its summaries, and of the texts' beginnings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "summary_flags.hpp"
#include "lead.hpp"
#include "rouge.hpp"
#include <parx/comm.hpp>
#include <parx/data.hpp>
#include <parx/launch.hpp>
#include <parx/models.hpp>
#include <parx/nn.hpp>

namespace examples {

/// Collective. Summarizes this rank's part of the pairs. Prints some summaries, and the mean
/// ROUGE-L (F1) over all ranks.
inline void summarise(parx::models::encoder_decoder<float>& model, const pair_list& pairs,
                      const data::sequence_pairs& encoded,
                      const data::wordpiece_tokenizer& tokenizer, const summary_settings& s,
                      parx::world& world) {
  auto search = s.search;
  search.start_token = encoded.start_id();
  search.end_token = encoded.end_id();
  std::size_t words = pairs.size() / 2;
  for (const auto& pair : pairs) words += rouge_words(pair.target).size();
  words /= pairs.size();
  parx::nn::tally written, first_sentence, first_words;
  const data::distributed_sampler sampler{
      pairs.size(), world, {.order = data::sample_order::sequential}};
  for (const auto& [index, weight] : sampler.entries(0)) {
    if (weight == 0) continue;  // padding, so that all ranks have equally many
    const auto& [source, target] = pairs[index];
    const auto ids = encoded.source(index);
    const auto tokens =
        parx::models::beam_search(model, std::vector<std::int64_t>(ids.begin(), ids.end()), search);
    const std::string summary =
        tokenizer.decode(std::vector<data::token_id>(tokens.begin(), tokens.end()));
    written += {rouge_l(summary, target).f1, 1};
    first_sentence += {rouge_l(lead_sentence(source), target).f1, 1};
    first_words += {rouge_l(lead_words(source, words), target).f1, 1};
    if (written.count <= static_cast<double>(s.samples)) {
      parx::print0(world, "text:    {} ...\nwanted:  {}\nwritten: {}\n\n",
                   lead_words(source, 30), target, summary);
    }
  }
  parx::print0(world,
               "test ROUGE-L: {:.2f} of {} summaries (first sentence {:.2f}, first {} words "
               "{:.2f})\n",
               100 * parx::global_mean(world, written), pairs.size(),
               100 * parx::global_mean(world, first_sentence), words,
               100 * parx::global_mean(world, first_words));
}

}  // namespace examples
