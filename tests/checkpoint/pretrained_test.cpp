#include <parx/checkpoint/pretrained.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>

#include <parx/checkpoint/state_dict.hpp>
#include <parx/models/bert.hpp>
#include <parx/models/encoder_decoder.hpp>
#include <parx/models/gpt.hpp>
#include <parx/models/llama.hpp>
#include <parx/nn.hpp>

#include <boost/test/unit_test.hpp>

#include <data/support.hpp>
#include <nn/torch_oracle.hpp>
#include <messages.hpp>

using namespace parx;
using parx_test::mentions;
using parx_test::scratch_folder;

namespace {

nn::linear<> made(std::uint64_t seed, std::size_t out = 4) {
  nn::linear<> layer{3, out};
  layer.initialize(seed);
  return layer;
}

const json::value config = json::object{{"architectures", json::array{"BertModel"}},
                                        {"model_type", "bert"},
                                        {"hidden_size", 3}};

/// Two layers of a user's model that share one matrix.
class tied_layers : public nn::module<tied_layers> {
 public:
  explicit tied_layers(std::uint64_t seed) { this->initialize(seed); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("first", first_);
    visit("scale", scale_, nn::init::normal(0, 1));
    visit("second", first_);
  }

 private:
  nn::linear<> first_{6, 6};
  parameter<float> scale_{"scale", {6}};
};

template <typename Model>
Model initialized(Model model, std::uint64_t seed) {
  model.initialize(seed);
  return model;
}

bool same_values(const state_dict& a, const state_dict& b) {
  if (a.size() != b.size()) return false;
  for (const stored_tensor& each : a.tensors()) {
    const auto x = a.at<float>(each.name), y = b.at<float>(each.name);
    if (!std::equal(x.begin(), x.end(), y.begin(), y.end())) return false;
  }
  return true;
}

/// `values` as the files of a folder: one, or two with an index.
void write_folder(const std::string& folder, const state_dict& values, std::size_t files) {
  std::filesystem::create_directories(folder);
  detail::write_atomically(folder + "/config.json", "{}");
  std::vector<std::vector<tensor<float>>> memory(files);
  std::vector<std::vector<tensor_to_store>> tensors(files);
  json::value map = json::object{};
  std::size_t next = 0;
  for (const stored_tensor& each : values.tensors()) {
    const std::size_t file = next++ % files;
    memory[file].push_back(values.at<float>(each.name));
    tensors[file].push_back({each.name, dtype::float32, each.shape,
                             std::as_bytes(memory[file].back().span())});
    map[each.name] = fmt::format("part-{}.safetensors", file);
  }
  for (std::size_t file = 0; file < files; ++file) {
    write_safetensors(files == 1 ? folder + "/model.safetensors"
                                 : fmt::format("{}/part-{}.safetensors", folder, file),
                      tensors[file]);
  }
  if (files > 1)
    detail::write_atomically(folder + "/model.safetensors.index.json",
                             json::dump(json::object{{"weight_map", map}}));
}

/// `saved` and `model` are alike, with other values; `name` is in a file what `others` may be.
template <typename Model>
void check_names_of_tied_matrix(Model saved, Model model, const std::string& name,
                                const std::vector<std::string>& others) {
  const scratch_folder scratch;
  const state_dict values(saved), before(model);
  BOOST_TEST(!same_values(values, before));
  const auto load = [&](const state_dict& written, std::size_t files) {
    const std::string folder = scratch.file(fmt::format("{}", files));
    std::filesystem::remove_all(folder);
    write_folder(folder, written, files);
    load_state_dict(model, before);
    load_pretrained(model, json::object{}, folder);
  };
  for (const std::string& other : others) {
    state_dict renamed(saved), both(saved), differing(saved);
    renamed.set(other, values.at<float>(name));
    renamed.erase(name);
    both.set(other, values.at<float>(name));
    auto changed = values.at<float>(name);
    changed.data()[changed.size() - 1] += 1;
    differing.set(other, changed);
    for (const std::size_t files : {1U, 2U}) {
      load(renamed, files);
      BOOST_TEST(same_values(state_dict(model), values), other);
      load(both, files);
      BOOST_TEST(same_values(state_dict(model), values), other);
      const std::string told = parx_test::message_of([&] { load(differing, files); });
      BOOST_TEST(mentions(told, "so nothing was loaded",
                          fmt::format("{} and {}: one tensor in the model, two in the file that "
                                      "differ at element {}",
                                      name, other, changed.size() - 1)),
                 told);
      BOOST_TEST(same_values(state_dict(model), before), other);
    }
    load_state_dict(model, before);
    load_state_dict(model, renamed);
    BOOST_TEST(same_values(state_dict(model), values), other);
    // Its shape is checked under any name.
    renamed.set(other, tensor<float>::zeros({2, 3}));
    BOOST_TEST(mentions(parx_test::message_of([&] { load(renamed, 1); }),
                        fmt::format("{}: [2, 3] F32 in the file", other)));
  }
  state_dict neither(saved);
  neither.erase(name);
  BOOST_TEST(mentions(parx_test::message_of([&] { load(neither, 1); }),
                      fmt::format("missing from the file: {}", name)));
}

}  // namespace

BOOST_AUTO_TEST_CASE(any_name_of_a_tied_matrix_serves_in_a_file_and_two_values_are_refused) {
  const models::gpt_config gpt{
      .vocab_size = 11, .n_positions = 4, .n_embd = 8, .n_layer = 1, .n_head = 2};
  check_names_of_tied_matrix(initialized(models::gpt<>(gpt), 1), initialized(models::gpt<>(gpt), 2),
                             "transformer.wte.weight", {"lm_head.weight"});
  const models::llama_config llama{.vocab_size = 11,
                                   .hidden_size = 8,
                                   .intermediate_size = 8,
                                   .num_hidden_layers = 1,
                                   .num_attention_heads = 2,
                                   .num_key_value_heads = 2,
                                   .embeddings = models::word_embeddings::tied};
  check_names_of_tied_matrix(initialized(models::llama<>(llama), 1),
                             initialized(models::llama<>(llama), 2), "model.embed_tokens.weight",
                             {"lm_head.weight"});
  const models::encoder_decoder_config both{.vocab_size = 11,
                                            .d_model = 8,
                                            .encoder_layers = 1,
                                            .decoder_layers = 1,
                                            .attention_heads = 2,
                                            .ffn_dim = 8};
  check_names_of_tied_matrix(
      initialized(models::encoder_decoder<>(both), 1),
      initialized(models::encoder_decoder<>(both), 2), "shared.weight",
      {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"});
  check_names_of_tied_matrix(tied_layers(1), tied_layers(2), "first.weight", {"second.weight"});
}

// A model with a matrix of its own for the output knows no other name.
BOOST_AUTO_TEST_CASE(a_file_of_a_tied_model_lacks_a_matrix_of_an_untied_one) {
  models::llama_config sizes{.vocab_size = 11,
                              .hidden_size = 8,
                              .intermediate_size = 8,
                              .num_hidden_layers = 1,
                              .num_attention_heads = 2,
                              .num_key_value_heads = 2,
                              .embeddings = models::word_embeddings::tied};
  auto tied = initialized(models::llama<>(sizes), 1);
  sizes.embeddings = models::word_embeddings::apart;
  auto apart = initialized(models::llama<>(sizes), 2);
  BOOST_TEST(mentions(parx_test::message_of([&] { load_state_dict(apart, state_dict(tied)); }),
                      "missing from the state_dict: lm_head.weight"));
  // And what both matrices were does not fit into one.
  BOOST_TEST(mentions(parx_test::message_of([&] { load_state_dict(tied, state_dict(apart)); }),
                      "model.embed_tokens.weight and lm_head.weight: one tensor in the model"));
}

namespace {

const models::gpt_config small_gpt{
    .vocab_size = 11, .n_positions = 4, .n_embd = 8, .n_layer = 2, .n_head = 2};
const models::bert_config small_bert{.vocab_size = 11, .hidden_size = 8, .num_hidden_layers = 2};
models::llama_config small_llama(std::size_t vocabulary = 11) {
  return {.vocab_size = vocabulary,
          .hidden_size = 8,
          .intermediate_size = 8,
          .num_hidden_layers = 2,
          .num_attention_heads = 2,
          .num_key_value_heads = 2};
}

using renaming = std::function<std::string(std::string)>;
renaming without(const std::string& prefix) {
  return [=](std::string name) {
    return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  };
}
/// The names that BERT's layer norms have in TensorFlow.
std::string of_tensorflow(std::string name) {
  const auto rename = [&](const std::string& from, const std::string& to) {
    if (name.ends_with(from)) name.replace(name.size() - from.size(), from.size(), to);
  };
  rename("LayerNorm.weight", "LayerNorm.gamma");
  rename("LayerNorm.bias", "LayerNorm.beta");
  return name;
}

template <typename Model>
state_dict renamed(Model& model, const renaming& rename) {
  const state_dict values(model);
  state_dict made(model);
  for (const stored_tensor& each : values.tensors()) {
    made.erase(each.name);
    made.set(rename(each.name), values.at<float>(each.name));
  }
  return made;
}

/// A folder with the values of a model under other names, and `constants`, is the model.
template <typename Model, typename Config>
void check_published(const Config& of, const renaming& rename,
                     const std::vector<std::string>& constants) {
  const scratch_folder scratch;
  auto saved = initialized(Model(of), 1), model = initialized(Model(of), 2);
  state_dict file = renamed(saved, rename);
  for (const std::string& name : constants) file.set(name, tensor<float>::ones({1, 1, 4, 4}));
  for (const std::size_t files : {1U, 2U}) {
    const std::string folder = scratch.file(fmt::format("{}", files));
    write_folder(folder, file, files);
    model.initialize(2);
    BOOST_TEST(load_pretrained(model, json::object{}, folder).empty());
    BOOST_TEST(same_values(state_dict(model), state_dict(saved)));
  }
  file.set("h.9.attn.bias", tensor<float>::ones({1}));
  BOOST_TEST(mentions(parx_test::message_of([&] { load_state_dict(model, file); }),
                      "unknown to the model: h.9.attn.bias"));
}

}  // namespace

BOOST_AUTO_TEST_CASE(files_load_as_they_are_published_with_other_prefixes_masks_and_norms) {
  const renaming same = [](std::string name) { return name; };
  using gpt = models::gpt<>;
  check_published<gpt>(small_gpt, without("transformer."),
                       {"h.0.attn.bias", "h.1.attn.bias", "h.0.attn.masked_bias"});
  check_published<gpt>(small_gpt, same,
                       {"transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias"});
  using llama = models::llama<>;
  check_published<llama>(small_llama(), same, {"model.layers.1.self_attn.rotary_emb.inv_freq"});
  check_published<llama>(small_llama(), without("model."),
                         {"layers.1.self_attn.rotary_emb.inv_freq"});
  using bert = models::bert_classifier<>;
  check_published<bert>(small_bert, of_tensorflow, {"bert.embeddings.position_ids"});
  check_published<bert>(small_bert, without("bert."), {"embeddings.position_ids"});
  check_published<bert>(small_bert,
                        [](std::string name) { return of_tensorflow(without("bert.")(name)); }, {});
}

BOOST_AUTO_TEST_CASE(a_partial_load_that_matches_nothing_is_an_error) {
  auto bert = initialized(models::bert_classifier<>(small_bert), 1);
  auto gpt = initialized(models::gpt<>(small_gpt), 2);
  const state_dict before(gpt);
  state_dict file = renamed(bert, without("bert."));
  const auto load = [&](auto& model) { return load_state_dict(model, file, state_match::partial); };
  BOOST_TEST(mentions(parx_test::message_of([&] { load(gpt); }),
                      "has no tensor that fits this model, so nothing was loaded:",
                      "missing from the state_dict: transformer.wte.weight"));
  BOOST_TEST(same_values(state_dict(gpt), before));
  // A body without its head is a part.
  file.erase("classifier.weight");
  file.erase("classifier.bias");
  auto other = initialized(models::bert_classifier<>(small_bert), 3);
  const state_report report = load(other);
  BOOST_TEST(report.missing == (std::vector<std::string>{"classifier.weight", "classifier.bias"}),
             boost::test_tools::per_element());
  BOOST_TEST(report.unexpected.empty());
}

BOOST_AUTO_TEST_CASE(the_rows_that_a_smaller_or_larger_vocabulary_has_in_common_load_by_one_call) {
  for (const std::size_t words : {8U, 11U, 14U}) {
    auto file = initialized(models::llama<>(small_llama()), 1);
    auto model = initialized(models::llama<>(small_llama(words)), 2);
    const state_dict from(file), before(model);
    const std::string strict =
        parx_test::message_of([&] { load_state_dict(model, from, state_match::strict); });
    BOOST_TEST(mentions(strict, "(with common_rows if its vocabulary has grown)") == (words != 11));
    const state_report report = load_state_dict(model, from, state_match::common_rows);
    BOOST_TEST(report.empty());
    BOOST_TEST(report.resized.size() == (words == 11 ? 0U : 2U));
    const state_dict after(model);
    for (const stored_tensor& each : after.tensors()) {
      const auto now = after.at<float>(each.name), loaded = from.at<float>(each.name),
                 initial = before.at<float>(each.name);
      const auto common = static_cast<std::ptrdiff_t>(std::min(now.size(), loaded.size()));
      BOOST_TEST(std::equal(now.begin(), now.begin() + common, loaded.begin()), each.name);
      BOOST_TEST(std::equal(now.begin() + common, now.end(), initial.begin() + common), each.name);
    }
  }
  // Other differences are errors, of numbers of rows, too.
  models::llama_config wider = small_llama(14);
  wider.intermediate_size = 9;
  auto file = initialized(models::llama<>(small_llama()), 1);
  auto model = initialized(models::llama<>(wider), 2);
  BOOST_TEST(mentions(parx_test::message_of([&] {
                        load_state_dict(model, state_dict(file), state_match::common_rows);
                      }),
                      "model.layers.0.mlp.gate_proj.weight: [8, 8] F32 in the state_dict"));
  // A model without values gets those of its other rows first.
  models::llama<> fresh(small_llama(14));
  auto initial = initialized(models::llama<>(small_llama(14)), 0);
  load_state_dict(fresh, state_dict(file), state_match::common_rows);
  const auto head = state_dict(fresh).at<float>("lm_head.weight"),
             start = state_dict(initial).at<float>("lm_head.weight");
  BOOST_TEST(std::equal(head.begin() + 11 * 8, head.end(), start.begin() + 11 * 8));
}

BOOST_AUTO_TEST_CASE(a_model_directory_is_written_and_read_back) {
  const scratch_folder folder;
  auto saved = made(1);
  auto other = made(2);
  save_pretrained(saved, config, folder.file("m"), bert_tokenizer_files("[PAD]\n[UNK]\n"));
  BOOST_TEST((load_config(folder.file("m")) == config));
  load_pretrained(other, json::object{{"hidden_size", 3}}, folder.file("m"));
  BOOST_TEST(other.weight().value().span() == saved.weight().value().span(),
             boost::test_tools::per_element());
  const auto tokenizer =
      json::parse(parx_test::read_file(folder.file("m/tokenizer_config.json")));
  BOOST_TEST(tokenizer.at("do_lower_case").as<bool>());
  BOOST_TEST(tokenizer.at("tokenizer_class").text() == "BertTokenizer");
  BOOST_TEST(parx_test::read_file(folder.file("m/vocab.txt")) == "[PAD]\n[UNK]\n");
}

BOOST_AUTO_TEST_CASE(a_model_of_another_architecture_is_told_by_its_configuration_first) {
  const scratch_folder folder;
  auto saved = made(1);
  save_pretrained(saved, config, folder.file("m"));
  auto model = made(2, 5);
  const auto expected = json::object{{"hidden_size", 5}, {"model_type", "bert"}, {"layers", 2}};
  BOOST_CHECK_EXCEPTION(
      load_pretrained(model, expected, folder.file("m")), error, [](const error& reason) {
        const std::string_view text = reason.what();
        const auto size = text.find("hidden_size: 3 in config.json, 5 in the model");
        const auto shape = text.find("weight: [4, 3] F32 in the file, [5, 3] F32 in the model");
        return size < shape && shape != std::string_view::npos &&
               mentions(text, "layers: nothing in config.json, 2") && !mentions(text, "model_type");
      });
}

BOOST_AUTO_TEST_CASE(a_model_in_several_files_is_read_through_its_index) {
  const scratch_folder folder;
  auto saved = made(1);
  auto model = made(2);
  const auto store = [&](const char* name, auto& parameter, std::vector<std::uint64_t> shape) {
    write_safetensors(folder.file(fmt::format("{}.st", name)),
                      std::vector<tensor_to_store>{{name, dtype::float32, std::move(shape),
                                                    std::as_bytes(parameter.value().span())}});
  };
  store("weight", saved.weight(), {4, 3});
  auto bias = saved.parameters()[1];
  store("bias", bias, {4});
  (void)folder.write("config.json", json::dump(config));
  const auto index = [&](std::string_view bias_file) {
    (void)folder.write("model.safetensors.index.json",
                       fmt::format(R"({{"metadata": {{"total_size": 64}}, "weight_map": )"
                                   R"({{"weight": "weight.st", "bias": "{}"}}}})",
                                   bias_file));
  };
  const auto load = [&] { load_pretrained(model, json::object{}, folder.file("")); };
  index("bias.st");
  load();
  BOOST_TEST(model.parameters()[1].value().span() == saved.parameters()[1].value().span(),
             boost::test_tools::per_element());
  const auto says = [](std::string_view part) {
    return [part](const error& reason) { return mentions(reason.what(), part); };
  };
  index("weight.st");
  BOOST_CHECK_EXCEPTION(load(), error, says("has no tensor \"bias\", which the index says"));
  index("../bias.st");
  BOOST_CHECK_EXCEPTION(load(), error, says("not the name of a file beside it"));
  index("gone.st");
  BOOST_CHECK_EXCEPTION(load(), error, says("No such file"));
}

BOOST_AUTO_TEST_CASE(a_model_saved_over_one_in_several_files_replaces_it) {
  const scratch_folder folder;
  auto old = made(1);
  auto saved = made(2);
  auto model = made(3);
  const auto in_one_file = folder.file("model.safetensors");
  const auto shard = folder.file("model-00001-of-00001.safetensors");
  const auto index = folder.file("model.safetensors.index.json");
  save_pretrained(old, config, folder.file(""));
  std::filesystem::rename(in_one_file, shard);
  const auto write_index = [&] {
    (void)folder.write("model.safetensors.index.json",
                       R"({"weight_map": {"weight": "model-00001-of-00001.safetensors",)"
                       R"( "bias": "model-00001-of-00001.safetensors"}})");
  };
  const auto check_loads = [&](auto& expected) {
    load_pretrained(model, config, folder.file(""));
    BOOST_TEST(model.weight().value().span() == expected.weight().value().span(),
               boost::test_tools::per_element());
  };
  write_index();
  check_loads(old);
  save_pretrained(saved, config, folder.file(""));
  check_loads(saved);
  BOOST_TEST(!std::filesystem::exists(shard));
  BOOST_TEST(!std::filesystem::exists(index));
  // A process that was killed before it had removed the index, or another program's leftovers.
  write_index();
  save_pretrained(old, config, folder.file("other"));
  std::filesystem::rename(folder.file("other/model.safetensors"), shard);
  check_loads(saved);
}

BOOST_AUTO_TEST_CASE(pytorch_reads_what_is_written_here_and_the_other_way_round) {
  const scratch_folder folder;
  auto layer = made(3);
  save_pretrained(layer, config, folder.file("m"));
  const auto theirs = folder.file("theirs");
  const auto printed = parx_test::ask_torch(
      __FILE__,
      fmt::format("torch_files.py' '{}' '{}", folder.file("m/model.safetensors"), theirs));
  if (!printed) return;
  const auto same = [](const std::vector<double>& a, auto b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](double x, float y) { return x == static_cast<double>(y); });
  };
  BOOST_TEST(same(printed->at("weight"), layer.weight().value().span()));
  BOOST_TEST(same(printed->at("bias"), layer.parameters()[1].value().span()));
  const safetensors_file file(theirs);
  BOOST_TEST(file.find("mask")->dtype_name == "BOOL");
  const auto report = load_state(layer, file, state_match::partial);
  BOOST_TEST(report.unexpected == std::vector<std::string>{"mask"},
             boost::test_tools::per_element());
  BOOST_TEST(report.mismatched.empty());
  const std::array<float, 4> bias{0, 0.125, 0.25, 0.375};
  BOOST_TEST(layer.parameters()[1].value().span() == bias, boost::test_tools::per_element());
}
