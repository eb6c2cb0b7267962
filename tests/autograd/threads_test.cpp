// Operations and their gradients have the same bits with any number of threads, at sizes that do
// not divide evenly.
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/autograd.hpp>

#include "gradients.hpp"
#include "same_bits_by_threads.hpp"

namespace {

using parx::tensor;
using variable = parx::variable<float>;
using parx_test::normal;

/// The result of f(inputs) and the gradients of all inputs, one after the other.
template <typename Function>
tensor<float> with_gradients(const Function& f, const std::vector<tensor<float>>& values) {
  std::vector<parx::parameter<float>> inputs;
  for (const auto& each : values) inputs.emplace_back("input", each.clone());
  const variable y = f(inputs);
  const tensor<float> upstream = normal<float>(y.shape(), "upstream");
  parx::sum(y * variable(upstream)).backward();
  std::vector<float> all;
  const auto add = [&](const tensor<float>& t) {
    const auto whole = t.contiguous();
    all.insert(all.end(), whole.begin(), whole.end());
  };
  add(y.value());
  for (const auto& each : inputs) add(each.grad());
  return tensor<float>::from(all, {all.size()});
}

template <typename Function>
void check(const char* what, const Function& f, std::initializer_list<parx::shape> shapes) {
  std::vector<tensor<float>> values;
  const char* const names[] = {"a", "b", "c"};
  for (const parx::shape& each : shapes) {
    values.push_back(normal<float>(each, names[values.size()]));
  }
  require_same_bits_by_threads(what, [&] { return with_gradients(f, values); });
}

tensor<std::int64_t> numbers_below(std::size_t count, const parx::shape& s) {
  const auto ids = tensor<std::int64_t>::empty(s);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids.data()[i] = static_cast<std::int64_t>((i * i * 7 + i) % count);
  }
  return ids;
}

}  // namespace

BOOST_AUTO_TEST_CASE(functions_of_rows) {
  check("softmax", [](auto& x) { return parx::softmax<float>(x[0]); }, {{301, 97}});
  check("log_softmax", [](auto& x) { return parx::log_softmax<float>(x[0]); }, {{301, 97}});
  check(
      "layer_norm", [](auto& x) { return parx::layer_norm<float>(x[0], x[1], x[2]); },
      {{601, 67}, {67}, {67}});
  check(
      "rms_norm", [](auto& x) { return parx::rms_norm<float>(x[0], x[1]); }, {{601, 67}, {67}});
  check(
      "swiglu", [](auto& x) { return parx::swiglu<float>(x[0], x[1]); }, {{601, 67}, {601, 67}});
  const parx::rotary_table<float> table(101, 16);
  check("rotary", [&](auto& x) { return parx::rotary<float>(x[0], table); }, {{5, 101, 64}});
  check(
      "dropout", [](auto& x) { return parx::dropout<float>(x[0], 0.3, {1, "drop"}); },
      {{301, 197}});
  const auto ids = numbers_below(37, {7, 101});
  check("embedding", [&](auto& x) { return parx::embedding<float>(x[0], ids); }, {{37, 130}});
}

BOOST_AUTO_TEST_CASE(losses) {
  const auto labels = numbers_below(97, {301});
  labels.data()[17] = -100;
  std::vector<float> weights(301, 1.F);
  weights[3] = 0.F;
  weights[5] = 0.3F;
  const parx::cross_entropy_options options{.row_weights = weights, .label_smoothing = 0.1};
  check(
      "cross_entropy",
      [&](auto& x) { return parx::cross_entropy<float>(x[0], labels, options).sum; }, {{301, 97}});
  check(
      "mse", [&](auto& x) { return parx::mse<float>(x[0], x[1], weights).sum; },
      {{301, 97}, {301, 97}});
}

BOOST_AUTO_TEST_CASE(attention) {
  using options = parx::attention_options<float>;
  const auto mask = parx::key_mask_of(std::vector<std::size_t>{70, 1, 69}, 70);
  for (const options& how :
       {options{}, options{.causal = true}, options{.key_mask = mask},
        options{.causal = true, .dropout = 0.2, .stream = {1, "attention"}}}) {
    const auto of_three = [&](auto& x) {
      return parx::scaled_dot_product_attention<float>(x[0], x[1], x[2], how);
    };
    check("attention", of_three, {{3, 4, 70, 16}, {3, 4, 70, 16}, {3, 4, 70, 24}});
    check("grouped attention", of_three, {{3, 4, 70, 16}, {3, 2, 70, 16}, {3, 2, 70, 24}});
    options side_by_side = how;
    side_by_side.heads = 4;
    check(
        "self_attention",
        [&](auto& x) { return parx::self_attention<float>(x[0], side_by_side); }, {{3, 70, 192}});
  }
}

BOOST_AUTO_TEST_CASE(images) {
  for (const parx::conv2d_options& how :
       {parx::conv2d_options{.padding = 1}, parx::conv2d_options{.stride = 2, .padding = 1},
        parx::conv2d_options{.groups = 2, .activation = parx::activation::gelu}}) {
    check(
        "conv2d",
        [&](auto& x) { return parx::conv2d<float>(x[0], x[1], x[2], how); },
        {{7, 6, 13, 11}, {10, 6 / how.groups, 3, 3}, {10}});
  }
  check(
      "max_pool2d", [](auto& x) { return parx::max_pool2d<float>(x[0]); }, {{7, 6, 26, 22}});
  check(
      "avg_pool2d", [](auto& x) { return parx::avg_pool2d<float>(x[0], {.size = 3}); },
      {{7, 6, 26, 22}});
}
