// Trains a transformer that writes the summary of a text, on XSum-like pairs or built-in notes, and
// prints the ROUGE-L of its held-out summaries beside that of the texts' beginnings.
//   export PATH=$PATH:$PWD/build/release/bin
//   parxrun -n 2 train_summarizer --train train.jsonl.gz --test test.jsonl.gz --output-dir out
//   srun -n 6 train_summarizer --train a.tsv --test b.tsv --source 2 --target 1
//   parxrun -n 2 train_summarizer --eval-only out/model --test other.jsonl.gz --beams 8
#include <algorithm>
#include <string>
#include <vector>

#include "parallel_flags.hpp"
#include "summarise.hpp"
#include "summary_flags.hpp"
#include "trainer_flags.hpp"
#include <parx/checkpoint.hpp>
#include <parx/data.hpp>
#include <parx/models.hpp>
#include <parx/optim.hpp>
#include <parx/parallel.hpp>
#include <parx/train.hpp>

namespace data = parx::data;
namespace models = parx::models;
namespace nn = parx::nn;

int main(int argc, char** argv) {
  cxxopts::Options options(
      "train_summarizer", "Trains an encoder-decoder transformer on pairs of texts\n"
                         "Guide: examples/guide/trainer.md");
  options.add_options()("h,help", "print this");
  examples::add_summary_flags(options);
  examples::add_parallel_flag(options);
  examples::add_trainer_flags(options, {.trainer = {.num_train_epochs = 6,
                                                    .learning_rate = 0.001,
                                                    .warmup_ratio = 0.1,
                                                    .logging_steps = 100,
                                                    .eval_strategy = parx::train::strategy::epoch,
                                                    .save_strategy = parx::train::strategy::epoch,
                                                    .save_total_limit = 2},
                                        .batch_size = 16});
  return parx::run([&](parx::world& world) {
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") != 0) return parx::print0(world, "{}", options.help());
    const auto training = examples::trainer_flags(given, world);
    const parx::layout layout = examples::parallel_flag(given);
    auto s = examples::summary_flags(given);
    examples::start_run(world, training);

    const std::size_t built_in = examples::built_in_pairs;
    const auto test_pairs = examples::read_pairs(s.test, s.columns, built_in, 500);
    const auto words = examples::make_tokenizer(s);
    const auto& tokenizer = words.tokenizer;
    const auto test = examples::read_tokens(s.test, s, tokenizer, built_in, 500);
    s.model.vocab_size = tokenizer.size();
    if (!s.trained.empty()) {
      s.model = models::encoder_decoder_config_from(parx::load_config(s.trained));
    }
    parx::require(s.model.vocab_size == tokenizer.size(),
                  "--eval-only {}: its vocab.txt has {} tokens, but its config.json says {}; use "
                  "the vocab.txt that the model was trained with",
                  s.trained, tokenizer.size(), s.model.vocab_size);
    // Positions are sines, not parameters, so there can be more of them than in training.
    s.model.max_position_embeddings =
        std::max(s.lengths.max_source_length, s.lengths.max_target_length);
    models::encoder_decoder<float> net(s.model);
    if (!s.trained.empty()) {
      parx::load_pretrained(net, parx::json::object{}, s.trained);
      parx::print0(world, "{} pairs, {} texts cut\n", test.size(), test.counts().truncated_rows);
      return examples::summarise(net, test_pairs, test, tokenizer, s, world);
    }

    const auto train = examples::read_tokens(s.train, s, tokenizer, 0, built_in);
    parx::print0(world, "{} + {} pairs, {} + {} texts cut; vocabulary of {}\n", train.size(),
                 test.size(), train.counts().truncated_rows, test.counts().truncated_rows,
                 tokenizer.size());
    if (!s.train.empty()) {
      std::vector<examples::cached_part> parts;
      parts.push_back({examples::vocabulary_text(tokenizer, train), words.cached});
      parts.push_back({"tokens of " + s.train, train.cached()});
      parts.push_back({"tokens of " + s.test, test.cached()});
      if (examples::is_prepared(world, given, s.lengths.cache, parts, argc, argv)) return;
    }
    parx::parallel model{net, world, layout};
    model.initialize(training.trainer.seed);
    const std::size_t step_size = training.batch_size *
                                  static_cast<std::size_t>(model.data_parts()) *
                                  training.trainer.gradient_accumulation_steps;
    const data::length_groups similar_lengths{.lengths = train.lengths(), .batch = step_size};
    const data::loader loader{train, model,
                              {.batch_size = training.batch_size,
                               .samples = {.seed = training.trainer.seed,
                                           .group_by_length = similar_lengths},
                               .workers = training.workers}};
    const data::loader held_out{test, model,
                                {.batch_size = training.eval_batch_size,
                                 .samples = {.order = data::sample_order::sequential}}};
    const auto loss = [](double smoothing) {
      return [smoothing](const auto& logits, const auto& batch) {
        return nn::cross_entropy(logits, batch.labels, {.label_smoothing = smoothing});
      };
    };
    parx::optim::adamw opt{parx::optim::decay_groups(
        model.parameters(), parx::optim::adamw_options{.weight_decay = training.weight_decay})};
    parx::train::trainer trainer{model, opt, loader,
                                 [&](auto& wrapped, const auto& batch) {
                                   return wrapped.forward_backward(batch, loss(s.label_smoothing));
                                 },
                                 training.trainer};
    trainer.add_evaluation(
        held_out, [&](auto& wrapped, const auto& batch) -> parx::train::metrics {
          return {{"loss", wrapped.evaluate(batch, loss(0))}};
        });
    trainer.train();
    if (const auto& folder = training.trainer.output_dir; !folder.empty()) {
      parx::save_pretrained(model, to_json(s.model), folder + "/model",
                            parx::bert_tokenizer_files(tokenizer.tokens().text()));
      parx::print0(world, "model: {}/model\n", folder);
    }
    // Summaries have different lengths, so ranks cannot generate in step: each needs a whole model.
    models::encoder_decoder<float> whole(s.model);
    model.copy_values_to(whole);
    examples::summarise(whole, test_pairs, test, tokenizer, s, world);
    examples::finish_run(world, training);
  });
}
