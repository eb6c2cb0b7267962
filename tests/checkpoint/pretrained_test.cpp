#include <parx/checkpoint/pretrained.hpp>

#include <filesystem>

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

}  // namespace

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
