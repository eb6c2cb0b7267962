#include <parx/fsdp.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <ddp/ranks.hpp>

#include <parx/autograd.hpp>
#include <parx/ddp.hpp>
#include <parx/models.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using parx::tensor;
namespace models = parx::models;

constexpr models::llama_config small_llama{.vocab_size = 61,
                                           .hidden_size = 24,
                                           .intermediate_size = 40,
                                           .num_hidden_layers = 3,
                                           .num_attention_heads = 2,
                                           .num_key_value_heads = 1,
                                           .max_position_embeddings = 16};
constexpr models::gpt_config small_gpt{
    .vocab_size = 53, .n_positions = 16, .n_embd = 20, .n_layer = 3, .n_head = 2};

// Token ids that differ from rank to rank and step to step.
tensor<std::int64_t> tokens(int rank, int step, std::size_t vocabulary) {
  tensor<std::int64_t> ids = tensor<std::int64_t>::empty({2, 7});
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids.data()[i] = static_cast<std::int64_t>(
        (i * 31 + static_cast<std::size_t>(rank) * 17 + static_cast<std::size_t>(step) * 7) %
        vocabulary);
  }
  return ids;
}

// What a run ends with: the hash of all values and the losses and norms of its steps.
struct outcome {
  std::uint64_t hash = 0;
  std::vector<double> seen;
  friend bool operator==(const outcome&, const outcome&) = default;
};

template <typename Wrapper, typename Clip>
outcome train(Wrapper& wrapper, parx::process_group& group, std::size_t vocabulary, Clip clip) {
  parx::optim::adamw opt{wrapper.parameters(), {.lr = 1e-2}};
  outcome found;
  for (int step = 0; step < 8; ++step) {
    const auto ids = tokens(group.rank(), step, vocabulary);
    const auto loss = parx::nn::cross_entropy(wrapper(ids), ids);
    found.seen.push_back(static_cast<double>(loss.mean()));
    loss.backward();
    found.seen.push_back(clip());
    opt.step();
  }
  found.hash = wrapper.values_hash();
  return found;
}

template <typename Model, typename Config>
std::vector<outcome> with_ddp(int world, const Config& config) {
  return on_ranks(world, [&](parx::process_group& group) {
    Model model{config};
    model.initialize(7);
    parx::ddp ddp{model, group, {.order = parx::reduction_order::serial}};
    return train(ddp, group, config.vocab_size,
                 [&] { return parx::optim::clip_grad_norm(ddp.parameters(), 0.5); });
  });
}

template <typename Model, typename Config>
std::vector<outcome> with_fsdp(int world, const Config& config, parx::fsdp_options options) {
  return on_ranks(world, [&](parx::process_group& group) {
    Model model{config};
    parx::fsdp fsdp{model, group, options};
    fsdp.initialize(7);
    return train(fsdp, group, config.vocab_size,
                 [&] { return parx::optim::clip_grad_norm(fsdp.parameters(), 0.5); });
  });
}

template <typename Model, typename Layer, typename Config>
void check_same_bits(const Config& config) {
  for (const int world : {1, 2, 3}) {
    const auto expected = with_ddp<Model>(world, config);
    for (const int stage : {1, 2, 3}) {
      const auto found =
          with_fsdp<Model>(world, config, {.stage = stage, .units = parx::by_type<Layer>});
      BOOST_TEST((found == expected), "stage " << stage << " on " << world << " ranks: loss "
                                               << found[0].seen.back() << " and "
                                               << expected[0].seen.back());
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_stage_trains_a_llama_to_the_bits_of_ddp) {
  check_same_bits<models::llama<>, models::llama_layer<>>(small_llama);
}

BOOST_AUTO_TEST_CASE(every_stage_trains_a_gpt_with_dropout_and_a_tied_head_to_the_bits_of_ddp) {
  check_same_bits<models::gpt<>, models::gpt_block<>>(small_gpt);
}
