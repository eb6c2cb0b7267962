// BERT and the encoder-decoder whose layers are cut over ranks, against the same models on one.
#include <parx/tensor_parallel/plans.hpp>

#include <tensor_parallel/against_dense.hpp>

using namespace parx::models;
using parx::nn::between_cuts;
using parx::tensor;

namespace {

constexpr std::size_t words = 37;

/// The last positions of the second text are padding.
tensor<int> mask_of(std::size_t positions) {
  const auto mask = tensor<int>::ones({2, positions});
  mask.at(1, positions - 1) = mask.at(1, positions - 2) = 0;
  return mask;
}

bert_classifier<> small_bert(std::size_t layers) {
  return bert_classifier<>({.vocab_size = words, .hidden_size = 16, .num_hidden_layers = layers,
                            .num_attention_heads = 4, .intermediate_size = 18,
                            .max_position_embeddings = 16, .num_labels = 3,
                            .initializer_range = 0.3});
}
encoder_decoder<> small_translator() {
  return encoder_decoder<>({.vocab_size = words, .d_model = 16, .encoder_layers = 2,
                            .decoder_layers = 2, .attention_heads = 4, .ffn_dim = 18,
                            .max_position_embeddings = 24});
}
auto translated(encoder_decoder<>& model) {
  return model(tokens(words, 12, 7), mask_of(12), tokens(words, 24, 5));
}

}  // namespace

namespace {

void require_bert(std::vector<int> worlds, std::size_t layers, std::size_t positions,
                  between_cuts between) {
  const auto labels = tensor<int>::from({2, 0}, {2});
  const auto logits = [=](bert_classifier<>& model) {
    return model(tokens(words, positions, 7), mask_of(positions));
  };
  require_equal_to_dense(
      std::move(worlds), [=] { return small_bert(layers); },
      [=](auto& model) { return parx::tp::ready_plan(model, between); },
      [&](auto& model) { return parx::cross_entropy(logits(model), labels); });
}

}  // namespace

BOOST_AUTO_TEST_CASE(bert_has_the_loss_and_gradients_of_one_rank_with_the_same_dropout) {
  require_bert({1, 2, 3, 4}, 2, 9, between_cuts::whole);
}

BOOST_AUTO_TEST_CASE(sequence_parallel_bert_has_them_too) {
  require_bert({2, 4}, 1, 12, between_cuts::positions);
  require_bert({2, 3, 4}, 2, 12, between_cuts::positions);
  require_bert({2}, 3, 12, between_cuts::positions);
}

BOOST_AUTO_TEST_CASE(the_encoder_decoder_has_them_with_activations_whole_or_cut_by_positions) {
  const auto targets = tokens(words, 24, 11);
  for (const auto between : {between_cuts::whole, between_cuts::positions}) {
    require_equal_to_dense(
        {2, 3, 4}, small_translator,
        [=](auto& model) { return parx::tp::ready_plan(model, between); },
        [&](auto& model) { return parx::cross_entropy(translated(model), targets); });
  }
}
