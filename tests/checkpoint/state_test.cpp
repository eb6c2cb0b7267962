#include <parx/checkpoint/state_dict.hpp>

#include <parx/nn.hpp>
#include <parx/optim.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <data/support.hpp>
#include <messages.hpp>

using namespace parx;
using parx_test::mentions;
using parx_test::scratch_folder;

namespace {

auto make_model(std::uint64_t seed, std::size_t hidden = 4) {
  nn::sequential model{nn::linear{3, hidden}, nn::relu{}, nn::linear{hidden, 2}};
  model.initialize(seed);
  return model;
}

template <typename Model>
std::vector<float> values_of(Model& model) {
  std::vector<float> values;
  model.for_each_parameter([&](const std::string&, auto& p) {
    values.insert(values.end(), p.value().begin(), p.value().end());
  });
  return values;
}

template <typename Model, typename Optimizer>
void train(Model& model, Optimizer& opt, int steps) {
  const auto x = tensor<float>::from({1, 2, 3, -1, 0, 2}, {2, 3});
  const auto y = tensor<std::int64_t>::from({0, 1}, {2});
  for (int i = 0; i < steps; ++i) {
    nn::cross_entropy(model(x), y).backward();
    opt.step();
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_saved_model_is_loaded_bit_for_bit_under_pytorchs_names) {
  const scratch_folder folder;
  auto saved = make_model(1);
  auto other = make_model(2);
  BOOST_TEST((values_of(saved) != values_of(other)));
  save_state(saved, folder.file("m"), {{"consumed", "640"}});
  const auto report = load_state(other, folder.file("m"));
  BOOST_TEST(report.empty());
  BOOST_TEST((values_of(saved) == values_of(other)));
  const safetensors_file file(folder.file("m"));
  BOOST_TEST(file.metadata().at("consumed") == "640");
  std::vector<std::string> names;
  for (const auto& tensor : file.tensors()) names.push_back(tensor.name);
  BOOST_TEST(names == (std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias"}),
             boost::test_tools::per_element());
  BOOST_TEST((file.find("0.weight")->shape == std::vector<std::uint64_t>{4, 3}));
}

BOOST_AUTO_TEST_CASE(buffers_are_saved_and_loaded_beside_the_parameters) {
  const scratch_folder folder;
  nn::batch_norm saved{2}, loaded{2};
  (void)saved(tensor<float>::from({1, 2, 3, 5}, {2, 2}));
  save_state(saved, folder.file("m"));
  BOOST_TEST(load_state(loaded, folder.file("m")).empty());
  const safetensors_file file(folder.file("m"));
  std::vector<std::string> names;
  loaded.for_each_buffer([&](const std::string& path, auto& b) {
    names.push_back(path);
    BOOST_TEST((file.find(path) != nullptr), path);
    if (path == "running_mean") BOOST_TEST(b.value().data()[0] == 0.2F);  // 0.1 of (1 + 3) / 2
    if (path == "num_batches_tracked") BOOST_TEST(b.value().data()[0] == 1);
  });
  BOOST_TEST(
      names == (std::vector<std::string>{"running_mean", "running_var", "num_batches_tracked"}),
      boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_file_that_does_not_fit_is_reported_in_full_and_changes_nothing) {
  const scratch_folder folder;
  nn::sequential saved{nn::linear{3, 5}, nn::relu{}, nn::linear{5, 2, {.bias = nn::bias::none}},
                       nn::linear{2, 2}};
  save_state(saved, folder.file("m"));
  auto model = make_model(2);
  const auto before = values_of(model);
  BOOST_CHECK_EXCEPTION(load_state(model, folder.file("m")), error, [](const error& failure) {
    const std::string_view text = failure.what();
    return failure.code_value() == errc::bad_data &&
           mentions(text, "missing from the file: 2.bias") &&
           mentions(text, "unknown to the model: 3.bias, 3.weight") &&
           mentions(text, "0.weight: [5, 3] F32 in the file, [4, 3] F32 in the model");
  });
  BOOST_TEST((values_of(model) == before));
}

BOOST_AUTO_TEST_CASE(a_report_lists_the_first_of_many_differences) {
  state_report report;
  for (int i = 0; i < 30; ++i) {
    report.missing.push_back(fmt::format("m{}", i));
    report.mismatched.push_back(fmt::format("d{}", i));
  }
  BOOST_TEST(mentions(report.text(), "m8, m9, and 20 more\n"));
  BOOST_TEST(mentions(report.text(), "\n  different: d3, and 26 more"));
}

BOOST_AUTO_TEST_CASE(matching_parameters_can_be_loaded_without_the_others) {
  const scratch_folder folder;
  auto saved = make_model(1);
  save_state(saved, folder.file("m"));
  nn::sequential model{nn::linear{3, 4}, nn::relu{}, nn::linear{4, 7}};
  model.initialize(9);
  std::vector<std::string> lines;
  logger::instance().set_sink([&](log_level, std::string_view line) { lines.emplace_back(line); });
  const auto report = load_state(model, folder.file("m"), state_match::partial);
  logger::instance().set_sink({});
  BOOST_TEST_REQUIRE(lines.size() == 1U);
  BOOST_TEST(mentions(lines[0], "what differs keeps its values: 2.weight", "; 2.bias"));
  BOOST_TEST(report.mismatched.size() == 2U);
  BOOST_TEST(report.missing.empty());
  BOOST_TEST(report.unexpected.empty());
  auto& first = model.get<0>();
  auto& wanted = saved.get<0>();
  BOOST_TEST(first.weight().value().span() == wanted.weight().value().span(),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(other_floating_point_types_are_converted) {
  const scratch_folder folder;
  nn::sequential saved{nn::linear<double>{3, 2}};
  saved.initialize(4);
  save_state(saved, folder.file("m"));
  nn::sequential model{nn::linear{3, 2}};
  load_state(model, folder.file("m"));
  for (std::size_t i = 0; i < 6; ++i) {
    BOOST_TEST(model.get<0>().weight().value().data()[i] ==
               static_cast<float>(saved.get<0>().weight().value().data()[i]));
  }
  const std::array<std::uint16_t, 8> halves{0x3F80, 0xC000, 0,      0x3F00,
                                            0x3F80, 0x3F80, 0x4000, 0x4040};
  const auto bytes = std::as_bytes(std::span(halves));
  write_safetensors(folder.file("bf16"), std::vector<tensor_to_store>{
                                             {"0.weight", dtype::bfloat16, {2, 3}, bytes.first(12)},
                                             {"0.bias", dtype::bfloat16, {2}, bytes.last(4)}});
  load_state(model, folder.file("bf16"));
  const std::array<float, 6> expected{1, -2, 0, 0.5, 1, 1};
  BOOST_TEST(model.get<0>().weight().value().span() == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(integers_are_not_taken_for_weights) {
  const scratch_folder folder;
  const std::array<std::int32_t, 8> numbers{};
  const auto bytes = std::as_bytes(std::span(numbers));
  write_safetensors(folder.file("m"), std::vector<tensor_to_store>{
                                          {"0.weight", dtype::int32, {2, 3}, bytes.first(24)},
                                          {"0.bias", dtype::int32, {2}, bytes.last(8)}});
  nn::sequential model{nn::linear{3, 2}};
  BOOST_CHECK_EXCEPTION(load_state(model, folder.file("m")), error, [](const error& failure) {
    return mentions(failure.what(), "[2, 3] I32 in the file");
  });
}

BOOST_AUTO_TEST_CASE(an_interrupted_run_goes_on_as_if_it_had_not_been) {
  const scratch_folder folder;
  auto whole = make_model(1);
  optim::adamw whole_opt{whole.parameters(), {.lr = 0.1}};
  train(whole, whole_opt, 7);

  auto first = make_model(1);
  optim::adamw first_opt{first.parameters(), {.lr = 0.1}};
  train(first, first_opt, 4);
  save_state(first, folder.file("model"));
  save_state(first_opt, folder.file("optimizer"));

  auto second = make_model(77);
  optim::adamw second_opt{second.parameters(), {.lr = 0.1}};
  load_state(second, folder.file("model"));
  load_state(second_opt, folder.file("optimizer"));
  train(second, second_opt, 3);
  BOOST_TEST((values_of(second) == values_of(whole)));
}

namespace {

/// The tensors and numbers that an optimizer has memory for.
template <typename Optimizer>
std::vector<std::string> made_by(Optimizer& optimizer) {
  std::vector<std::string> names;
  optimizer.for_each_lazy_state([&](const std::string& name, auto& value, const auto&) {
    if constexpr (requires { value.is_made; }) {
      if (!value.is_made) return;
    }
    names.push_back(name);
  });
  std::sort(names.begin(), names.end());
  return names;
}
std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  const safetensors_file file(path);
  for (const auto& tensor : file.tensors()) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_frozen_parameter_takes_no_optimizer_state_in_memory_or_in_a_file) {
  const scratch_folder folder;
  const auto freeze_first = [](auto& model) { model.template get<0>().freeze(); };
  auto whole = make_model(1), first = make_model(1), second = make_model(77);
  for (auto* each : {&whole, &first, &second}) freeze_first(*each);
  optim::adamw whole_opt{whole.parameters(), {.lr = 0.1}};
  train(whole, whole_opt, 7);

  optim::adamw first_opt{first.parameters(), {.lr = 0.1}};
  train(first, first_opt, 4);
  const std::vector<std::string> expected{
      "0.bias.step",   "0.weight.step",    "2.bias.exp_avg",      "2.bias.exp_avg_sq",
      "2.bias.step",   "2.weight.exp_avg", "2.weight.exp_avg_sq", "2.weight.step"};
  save_state(first, folder.file("model"));
  save_state(first_opt, folder.file("optimizer"));
  BOOST_TEST(made_by(first_opt) == expected, boost::test_tools::per_element());
  BOOST_TEST(names_in(folder.file("optimizer")) == expected, boost::test_tools::per_element());

  // Moments that the file rightly lacks are zero, whatever was there.
  optim::adamw second_opt{second.parameters(), {.lr = 0.1}};
  second.unfreeze();
  train(second, second_opt, 2);
  freeze_first(second);
  load_state(second, folder.file("model"));
  BOOST_TEST(load_state(second_opt, folder.file("optimizer")).empty());
  BOOST_TEST(made_by(second_opt) == expected, boost::test_tools::per_element());
  train(second, second_opt, 3);
  BOOST_TEST((values_of(second) == values_of(whole)));

  // A file that has them, all zero, loads as well; one that lacks others does not.
  first_opt.for_each_state([](const std::string&, auto&) {});
  save_state(first_opt, folder.file("zeros"));
  BOOST_TEST(names_in(folder.file("zeros")).size() == 12U);
  BOOST_TEST(load_state(second_opt, folder.file("zeros")).empty());
  optim::sgd plain{first.parameters(), {.lr = 0.1}};
  train(first, plain, 1);
  save_state(plain, folder.file("plain"));
  BOOST_TEST(names_in(folder.file("plain")).size() == 4U);
  BOOST_CHECK_EXCEPTION(
      load_state(second_opt, folder.file("plain")), error, [](const error& failure) {
        return mentions(failure.what(), "missing from the file: 2.weight.exp_avg, ") &&
               !mentions(failure.what(), "0.weight.exp_avg");
      });
  optim::sgd rolling{first.parameters(), {.lr = 0.1, .momentum = 0.9}};
  BOOST_TEST(load_state(rolling, folder.file("plain")).empty());
}

BOOST_AUTO_TEST_CASE(a_frozen_16_bit_parameter_takes_no_float_copy) {
  const scratch_folder folder;
  const std::vector list{parameter<bfloat16>("a", tensor<bfloat16>::ones({3})),
                         parameter<bfloat16>("b", tensor<bfloat16>::ones({3}))};
  optim::adamw optimizer{list};
  list[0].backward_from(tensor<bfloat16>::ones({3}));
  optimizer.step();
  save_state(optimizer, folder.file("optimizer"));
  const std::vector<std::string> expected{"a.exp_avg", "a.exp_avg_sq", "a.master", "a.step",
                                          "b.step"};
  BOOST_TEST(made_by(optimizer) == expected, boost::test_tools::per_element());
  optim::adamw other{list};
  BOOST_TEST(load_state(other, folder.file("optimizer")).empty());
  BOOST_TEST(made_by(other) == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_state_dict_keeps_what_the_model_was) {
  auto model = make_model(1);
  const auto before = values_of(model);
  state_dict kept(model);
  BOOST_TEST(kept.size() == 4U);
  model.get<0>().weight().value().fill(7.0F);
  BOOST_TEST(kept.at<float>("0.weight").data()[0] == before[0]);
  BOOST_TEST(load_state_dict(model, kept).empty());
  BOOST_TEST((values_of(model) == before));

  kept.erase("0.bias");
  kept.set("0.weight", tensor<float>::zeros({3, 3}));
  kept.set("extra", tensor<double>::zeros({1}));
  BOOST_CHECK_EXCEPTION(load_state_dict(model, kept), error, [](const error& failure) {
    return mentions(failure.what(), "missing from the state_dict: 0.bias") &&
           mentions(failure.what(), "unknown to the model: extra") &&
           mentions(failure.what(),
                    "0.weight: [3, 3] F32 in the state_dict, [4, 3] F32 in the model");
  });
  BOOST_TEST((values_of(model) == before));
  const state_report report = load_state_dict(model, kept, state_match::partial);
  BOOST_TEST(report.missing.size() + report.unexpected.size() + report.mismatched.size() == 3U);
  BOOST_CHECK_THROW((void)kept.at<float>("extra"), usage_error);
}
