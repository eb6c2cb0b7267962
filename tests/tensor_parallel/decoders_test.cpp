// GPT and Llama whose layers are cut over ranks, against the same models on one.
#include <parx/tensor_parallel/plans.hpp>

#include <tensor_parallel/against_dense.hpp>

using namespace parx::models;
using parx::nn::between_cuts;

namespace {

constexpr std::size_t words = 37;

const parx::cross_entropy_options smooth{.ignore_index = 3, .label_smoothing = 0.1};
const auto smooth_loss = [](auto& model) {
  return parx::cross_entropy(model(tokens(words, 12, 7)), tokens(words, 12, 11), smooth);
};
const auto plan_with = [](between_cuts between) {
  return [=](auto& model) { return parx::tp::ready_plan(model, between); };
};

gpt<> small_gpt() {
  return gpt<>({.vocab_size = words, .n_positions = 16, .n_embd = 16, .n_layer = 2, .n_head = 4,
                .n_inner = 18, .embd_pdrop = 0.1, .attn_pdrop = 0.2, .resid_pdrop = 0.1,
                .initializer_range = 0.3});
}
llama<> small_llama(std::size_t kv_heads, word_embeddings embeddings) {
  return llama<>({.vocab_size = words, .hidden_size = 16, .intermediate_size = 22,
                  .num_hidden_layers = 2, .num_attention_heads = 4,
                  .num_key_value_heads = kv_heads, .max_position_embeddings = 16,
                  .initializer_range = 0.3, .embeddings = embeddings});
}

}  // namespace

BOOST_AUTO_TEST_CASE(gpt_has_the_loss_and_gradients_of_one_rank_with_the_same_dropout) {
  require_equal_to_dense({1, 2, 3, 4}, small_gpt, plan_with(between_cuts::whole), smooth_loss);
}

BOOST_AUTO_TEST_CASE(sequence_parallel_gpt_has_them_too) {
  require_equal_to_dense({2, 3, 4}, small_gpt, plan_with(between_cuts::positions), smooth_loss);
}

BOOST_AUTO_TEST_CASE(llama_has_them_with_fewer_heads_of_keys_than_ranks) {
  for (const std::size_t kv_heads : {1U, 2U, 4U}) {
    const auto make = [=] { return small_llama(kv_heads, word_embeddings::apart); };
    require_equal_to_dense({2, 4}, make, plan_with(between_cuts::whole), smooth_loss);
  }
}

BOOST_AUTO_TEST_CASE(sequence_parallel_llama_has_them_with_tied_and_separate_words) {
  for (const auto embeddings : {word_embeddings::apart, word_embeddings::tied}) {
    const auto make = [=] { return small_llama(2, embeddings); };
    require_equal_to_dense({2, 3, 4}, make, plan_with(between_cuts::positions), smooth_loss);
  }
}
