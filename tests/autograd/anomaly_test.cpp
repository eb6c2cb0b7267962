#include <parx/autograd/anomaly.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd.hpp>
#include <parx/nn.hpp>

namespace {

using parx::tensor;
using parx::variable;

// The square root of `x`, whose derivative at 0 is infinite.
variable<float> root(const variable<float>& x) {
  return parx::differentiable(
      parx::map([](float v) { return std::sqrt(v); }, x.value()),
      [y = parx::map([](float v) { return std::sqrt(v); }, x.value())](
          const tensor<float>& upstream, parx::grad_sink<float> dx) {
        dx.map([](float u, float v) { return u / (2 * v); }, upstream, y);
      },
      x);
}

struct self_attention : parx::nn::module<self_attention> {
  parx::nn::linear<> query{4, 4};
  bool fails_in_backward = false;
  variable<float> forward(const variable<float>& x) {
    const variable<float> q = query(x);
    return fails_in_backward ? root(parx::relu(q) * 0.0F) : q;
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("query", query);
  }
};
struct block : parx::nn::module<block> {
  parx::nn::checkpointed<self_attention> attention;
  variable<float> forward(const variable<float>& x) { return parx::relu(attention(x)); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("attention", attention);
  }
};
struct blocks : parx::nn::module<blocks> {
  std::vector<block> layer = std::vector<block>(2);
  variable<float> forward(const variable<float>& x) { return layer[1](layer[0](x)); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("layer", layer);
  }
};
struct model : parx::nn::module<model> {
  blocks encoder;
  variable<float> forward(const variable<float>& x) { return encoder(x); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("encoder", encoder);
  }
};

template <typename Function>
parx::anomaly_error thrown_by(Function f) {
  try {
    f();
  } catch (const parx::anomaly_error& e) {
    BOOST_TEST_MESSAGE(e.what());
    return e;
  }
  return {"nothing was thrown", "", ""};
}

const tensor<float> ones = tensor<float>::ones({2, 4});

}  // namespace

BOOST_AUTO_TEST_CASE(the_forward_pass_names_the_operation_and_the_module) {
  model m;
  m.initialize(1);
  m.encoder.layer[1].attention.query.weight().value().data()[5] = 3e38F;
  const tensor<float> large = tensor<float>::full({2, 4}, 1e6F);
  (void)m(large);  // nobody looks
  const auto error = thrown_by([&] {
    const parx::detect_anomaly scope("step 12, rank 3");
    (void)m(large);
  });
  BOOST_TEST(error.operation() == "linear");
  BOOST_TEST(error.module() == "encoder.layer.1.attention.query");
  BOOST_TEST(std::string(error.what()).find("step 12, rank 3") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(backward_names_the_module_of_the_forward_pass) {
  model m;
  m.encoder.layer[0].attention.fails_in_backward = true;
  parx::sum(m(ones)).backward();
  m.zero_grad();
  const auto error = thrown_by([&] {
    const parx::detect_anomaly scope;
    parx::sum(m(ones)).backward();
  });
  // In the recomputation of a checkpointed module, too.
  BOOST_TEST(error.module() == "encoder.layer.0.attention");
  BOOST_TEST(error.operation().ends_with("root"));
}

BOOST_AUTO_TEST_CASE(values_that_were_already_not_finite_are_not_reported) {
  const parx::detect_anomaly scope;
  const float infinity = std::numeric_limits<float>::infinity();
  const variable<float> x(tensor<float>::from({-infinity, 1, 2}, {3}), parx::gradient::wanted);
  parx::sum(parx::softmax(x)).backward();
  BOOST_TEST(thrown_by([&] { (void)parx::relu(x * infinity); }).operation().empty());
}

BOOST_AUTO_TEST_CASE(operations_go_by_their_names) {
  const parx::detect_anomaly scope;
  const variable<float> big(tensor<float>::full({2, 2}, 3e38F)), zero(tensor<float>::zeros({2, 2}));
  const std::vector<std::pair<std::string, parx::anomaly_error>> cases{
      {"matmul", thrown_by([&] { (void)parx::matmul(big, big); })},
      {"operator+", thrown_by([&] { (void)(big + big); })},
      {"operator/", thrown_by([&] { (void)(big / zero); })},
      {"linear", thrown_by([&] { (void)parx::linear(big, big); })}};
  for (const auto& [name, error] : cases) BOOST_TEST(error.operation() == name);
  // Activations share one kernel; they pass a large gradient on, gelu's slope is above 1.
  const variable<float> two(tensor<float>::full({2}, 2), parx::gradient::wanted);
  const tensor<float> large = tensor<float>::full({2}, std::numeric_limits<float>::max());
  BOOST_TEST(thrown_by([&] { parx::gelu(two * 1.0F).backward_from(large); }).operation() == "gelu");
  BOOST_TEST(thrown_by([&] { parx::relu(two * 1.0F).backward_from(large); }).operation().empty());
}

BOOST_AUTO_TEST_CASE(frozen_modules_get_no_gradient) {
  self_attention a;
  a.freeze();
  const variable<float> x(ones, parx::gradient::wanted);
  parx::sum(a(x)).backward();
  BOOST_TEST(x.grad().defined());
  BOOST_TEST(!a.query.weight().has_grad());
  a.unfreeze();
  parx::sum(a(x)).backward();
  BOOST_TEST(a.query.weight().has_grad());
}

BOOST_AUTO_TEST_CASE(the_operation_is_named_in_the_second_half_of_a_backward_too) {
  const parx::detect_anomaly scope("step 3");
  const parx::parameter<float> w("w", tensor<float>::full({2, 2}, 0.5F));
  const parx::border<float> x(tensor<float>::full({2, 2}, 1e30F));
  const auto y = parx::linear<float>(x, w);
  // The weight's gradient overflows, the input's does not.
  auto rest = y.backward_inputs_from(tensor<float>::full({2, 2}, 1e20F));
  const auto says = [](const parx::anomaly_error& e) { return e.operation() == "linear"; };
  BOOST_CHECK_EXCEPTION(rest.weights(), parx::anomaly_error, says);
}
