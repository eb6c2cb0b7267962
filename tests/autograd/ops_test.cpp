#include <parx/autograd/ops.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <autograd/gradients.hpp>
#include <parx/autograd/parameter.hpp>

using namespace parx;
using parx_test::normal;
namespace tt = boost::test_tools;

namespace {
float largest_difference(const tensor<float>& a, const tensor<float>& b) {
  BOOST_REQUIRE((a.shape() == b.shape()));
  const auto x = a.contiguous(), y = b.contiguous();
  float worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, std::abs(x.data()[i] - y.data()[i]));
  return worst;
}
}  // namespace

BOOST_AUTO_TEST_CASE(float_activations_agree_with_the_standard_library) {
  const auto x = tensor<float>::iota({400}, -10.0F, 0.05F);
  const variable<float> v = x;
  const auto against = [&](const variable<float>& got, auto&& f) {
    const auto expected =
        map([&](float e) { return static_cast<float>(f(static_cast<double>(e))); }, x);
    BOOST_TEST(largest_difference(got.value(), expected) < 2e-6F);
  };
  against(relu(v), [](double e) { return std::max(e, 0.0); });
  against(tanh(v), [](double e) { return std::tanh(e); });
  against(sigmoid(v), [](double e) { return 1 / (1 + std::exp(-e)); });
  against(gelu(v), [](double e) { return e * 0.5 * std::erfc(-e / std::sqrt(2.0)); });
  against(gelu(v, gelu_form::tanh), [](double e) {
    return 0.5 * e * (1 + std::tanh(std::sqrt(2 / 3.14159265358979) * (e + 0.044715 * e * e * e)));
  });
}

BOOST_AUTO_TEST_CASE(a_tensor_beside_a_variable_is_a_constant) {
  const auto c = tensor<float>::from({2, 4}, {1, 2});
  const parameter<float> w("w", tensor<float>::from({3, 5}, {1, 2}));
  const auto gives = [&](const variable<float>& made, float first, float second) {
    BOOST_TEST(made.value().at(0, 0) == first);
    BOOST_TEST(made.value().at(0, 1) == second);
  };
  gives(w + c, 5, 9);
  gives(c - w, -1, -1);
  gives(w * c, 6, 20);
  gives(c / w, 2.0F / 3, 4.0F / 5);
  gives(w - c, 1, 1);
  BOOST_TEST(matmul(c, transpose(w, 0, 1)).value().item() == 26.0F);
  matmul(w, transpose(variable<float>(c), 0, 1).value()).backward();
  BOOST_TEST(w.grad().at(0, 1) == 4.0F);
}

BOOST_AUTO_TEST_CASE(softmax_rows_are_probabilities_and_log_softmax_is_their_logarithm) {
  const variable<float> x = normal<float>({4, 33}, "x");
  const auto p = softmax(x).value(), logp = log_softmax(x).value();
  for (std::size_t row = 0; row < 4; ++row) {
    double total = 0, exponentials = 0;
    for (std::size_t i = 0; i < 33; ++i)
      exponentials += std::exp(static_cast<double>(x.value().at(row, i)));
    for (std::size_t i = 0; i < 33; ++i) {
      const double expected = std::exp(static_cast<double>(x.value().at(row, i))) / exponentials;
      total += static_cast<double>(p.at(row, i));
      BOOST_TEST(static_cast<double>(p.at(row, i)) == expected, tt::tolerance(1e-5));
      BOOST_TEST(static_cast<double>(logp.at(row, i)) == std::log(expected), tt::tolerance(1e-5));
    }
    BOOST_TEST(total == 1.0, tt::tolerance(1e-6));
  }
}

BOOST_AUTO_TEST_CASE(layer_norm_agrees_with_its_definition) {
  const auto x = normal<float>({3, 37}, "x"), scale = normal<float>({37}, "scale"),
             shift = normal<float>({37}, "shift");
  const auto y = layer_norm<float>(x, scale, shift).value();
  for (std::size_t row = 0; row < 3; ++row) {
    double mean = 0, variance = 0;
    for (std::size_t i = 0; i < 37; ++i) mean += static_cast<double>(x.at(row, i)) / 37;
    for (std::size_t i = 0; i < 37; ++i)
      variance += std::pow(static_cast<double>(x.at(row, i)) - mean, 2) / 37;
    for (std::size_t i = 0; i < 37; ++i) {
      const double expected = (static_cast<double>(x.at(row, i)) - mean) /
                                  std::sqrt(variance + 1e-5) * static_cast<double>(scale.at(i)) +
                              static_cast<double>(shift.at(i));
      BOOST_TEST(std::abs(static_cast<double>(y.at(row, i)) - expected) < 1e-5);
    }
  }
}

BOOST_AUTO_TEST_CASE(
    convolution_agrees_with_its_definition_for_every_stride_padding_and_batch_size) {
  for (const std::size_t images : {1U, 2U, 7U}) {
    for (const std::size_t stride : {1U, 2U, 3U}) {
      for (const std::size_t padding : {0U, 1U, 2U}) {
        for (const std::size_t kernel : {1U, 2U, 3U, 5U}) {
          const std::size_t height = 8, width = 6, in = 3, out = 4;
          const auto x = normal<float>({images, in, height, width}, "x"),
                     w = normal<float>({out, in, kernel, kernel}, "w"),
                     b = normal<float>({out}, "b");
          const auto y = conv2d<float>(x, w, b, {.stride = stride, .padding = padding}).value();
          const std::size_t rows = (height + 2 * padding - kernel) / stride + 1,
                            columns = (width + 2 * padding - kernel) / stride + 1;
          const auto expected = tensor<float>::empty({images, out, rows, columns});
          for (std::size_t n = 0; n < images; ++n)
            for (std::size_t o = 0; o < out; ++o)
              for (std::size_t r = 0; r < rows; ++r)
                for (std::size_t c = 0; c < columns; ++c) {
                  double sum = static_cast<double>(b.at(o));
                  for (std::size_t i = 0; i < in; ++i)
                    for (std::size_t p = 0; p < kernel; ++p)
                      for (std::size_t q = 0; q < kernel; ++q) {
                        const std::size_t iy = r * stride + p - padding,
                                          ix = c * stride + q - padding;
                        if (iy < height && ix < width)
                          sum += static_cast<double>(x.at(n, i, iy, ix)) *
                                 static_cast<double>(w.at(o, i, p, q));
                      }
                  expected.at(n, o, r, c) = static_cast<float>(sum);
                }
          BOOST_TEST(largest_difference(y, expected) < 1e-4F,
                     "stride " << stride << " padding " << padding << " kernel " << kernel);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(max_pooling_agrees_with_its_definition) {
  for (const auto& options :
       {max_pool2d_options{}, max_pool2d_options{.size = 3, .stride = 2, .padding = 1},
        max_pool2d_options{.size = 2, .stride = 1}}) {
    const auto x = normal<float>({2, 3, 7, 9}, "x");
    const auto y = max_pool2d<float>(x, options).value();
    const std::size_t stride = options.stride == 0 ? options.size : options.stride;
    for (std::size_t n = 0; n < 2; ++n)
      for (std::size_t c = 0; c < 3; ++c)
        for (std::size_t r = 0; r < y.extent(2); ++r)
          for (std::size_t q = 0; q < y.extent(3); ++q) {
            float best = -1e30F;
            for (std::size_t i = 0; i < options.size; ++i)
              for (std::size_t j = 0; j < options.size; ++j) {
                const std::size_t iy = r * stride + i - options.padding,
                                  ix = q * stride + j - options.padding;
                if (iy < 7 && ix < 9) best = std::max(best, x.at(n, c, iy, ix));
              }
            BOOST_REQUIRE(y.at(n, c, r, q) == best);
          }
  }
}

BOOST_AUTO_TEST_CASE(max_pooling_survives_planes_without_a_largest_pixel) {
  const variable<float> low(
      tensor<float>::full({1, 1, 4, 4}, -std::numeric_limits<float>::infinity()), gradient::wanted);
  sum(max_pool2d(low)).backward();
  BOOST_TEST(sum(low.grad()).item() == 4.0F);
  const variable<float> nan =
      tensor<float>::full({1, 1, 2, 2}, std::numeric_limits<float>::quiet_NaN());
  BOOST_TEST(std::isnan(max_pool2d(nan).item()));
}

BOOST_AUTO_TEST_CASE(dropout_keeps_the_expectation_and_drops_the_stated_share) {
  const auto y =
      dropout<float>(tensor<float>::ones({100'000}), 0.3, random_stream(1, "drop")).value();
  std::size_t dropped = 0;
  for (const float v : y) {
    BOOST_REQUIRE((v == 0.0F || std::abs(v - 1 / 0.7F) < 1e-6F));
    dropped += v == 0.0F;
  }
  BOOST_TEST(std::abs(static_cast<double>(dropped) / 100'000 - 0.3) < 0.006);
  BOOST_CHECK_THROW((void)dropout<float>(y, 1.0, random_stream(1, "drop")), usage_error);
}

BOOST_AUTO_TEST_CASE(a_shard_drops_what_the_whole_tensor_would) {
  const random_stream stream(1, "drop");
  const auto whole = dropout<float>(tensor<float>::ones({1000}), 0.5, stream).value();
  const auto part = dropout<float>(tensor<float>::ones({300}), 0.5, stream,
                                   shard_spec::whole({1000}).slice(0, 450, 750))
                        .value();
  BOOST_TEST(part.span() == whole.slice(0, 450, 750).span(), tt::per_element());
  const auto next_step =
      dropout<float>(tensor<float>::ones({1000}), 0.5, stream.substream(1)).value();
  BOOST_TEST(largest_difference(whole, next_step) > 0.0F);
}

BOOST_AUTO_TEST_CASE(embedding_picks_rows_and_names_an_index_outside) {
  const variable<float> table = tensor<float>::iota({4, 2});
  const auto y = embedding(table, tensor<int>::from({3, 0}, {1, 2})).value();
  BOOST_TEST((y.shape() == shape{1, 2, 2}));
  BOOST_TEST(y.at(0, 0, 1) == 7.0F);
  BOOST_CHECK_EXCEPTION(
      (void)embedding(table, tensor<int>::from({0, 4}, {2})), usage_error, [](const auto& e) {
        return std::string(e.what()).find("index 4 at position 1") != std::string::npos;
      });
  BOOST_CHECK_THROW((void)embedding(table, tensor<int>::from({-1}, {1})), usage_error);
}

BOOST_AUTO_TEST_CASE(shapes_that_do_not_fit_are_named) {
  const auto zeros = [](const shape& s) { return variable<float>(tensor<float>::zeros(s)); };
  const auto names = [](const char* a, const char* b) {
    return [=](const usage_error& e) {
      return std::string(e.what()).find(a) != std::string::npos &&
             std::string(e.what()).find(b) != std::string::npos;
    };
  };
  BOOST_CHECK_EXCEPTION((void)(zeros({2, 3}) + zeros({2})), usage_error, names("(2, 3)", "(2)"));
  BOOST_CHECK_EXCEPTION((void)linear(zeros({2, 3}), zeros({4, 5})), usage_error,
                        names("(2, 3)", "(4, 5)"));
  BOOST_CHECK_EXCEPTION((void)linear(zeros({2, 3}), zeros({4, 3}), {}, activation::none,
                                     weight_layout::in_out),
                        usage_error, names("(4, 3)", "first of the weight"));
  BOOST_CHECK_EXCEPTION((void)linear(zeros({2, 3}), zeros({4, 3}), zeros({3})), usage_error,
                        names("(3)", "(4, 3)"));
  BOOST_CHECK_EXCEPTION((void)conv2d(zeros({1, 2, 4, 4}), zeros({1, 3, 3, 3})), usage_error,
                        names("(1, 2, 4, 4)", "(1, 3, 3, 3)"));
  BOOST_CHECK_EXCEPTION((void)conv2d(zeros({1, 1, 2, 2}), zeros({1, 1, 3, 3})), usage_error,
                        names("3x3", "2x2"));
  BOOST_CHECK_EXCEPTION((void)layer_norm(zeros({2, 3}), zeros({2}), zeros({3})), usage_error,
                        names("(2, 3)", "(2)"));
  BOOST_CHECK_EXCEPTION((void)concat({zeros({2, 3}), zeros({3, 4})}, 0), usage_error,
                        names("(2, 3)", "(3, 4)"));
  BOOST_CHECK_THROW((void)mean(zeros({0, 3})), usage_error);
}

BOOST_AUTO_TEST_CASE(empty_batches_give_empty_results_and_zero_gradients) {
  const variable<float> w(tensor<float>::ones({4, 3}), gradient::wanted);
  const variable<float> k(tensor<float>::ones({2, 1, 3, 3}), gradient::wanted);
  const variable<float> b(tensor<float>::ones({2}), gradient::wanted);
  BOOST_TEST((mean(variable<float>(tensor<float>::zeros({0, 5, 3})), {1}).shape() == shape{0, 3}));
  BOOST_CHECK_THROW((void)mean(variable<float>(tensor<float>::zeros({0, 3})), {0}), usage_error);
  const auto y = linear(variable<float>(tensor<float>::zeros({0, 3})), w);
  BOOST_TEST((y.shape() == shape{0, 4}));
  sum(relu(y)).backward();
  BOOST_TEST(sum(w.grad()).item() == 0.0F);
  sum(conv2d(variable<float>(tensor<float>::zeros({0, 1, 8, 8})), k, b)).backward();
  BOOST_TEST(sum(k.grad()).item() == 0.0F);
  BOOST_TEST(sum(b.grad()).item() == 0.0F);
}
