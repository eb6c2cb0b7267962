// Trains a language model, GPT-2's or Llama's, on the characters or the byte pairs of a text.
//   parxrun -n 2 build/release/bin/train_gpt --data tinyshakespeare/input.txt --output-dir out
//   srun -N 3 --ntasks-per-node=2 build/release/bin/train_gpt --data input.txt.gz --tokenizer bpe
// The last tenth of the text is for validation. eval_loss is per token; the last line is per
// character, in nats and in bits (nats / ln 2), so that tokenizers can be compared.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "corpus_flags.hpp"
#include "parallel_flags.hpp"
#include "trainer_flags.hpp"
#include <parx/data.hpp>
#include <parx/models.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>
#include <parx/parallel.hpp>
#include <parx/train.hpp>

namespace data = parx::data;

namespace {

using language_model = parx::parallel_model<float, parx::tensor<data::token_id>>;

void train(language_model& model, const parx::json::value& config, const examples::corpus& text,
           const examples::trainer_settings& s, parx::world& world) {
  parx::optim::adamw opt{parx::optim::decay_groups(
      model.parameters(),
      parx::optim::adamw_options{.beta2 = 0.99, .weight_decay = s.weight_decay})};
  const data::loader loader{text.train, model, {.batch_size = s.batch_size,
                                                .samples = {.seed = s.trainer.seed},
                                                .workers = s.workers}};
  const data::loader held_out{text.held_out, model,
                              {.batch_size = s.eval_batch_size,
                               .samples = {.order = data::sample_order::sequential}}};
  const auto loss = [](const auto& logits, const auto& batch) {
    return parx::nn::cross_entropy(logits, batch.labels);
  };
  parx::train::trainer trainer{
      model, opt, loader,
      [&](auto& net, const auto& batch) { return net.forward_backward(batch, loss); }, s.trainer};
  trainer.add_evaluation(held_out, [&](auto& net, const auto& batch) -> parx::train::metrics {
    return {{"loss", net.evaluate(batch, loss)}};
  });
  trainer.train();
  const double nats = trainer.evaluate().at("eval_loss") * text.tokens_per_character;
  parx::print0(world, "validation loss: {:.4f} nats a character ({:.4f} bits)\n", nats,
               nats / std::log(2.0));
  if (!s.trainer.output_dir.empty()) {
    const std::string folder = s.trainer.output_dir + "/model";
    parx::save_pretrained(model, config, folder, text.files);
    parx::print0(world, "model: {}\n", folder);
  }
  const std::vector<std::int64_t> prompt(text.prompt.begin(), text.prompt.end());
  const auto tokens = parx::generate(model, prompt, text.sampling);
  parx::print0(world, "{}{}\n", text.decode(text.prompt),
               text.decode({tokens.begin(), tokens.end()}));
}

template <typename Model>
void train(Model net, const examples::corpus& text, const examples::trainer_settings& s,
           const parx::layout& layout, parx::world& world) {
  parx::parallel model{net, world, layout};
  model.initialize(s.trainer.seed);
  train(model, to_json(net.config()), text, s, world);
}

}  // namespace

int main(int argc, char** argv) {
  using examples::text;
  cxxopts::Options options("train_gpt", "Trains a language model\n"
                           "Guide: examples/guide/trainer.md\n");
  options.add_options()("h,help", "print this");
  examples::add_corpus_flags(options);
  examples::add_parallel_flag(options);
  options.add_options("Model")
      ("arch", "gpt or llama", text("gpt"))
      ("n-layer", "layers", text("4"))
      ("n-head", "heads of attention", text("4"))
      ("n-embd", "width, a multiple of --n-head", text("128"))
      ("dropout", "probability, for gpt", text("0"));
  examples::add_trainer_flags(
      options, {.trainer = {.max_steps = 2000, .learning_rate = 2e-3,
                            .lr_scheduler_type = parx::optim::decay::cosine, .warmup_ratio = 0.05,
                            .logging_steps = 100, .eval_strategy = parx::train::strategy::steps,
                            .eval_steps = 500, .save_total_limit = 2},
                .batch_size = 16, .weight_decay = 0.1});
  return parx::run([&](parx::world& world) {
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") != 0) return parx::print0(world, "{}", options.help());
    if (given["prepare"].as<bool>()) {
      return parx::print0(world,
                          "there is nothing to prepare: train_gpt keeps no cache, each rank reads "
                          "the text of --data itself\n");
    }
    const auto s = examples::trainer_flags(given, world);
    const parx::layout layout = examples::parallel_flag(given);
    const auto size = [&](const char* flag) {
      return examples::number<std::size_t>(given, flag, 1, 1 << 20);
    };
    const std::string arch = examples::choice(given, "arch", {"gpt", "llama"});
    const auto dropout = examples::number(given, "dropout", 0.0, 0.99);
    examples::start_run(world, s);
    const examples::corpus text = examples::read_corpus(given);
    parx::print0(world, "{} + {} tokens, a vocabulary of {}\n", text.train.tokens().size(),
                 text.held_out.tokens().size(), text.vocab_size);
    const std::size_t layers = size("n-layer"), heads = size("n-head"), width = size("n-embd");
    const std::size_t block = text.train.context_length();
    if (arch == "gpt") {
      train(
          parx::models::gpt<>{{.vocab_size = text.vocab_size,
                               .n_positions = block,
                               .n_embd = width,
                               .n_layer = layers,
                               .n_head = heads,
                               .embd_pdrop = dropout,
                               .attn_pdrop = dropout,
                               .resid_pdrop = dropout}},
          text, s, layout, world);
    } else {
      train(
          parx::models::llama<>{{.vocab_size = text.vocab_size,
                                 .hidden_size = width,
                                 .intermediate_size = 8 * width / 3,
                                 .num_hidden_layers = layers,
                                 .num_attention_heads = heads,
                                 .num_key_value_heads = heads,
                                 .max_position_embeddings = block}},
          text, s, layout, world);
    }
    examples::finish_run(world, s);
  });
}
