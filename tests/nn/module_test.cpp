#include <parx/nn.hpp>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/optim.hpp>

using namespace parx;

namespace {

/// A model with everything that members() may visit: modules, a range of modules, own and shared
/// parameters.
class tower : public nn::module<tower> {
 public:
  explicit tower(std::size_t depth) : scale_("scale", tensor<float>::full({1}, 3.0F)) {
    for (std::size_t i = 0; i < depth; ++i) blocks_.emplace_back(nn::linear{4, 4}, nn::relu{});
  }
  auto forward(const variable<float>& x) {
    auto y = x;
    for (auto& block : blocks_) y = block(y);
    return head_(drop_(y)) * scale_;
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("blocks", blocks_);
    visit("drop", drop_);
    visit("head", head_);
    visit("scale", scale_);
    visit("scale_again", scale_);
  }

 private:
  std::vector<nn::sequential<nn::linear<>, nn::relu>> blocks_;
  nn::dropout drop_{0.5};
  nn::linear<> head_{4, 2, {.bias = nn::bias::none}};
  parameter<float> scale_;
};

struct twice_named final : nn::module<twice_named> {
  template <typename Visit>
  void members(Visit& visit) {
    visit("in", in);
    visit("in", out);
  }
  nn::linear<> in{4, 2}, out{2, 1};
};

struct counter : nn::module<counter> {
  int calls = 0;
  void forward(const variable<float>& /*x*/) { ++calls; }
  template <typename Visit>
  void members(Visit& /*visit*/) {}
};

/// Two words in, one of two classes out.
class words final : public nn::module<words> {
 public:
  auto forward(const tensor<std::int64_t>& ids) { return head_(norm_(mean(table_(ids), {1}))); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("table", table_);
    visit("norm", norm_);
    visit("head", head_);
  }

 private:
  nn::embedding<> table_{6, 8};
  nn::layer_norm<> norm_{8};
  nn::linear<> head_{8, 2};
};

template <typename Model>
std::map<std::string, std::vector<float>> values_of(Model& model) {
  std::map<std::string, std::vector<float>> values;
  model.for_each_parameter([&](const std::string& path, auto& p) {
    values[path] = {p.value().begin(), p.value().end()};
  });
  return values;
}

/// Has parameters of two types, and says so or not.
template <typename Said>
struct of_two_types : nn::module<of_two_types<Said>> {
  using element_types = Said;
  template <typename Visit>
  void members(Visit& visit) {
    visit("single", single);
    visit("exact", exact);
    visit("mean", mean);
  }
  nn::linear<float> single{2, 3};
  nn::linear<double> exact{3, 1};
  model_buffer<std::uint8_t> mean{tensor<std::uint8_t>::zeros({2})};
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_model_of_several_element_types_names_them) {
  of_two_types<nn::types<float, double, std::uint8_t>> model;
  model.initialize(1);
  std::map<std::string, std::size_t> bytes;
  const auto note = [&](const std::string& path, auto& each) {
    bytes[path] = sizeof(typename std::remove_cvref_t<decltype(each)>::value_type);
  };
  model.for_each_parameter(note);
  model.for_each_buffer(note);
  BOOST_TEST((bytes == std::map<std::string, std::size_t>{{"single.weight", 4},
                                                          {"single.bias", 4},
                                                          {"exact.weight", 8},
                                                          {"exact.bias", 8},
                                                          {"mean", 1}}));

  of_two_types<nn::types<float>> silent;
  BOOST_CHECK_EXCEPTION(silent.for_each_parameter([](const std::string&, auto&) {}), usage_error,
                        [](const usage_error& e) {
                          return std::string(e.what()).find(
                                     "\"exact.weight\" has elements of a type "
                                     "that its model does not name") != std::string::npos;
                        });
}

BOOST_AUTO_TEST_CASE(modules_are_shown_outer_ones_first) {
  tower model(1);
  std::vector<std::string> seen;
  model.for_each_module([&](const std::string& path, const nn::module_view& part) {
    seen.push_back(fmt::format("{}:{}{}", path, part.parameter_count(),
                               part.noise != nullptr ? " noise"
                               : part.cut != nullptr ? " cut"
                                                     : ""));
  });
  BOOST_TEST(seen == (std::vector<std::string>{":29", "blocks.0:20", "blocks.0.0:20 cut",
                                               "blocks.0.1:0", "drop:0 noise", "head:8 cut"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_module_may_return_nothing) {
  counter m;
  m(variable<float>(tensor<float>::zeros({1})));
  BOOST_TEST(m.calls == 1);
}

BOOST_AUTO_TEST_CASE(parameters_are_named_by_their_path_and_counted_once) {
  tower model(2);
  std::vector<std::string> paths;
  model.for_each_parameter([&](const std::string& path, auto& p) {
    paths.push_back(path);
    BOOST_TEST(p.name() == path);
  });
  const std::vector<std::string> expected{"blocks.0.0.weight", "blocks.0.0.bias",
                                          "blocks.1.0.weight", "blocks.1.0.bias",
                                          "head.weight",       "scale"};
  BOOST_TEST(paths == expected, boost::test_tools::per_element());
  BOOST_TEST(model.parameter_count() == 2U * (16 + 4) + 8 + 1);
  BOOST_TEST(model.parameters().size() == 6U);
}

BOOST_AUTO_TEST_CASE(two_members_of_one_name_are_refused) {
  twice_named both;
  BOOST_CHECK_EXCEPTION(both.initialize(1), usage_error, [](const usage_error& said) {
    return std::string(said.what()).find("are called \"in.weight\"") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(first_values_depend_on_seed_and_path_alone) {
  tower model(2);
  tower deeper(3);
  deeper.initialize(5);
  model.initialize(5);
  const auto values = values_of(model);
  for (const auto& [path, value] : values) BOOST_TEST((values_of(deeper).at(path) == value), path);
  BOOST_TEST((values.at("blocks.0.0.weight") != values.at("blocks.1.0.weight")));
  tower other(2);
  other.initialize(6);
  BOOST_TEST((values_of(other).at("head.weight") != values.at("head.weight")));
  // A parameter without an initializer keeps the constructor's value.
  BOOST_TEST(values.at("scale").at(0) == 3.0F);
}

BOOST_AUTO_TEST_CASE(a_forgotten_initialize_means_seed_0_and_happens_once) {
  tower model(1);
  (void)model(tensor<float>::ones({1, 4}));
  tower explicitly(1);
  explicitly.initialize(0);
  BOOST_TEST((values_of(model) == values_of(explicitly)));
  model.parameters()[0].value().fill(7);
  (void)model(tensor<float>::ones({1, 4}));
  BOOST_TEST(values_of(model).at("blocks.0.0.weight").at(0) == 7.0F);
}

BOOST_AUTO_TEST_CASE(a_trained_part_keeps_its_values_in_a_new_model) {
  nn::linear trained{2, 2};
  trained.initialize(1);
  trained.weight().value().fill(9);
  nn::sequential model{std::move(trained), nn::linear{2, 2}};
  model.materialize();
  const auto values = values_of(model);
  BOOST_TEST(values.at("0.weight").at(0) == 9.0F);
  BOOST_TEST(values.at("1.weight").at(0) != 0.0F);
}

BOOST_AUTO_TEST_CASE(default_initialisation_is_pytorchs) {
  nn::sequential model{nn::linear{400, 300}, nn::conv2d{4, 64, 5}, nn::embedding{500, 100},
                       nn::layer_norm{7}};
  model.initialize(3);
  const auto values = values_of(model);
  const auto check_uniform = [&](const std::string& path, double bound) {
    const auto& v = values.at(path);
    double sum = 0;
    double squares = 0;
    double largest = 0;
    for (const float f : v) {
      sum += static_cast<double>(f);
      squares += static_cast<double>(f) * static_cast<double>(f);
      largest = std::max(largest, std::abs(static_cast<double>(f)));
    }
    const double n = static_cast<double>(v.size());
    BOOST_TEST(largest <= bound, path);
    BOOST_TEST(largest > bound * (1 - 20 / n), path);
    // Uniform in +-b: deviation b / sqrt(3); five standard errors.
    BOOST_TEST(std::abs(sum / n) < 5 * bound / std::sqrt(3 * n), path);
    BOOST_TEST(std::abs(squares / n * 3 / (bound * bound) - 1) < 5 / std::sqrt(n), path);
  };
  // kaiming_uniform(a = sqrt(5)): bound sqrt(6 / ((1 + 5) fan_in)).
  check_uniform("0.weight", 1 / std::sqrt(400.0));
  check_uniform("0.bias", 1 / std::sqrt(400.0));
  check_uniform("1.weight", 1 / std::sqrt(4.0 * 5 * 5));
  double squares = 0;
  for (const float f : values.at("2.weight"))
    squares += static_cast<double>(f) * static_cast<double>(f);
  BOOST_TEST(squares / 50'000 == 1.0, boost::test_tools::tolerance(0.03));
  BOOST_TEST((values.at("3.weight") == std::vector<float>(7, 1.0F)));
  BOOST_TEST((values.at("3.bias") == std::vector<float>(7, 0.0F)));
}

BOOST_AUTO_TEST_CASE(dropout_acts_in_training_only_and_differs_from_call_to_call) {
  nn::sequential model{nn::dropout{0.25}};
  model.initialize(1);
  const auto ones = tensor<float>::ones({10'000});
  const auto run = [&] {
    const auto y = model(ones);
    return std::vector<float>(y.value().begin(), y.value().end());
  };
  const auto first = run();
  const auto second = run();
  BOOST_TEST((first != second));
  const auto dropped = std::count(first.begin(), first.end(), 0.0F);
  BOOST_TEST(std::abs(static_cast<double>(dropped) - 2500) < 220);  // five standard deviations
  for (const float value : first) BOOST_TEST((value == 0.0F || value == 1.0F / 0.75F));
  model.reseed(1);
  BOOST_TEST((run() == first));
  model.reseed(2);
  BOOST_TEST((run() != first));
  model.eval();
  BOOST_TEST((run() == std::vector<float>(10'000, 1.0F)));
  model.train();
  BOOST_TEST((run() != std::vector<float>(10'000, 1.0F)));
  BOOST_CHECK_THROW(nn::dropout{1.0}, usage_error);
}

BOOST_AUTO_TEST_CASE(train_and_eval_reach_every_module) {
  tower model(2);
  model.eval();
  const auto x = tensor<float>::ones({3, 4});
  const auto a = model(x);
  const auto b = model(x);
  BOOST_TEST(a.value().span() == b.value().span(), boost::test_tools::per_element());
  BOOST_TEST(!model.is_training());
}

BOOST_AUTO_TEST_CASE(reading_parameters_before_they_have_values_is_refused) {
  nn::sequential model{nn::linear{2, 2}};
  BOOST_CHECK_THROW((void)model.get<0>().weight().value(), usage_error);
  model.initialize(0);
  BOOST_TEST(model.get<0>().weight().size() == 4U);
}

BOOST_AUTO_TEST_CASE(models_do_not_copy_because_copies_would_share_parameters) {
  static_assert(!std::is_copy_constructible_v<nn::linear<>>);
  static_assert(std::is_move_constructible_v<nn::sequential<nn::linear<>, nn::relu>>);
  nn::sequential model{nn::linear{2, 2}, nn::relu{}};
  model.initialize(1);
  const auto before = values_of(model);
  auto moved = std::move(model);
  BOOST_TEST((values_of(moved) == before));
}

// A first layer that computes with numbers alone.
struct centred : parx::nn::module<centred> {
  parx::nn::linear<> layer{2, 1};
  parx::variable<float> forward(const tensor<float>& x) {
    return layer(parx::map([](float v) { return v - 1; }, x));
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("layer", layer);
  }
};

BOOST_AUTO_TEST_CASE(forward_takes_a_tensor_or_a_variable) {
  centred m;
  const auto given = tensor<float>::full({3, 2}, 3.0F), less = tensor<float>::full({3, 2}, 2.0F);
  BOOST_TEST(m(given).value().at(0, 0) == m.layer(less).value().at(0, 0));
}

BOOST_AUTO_TEST_CASE(a_small_network_learns_exclusive_or) {
  nn::sequential model{nn::linear{2, 16}, nn::tanh{}, nn::linear{16, 2}};
  model.initialize(1);
  optim::adamw opt{model.parameters(), {.lr = 3e-2}};
  const auto x = tensor<float>::from({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2});
  const auto y = tensor<std::int64_t>::from({0, 1, 1, 0}, {4});
  float loss = 0;
  for (int step = 0; step < 200; ++step) {
    const auto weighted = nn::cross_entropy(model(x), y);
    weighted.backward();
    opt.step();
    loss = weighted.mean();
  }
  BOOST_TEST(loss < 0.02F);
  BOOST_TEST(nn::accuracy(model(x), y).mean() == 1.0);
}

BOOST_AUTO_TEST_CASE(an_embedding_and_a_norm_learn_to_tell_words_apart) {
  words model;
  optim::sgd opt{model.parameters(), {.lr = 0.1, .momentum = 0.9}};
  const auto ids = tensor<std::int64_t>::from({0, 1, 2, 3, 4, 5, 0, 5}, {4, 2});
  const auto y = tensor<std::int64_t>::from({0, 1, 1, 0}, {4});
  for (int step = 0; step < 60; ++step) {
    nn::cross_entropy(model(ids), y).backward();
    opt.step();
  }
  BOOST_TEST(nn::accuracy(model(ids), y).mean() == 1.0);
}
