// What explain() says before anything is cut is what happens then.
#include <parx/tensor_parallel/explain.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <ddp/ranks.hpp>
#include <tensor_parallel/against_dense.hpp>

#include <parx/tensor_parallel/plans.hpp>

using namespace parx::models;
using parx::nn::between_cuts;
using parx::tensor;

namespace {

constexpr std::size_t words = 37, texts = 2, positions = 24;
constexpr std::size_t frame = 64;  // the header of a message: one a collective between two

/// Both ways, what is said for each rank of two is measured there: bytes that are sent in a step,
/// and bytes of parameters.
template <typename Make, typename Loss>
void require_told(Make make, Loss loss_of) {
  for (const auto between : {between_cuts::whole, between_cuts::positions}) {
    const auto wrong = on_ranks(2, [&](parx::process_group& group) -> std::string {
      auto model = make();
      const auto plan = parx::tp::ready_plan(model, between);
      const auto told = parx::tp::explain(
          model, plan,
          {.ranks = 2, .rank = group.rank(), .texts = texts, .positions = positions});
      const auto tp = parx::parallelize(model, group, plan);
      model.initialize(1);
      std::size_t parameters = 0;
      for (const auto& each : model.parameters()) parameters += each.size() * sizeof(float);
      loss_of(model).backward();  // the first forward also compares the ranks' inputs
      const std::size_t before = group.bytes_sent();
      loss_of(model).backward();
      const std::size_t sent = group.bytes_sent() - before;
      const auto bytes = static_cast<std::size_t>(told.bytes_a_step());
      if (sent != bytes + told.collectives_a_step() * frame)
        return fmt::format("{} bytes are sent\n{}", sent, told.table());
      if (parameters != told.parameter_bytes())
        return fmt::format("{} bytes of parameters\n{}", parameters, told.table());
      return "";
    });
    for (const std::string& each : wrong) BOOST_TEST(each == "", each);
  }
}

const auto next_token = [](auto& model) {
  return parx::cross_entropy(model(tokens(words, positions, 7)), tokens(words, positions, 11));
};

}  // namespace

BOOST_AUTO_TEST_CASE(the_bytes_of_decoders_are_told_before_they_are_sent) {
  require_told(
      [] {
        return gpt<>({.vocab_size = words, .n_positions = positions, .n_embd = 16, .n_layer = 2,
                      .n_head = 4, .n_inner = 18});
      },
      next_token);
  for (const auto embeddings : {word_embeddings::apart, word_embeddings::tied}) {
    for (const std::size_t kv_heads : {1U, 2U}) {  // one head of keys is on both ranks
      require_told(
          [=] {
            return llama<>({.vocab_size = words, .hidden_size = 16, .intermediate_size = 22,
                            .num_hidden_layers = 2, .num_attention_heads = 4,
                            .num_key_value_heads = kv_heads, .max_position_embeddings = positions,
                            .embeddings = embeddings});
          },
          next_token);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_traffic_of_bert_and_the_encoder_decoder_follows_the_formulas_too) {
  const auto mask = tensor<int>::ones({texts, positions});
  for (const std::size_t layers : {1U, 3U}) {
    require_told(
        [=] {
          return bert_classifier<>({.vocab_size = words, .hidden_size = 16,
                                    .num_hidden_layers = layers, .num_attention_heads = 4,
                                    .intermediate_size = 18, .max_position_embeddings = positions,
                                    .num_labels = 3});
        },
        [&](auto& model) {
          return parx::cross_entropy(model(tokens(words, positions, 7), mask),
                                     tensor<int>::from({2, 0}, {2}));
        });
  }
  require_told(
      [] {
        return encoder_decoder<>({.vocab_size = words, .d_model = 16, .encoder_layers = 2,
                                  .decoder_layers = 2, .attention_heads = 4, .ffn_dim = 18,
                                  .max_position_embeddings = positions});
      },
      [&](auto& model) {
        return parx::cross_entropy(
            model(tokens(words, positions, 7), mask, tokens(words, positions, 5)),
            tokens(words, positions, 11));
      });
}

BOOST_AUTO_TEST_CASE(what_parallelize_refuses_is_refused_in_the_same_words_without_a_group) {
  const auto make = [] {
    return gpt<>({.vocab_size = words, .n_embd = 16, .n_layer = 1, .n_head = 4});
  };
  const auto refusal = [](auto act) -> std::string {
    try {
      act();
    } catch (const parx::usage_error& refused) {
      const std::string text = refused.what();
      return text.substr(text.find(": ") + 2);  // behind the function and its line
    }
    return "nothing is refused";
  };
  auto model = make();
  const parx::tp::plan good = parx::tp::ready_plan(model);
  parx::tp::plan no_layer = good, twice = good, no_heads = good, wrong_rule = good;
  no_layer.push_back({"*.q_proj", parx::tp::column});
  twice.push_back({"*.c_proj", parx::tp::row});
  std::erase_if(no_heads, [](const auto& line) { return line.pattern == "*.attn"; });
  wrong_rule[0].rule = parx::tp::column;
  struct mistake {
    parx::tp::plan lines;
    int ranks;
    const char* words;
  };
  for (const mistake& made :
       {mistake{no_layer, 2, "no layer matches \"*.q_proj\""},
        mistake{twice, 2, "is matched by both \"*.attn.c_proj\" and \"*.c_proj\""},
        mistake{no_heads, 2, "give it the rule heads"},
        mistake{wrong_rule, 2, "is an embedding: it can be cut by its vocabulary"},
        mistake{good, 5, "it has 4 to deal out, so 4 ranks at most"}}) {
    const std::string told =
        refusal([&] { (void)parx::tp::explain(model, made.lines, {.ranks = made.ranks}); });
    BOOST_TEST(told.find(made.words) != std::string::npos, told);
    BOOST_TEST(told.find("The layers and their rules:") != std::string::npos, told);
    const auto by_group = on_ranks(made.ranks, [&](parx::process_group& group) {
      auto fresh = make();
      return refusal([&] { (void)parx::parallelize(fresh, group, made.lines); });
    });
    for (const std::string& each : by_group) BOOST_TEST(each == told);
  }
  BOOST_TEST(refusal([&] { (void)parx::tp::explain(model, good, {.ranks = 2, .rank = 2}); }) ==
             "there is no rank 2 of 2");
}
