// Training steps of parx's models, wrapped and stepped: after the first ones they want no memory.
#include <parx/ddp.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include <count_allocations.hpp>
#include <ddp/ranks.hpp>

#include <parx/models.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

using namespace parx;

namespace {

constexpr std::size_t texts = 4, length = 16;

struct rank_state {
  process_group& group;
  std::string wrong = {};

  /// Whole steps of `model`, the fewest calls of operator new in one of them: at first, and when
  /// two ranks meet in another order than ever before, memory grows.
  template <typename Model, typename Loss>
  void train(const char* name, Model model, Loss loss_of) {
    model.initialize(1);
    parx::ddp ddp{model, group};
    optim::adamw opt{ddp.parameters(), {.lr = 1e-3F}};
    const auto targets = opt.targets();
    std::size_t fewest = std::numeric_limits<std::size_t>::max();
    for (int step = 0; step < 10; ++step) {
      const std::size_t before = parx_test::allocations;
      loss_of(ddp).backward();
      optim::scale_grad(targets, optim::grad_norm(targets), 1.0);
      opt.step();
      fewest = std::min(fewest, parx_test::allocations - before);
    }
    // What runs behind the back of backward is held by a handle each: buckets and counts.
    const std::size_t handles = ddp.bucket_count() + 2;
    if (fewest > handles) wrong += fmt::format("{}: {} allocations a step. ", name, fewest);
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_step_of_every_model_allocates_nothing_but_handles_after_warm_up) {
  const auto ids = tensor<std::int64_t>::zeros({texts, length});
  const auto mask = tensor<std::uint8_t>::ones({texts, length});
  const auto labels = tensor<std::int64_t>::zeros({texts});
  const auto images = tensor<float>::ones({texts, 1, 12, 12});
  for (const int world : {1, 2}) {
    const auto results = on_ranks(world, [&](process_group& group) {
      rank_state state{group};
      state.train("bert",
                  models::bert_classifier<float>({.vocab_size = 500,
                                                  .hidden_size = 32,
                                                  .intermediate_size = 64,
                                                  .max_position_embeddings = length}),
                  [&](auto& net) { return nn::cross_entropy(net(ids, mask), labels); });
      state.train("gpt",
                  models::gpt<float>({.vocab_size = 50, .n_positions = length, .n_embd = 32,
                                      .n_layer = 2, .n_head = 2}),
                  [&](auto& net) { return nn::cross_entropy(net(ids), ids); });
      state.train("llama",
                  models::llama<float>({.vocab_size = 50,
                                        .hidden_size = 32,
                                        .intermediate_size = 64,
                                        .num_hidden_layers = 2,
                                        .num_attention_heads = 4,
                                        .num_key_value_heads = 2,
                                        .max_position_embeddings = length}),
                  [&](auto& net) { return nn::cross_entropy(net(ids), ids); });
      state.train("encoder_decoder",
                  models::encoder_decoder<float>({.vocab_size = 50,
                                                  .d_model = 32,
                                                  .attention_heads = 2,
                                                  .ffn_dim = 64,
                                                  .max_position_embeddings = length}),
                  [&](auto& net) { return nn::cross_entropy(net(ids, mask, ids), ids); });
      state.train("cnn",
                  models::cnn<float>({.image_rows = 12, .image_columns = 12,
                                      .hidden_channels = 4, .hidden_size = 16}),
                  [&](auto& net) { return nn::cross_entropy(net(images), labels); });
      return state.wrong;
    });
    for (const std::string& each : results) BOOST_TEST(each == "", "world " << world);
  }
}
