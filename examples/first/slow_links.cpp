// slow_links: a small language model trained over slow links, three ways with one loop:
//
//   parxrun -n 2 build/release/bin/slow_links --with ddp       # gradients are summed in every step
//   parxrun -n 2 build/release/bin/slow_links --with local_sgd # parameters are averaged every H
//   steps parxrun -n 2 build/release/bin/slow_links --with diloco    # an outer optimizer every H
//   steps
//
// Prints tokens a second and the loss on held-out text.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/generated_text.hpp"
#include "common/options.hpp"
#include <parx/data.hpp>
#include <parx/ddp.hpp>
#include <parx/ddp/diloco.hpp>
#include <parx/ddp/local_sgd.hpp>
#include <parx/models.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

constexpr std::size_t positions = 64;

/// `count` samples of a text at places that `seed` chooses: bytes, and the bytes that follow them.
parx::data::language_model_batch samples_at(const std::string& text, std::uint64_t seed,
                                            std::size_t count) {
  auto ids = parx::tensor<std::int32_t>::empty({count, positions});
  auto labels = parx::tensor<std::int64_t>::empty({count, positions});
  for (std::size_t row = 0; row < count; ++row) {
    const std::uint64_t at =
        parx::detail::fnv1a(std::to_string(seed * 1'000'003 + row)) % (text.size() - positions - 1);
    for (std::size_t i = 0; i < positions; ++i) {
      ids.data()[row * positions + i] = static_cast<unsigned char>(text[at + i]);
      labels.data()[row * positions + i] = static_cast<unsigned char>(text[at + i + 1]);
    }
  }
  return {ids, labels, {}};
}

int train(const cxxopts::ParseResult& given) {
  const std::string with = examples::choice(given, "with", {"ddp", "local_sgd", "diloco"});
  const auto steps = examples::number<std::uint64_t>(given, "steps", 1, 1'000'000);
  const auto every = examples::number<std::uint64_t>(given, "sync-every", 1, 1'000'000);
  const auto width = examples::number<std::size_t>(given, "width", 16, 4096);
  return parx::run([&](parx::world& world) {
    const std::string text = examples::generate_corpus(400'000);
    const std::string train_text = text.substr(0, 360'000), held_out = text.substr(360'000);
    parx::models::gpt<> model{{.vocab_size = 256,
                               .n_positions = positions,
                               .n_embd = width,
                               .n_layer = 2,
                               .n_head = 4,
                               .embd_pdrop = 0,
                               .attn_pdrop = 0,
                               .resid_pdrop = 0}};
    model.initialize(1);
    std::optional<parx::ddp<parx::models::gpt<>>> ddp;
    std::optional<parx::local_sgd<float>> average;
    std::optional<parx::diloco<float>> outer;
    if (with == "ddp") ddp.emplace(model, world);
    if (with == "local_sgd")
      average.emplace(model.parameters(), world, parx::local_sgd_options{.sync_every = every});
    if (with == "diloco")
      outer.emplace(model.parameters(), world, parx::diloco_options{.sync_every = every});
    parx::optim::adamw opt{ddp ? ddp->parameters() : model.parameters(), {.lr = 1e-3}};
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t step = 0; step < steps; ++step) {
      const auto batch = samples_at(train_text,
                                    step * static_cast<std::uint64_t>(world.size()) +
                                        static_cast<std::uint64_t>(world.rank()),
                                    8);
      const auto logits = ddp ? (*ddp)(batch.input_ids) : model(batch.input_ids);
      parx::nn::cross_entropy(logits, batch.labels).backward();
      opt.step();
      if (average) average->step();
      if (outer) outer->step();
    }
    if (average) average->synchronize();
    if (outer) outer->synchronize();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const double tokens = static_cast<double>(steps) * 8 * positions * world.size();
    const parx::no_grad guard;
    const auto batch = samples_at(held_out, 7, 64);
    const double loss = parx::nn::cross_entropy(model(batch.input_ids), batch.labels).mean();
    parx::print0(world, "{}: {:.0f} tokens/s, {:.1f} s, held-out loss {:.4f}\n", with,
                 tokens / took.count(), took.count(), loss);
  });
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options("slow_links", "A language model trained over slow links\n"
                           "Guide: examples/guide/features.md\n");
  options.add_options()("h,help", "print this")("with", "ddp, local_sgd or diloco",
                                                examples::text("ddp"))(
      "steps", "of the optimizer on each rank", examples::text("400"))(
      "sync-every", "steps from one synchronisation to the next", examples::text("20"))(
      "width", "of the model", examples::text("128"));
  return examples::exit_code("slow_links", [&] {
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") == 0) return train(given);
    fmt::print("{}", options.help());
    return 0;
  });
}
