// The loss and the gradients of a linear layer's logits, without the whole logits: those of the two
// operations, bit for bit.
#include <parx/autograd/ops/linear_cross_entropy.hpp>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <parx/autograd.hpp>
#include <parx/tensor/pool.hpp>

#include "gradients.hpp"
#include "same_bits_by_threads.hpp"

using parx::parameter, parx::shape, parx::tensor, parx::variable, parx::weight_layout;

namespace {

enum class form { apart, together };

struct problem {
  std::size_t rows, in, out;
  bool with_bias = true;
  weight_layout layout = weight_layout::out_in;
  double smoothing = 0;
  std::vector<float> row_weights = {};
  double seed = 1;         ///< of backward
  std::size_t passes = 1;  ///< whose gradients add up
};

/// Every seventh is to be ignored.
tensor<std::int32_t> labels_of(const problem& p) {
  const auto labels = tensor<std::int32_t>::empty({p.rows});
  for (std::size_t i = 0; i < p.rows; ++i) {
    labels.data()[i] = i % 7 == 3 ? -1 : static_cast<std::int32_t>((i * i * 5 + i) % p.out);
  }
  return labels;
}

/// The loss, its count, and the gradients of the input, the weight and the bias.
template <typename T>
tensor<T> results(const problem& p, form f) {
  using parx_test::normal;
  const shape s = p.layout == weight_layout::out_in ? shape{p.out, p.in} : shape{p.in, p.out};
  const parameter<T> x("x", normal<T>({p.rows, p.in}, "x")), w("w", normal<T>(s, "w"));
  const parameter<T> b = p.with_bias ? parameter<T>("b", normal<T>({p.out}, "b")) : parameter<T>();
  const auto labels = labels_of(p);
  std::vector<T> all;
  for (std::size_t pass = 0; pass < p.passes; ++pass) {
    const parx::cross_entropy_options options{.ignore_index = -1, .row_weights = p.row_weights,
                                              .label_smoothing = p.smoothing};
    const variable<T> input = x * T(pass + 1);  // not a leaf
    const auto loss =
        f == form::together
            ? parx::linear_cross_entropy(input, w, b, labels, options, p.layout)
            : parx::cross_entropy(
                  parx::linear(input, w, b, parx::activation::none, p.layout), labels, options);
    loss.backward({.seed = p.seed});
    all.insert(all.end(), {loss.sum.item(), static_cast<T>(loss.count)});
  }
  const auto add = [&](const tensor<T>& t) { all.insert(all.end(), t.begin(), t.end()); };
  add(x.grad().contiguous());
  add(w.grad().contiguous());
  if (p.with_bias) add(b.grad().contiguous());
  return tensor<T>::from(all, {all.size()});
}

template <typename T>
void compare(const problem& p) {
  const auto apart = results<T>(p, form::apart);
  require_same_bits_by_threads("together", [&] { return results<T>(p, form::together); });
  BOOST_TEST(same_bits(results<T>(p, form::together), apart),
             p.rows << " rows of " << p.in << ", " << p.out << " classes");
}

template <typename F>
std::string said(F f) {
  try {
    f();
  } catch (const parx::usage_error& e) {
    return e.what();
  }
  return {};
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_bits_are_those_of_the_two_operations) {
  for (const std::size_t rows : {0U, 1U, 3U, 255U, 256U, 257U, 515U, 1024U}) {
    compare<float>({.rows = rows, .in = 37, .out = 101});
    compare<double>({.rows = rows, .in = 37, .out = 101});
  }
  compare<float>({.rows = 600, .in = 300, .out = 2111});  // more than a block of terms everywhere
  compare<float>({.rows = 300, .in = 8, .out = 33001, .with_bias = false});
  compare<double>({.rows = 300, .in = 1, .out = 2, .with_bias = false});
  compare<float>({.rows = 517, .in = 33, .out = 77, .layout = weight_layout::in_out});
}

BOOST_AUTO_TEST_CASE(the_bits_match_with_smoothing_weights_scaled_losses_and_several_passes) {
  std::vector<float> weights(530);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 5) * 0.7F;
  compare<float>({.rows = 530, .in = 19, .out = 90, .smoothing = 0.1, .row_weights = weights});
  compare<float>({.rows = 530, .in = 19, .out = 90, .seed = 1.7, .passes = 3});
  compare<double>({.rows = 530, .in = 19, .out = 90, .smoothing = 0.1, .passes = 2});
}

BOOST_AUTO_TEST_CASE(the_bits_match_under_autocast) {
  const parx::autocast<parx::bfloat16> rounded;
  compare<float>({.rows = 515, .in = 37, .out = 101});
  const parx::autocast<parx::float16> by_other_bits;
  compare<float>({.rows = 515, .in = 37, .out = 101, .seed = 8});
}

BOOST_AUTO_TEST_CASE(the_gradients_are_those_of_finite_differences) {
  const auto labels = tensor<int>::from({0, 4, -100, 2}, {2, 2});
  parx_test::check(
      [&](const auto& v) { return parx::linear_cross_entropy(v[0], v[1], v[2], labels).sum; },
      {parx_test::normal({2, 2, 3}, "x"), parx_test::normal({5, 3}, "w"),
       parx_test::normal({5}, "b")});
}

BOOST_AUTO_TEST_CASE(the_whole_logits_never_exist) {
  constexpr std::size_t rows = 4096, in = 16, out = 1000, block = 256;
  const problem p{.rows = rows, .in = in, .out = out, .with_bias = false};
  auto& pool = parx::memory_pool::instance();
  const auto peak = [&](form f) {
    (void)results<float>({.rows = 1, .in = in, .out = out}, f);
    const std::size_t before = pool.stats().live_bytes;
    pool.reset_peak();
    (void)results<float>(p, f);
    return pool.stats().peak_bytes - before;
  };
  const std::size_t of_block = block * out * sizeof(float);
  const std::size_t besides = 8 * rows * in * sizeof(float) + 6 * in * out * sizeof(float);
  BOOST_TEST(peak(form::together) < of_block * 5 / 4 + besides);
  BOOST_TEST(peak(form::apart) > rows * out * sizeof(float));
}

BOOST_AUTO_TEST_CASE(mismatched_shapes_are_refused_with_the_line_of_the_call) {
  const variable<float> x(tensor<float>::zeros({2, 3})), w(tensor<float>::zeros({5, 3}));
  const auto labels = tensor<int>::zeros({2});
  const auto three = tensor<int>::zeros({3}), fives = tensor<int>::full({2}, 5);
  const int line = __LINE__;
  const std::string shapes = said([&] { (void)parx::linear_cross_entropy(x, w, {}, three); });
  const std::string label = said([&] { (void)parx::linear_cross_entropy(x, w, {}, fives); });
  const auto at = [&](int l) {
    return fmt::format("linear_cross_entropy at linear_cross_entropy_test.cpp:{}: ", line + l);
  };
  BOOST_TEST(shapes.starts_with(at(1)), shapes);
  BOOST_TEST(label.starts_with(at(2) + "the label of row 0 is 5, but the logits have 5 classes"),
             label);
  BOOST_TEST(said([&] { (void)parx::linear_cross_entropy(x, x, w, labels); }) != "");
  const parameter<float> p("p", tensor<float>::zeros({2, 2}));
  const std::string same = said([&] { (void)parx::linear_cross_entropy(p, p, {}, labels); });
  BOOST_TEST(same.find("one variable") != std::string::npos, same);
}
