#include <parx/autograd/autocast.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/amp.hpp>
#include <parx/autograd.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using parx::tensor;
using parx::variable;

tensor<float> noise(const parx::shape& s, const char* name) {
  tensor<float> t = tensor<float>::empty(s);
  parx::random_stream(1, name).uniform(t, -1.0F, 1.0F);
  return t;
}
template <typename Half>
tensor<double> as_double(const tensor<float>& t) {
  tensor<double> result = tensor<double>::empty(t.shape());
  for (std::size_t i = 0; i < t.size(); ++i) {
    result.data()[i] = static_cast<double>(static_cast<float>(static_cast<Half>(t.data()[i])));
  }
  return result;
}
// The largest difference, relative to the largest value.
double distance(const tensor<float>& result, const tensor<double>& truth) {
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(result.data()[i]) - truth.data()[i]));
    scale = std::max(scale, std::abs(truth.data()[i]));
  }
  return worst / scale;
}
template <typename Half>
bool is_representable(const tensor<float>& t) {
  for (const float v : t) {
    if (static_cast<float>(static_cast<Half>(v)) != v) return false;
  }
  return true;
}

// Runs `product` in float under autocast and in double on rounded inputs and a rounded upstream.
template <typename Half, typename Product>
void check_against_double(Product product, std::vector<tensor<float>> inputs) {
  std::vector<variable<float>> x;
  std::vector<variable<double>> exact;
  for (const tensor<float>& input : inputs) {
    x.emplace_back(input, parx::gradient::wanted);
    exact.emplace_back(as_double<Half>(input), parx::gradient::wanted);
  }
  variable<float> y;
  {
    const parx::autocast<Half> scope;
    y = product(x);
  }
  const variable<double> truth = product(exact);
  // Half a unit in the last place, and what float's additions lose.
  const double half_unit = std::is_same_v<Half, parx::bfloat16> ? 0x1p-8 : 0x1p-11;
  BOOST_TEST(distance(y.value(), truth.value()) <= half_unit + 1e-6);
  BOOST_TEST(is_representable<Half>(y.value()));
  const tensor<float> upstream = noise(y.shape(), "upstream");
  y.backward_from(upstream);
  truth.backward_from(as_double<Half>(upstream));
  for (std::size_t i = 0; i < x.size(); ++i) {
    // Added up in float and not rounded again.
    BOOST_TEST(distance(x[i].grad(), exact[i].grad()) <= 1e-6, "input " << i);
    BOOST_TEST(!is_representable<Half>(x[i].grad()));
  }
}

template <typename Half>
void check_products() {
  check_against_double<Half>([](const auto& x) { return parx::linear(x[0], x[1]); },
                             {noise({3, 5, 40}, "x"), noise({30, 40}, "w")});
  check_against_double<Half>([](const auto& x) { return parx::matmul(x[0], x[1]); },
                             {noise({2, 9, 33}, "a"), noise({2, 33, 7}, "b")});
  check_against_double<Half>(
      [](const auto& x) { return parx::conv2d(x[0], x[1], {}, {.padding = 1}); },
      {noise({2, 3, 9, 9}, "image"), noise({4, 3, 3, 3}, "kernel")});
}

struct classifier : parx::nn::module<classifier> {
  parx::nn::conv2d<> filters{1, 8, 3, {.padding = 1}};
  parx::nn::linear<> hidden{8 * 4 * 4, 32};
  parx::nn::linear<> last{32, 4};

  variable<float> forward(const variable<float>& x) {
    const auto features = parx::nn::max_pool2d(2)(parx::relu(filters(x)));
    return last(parx::gelu(hidden(parx::flatten(features, 1))));
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("filters", filters);
    visit("hidden", hidden);
    visit("last", last);
  }
};

// Images 8 x 8 of noise with a bright quarter; which one is the label.
struct images {
  tensor<float> x;
  tensor<std::int64_t> y;
};
images make_images(std::size_t count, const char* name) {
  images all{noise({count, 1, 8, 8}, name), tensor<std::int64_t>::empty({count})};
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t label = i % 4;
    all.y.data()[i] = static_cast<std::int64_t>(label);
    for (std::size_t row = 0; row < 4; ++row) {
      for (std::size_t column = 0; column < 4; ++column) {
        all.x.at(i, std::size_t{0}, row + 4 * (label / 2), column + 4 * (label % 2)) += 0.6F;
      }
    }
  }
  return all;
}

template <typename T>
double accuracy_after_training() {
  const images train = make_images(256, "train"), test = make_images(400, "test");
  classifier model;
  model.initialize(3);
  parx::optim::adamw<float> opt(model.parameters(), {.lr = 3e-3});
  parx::amp::grad_scaler scaler({.growth_interval = 20});
  for (int step = 0; step < 60; ++step) {
    parx::weighted_loss<float> loss;
    {
      const parx::autocast<T> scope;
      loss = parx::nn::cross_entropy(model(train.x), train.y);
    }
    scaler.scale(loss).backward();
    scaler.unscale_(opt);
    parx::optim::clip_grad_norm(model.parameters(), 1.0);
    scaler.step(opt);
    scaler.update();
  }
  const parx::no_grad no_tape;
  const tensor<float> logits = model(test.x).value();
  std::size_t right = 0;
  for (std::size_t i = 0; i < test.y.size(); ++i) {
    const float* const row = logits.data() + 4 * i;
    right += std::max_element(row, row + 4) - row == test.y.data()[i] ? 1U : 0U;
  }
  return static_cast<double>(right) / static_cast<double>(test.y.size());
}

// What the tape of a forward pass holds.
template <typename T, typename Forward>
std::size_t tape_bytes(Forward forward) {
  const std::size_t before = parx::memory_pool::instance().stats().live_bytes;
  const parx::autocast<T> scope;
  const variable<float> loss = forward();
  return parx::memory_pool::instance().stats().live_bytes - before;
}

}  // namespace

BOOST_AUTO_TEST_CASE(products_are_those_of_rounded_operands_added_up_in_float) {
  check_products<parx::bfloat16>();
  check_products<parx::float16>();
}

namespace {
/// Attention over rounded operands, its result rounded; the gradient knows only the rounded one.
template <typename Half, typename Product>
void check_attention(Product product, std::vector<tensor<float>> inputs) {
  std::vector<variable<float>> x;
  std::vector<variable<double>> exact;
  for (const tensor<float>& input : inputs) {
    x.emplace_back(input, parx::gradient::wanted);
    exact.emplace_back(as_double<Half>(input), parx::gradient::wanted);
  }
  variable<float> y;
  {
    const parx::autocast<Half> scope;
    // A leaf keeps its float values on the tape, what was computed does not.
    std::vector<variable<float>> computed;
    for (const auto& leaf : x) computed.push_back(leaf * 1.0F);
    y = product(computed);
  }
  const variable<double> truth = product(exact);
  const double half_unit = std::is_same_v<Half, parx::bfloat16> ? 0x1p-8 : 0x1p-11;
  BOOST_TEST(distance(y.value(), truth.value()) <= half_unit + 1e-6);
  BOOST_TEST(is_representable<Half>(y.value()));
  const tensor<float> upstream = noise(y.shape(), "upstream");
  y.backward_from(upstream);
  truth.backward_from(upstream.cast<double>());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double far = distance(x[i].grad(), exact[i].grad());
    BOOST_TEST(far <= 2 * half_unit, "input " << i << ": " << far);
  }
}
template <typename Half>
void check_attentions() {
  const auto options = []<typename T>(T) {
    return parx::attention_options<T>{.heads = 2, .causal = true};
  };
  check_attention<Half>(
      [&]<typename T>(const std::vector<variable<T>>& x) {
        return parx::scaled_dot_product_attention(x[0], x[1], x[2], options(T()));
      },
      {noise({2, 30, 32}, "q"), noise({2, 30, 32}, "k"), noise({2, 30, 32}, "v")});
  check_attention<Half>(
      [&]<typename T>(const std::vector<variable<T>>& x) {
        return parx::self_attention(x[0], options(T()));
      },
      {noise({2, 30, 96}, "qkv")});
}
}  // namespace

BOOST_AUTO_TEST_CASE(attention_is_that_of_rounded_operands_in_float) {
  check_attentions<parx::bfloat16>();
  check_attentions<parx::float16>();
}

BOOST_AUTO_TEST_CASE(attention_leaves_half_on_the_tape) {
  const variable<float> x(noise({8, 128, 64}, "x"));
  parx::nn::multi_head_attention<> layer(64, 2);
  const auto forward = [&] { return parx::sum(layer(x)); };
  (void)forward();
  // Queries, keys, values and the result, which is the last product's operand.
  const auto whole = static_cast<double>(tape_bytes<float>(forward));
  BOOST_TEST(whole >= 4.0 * 4 * 8 * 128 * 64);
  BOOST_TEST(static_cast<double>(tape_bytes<parx::bfloat16>(forward)) <= 0.53 * whole);
}

BOOST_AUTO_TEST_CASE(scopes_nest_and_belong_to_a_thread) {
  const variable<float> third(tensor<float>::full({1, 1}, 1.0F / 3));
  const variable<float> one(tensor<float>::ones({1, 1}));
  const auto product = [&] { return parx::matmul(third, one).item(); };
  const float full = 1.0F / 3, low = parx::bfloat16(full), medium = parx::float16(full);
  BOOST_TEST(product() == full);
  {
    const parx::autocast<parx::bfloat16> outer;
    BOOST_TEST(product() == low);
    {
      const parx::autocast<float> off;
      BOOST_TEST(product() == full);
      const parx::autocast<parx::float16> inner;
      BOOST_TEST(product() == medium);
    }
    BOOST_TEST(product() == low);
    float elsewhere = 0;
    std::thread([&] { elsewhere = product(); }).join();
    BOOST_TEST(elsewhere == full);
  }
  BOOST_TEST(product() == full);
}

BOOST_AUTO_TEST_CASE(operations_other_than_products_stay_in_float) {
  const variable<float> x(noise({4, 16}, "x"));
  const auto results = [&] {
    return std::vector{
        parx::softmax(x).value(), parx::sum(x).value(), (x + x * x).value(),
        parx::layer_norm<float>(x, tensor<float>::ones({16}), tensor<float>::zeros({16})).value()};
  };
  const auto plain = results();
  const parx::autocast<parx::bfloat16> scope;
  const auto cast = results();
  for (std::size_t i = 0; i < plain.size(); ++i) {
    BOOST_TEST(std::equal(plain[i].begin(), plain[i].end(), cast[i].begin()), "result " << i);
  }
}

BOOST_AUTO_TEST_CASE(the_tape_takes_half_the_memory) {
  std::vector<parx::nn::linear<>> layers;
  for (int i = 0; i < 6; ++i) layers.emplace_back(250, 250);
  const variable<float> x(noise({500, 250}, "x"));
  const auto relus = [&] {
    variable<float> h = x;
    for (auto& layer : layers) h = parx::relu(layer(h));
    return parx::sum(h);
  };
  const auto gelus = [&] {
    variable<float> h = x;
    for (auto& layer : layers) h = parx::gelu(layer(h));
    return parx::sum(h);
  };
  (void)relus();
  const double layer = 500 * 250;
  // relu's result is the next product's operand: one copy serves both. gelu keeps its own operand.
  for (const auto& [bytes, per_value] :
       {std::pair{tape_bytes<float>(relus), 4.0}, {tape_bytes<parx::bfloat16>(relus), 2.0},
        {tape_bytes<parx::float16>(relus), 2.0}, {tape_bytes<float>(gelus), 8.0},
        {tape_bytes<parx::bfloat16>(gelus), 4.0}}) {
    BOOST_TEST_MESSAGE(bytes << " bytes, " << static_cast<double>(bytes) / layer / 6
                             << " a value of the hidden layers");
    BOOST_TEST(static_cast<double>(bytes) <= per_value * layer * 6 * 1.07);
  }
  const std::size_t live = parx::memory_pool::instance().stats().live_bytes;
  { const parx::autocast<parx::bfloat16> scope; gelus().backward(); }
  for (auto& each : layers) each.zero_grad();
  const std::size_t gradients = 6 * (250 * 250 + 250) * sizeof(float);
  BOOST_TEST(parx::memory_pool::instance().stats().live_bytes <= live + gradients * 5 / 4 + 65536);
}

BOOST_AUTO_TEST_CASE(memory_that_is_used_again_is_packed_again) {
  const parx::autocast<parx::bfloat16> scope;
  const variable<float> w(tensor<float>::ones({4, 4}), parx::gradient::wanted);
  for (int i = 1; i < 5; ++i) {
    // A computed operand, in the pool's memory of the last round.
    const variable<float> h = w * static_cast<float>(i);
    parx::sum(parx::matmul(h, h)).backward();
    // d/dw of sum((i w)(i w)) is 2 i^2 times row and column sums of 4.
    BOOST_TEST(w.grad().data()[5] == static_cast<float>(8 * i * i));
    w.zero_grad();
  }
}

BOOST_AUTO_TEST_CASE(float16_without_a_scaler_loses_small_gradients) {
  const variable<float> w(tensor<float>::ones({1, 1}), parx::gradient::wanted);
  const variable<float> x(tensor<float>::ones({1, 1}));
  const auto loss = [&] {
    const parx::autocast<parx::float16> scope;
    return parx::sum(parx::matmul(x, w)) * 1e-8F;
  };
  loss().backward();
  BOOST_TEST(w.grad().item() == 0);
  w.zero_grad();
  const parx::amp::grad_scaler scaler;
  scaler.scale(loss()).backward();
  BOOST_TEST(w.grad().item() / 65536 == 1e-8F, boost::test_tools::tolerance(1e-3F));
}

BOOST_AUTO_TEST_CASE(training_in_lower_precision_reaches_the_accuracy_of_float) {
  const double plain = accuracy_after_training<float>();
  const double low = accuracy_after_training<parx::bfloat16>();
  const double medium = accuracy_after_training<parx::float16>();
  BOOST_TEST_MESSAGE("float " << plain << ", bfloat16 " << low << ", float16 " << medium);
  BOOST_TEST(plain > 0.9);
  BOOST_TEST(low >= plain - 0.02);
  BOOST_TEST(medium >= plain - 0.02);
}
