// Trains a BERT text classifier with the trainer: AG News, other labelled texts, or built-in ones.
//   parxrun -n 2 build/release/bin/train_tinybert --data ag_news --vocab vocab.txt --output-dir out
//   srun -N 3 --ntasks-per-node=2 build/release/bin/train_tinybert --data ag_news --output-dir out
// The defaults for dropout and label smoothing suit some 10 000 texts. For many more texts:
//   --learning-rate 5e-4 --dropout 0.1 --token-dropout 0 --label-smoothing-factor 0
#include <string>

#include "parallel_flags.hpp"
#include "text_flags.hpp"
#include "trainer_flags.hpp"
#include <parx/data.hpp>
#include <parx/models.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>
#include <parx/parallel.hpp>

namespace data = parx::data;

namespace {

parx::models::bert_config read_config(const cxxopts::ParseResult& given) {
  const auto size = [&](const char* flag) {
    return examples::number<std::size_t>(given, flag, 1, 1 << 20);
  };
  parx::models::bert_config config;
  config.hidden_size = size("hidden-size");
  config.num_hidden_layers = size("num-hidden-layers");
  config.num_attention_heads = size("num-attention-heads");
  config.intermediate_size = size("intermediate-size");
  config.max_position_embeddings = size("max-position-embeddings");
  config.hidden_dropout_prob = examples::number(given, "dropout", 0.0, 0.99);
  config.attention_probs_dropout_prob = config.hidden_dropout_prob;
  parx::require(size("max-length") <= config.max_position_embeddings,
                "--max-length {}: the model has {} positions; raise --max-position-embeddings",
                size("max-length"), config.max_position_embeddings);
  parx::require(config.hidden_size % config.num_attention_heads == 0,
                "--hidden-size {} is not a multiple of --num-attention-heads {}",
                config.hidden_size, config.num_attention_heads);
  return config;
}

/// The options to load this rank's share of the texts, which are dealt to `parts`. A step has texts
/// of similar length.
data::loader_options share(const data::text_classification& texts, data::sample_order order,
                           std::size_t batch_size, const examples::trainer_settings& s,
                           int parts) {
  // Grouped by the whole step, so that a run resumes in the same order on another number of ranks.
  const std::size_t batch = batch_size * static_cast<std::size_t>(parts) *
                            s.trainer.gradient_accumulation_steps;
  return {.batch_size = batch_size,
          .samples = {.order = order, .seed = s.trainer.seed,
                      .group_by_length = {texts.lengths(), batch}},
          .workers = s.workers};
}

}  // namespace

int main(int argc, char** argv) {
  using examples::text;
  cxxopts::Options options("train_tinybert",
                           "Trains a BERT text classifier\nGuide: examples/guide/trainer.md\n");
  options.add_options()("h,help", "print this");
  examples::add_text_flags(options);
  examples::add_parallel_flag(options);
  options.add_options("Model")
      ("hidden-size", "width of the model", text("64"))
      ("num-hidden-layers", "layers", text("2"))
      ("num-attention-heads", "heads of each layer", text("2"))
      ("intermediate-size", "width inside a layer", text("256"))
      ("max-position-embeddings", "tokens of the longest text", text("256"))
      ("dropout", "of hidden values and attention", text("0.2"))
      ("token-dropout", "fraction of the tokens replaced by [UNK] in training", text("0.5"))
      ("label-smoothing-factor", "fraction of a label spread over all classes", text("0.1"));
  using parx::train::strategy;
  examples::add_trainer_flags(
      options, {.trainer = {.num_train_epochs = 6, .learning_rate = 1e-3, .warmup_ratio = 0.1,
                            .logging_steps = 100, .eval_strategy = strategy::epoch,
                            .save_strategy = strategy::epoch, .save_total_limit = 2,
                            .metric_for_best_model = "accuracy"}, .batch_size = 16});
  return parx::run([&](parx::world& world) {
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") != 0) return parx::print0(world, "{}", options.help());
    const auto s = examples::trainer_flags(given, world, {"loss", "accuracy"});
    const parx::layout layout = examples::parallel_flag(given);
    parx::models::bert_config config = read_config(given);
    const double smoothing = examples::number(given, "label-smoothing-factor", 0.0, 1.0);
    const double hidden = examples::number(given, "token-dropout", 0.0, 1.0);
    examples::start_run(world, s);
    const auto source = examples::text_flags(given);
    const auto words = examples::make_tokenizer(source);
    const auto& tokenizer = words.tokenizer;
    const auto read = examples::read_texts(source, tokenizer);
    const auto &texts = read.train, &held_out = read.test;
    const auto& counts = texts.counts();
    parx::print0(world, "{} + {} texts of {:.1f} tokens, {} cut; vocabulary of {}\n", texts.size(),
                 held_out.size(),
                 static_cast<double>(counts.tokens) / static_cast<double>(texts.size()),
                 counts.truncated_rows, tokenizer.size());
    if (examples::are_prepared(world, given, source, words, read, argc, argv)) return;
    config.vocab_size = tokenizer.size();
    config.num_labels = texts.classes();
    parx::models::bert_classifier<float> net(config);
    parx::parallel model{net, world, layout};
    model.initialize(s.trainer.seed);
    using enum data::sample_order;
    const data::loader loader{texts, model,
                              share(texts, shuffled, s.batch_size, s, model.data_parts())};
    const data::loader test{held_out, model,
                            share(held_out, sequential, s.eval_batch_size, s,
                                  model.data_group().size())};
    parx::optim::adamw opt{parx::optim::decay_groups(
        model.parameters(), parx::optim::adamw_options{.weight_decay = s.weight_decay})};
    std::uint64_t step = 0;
    parx::train::trainer trainer{
        model, opt, loader,
        [&](auto& wrapped, const auto& batch) {
          auto seen = batch;
          const auto mine = wrapped.replicas();
          const auto first_row = batch.size() * std::size_t(mine.first) / std::size_t(mine.size());
          seen.input_ids = examples::hidden_tokens(
              batch.input_ids, tokenizer.special(), {hidden, tokenizer.unknown_id(), first_row},
              parx::train::step_seed(s.trainer.seed, step, 0));
          return wrapped.forward_backward(seen, [&](const auto& logits, const auto& part) {
            return parx::nn::cross_entropy(
                logits, part.labels,
                {.row_weights = part.weights, .label_smoothing = smoothing});
          });
        },
        s.trainer};
    const auto count_steps = [&](const auto& state) { step = state.global_step; };
    trainer.add_callbacks({.on_train_begin = count_steps, .on_step_end = count_steps});
    trainer.add_evaluation(test, [](auto& wrapped, const auto& batch) {
      return wrapped.evaluate(
          batch, [](const auto& logits, const auto& part) -> parx::train::metrics {
            const parx::cross_entropy_options weighted{.row_weights = part.weights};
            return {{"loss", parx::nn::cross_entropy(logits, part.labels, weighted)},
                    {"accuracy", parx::nn::accuracy(logits, part.labels, weighted)}};
          });
    });
    trainer.train();
    parx::print0(world, "test accuracy: {:.2f} % of {} texts\n",
                 100 * trainer.evaluate().at("eval_accuracy"), held_out.size());
    if (const std::string& folder = s.trainer.output_dir; !folder.empty()) {
      parx::save_pretrained(model, to_json(config), folder + "/model",
                            parx::bert_tokenizer_files(tokenizer.tokens().text()));
      parx::print0(world, "model: {}/model\n", folder);
    }
    examples::finish_run(world, s);
  });
}
