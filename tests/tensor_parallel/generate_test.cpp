// Texts from models that are cut over ranks are those of one process.
#include <parx/models/generate.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <ddp/ranks.hpp>
#include <messages.hpp>

#include <parx/models/beam_search.hpp>
#include <parx/models/encoder_decoder.hpp>
#include <parx/models/gpt.hpp>
#include <parx/models/llama.hpp>
#include <parx/tensor_parallel/parallelize.hpp>
#include <parx/tensor_parallel/plans.hpp>

using namespace parx::models;
using parx::nn::between_cuts;
using token_ids = std::vector<std::int64_t>;

namespace {

constexpr std::size_t words = 37;
const token_ids prompt{5, 1, 30, 7, 7};

/// The likeliest tokens, beyond the last position of the model; then drawn ones.
const std::vector<sampling_options> ways{
    {.max_new_tokens = 20},
    {.max_new_tokens = 12, .temperature = 0.8, .top_k = 9, .seed = 4},
    {.max_new_tokens = 12, .temperature = 1.2, .top_p = 0.9, .seed = 5}};

/// Positions are 5, then 1 at a time: no number of ranks shares them evenly.
template <typename Make, typename Write>
void require_texts_of_one(std::vector<int> worlds, Make make, Write write) {
  auto whole = make();
  whole.initialize(3);
  const std::vector<token_ids> expected = write(whole);
  for (const token_ids& each : expected) BOOST_TEST(each.size() > 3);
  for (const auto between : {between_cuts::whole, between_cuts::positions}) {
    for (const int world : worlds) {
      const auto written = on_ranks(world, [&](parx::process_group& group) {
        auto model = make();
        const auto tp = parx::parallelize(model, group, parx::tp::ready_plan(model, between));
        model.initialize(3);
        return write(model);
      });
      for (const auto& each : written) BOOST_TEST((each == expected), world << " ranks");
    }
  }
}

const auto sampled = [](auto& model) {
  std::vector<token_ids> all;
  for (const sampling_options& each : ways) all.push_back(generate(model, prompt, each));
  return all;
};

gpt<> small_gpt() {
  return gpt<>({.vocab_size = words, .n_positions = 16, .n_embd = 16, .n_layer = 2, .n_head = 4,
                .initializer_range = 0.5});
}

}  // namespace

BOOST_AUTO_TEST_CASE(gpt_and_llama_write_the_same_text_at_any_number_of_ranks) {
  require_texts_of_one({2, 3, 4}, small_gpt, sampled);
  const auto make_llama = [] {
    return llama<>({.vocab_size = words, .hidden_size = 16, .intermediate_size = 22,
                    .num_hidden_layers = 2, .num_attention_heads = 4, .num_key_value_heads = 2,
                    .max_position_embeddings = 16, .initializer_range = 0.5});
  };
  require_texts_of_one({2, 4}, make_llama, sampled);
}

BOOST_AUTO_TEST_CASE(the_encoder_decoder_finds_the_same_beams) {
  const auto make = [] {
    return encoder_decoder<>({.vocab_size = words, .d_model = 16, .encoder_layers = 2,
                              .decoder_layers = 2, .attention_heads = 4, .ffn_dim = 18,
                              .max_position_embeddings = 24});
  };
  require_texts_of_one({2, 3}, make, [](auto& model) {
    std::vector<token_ids> all;
    for (const std::size_t beams : {1U, 3U})
      all.push_back(beam_search(model, std::span<const std::int64_t>(prompt),
                                {.end_token = 36, .max_new_tokens = 10, .beams = beams}));
    return all;
  });
}

BOOST_AUTO_TEST_CASE(ranks_with_different_prompts_are_refused_on_all) {
  const auto said = on_ranks(2, [](parx::process_group& group) {
    auto model = small_gpt();
    const auto tp = parx::parallelize(model, group, parx::tp::ready_plan(model));
    model.initialize(3);
    (void)generate(model, prompt);  // the first input of the layers is compared as well
    return parx_test::message_of([&] {
      (void)generate(model, group.rank() == 0 ? prompt : token_ids{5, 1, 30, 7, 8});
    });
  });
  for (const std::string& each : said)
    BOOST_TEST(parx_test::mentions(each, "generate: the 2 ranks", "go on from different texts"),
               each);
}

BOOST_AUTO_TEST_CASE(layers_cut_along_the_sequence_are_so_again_after_a_text) {
  const auto said = on_ranks(2, [](parx::process_group& group) {
    auto model = small_gpt();
    const auto tp =
        parx::parallelize(model, group, parx::tp::ready_plan(model, between_cuts::positions));
    model.initialize(3);
    (void)generate(model, prompt);
    return parx_test::message_of(
        [&] { (void)model(parx::tensor<std::int64_t>::from(prompt, {1, prompt.size()})); });
  });
  for (const std::string& each : said)
    BOOST_TEST(parx_test::mentions(each, "number of positions", "pad the texts"), each);
}
