#include <parx/autograd/ops/attention.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <parx/autograd/gradcheck.hpp>
#include <parx/autograd/ops.hpp>

#include <autograd/gradients.hpp>

using namespace parx;
using parx_test::check;
using parx_test::normal;

namespace {

/// The textbook: every score at once. `bias` holds whatever is added to the scores.
template <typename T>
variable<T> composed(const variable<T>& q, const variable<T>& k, const variable<T>& v,
                     const tensor<T>& bias) {
  const T scale = T(1) / std::sqrt(static_cast<T>(q.extent(-1)));
  return matmul(softmax(matmul(q, transpose(k)) * scale + variable<T>(bias)), v);
}

/// -infinity where `sees(b, t, s)` is false.
template <typename T, typename Sees>
tensor<T> mask(std::size_t batches, std::size_t queries, std::size_t keys, Sees sees) {
  const auto m = tensor<T>::zeros({batches, 1, queries, keys});
  for (std::size_t b = 0; b < batches; ++b) {
    for (std::size_t t = 0; t < queries; ++t) {
      for (std::size_t s = 0; s < keys; ++s) {
        if (!sees(b, t, s)) m.at(b, 0, t, s) = -std::numeric_limits<T>::infinity();
      }
    }
  }
  return m;
}

void check_equal(const tensor<double>& found, const tensor<double>& expected) {
  BOOST_REQUIRE((found.shape() == expected.shape()));
  const auto x = found.contiguous(), y = expected.contiguous();
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst, std::abs(x.data()[i] - y.data()[i]));
    if (std::isnan(x.data()[i])) worst = std::numeric_limits<double>::infinity();
  }
  BOOST_TEST(worst < 1e-12);
}

/// Value and gradients of q, k, v against composed().
void check_like_composed(const shape& q_shape, const shape& k_shape,
                         const attention_options<double>& options, const tensor<double>& bias) {
  std::vector<variable<double>> found, expected;
  for (auto* leaves : {&found, &expected}) {
    leaves->emplace_back(normal(q_shape, "q"), gradient::wanted);
    leaves->emplace_back(normal(k_shape, "k"), gradient::wanted);
    leaves->emplace_back(normal(k_shape, "v"), gradient::wanted);
  }
  const auto y = scaled_dot_product_attention(found[0], found[1], found[2], options);
  const auto z = composed(expected[0], expected[1], expected[2], bias);
  check_equal(y.value(), z.value());
  const variable<double> direction(normal(y.shape(), "direction"));
  sum(y * direction).backward();
  sum(z * direction).backward();
  for (std::size_t i = 0; i < 3; ++i) check_equal(found[i].grad(), expected[i].grad());
}

void check_gradient(const attention_options<double>& options, const shape& q, const shape& k) {
  check([&](const auto& x) { return scaled_dot_product_attention(x[0], x[1], x[2], options); },
        {normal(q, "q"), normal(k, "k"), normal(k, "v")});
}

}  // namespace

BOOST_AUTO_TEST_CASE(attention_is_softmax_of_scores_times_values_over_many_tiles) {
  const shape q{2, 3, 150, 5}, k{2, 3, 300, 5};
  check_like_composed(q, k, {}, tensor<double>::zeros({1}));
  check_like_composed(q, q, {.causal = true},
                      mask<double>(2, 150, 150, [](auto, auto t, auto s) { return s <= t; }));
  check_like_composed(q, k, {.causal = true, .query_offset = 140},
                      mask<double>(2, 150, 300, [](auto, auto t, auto s) { return s <= t + 140; }));
  const auto holes = tensor<std::uint8_t>::ones({2, 300});
  for (std::size_t s = 0; s < 300; ++s) holes.at(0, s) = s % 3 != 1 && s < 270 ? 1 : 0;
  check_like_composed(
      q, k, {.key_mask = holes},
      mask<double>(2, 150, 300, [&](auto b, auto, auto s) { return holes.at(b, s) != 0; }));
  const auto bias = normal({3, 150, 1}, "bias");
  check_like_composed(q, k, {.bias = bias}, bias);
}

BOOST_AUTO_TEST_CASE(attention_has_exact_gradients_with_every_option) {
  const shape q{2, 2, 3, 4}, k{2, 2, 5, 4};
  check_gradient({}, q, k);
  check_gradient({.causal = true}, q, k);
  check_gradient({.causal = true, .query_offset = 2}, q, k);
  check_gradient({.key_mask = key_mask_of(std::vector<std::size_t>{5, 2}, 5)}, q, k);
  check_gradient({.bias = normal({2, 3, 5}, "bias")}, q, k);
  check_gradient({.scale = 0.7, .dropout = 0.3, .stream = random_stream(1, "noise")}, q, k);
  check_gradient({}, {1, 4, 3, 2}, {1, 2, 3, 2});                      // two heads share keys
  check_gradient({.heads = 2, .causal = true}, {2, 3, 8}, {2, 3, 4});  // the same, side by side
  check([](const auto& x) { return scaled_dot_product_attention(x[0], x[0], x[0], {.heads = 2}); },
        {normal({2, 3, 4}, "x")});
  check(
      [&](const auto& x) {
        return scaled_dot_product_attention<double>(x[0], normal(k, "k"), x[1]);
      },
      {normal(q, "q"), normal(k, "v")});
}

BOOST_AUTO_TEST_CASE(heads_side_by_side_and_strided_views_give_the_same_as_heads_on_an_axis) {
  const auto packed = normal({2, 7, 3 * 12}, "packed");
  const auto part = [&](std::size_t i) { return packed.slice(-1, 12 * i, 12 * (i + 1)); };
  const auto split = [](const tensor<double>& t) {
    return t.contiguous().reshape({2, 7, 3, 4}).transpose(1, 2);
  };
  const auto side_by_side =
      scaled_dot_product_attention<double>(part(0), part(1), part(2), {.heads = 3});
  const auto on_an_axis =
      scaled_dot_product_attention<double>(split(part(0)), split(part(1)), split(part(2)));
  check_equal(side_by_side.value(), on_an_axis.value().transpose(1, 2).reshape({2, 7, 12}));
}

BOOST_AUTO_TEST_CASE(a_query_that_sees_no_key_gets_zero_and_gives_no_gradient) {
  const variable<double> q(normal({2, 1, 3, 4}, "q"), gradient::wanted);
  const variable<double> k(normal({2, 1, 5, 4}, "k"), gradient::wanted);
  const auto y = scaled_dot_product_attention<double>(
      q, k, k, {.key_mask = key_mask_of(std::vector<std::size_t>{0, 5}, 5)});
  sum(y).backward();
  for (std::size_t i = 0; i < 12; ++i) {
    BOOST_TEST(y.value().data()[i] == 0.0);
    BOOST_TEST(q.grad().data()[i] == 0.0);
  }
  BOOST_TEST(k.grad().data()[0] == 0.0);
  BOOST_TEST(k.grad().data()[20] != 0.0);
  // The same with a hole before the only key that others see.
  const auto causal = scaled_dot_product_attention<double>(
      q, k, k,
      {.causal = true,
       .key_mask = tensor<std::uint8_t>::from({0, 1, 0, 0, 0, 1, 1, 1, 1, 1}, {2, 5})});
  BOOST_TEST(causal.value().at(0, 0, 0, 0) == 0.0);
  BOOST_TEST(causal.value().at(0, 0, 1, 0) == k.value().at(0, 0, 1, 0));
}

BOOST_AUTO_TEST_CASE(dropped_keys_are_a_function_of_stream_and_place_and_the_mean_stays) {
  // Equal scores, values that are 1: each output is the share of keys that were kept, rescaled.
  const auto zeros = tensor<float>::zeros({4, 8, 64, 2});
  const auto ones = tensor<float>::ones({4, 8, 300, 2});
  const auto keys = tensor<float>::zeros({4, 8, 300, 2});
  const auto run = [&](const char* name) {
    return scaled_dot_product_attention<float>(zeros, keys, ones,
                                               {.dropout = 0.25, .stream = random_stream(5, name)});
  };
  const auto first = run("a").value(), again = run("a").value(), other = run("b").value();
  double mean = 0, differing = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    BOOST_REQUIRE(first.data()[i] == again.data()[i]);
    mean += static_cast<double>(first.data()[i]) / static_cast<double>(first.size());
    differing += first.data()[i] != other.data()[i];
  }
  BOOST_TEST(std::abs(mean - 1) < 0.004);  // deviation sqrt(1/3 / (2048 * 300)) = 0.0007
  BOOST_TEST(differing > 0.8 * static_cast<double>(first.size()));
}

BOOST_AUTO_TEST_CASE(shapes_that_do_not_fit_are_named) {
  const auto x = tensor<float>::zeros({2, 3, 8});
  const auto says = [](const char* part) {
    return [part](const usage_error& e) {
      return std::string(e.what()).find(part) != std::string::npos;
    };
  };
  BOOST_CHECK_EXCEPTION((void)scaled_dot_product_attention<float>(x, x, x), usage_error,
                        says("need 4 axes"));
  BOOST_CHECK_EXCEPTION((void)scaled_dot_product_attention<float>(x, x, x, {.heads = 3}),
                        usage_error, says("do not fit"));
  BOOST_CHECK_EXCEPTION((void)scaled_dot_product_attention<float>(
                            x, x, tensor<float>::zeros({2, 4, 8}), {.heads = 2}),
                        usage_error, says("(2, 4, 8)"));
}
