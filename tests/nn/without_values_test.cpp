// Models know their parameters before they have memory.
#include <parx/nn.hpp>

#include <boost/test/unit_test.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <parx/autograd/distributed_module.hpp>
#include <parx/checkpoint.hpp>
#include <parx/ddp/layout.hpp>
#include <parx/models.hpp>
#include <parx/optim.hpp>

using namespace parx;

namespace {

using values = std::map<std::string, std::vector<float>>;

template <typename Model>
values values_of(Model& model) {
  values all;
  model.for_each_parameter([&](const std::string& path, auto& p) {
    all[path] = {p.value().begin(), p.value().end()};
  });
  return all;
}

template <typename Model>
std::size_t with_values(Model& model) {
  std::size_t count = 0;
  model.for_each_parameter([&](const std::string&, auto& p) { count += p.has_values() ? 1U : 0U; });
  return count;
}

/// KiB, of this process: VmHWM is the most that was ever resident, VmRSS what is now.
std::size_t status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return std::stoul(line.substr(key.size() + 1));
  }
  return 0;
}

auto make_model() {
  return nn::sequential{nn::linear{6, 5}, nn::relu{}, nn::layer_norm{5}, nn::linear{5, 3}};
}

class scaled : public nn::module<scaled> {
 public:
  explicit scaled(parameter<float> scale) : scale_(std::move(scale)) {}
  auto forward(const variable<float>& x) { return x * scale_; }
  template <typename Visit>
  void members(Visit& visit) {
    visit("scale", scale_);
  }

 private:
  parameter<float> scale_;
};
std::string message_of(const auto& call) {
  try {
    call();
  } catch (const usage_error& reason) {
    return reason.what();
  }
  return "nothing was thrown";
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_model_of_4_GiB_is_made_walked_and_described_in_a_second_and_50_MB) {
  int ends[2];
  BOOST_REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<nn::linear<>> layers;
    for (int i = 0; i < 16; ++i) layers.emplace_back(8192U, 8192U);
    models::gpt<> text{{.vocab_size = 50257, .n_positions = 1024, .n_embd = 1600, .n_layer = 4,
                         .n_head = 25}};
    std::size_t count = 0;
    std::string described;
    const auto walk = [&](auto& model) {
      count += model.parameter_count() + with_values(model);
      for (const auto& each : parameter_handles(model)) {
        described += parx::detail::layout_of(*each) + '\n';  // as ddp compares them
      }
    };
    for (auto& layer : layers) walk(layer);
    walk(text);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    std::ostringstream line;
    line << count << ' ' << described.size() << ' ' << elapsed.count() << ' ' << status("VmHWM:");
    const auto written = write(ends[1], line.str().data(), line.str().size());
    _exit(written == static_cast<ssize_t>(line.str().size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string line(200, ' ');
  const auto got = read(ends[0], line.data(), line.size());
  close(ends[0]);
  int ended = 0;
  BOOST_REQUIRE(waitpid(child, &ended, 0) == child);
  BOOST_REQUIRE(ended == 0);
  std::istringstream fields(line.substr(0, static_cast<std::size_t>(got)));
  std::size_t count = 0, letters = 0, peak = 0;
  double seconds = 0;
  fields >> count >> letters >> seconds >> peak;
  // 4.0 GiB of floats, and GPT-2 in small: words, positions, 4 layers, the last norm. None has
  // values.
  const std::size_t n = 1600, layer = 12 * n * n + 13 * n;
  BOOST_TEST(count == 16U * (8192U * 8192U + 8192U) + (50257 + 1024) * n + 4 * layer + 2 * n);
  BOOST_TEST(letters > 1000U);
  BOOST_TEST(seconds < 1);
  BOOST_TEST(peak < 50U * 1024U);
  BOOST_TEST_MESSAGE("constructed and walked in " << seconds << " s, " << peak << " KiB at most");
}

BOOST_AUTO_TEST_CASE(every_model_of_parx_has_its_shapes_and_no_values_at_first) {
  const auto check = [](auto& model, const char* name) {
    const std::size_t count = model.parameter_count();
    BOOST_TEST(count > 0U, name);
    BOOST_TEST(with_values(model) == 0U, name);
    std::size_t sum = 0;
    for (const auto& p : model.parameters()) sum += p.value().size();
    BOOST_TEST(sum == count, name);
  };
  models::gpt<> gpt{{.vocab_size = 50, .n_positions = 16, .n_embd = 8, .n_layer = 2, .n_head = 2}};
  check(gpt, "gpt");
  models::llama<> llama{{.vocab_size = 50, .hidden_size = 8, .intermediate_size = 16,
                         .num_hidden_layers = 2, .num_attention_heads = 2,
                         .num_key_value_heads = 1}};
  check(llama, "llama");
  models::bert_classifier<> bert{{.vocab_size = 50, .hidden_size = 8, .num_hidden_layers = 2,
                                  .num_attention_heads = 2, .intermediate_size = 16}};
  check(bert, "bert");
  models::encoder_decoder<> pair{{.vocab_size = 50, .d_model = 8, .encoder_layers = 1,
                                  .decoder_layers = 1, .attention_heads = 2, .ffn_dim = 16,
                                  .copying = models::copying::pointer}};
  check(pair, "encoder_decoder");
}

BOOST_AUTO_TEST_CASE(names_modes_and_freezing_need_no_values) {
  auto model = make_model();
  model.eval();
  model.zero_grad();
  model.freeze();
  model.unfreeze();
  BOOST_TEST(model.parameter_count() == 6U * 5 + 5 + 5 + 5 + 5 * 3 + 3);
  std::string names;
  model.for_each_parameter([&](const std::string& path, auto& p) {
    BOOST_TEST(p.name() == path);
    names += path + " ";
  });
  BOOST_TEST(names == "0.weight 0.bias 2.weight 2.bias 3.weight 3.bias ");
  BOOST_TEST(with_values(model) == 0U);
}

BOOST_AUTO_TEST_CASE(reading_values_that_do_not_exist_yet_is_refused_with_the_name) {
  auto model = make_model();
  model.for_each_parameter([](const std::string&, auto&) {});
  const auto& weight = model.get<3>().weight();
  BOOST_TEST((weight.shape() == shape{3, 5}));
  BOOST_TEST(weight.size() == 15U);
  BOOST_TEST(weight.extent(-1) == 5U);
  BOOST_TEST(message_of([&] { (void)weight.value(); }) ==
             "parameter \"3.weight\" of shape (3, 5) has no values yet: they come from "
             "initialize(seed) or materialize() of the model, from a checkpoint, or with the "
             "model's first call");
  BOOST_TEST(with_values(model) == 0U);
}

BOOST_AUTO_TEST_CASE(calls_parameters_and_saving_make_the_values_of_seed_0_once) {
  auto explicitly = make_model();
  explicitly.initialize(0);
  const values expected = values_of(explicitly);
  auto called = make_model();
  (void)called(tensor<float>::ones({2, 6}));
  BOOST_TEST((values_of(called) == expected));
  auto asked = make_model();
  asked.for_each_parameter([](const std::string&, auto&) {});
  optim::sgd opt{asked.parameters(), {.lr = 0.1}};
  BOOST_TEST((values_of(asked) == expected));
  asked.parameters()[0].value().fill(7);
  asked.materialize();
  BOOST_TEST(values_of(asked).at("0.weight").at(0) == 7.0F);
  auto saved = make_model();
  BOOST_TEST(state_dict(saved).at<float>("2.weight").data()[4] == 1.0F);
  BOOST_TEST((values_of(saved) == expected));
}

BOOST_AUTO_TEST_CASE(a_checkpoint_fills_a_model_that_has_no_values_and_nothing_else_does) {
  auto saved = make_model();
  saved.initialize(4);
  const state_dict all(saved);

  auto model = make_model();
  load_state_dict(model, all);
  BOOST_TEST((values_of(model) == values_of(saved)));
  (void)model(tensor<float>::ones({2, 6}));  // the first call leaves loaded values alone
  BOOST_TEST((values_of(model) == values_of(saved)));

  // What does not fit changes nothing: no memory either.
  nn::sequential other{nn::linear{6, 4}, nn::relu{}, nn::layer_norm{5}, nn::linear{5, 3}};
  BOOST_CHECK_THROW(load_state_dict(other, all), parx::error);
  BOOST_TEST(with_values(other) == 0U);
  // What fits is loaded, the rest gets first values with the first call.
  (void)load_state_dict(other, all, state_match::partial);
  BOOST_TEST(with_values(other) == 4U);
  nn::sequential fresh{nn::linear{6, 4}, nn::relu{}, nn::layer_norm{5}, nn::linear{5, 3}};
  other.materialize();
  fresh.materialize();
  values expected = values_of(saved);
  expected["0.weight"] = values_of(fresh).at("0.weight");
  expected["0.bias"] = values_of(fresh).at("0.bias");
  BOOST_TEST((values_of(other) == expected));
}

BOOST_AUTO_TEST_CASE(a_wrapper_gives_memory_before_or_after_there_are_values) {
  auto expected = make_model();
  expected.initialize(8);
  std::vector<float> memory(63, 0.5F);
  const auto bind = [&](auto& model) {
    std::size_t at = 0;
    model.for_each_parameter([&](const std::string&, auto& p) {
      p.bind_value(std::span(memory).subspan(at, p.size()));
      at += p.size();
    });
    BOOST_TEST(at == memory.size());
  };
  auto before = make_model();
  bind(before);
  BOOST_TEST((values_of(before).at("3.bias") == std::vector<float>(3, 0.5F)));  // what was there
  before.initialize(8);
  BOOST_TEST((values_of(before) == values_of(expected)));
  BOOST_TEST(memory[0] == values_of(expected).at("0.weight")[0]);
  auto after = make_model();
  after.initialize(8);
  bind(after);
  BOOST_TEST((values_of(after) == values_of(expected)));
}

BOOST_AUTO_TEST_CASE(a_parameter_is_cut_and_keeps_the_values_of_its_part) {
  nn::linear<> layer{6, 4};
  const auto weight = layer.weight();  // all handles see the cut
  layer.for_each_parameter([](const std::string& path, auto& p) {
    if (path == "weight") p.keep_part(p.spec().chunk(0, 1, 2));
  });
  BOOST_TEST((weight.shape() == shape{2, 6}));
  BOOST_TEST((weight.global_shape() == shape{4, 6}));
  BOOST_TEST(weight.name() == "weight");
  BOOST_TEST(weight.requires_grad());
  BOOST_TEST(layer.parameter_count() == 24U + 4U);  // of the whole model
  layer.initialize(1);
  BOOST_TEST((weight.value().shape() == shape{2, 6}));
  const std::vector<float> rows(weight.value().begin(), weight.value().end());
  weight.keep_part(weight.spec().slice(0, 1, 2));
  BOOST_TEST((weight.shape() == shape{1, 6}));
  BOOST_TEST(std::vector<float>(rows.begin() + 6, rows.end()) ==
                 std::vector<float>(weight.value().begin(), weight.value().end()),
             boost::test_tools::per_element());
  BOOST_TEST(
      message_of([&] {
        weight.keep_part(shard_spec::whole({4, 6}).slice(0, 2, 4));
      }) ==
      "parameter \"weight\": this rank has rows 3 of [4, 6], which cannot be cut to rows 2-3 "
      "of [4, 6]");
  BOOST_TEST((weight.shape() == shape{1, 6}));  // as it was
  const parameter<float> lone("lone", {3, 3});
  BOOST_CHECK_THROW(lone.keep_part(shard_spec::whole({9})), usage_error);
}

BOOST_AUTO_TEST_CASE(a_parameter_without_an_initializer_keeps_its_values_or_is_refused) {
  scaled given{parameter<float>("scale", tensor<float>::full({1}, 3))};
  given.initialize(5);
  BOOST_TEST(given(tensor<float>::ones({1})).item() == 3.0F);
  scaled shape_only{parameter<float>("scale", {1})};
  BOOST_TEST(message_of([&] { shape_only.initialize(5); }) ==
             "parameter \"scale\" has neither values nor an initializer: name one in members(), as "
             "in visit(\"scale\", member, parx::nn::init::normal(0, 0.02))");
}
