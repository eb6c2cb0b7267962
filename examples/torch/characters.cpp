// characters: a small transformer that predicts the next character of a text, data parallel.
//   parxrun -n 2 characters TEXT [STEPS]
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include <parx/torch.hpp>

#include <parx/comm/metrics.hpp>
#include <parx/comm/print.hpp>
#include <parx/launch.hpp>

namespace nn = torch::nn;

constexpr std::int64_t width = 64, heads = 4, context = 64, batch_size = 16;

struct block : nn::Module {
  block() {
    before = register_module("before", nn::LayerNorm(nn::LayerNormOptions({width})));
    qkv = register_module("qkv", nn::Linear(width, 3 * width));
    out = register_module("out", nn::Linear(width, width));
    between = register_module("between", nn::LayerNorm(nn::LayerNormOptions({width})));
    wide = register_module("wide", nn::Linear(width, 4 * width));
    narrow = register_module("narrow", nn::Linear(4 * width, width));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto rows = x.size(0), length = x.size(1);
    const auto parts = qkv(before(x)).view({rows, length, 3, heads, width / heads});
    const auto of = [&](int i) { return parts.select(2, i).transpose(1, 2); };
    const auto later = torch::ones({length, length}, torch::kBool).triu(1);
    const auto scores = torch::matmul(of(0), of(1).transpose(2, 3)) / 4.0;  // sqrt(width / heads)
    const auto weights = scores.masked_fill(later, -1e9).softmax(3);
    const auto seen = torch::matmul(weights, of(2)).transpose(1, 2).reshape({rows, length, width});
    const auto h = x + out(seen);
    return h + narrow(torch::gelu(wide(between(h))));
  }
  nn::LayerNorm before{nullptr}, between{nullptr};
  nn::Linear qkv{nullptr}, out{nullptr}, wide{nullptr}, narrow{nullptr};
};

struct transformer : nn::Module {
  transformer() {
    tokens = register_module("tokens", nn::Embedding(256, width));
    places = register_module("places", nn::Embedding(context, width));
    blocks = register_module("blocks", nn::ModuleList());
    for (int i = 0; i < 2; ++i) blocks->push_back(block());
    last = register_module("last", nn::Linear(width, 256));
  }
  torch::Tensor forward(const torch::Tensor& ids) {  // [rows, length] -> [rows, length, 256]
    auto h = tokens(ids) + places(torch::arange(ids.size(1)));
    for (const auto& each : *blocks) h = each->as<block>()->forward(h);
    return last(h);
  }
  nn::Embedding tokens{nullptr}, places{nullptr};
  nn::ModuleList blocks{nullptr};
  nn::Linear last{nullptr};
};

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s TEXT [STEPS]\n", argv[0]);
    return 2;
  }
  return parx::run([&](parx::world& world) {
    std::ifstream file(argv[1], std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text.size() <= context) throw std::runtime_error(std::string(argv[1]) + " has no text");
    const auto all =
        torch::from_blob(text.data(), {static_cast<std::int64_t>(text.size())}, torch::kByte)
            .to(torch::kLong);
    torch::manual_seed(1);
    transformer model;
    parx::torch_ddp ddp{model, world};
    torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-3));
    torch::manual_seed(static_cast<std::uint64_t>(world.rank()));  // each rank its own samples
    const int steps = argc > 2 ? std::stoi(argv[2]) : 200;
    for (int step = 1; step <= steps; ++step) {
      const auto first = torch::randint(all.size(0) - context - 1, {batch_size, 1}, torch::kLong);
      const auto x = all.index({first + torch::arange(context)});
      const auto y = all.index({first + torch::arange(1, context + 1)});
      const auto loss = torch::cross_entropy_loss(model.forward(x).flatten(0, 1), y.flatten());
      loss.backward();
      nn::utils::clip_grad_norm_(model.parameters(), 1.0);
      optimizer.step();
      optimizer.zero_grad();
      if (step % 50 == 0) {
        const double mean = parx::global_mean(world, loss.item<double>(), 1);
        parx::print0(world, "step {}: loss {:.3f}\n", step, mean);
      }
    }
  });
}
