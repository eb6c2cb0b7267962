// parx_plan: memory, traffic and time of each way to train a transformer on a cluster.
//
//   parx_plan --model gpt --layers 12 --width 768 --ranks 8 --hosts 2 --link 10gbit
//   parx_plan --model llama --layers 32 --width 4096 --ranks 64 --hosts 16 --memory 512 --markdown
#include <cstddef>
#include <string>

#include "common/options.hpp"
#include "tools/common/instructions.hpp"
#include "tools/parx_plan/native/measured_flops.hpp"
#include <parx/models.hpp>
#include <parx/plan.hpp>

namespace {

/// As examples::measured_flops(), where this processor can run that.
double flops_of_a_thread() {
  for (const std::string& each :
       parx::instructions_of(examples::needed_by_measured_flops)) {
    parx::require(parx::has_instructions(each),
                  "products of matrices were compiled for {}, which this processor does not have: "
                  "say by --gflops how fast it is",
                  each);
  }
  return examples::measured_flops();
}

cxxopts::Options flags() {
  using examples::text;
  const auto yes = cxxopts::value<bool>();
  cxxopts::Options options("parx_plan", "Memory, traffic and time of the ways to train a model\n"
                           "Guide: examples/guide/shard.md\n");
  options.add_options()("h,help", "print this")("markdown", "print a Markdown table", yes);
  options.add_options("Model")
      ("model", "gpt or llama", text("gpt"))
      ("layers", "of the transformer", text("12"))
      ("width", "a multiple of --heads", text("768"))
      ("heads", "of attention", text("12"))
      ("inner", "width of the feed-forward layers; 0: 4 x, of llama 8/3 x --width", text("0"))
      ("vocab-size", "tokens that there are", text("50257"));
  options.add_options("Step")
      ("batch-size", "sequences of one rank in one batch", text("8"))
      ("positions", "tokens of a sequence", text("1024"))
      ("gradient-accumulation-steps", "batches that make one step", text("1"))
      ("gradient-checkpointing", "compute activations again in backward", yes)
      ("optimizer-bytes", "state of a parameter: AdamW's 8; SGD's 0, with momentum 4", text("8"));
  options.add_options("Cluster")
      ("ranks", "in all", text("8"))
      ("hosts", "that share them equally", text("1"))
      ("link", "between hosts: 1gbit, 10gbit, 25gbit, 100gbit, 10gbit:50 (microseconds)",
       text("10gbit"))
      ("memory-link", "between ranks of a host, likewise", text("memory"))
      ("memory", "GB of a host; 0: as this machine", text("0"))
      ("threads", "of a rank", text("1"))
      ("gflops", "of a thread in matrix products; 0: as here", text("0"));
  return options;
}

template <typename Model>
parx::training_plan plan_of(Model model, const char* layers, const cxxopts::ParseResult& given,
                            const parx::transformer_sizes& sizes) {
  const auto whole = [&](const char* flag, std::size_t least) {
    return examples::number<std::size_t>(given, flag, least, 1'000'000);
  };
  const double gflops = examples::number(given, "gflops", 0.0, 1e9);
  const double memory = examples::number(given, "memory", 0.0, 1e9);
  parx::cluster machine;
  machine.ranks = static_cast<int>(whole("ranks", 1));
  machine.hosts = static_cast<int>(whole("hosts", 1));
  machine.network = parx::parse_link(given["link"].as<std::string>());
  machine.memory_link = parx::parse_link(given["memory-link"].as<std::string>());
  machine.flops = parx::flops_of_rank(gflops > 0 ? gflops * 1e9 : flops_of_a_thread(),
                                      static_cast<int>(whole("threads", 1)));
  machine.memory_of_host = static_cast<std::size_t>(memory * 1e9);
  const std::size_t optimizer_bytes = whole("optimizer-bytes", 0);
  return parx::plan(parx::shapes_of(model, {layers}), machine, parx::work_of(sizes),
                    {.optimizer_bytes = optimizer_bytes});
}

parx::training_plan plan_of(const cxxopts::ParseResult& given) {
  const auto size = [&](const char* flag, std::size_t least = 1) {
    return examples::number<std::size_t>(given, flag, least, 100'000'000);
  };
  const bool is_llama = examples::choice(given, "model", {"gpt", "llama"}) == "llama";
  const std::size_t width = size("width"), layers = size("layers"), heads = size("heads");
  const std::size_t usual = is_llama ? 8 * width / 3 : 4 * width;
  const std::size_t inner = size("inner", 0) > 0 ? size("inner", 0) : usual;
  parx::transformer_sizes sizes;
  sizes.layers = layers;
  sizes.width = width;
  sizes.inner = inner;
  sizes.vocabulary = size("vocab-size");
  sizes.batch = size("batch-size");
  sizes.positions = size("positions");
  sizes.micro_batches = size("gradient-accumulation-steps");
  sizes.form = is_llama ? parx::feed_forward::gated : parx::feed_forward::plain;
  sizes.kept = given["gradient-checkpointing"].as<bool>() ? parx::activations::computed_again
                                                          : parx::activations::kept;
  if (is_llama) {
    return plan_of(parx::models::llama<>{{.vocab_size = sizes.vocabulary, .hidden_size = width,
                                          .intermediate_size = inner, .num_hidden_layers = layers,
                                          .num_attention_heads = heads,
                                          .num_key_value_heads = heads,
                                          .max_position_embeddings = sizes.positions}},
                   "model.layers.*", given, sizes);
  }
  return plan_of(parx::models::gpt<>{{.vocab_size = sizes.vocabulary,
                                      .n_positions = sizes.positions, .n_embd = width,
                                      .n_layer = layers, .n_head = heads, .n_inner = inner}},
                 "transformer.h.*", given, sizes);
}

}  // namespace

int main(int argc, char** argv) {
  return examples::exit_code("parx_plan", [&] {
    cxxopts::Options options = flags();
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") != 0) {
      fmt::print("{}", options.help());
      return 0;
    }
    const auto made = plan_of(given);
    fmt::print("{}", given["markdown"].as<bool>() ? to_markdown(made) : to_text(made));
    return 0;
  });
}
