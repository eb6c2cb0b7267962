// Trains a language model, GPT-2's or Llama's, on the characters or the byte pairs of a text.
//   parxrun -n 2 build/release/bin/train_gpt --data tinyshakespeare/input.txt --output-dir out
//   srun -N 3 --ntasks-per-node=2 build/release/bin/train_gpt --data input.txt.gz --tokenizer bpe
// The last tenth of the text validates. eval_loss is a token's; the last line is a character's, in
// nats and in bits (nats / ln 2), so that tokenizers can be compared.
#include <array>
#include <cmath>
#include <functional>

#include "trainer_flags.hpp"
#include <parx/data.hpp>
#include <parx/ddp.hpp>
#include <parx/models.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace data = parx::data;
using ids = std::vector<data::token_id>;

namespace {
/// The two parts of a text in tokens, and what their tokenizer can do.
struct corpus {
  data::language_model train, held_out;
  double tokens_of_a_character;  // in the part that is held out
  std::size_t vocab_size;
  ids prompt;
  parx::models::sampling_options sampling;
  std::function<std::string(const ids&)> decode;
  parx::text_files files;
};

corpus read_corpus(const cxxopts::ParseResult& given) {
  const auto word = [&](const char* flag) { return given[flag].as<std::string>(); };
  const auto whole = [&](const char* flag, std::size_t least) {
    return examples::number<std::size_t>(given, flag, least, 1 << 24);
  };
  const std::string path = word("data"), kind = word("tokenizer"), prompt = word("prompt");
  const std::size_t block = whole("block-size", 1), size = whole("vocab-size", 257);
  const parx::models::sampling_options sampling{
      whole("sample", 0), examples::number(given, "temperature", 0.0, 1e6), whole("top-k", 0)};
  const std::string text = path.empty() ? data::generate_corpus(1'000'000) : data::read_text(path);
  std::size_t cut = text.size() / 10 * 9;
  while (cut < text.size() && (text[cut] & 0xC0) == 0x80) ++cut;  // not within a character
  const auto first = std::string_view(text).substr(0, cut),
             last = std::string_view(text).substr(cut);
  // Training samples begin at any token; those to validate with do not overlap.
  const auto samples = [&](const ids& tokens, std::size_t stride) {
    return data::language_model(data::token_shards::from(tokens),
                                {.context_length = block, .stride = stride});
  };
  const auto made = [&](const auto& tokenizer, parx::text_files files) {
    const ids validation = tokenizer.encode(last);
    return corpus{
        samples(tokenizer.encode(first), 1),
        samples(validation, block),
        static_cast<double>(validation.size()) / static_cast<double>(data::count_characters(last)),
        tokenizer.size(),
        prompt.empty() ? ids{validation.front()} : tokenizer.encode(prompt),
        sampling,
        [tokenizer](const ids& tokens) { return tokenizer.decode(tokens); },
        std::move(files)};
  };
  if (kind == "char") {
    const auto tokenizer = data::character_tokenizer::from_text(text);
    return made(tokenizer, {{"tokenizer.json", tokenizer.tokenizer_json()}});
  }
  using data::byte_bpe_tokenizer;
  const auto tokenizer = kind == "bpe"
                             ? byte_bpe_tokenizer::train(std::array{first}, {.vocab_size = size})
                             : byte_bpe_tokenizer::read(kind + "/vocab.json", kind + "/merges.txt");
  return made(tokenizer,
              {{"vocab.json", tokenizer.vocab_json()}, {"merges.txt", tokenizer.merges_txt()}});
}

template <typename Model>
void train(Model model, const corpus& text, const examples::trainer_settings& s,
           parx::world& world) {
  model.initialize(s.trainer.seed);
  parx::ddp ddp{model, world};
  parx::optim::adamw opt{parx::optim::decay_groups(
      ddp.parameters(), parx::optim::adamw_options{.beta2 = 0.99, .weight_decay = s.weight_decay})};
  const data::distributed_sampler share{text.train.size(), world, {.seed = s.trainer.seed}};
  const data::distributed_sampler part{
      text.held_out.size(), world, {.order = data::sample_order::sequential}};
  const data::loader loader{text.train,
                            {.batch_size = s.batch_size, .sampler = share, .workers = s.workers}};
  const data::loader held_out{text.held_out, {.batch_size = s.eval_batch_size, .sampler = part}};
  const auto loss_of = [](auto& net, const auto& batch) {
    return parx::nn::cross_entropy(net(batch.input_ids), batch.labels);
  };
  parx::train::trainer trainer{ddp, opt, loader, loss_of, s.trainer};
  trainer.add_evaluation(held_out, [&](auto& net, const auto& batch) -> parx::train::metrics {
    return {{"loss", loss_of(net, batch)}};
  });
  trainer.train();
  const double loss = trainer.evaluate().at("eval_loss") * text.tokens_of_a_character;
  parx::print0(world, "validation loss: {:.4f} nats a character ({:.4f} bits)\n", loss,
               loss / std::log(2.0));
  if (world.rank() != 0) return;
  if (!s.trainer.output_dir.empty()) {
    const std::string folder = s.trainer.output_dir + "/model";
    parx::save_pretrained(model, to_json(model.config()), folder, text.files);
    fmt::print("model: {}\n", folder);
  }
  const std::vector<std::int64_t> prompt(text.prompt.begin(), text.prompt.end());
  const auto written = parx::models::generate(model, prompt, text.sampling);
  fmt::print("{}{}\n", text.decode(text.prompt), text.decode({written.begin(), written.end()}));
}
}  // namespace

int main(int argc, char** argv) {
  const auto value = [](const char* given) {
    return cxxopts::value<std::string>()->default_value(given);
  };
  cxxopts::Options options("train_gpt", "Trains a language model, data parallel\n");
  options.add_options()("h,help", "print this")
      ("data", "a text file, .gz too; a generated text without it", value(""))
      ("tokenizer", "char, bpe, or a folder with vocab.json and merges.txt", value("char"))
      ("vocab-size", "tokens that bpe learns", value("1000"));
  options.add_options("Model")
      ("arch", "gpt or llama", value("gpt"))
      ("n-layer", "layers", value("4"))
      ("n-head", "heads of attention", value("4"))
      ("n-embd", "width, a multiple of --n-head", value("128"))
      ("block-size", "tokens of a sample", value("64"))
      ("dropout", "probability, for gpt", value("0"));
  options.add_options("Text written at the end")
      ("sample", "tokens to write", value("500"))
      ("temperature", "0: always the likeliest token", value("0.8"))
      ("top-k", "take one of so many likeliest tokens; 0: any", value("0"))
      ("prompt", "what it goes on from; without it, the first held-out token", value(""));
  examples::add_trainer_flags(
      options, {.trainer = {.max_steps = 2000, .learning_rate = 2e-3,
                            .lr_scheduler_type = parx::optim::decay::cosine, .warmup_ratio = 0.05,
                            .logging_steps = 100, .eval_strategy = parx::train::strategy::steps,
                            .eval_steps = 500, .save_total_limit = 2},
                .batch_size = 16, .weight_decay = 0.1});
  return parx::run([&](parx::world& world) {
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") != 0) return parx::print0(world, "{}", options.help());
    const auto s = examples::trainer_flags(given);
    const auto size = [&](const char* flag) {
      return examples::number<std::size_t>(given, flag, 1, 1 << 20);
    };
    const std::string arch = examples::choice(given, "arch", {"gpt", "llama"});
    const auto dropout = examples::number(given, "dropout", 0.0, 0.99);
    examples::start_run(world, s);
    const corpus text = read_corpus(given);
    parx::print0(world, "{} + {} tokens, a vocabulary of {}\n", text.train.tokens().size(),
                 text.held_out.tokens().size(), text.vocab_size);
    const std::size_t layers = size("n-layer"), heads = size("n-head"), width = size("n-embd");
    const std::size_t block = text.train.context_length();
    if (arch == "gpt") {
      train(parx::models::gpt<>{{.vocab_size = text.vocab_size,
                                 .n_positions = block,
                                 .n_embd = width,
                                 .n_layer = layers,
                                 .n_head = heads,
                                 .embd_pdrop = dropout,
                                 .attn_pdrop = dropout,
                                 .resid_pdrop = dropout}},
            text, s, world);
    } else {
      train(parx::models::llama<>{{.vocab_size = text.vocab_size, .hidden_size = width,
                                   .intermediate_size = 8 * width / 3, .num_hidden_layers = layers,
                                   .num_attention_heads = heads, .num_key_value_heads = heads,
                                   .max_position_embeddings = block}}, text, s, world);
    }
    examples::finish_run(world, s);
  });
}
