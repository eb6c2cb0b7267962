#include <parx/models/generate.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <parx/models/gpt.hpp>
#include <parx/models/llama.hpp>

using namespace parx;
using models::choose_token;

namespace {

const random_stream stream(7, "test");

/// How often each token is chosen in 20000 draws.
std::map<std::int64_t, double> shares(std::vector<float> logits,
                                      const models::sampling_options& options) {
  std::map<std::int64_t, double> result;
  for (std::uint64_t n = 0; n < 20000; ++n)
    result[choose_token<float>(logits, options, stream, n)] += 1.0 / 20000;
  return result;
}

std::vector<char> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  BOOST_REQUIRE_MESSAGE(file, path << " cannot be opened");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Reads values one after another.
struct reader {
  std::vector<char> bytes;
  std::size_t at = 0;

  template <typename T>
  T take() {
    T value{};
    BOOST_REQUIRE(at + sizeof(T) <= bytes.size());
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    at += sizeof(T);
    return value;
  }
  void fill(const tensor<float>& target) {
    for (float& value : target) value = take<float>();
  }
};

/// llama2.c's version 0: see the header of export.py there.
models::llama<float> read_llama2c(reader file) {
  std::array<std::size_t, 7> n{};
  for (std::size_t& number : n) number = static_cast<std::size_t>(file.take<std::int32_t>());
  models::llama<float> model({.vocab_size = n[5],
                              .hidden_size = n[0],
                              .intermediate_size = n[1],
                              .num_hidden_layers = n[2],
                              .num_attention_heads = n[3],
                              .num_key_value_heads = n[4],
                              .max_position_embeddings = n[6],
                              .embeddings = models::word_embeddings::tied,
                              .layout = rotary_layout::interleaved});
  std::map<std::string, tensor<float>> values;
  model.for_each_parameter([&](const std::string& path, auto& p) { values[path] = p.allocate(); });
  file.fill(values.at("model.embed_tokens.weight"));
  for (const char* part : {"input_layernorm", "self_attn.q_proj", "self_attn.k_proj",
                           "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
                           "mlp.gate_proj", "mlp.down_proj", "mlp.up_proj"}) {
    for (std::size_t layer = 0; layer < n[2]; ++layer)
      file.fill(values.at(fmt::format("model.layers.{}.{}.weight", layer, part)));
  }
  file.fill(values.at("model.norm.weight"));
  return model;
}

std::vector<std::string> read_tokenizer(reader file, std::size_t count) {
  (void)file.take<std::int32_t>();  // the longest
  std::vector<std::string> words(count);
  for (std::string& word : words) {
    (void)file.take<float>();  // its score
    word.resize(static_cast<std::size_t>(file.take<std::int32_t>()));
    for (char& c : word) c = file.take<char>();
    if (word == "<0x0A>") word = "\n";
  }
  return words;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_pretrained_llama_tells_the_recorded_story) {
  const char* const data = std::getenv("PARX_TEST_DATA");
  if (data == nullptr) {
    fmt::print("SKIPPED: set PARX_TEST_DATA to a folder with tinystories_260k\n");
    return;
  }
  const std::string folder = std::string(data) + "/tinystories_260k/";
  auto model = read_llama2c({bytes_of(folder + "stories260K.bin")});
  BOOST_TEST(model.parameter_count() > 250000U);
  const auto words = read_tokenizer({bytes_of(folder + "tok512.bin")}, model.config().vocab_size);
  const std::string expected =
      "Once upon a time, there was a little girl named Lily. She loved to play outside in the "
      "park. "
      "One day, she saw a big, red ball. She wanted to play with it, but it was too high.\n"
      "Lily's mom said, \"Lily, let's go to the park.\" Lily was sad and didn't know w";
  const std::vector<std::int64_t> begin{1};
  std::string text;
  models::generate(model, begin, {.max_new_tokens = 100}, [&](std::int64_t token) {
    const std::string& word = words.at(static_cast<std::size_t>(token));
    text += text.empty() && word.starts_with(' ') ? word.substr(1) : word;
  });
  BOOST_TEST(text.substr(0, expected.size()) == expected);
}

BOOST_AUTO_TEST_CASE(a_model_returns_to_the_mode_that_it_had_before) {
  models::gpt<float> model({.vocab_size = 30, .n_positions = 16, .n_embd = 16, .n_layer = 2});
  model.initialize(5);
  for (const bool is_trained : {true, false}) {
    is_trained ? model.train() : model.eval();
    models::generate(model, std::vector<std::int64_t>{3}, {.max_new_tokens = 2});
    model.for_each_module([&](const std::string& path, const nn::module_view& layer) {
      BOOST_TEST(layer.module.is_training() == is_trained, path);
    });
  }
}

BOOST_AUTO_TEST_CASE(a_cache_changes_no_logit) {
  models::gpt<float> gpt({.vocab_size = 30, .n_positions = 16, .n_embd = 16, .n_layer = 2});
  models::llama<float> llama({.vocab_size = 30,
                              .hidden_size = 16,
                              .intermediate_size = 24,
                              .num_hidden_layers = 2,
                              .num_attention_heads = 4,
                              .num_key_value_heads = 2,
                              .max_position_embeddings = 16});
  const auto check = [](auto& model) {
    model.initialize(5);
    model.eval();
    const no_grad guard;
    const auto ids = tensor<std::int64_t>::iota({2, 10}, 3);
    const auto whole = model(ids).value();
    auto cache = model.make_cache(2, 12);
    for (const auto& [begin, end] : {std::pair{0U, 4U}, std::pair{4U, 5U}, std::pair{5U, 10U}}) {
      const auto part = model(ids.slice(1, begin, end), &cache).value();
      for (std::size_t b = 0; b < 2; ++b) {
        for (std::size_t t = begin; t < end; ++t) {
          for (std::size_t v = 0; v < 30; ++v) {
            BOOST_REQUIRE(std::abs(part.at(b, t - begin, v) - whole.at(b, t, v)) < 1e-5F);
          }
        }
      }
    }
    BOOST_TEST(cache.length() == 10U);
    BOOST_CHECK_THROW((void)model(ids, &cache), usage_error);
  };
  check(gpt);
  check(llama);
}

BOOST_AUTO_TEST_CASE(tokens_are_drawn_with_the_probabilities_of_temperature_top_k_and_top_p) {
  const std::vector<float> logits{std::log(0.1F), std::log(0.5F), std::log(0.3F), std::log(0.1F)};
  BOOST_TEST(choose_token<float>(logits, {}, stream, 0) == 1);
  const auto near = [](double a, double b) { return std::abs(a - b) < 0.012; };
  auto found = shares(logits, {.temperature = 1});
  BOOST_TEST((near(found[0], 0.1) && near(found[1], 0.5) && near(found[2], 0.3)));
  found = shares(logits, {.temperature = 0.5});  // squares: 0.01 0.25 0.09 0.01 of 0.36
  BOOST_TEST((near(found[1], 0.25 / 0.36) && near(found[2], 0.09 / 0.36)));
  found = shares(logits, {.temperature = 1, .top_k = 2});
  BOOST_TEST((near(found[1], 0.625) && near(found[2], 0.375) && found.size() == 2U));
  found = shares(logits, {.temperature = 1, .top_p = 0.6});  // 0.5 is too little, 0.8 enough
  BOOST_TEST((near(found[1], 0.625) && found.size() == 2U));
  found = shares(logits, {.temperature = 1, .top_p = 0.4});
  BOOST_TEST((found[1] > 0.99 && found.size() == 1U));
  const std::vector<float> broken{0.5F, NAN, 0.25F};
  BOOST_CHECK_THROW((void)choose_token<float>(broken, {}, stream, 0), parx::error);
  BOOST_CHECK_THROW((void)choose_token<float>(broken, {.temperature = 1}, stream, 0), parx::error);
}

BOOST_AUTO_TEST_CASE(a_text_is_a_function_of_its_seed_may_be_longer_than_the_model_sees_and_ends) {
  models::gpt<float> model({.vocab_size = 30, .n_positions = 8, .n_embd = 16, .n_layer = 1});
  model.initialize(5);
  const std::vector<std::int64_t> prompt{3, 4, 5};
  models::sampling_options options{.max_new_tokens = 40, .temperature = 1, .seed = 1};
  const auto text = models::generate(model, prompt, options);
  BOOST_TEST(text.size() == 40U);
  BOOST_TEST(models::generate(model, prompt, options) == text, boost::test_tools::per_element());
  BOOST_TEST(model.is_training());
  options.seed = 2;
  BOOST_TEST((models::generate(model, prompt, options) != text));
  options.seed = 1;
  options.end_token = text[10];
  const auto ended = models::generate(model, prompt, options);
  BOOST_TEST(ended.back() == text[10]);
  BOOST_TEST(ended.size() <= 11U);
  BOOST_CHECK_THROW((void)models::generate(model, std::vector<std::int64_t>{}), usage_error);
}
