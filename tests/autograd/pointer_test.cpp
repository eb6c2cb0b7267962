#include <parx/autograd/ops/pointer.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

#include <autograd/gradients.hpp>

using namespace parx;

namespace {

tensor<double> random(const shape& s, std::uint64_t seed, double range = 2) {
  auto values = tensor<double>::empty(s);
  random_stream(seed, "pointer_test").uniform(values, -range, range);
  return values;
}
// The first source has token 3 twice, the second ends in padding.
tensor<std::int64_t> sources() {
  return tensor<std::int64_t>::from({3, 1, 3, 0, 4, 2, 2, 0}, {2, 4});
}
tensor<std::uint8_t> places() {
  return tensor<std::uint8_t>::from({1, 1, 1, 1, 1, 1, 0, 0}, {2, 4});
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_mixture_is_the_papers_formula) {
  const auto logits = random({2, 3, 6}, 1), scores = random({2, 3, 4}, 2),
             gate = random({2, 3, 1}, 3);
  const auto ids = sources();
  const auto mask = places();
  const auto y = pointer_mixture<double>(logits, scores, gate, ids, mask).value();
  for (std::size_t b = 0; b < 2; ++b) {
    for (std::size_t t = 0; t < 3; ++t) {
      const double g = 1 / (1 + std::exp(-gate.at(b, t, 0)));
      double generated = 0, pointed = 0, total = 0;
      for (std::size_t v = 0; v < 6; ++v) generated += std::exp(logits.at(b, t, v));
      for (std::size_t s = 0; s < 4; ++s) pointed += mask.at(b, s) * std::exp(scores.at(b, t, s));
      for (std::size_t v = 0; v < 6; ++v) {
        double p = g * std::exp(logits.at(b, t, v)) / generated;
        for (std::size_t s = 0; s < 4; ++s) {
          if (mask.at(b, s) == 1 && ids.at(b, s) == static_cast<std::int64_t>(v))
            p += (1 - g) * std::exp(scores.at(b, t, s)) / pointed;
        }
        total += p;
        BOOST_TEST(y.at(b, t, v) == std::log(p), boost::test_tools::tolerance(1e-12));
      }
      BOOST_TEST(total == 1, boost::test_tools::tolerance(1e-12));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_mixture_has_exact_gradients) {
  parx_test::check(
      [](const auto& x) { return pointer_mixture(x[0], x[1], x[2], sources(), places()); },
      {random({2, 3, 6}, 4), random({2, 3, 4}, 5), random({2, 3, 1}, 6)});
}

BOOST_AUTO_TEST_CASE(a_gate_that_is_wide_open_or_shut_leaves_finite_gradients) {
  for (const float open : {-200.0F, 200.0F}) {
    auto scores = tensor<float>::zeros({1, 1, 4});
    scores.data()[1] = 300;  // the other places get exactly 0
    const variable<float> logits(tensor<float>::zeros({1, 1, 6}), gradient::wanted);
    const variable<float> points(scores, gradient::wanted);
    const variable<float> gate(tensor<float>::full({1, 1, 1}, open), gradient::wanted);
    const auto ids = tensor<std::int64_t>::from({3, 1, 3, 0}, {1, 4});
    const auto y = pointer_mixture(logits, points, gate, ids, tensor<std::uint8_t>::ones({1, 4}));
    y.backward_from(tensor<float>::full({1, 1, 6}, 0.5F));
    for (const auto& each : {y.value(), logits.grad(), points.grad(), gate.grad()}) {
      for (const float v : each.span()) BOOST_TEST(std::isfinite(v));
    }
    // Wide open it is log_softmax(logits); shut, the source's only likely token.
    BOOST_TEST(y.value().data()[1] == (open > 0 ? -std::log(6.0F) : 0.0F),
               boost::test_tools::tolerance(1e-5F));
  }
}

BOOST_AUTO_TEST_CASE(mismatched_shapes_are_named) {
  const variable<float> logits = tensor<float>::zeros({1, 2, 6}),
                        scores = tensor<float>::zeros({1, 2, 3});
  const variable<float> gate = tensor<float>::zeros({1, 2, 1});
  const auto ones = tensor<std::uint8_t>::ones({1, 3});
  const auto refused = [&](const variable<float>& s, const tensor<std::int64_t>& ids,
                           const tensor<std::uint8_t>& mask, const std::string& words) {
    BOOST_CHECK_EXCEPTION((void)pointer_mixture(logits, s, gate, ids, mask), usage_error,
                          [&](const usage_error& e) {
                            return std::string(e.what()).find(words) != std::string::npos;
                          });
  };
  const auto ids = tensor<std::int64_t>::zeros({1, 3});
  refused(tensor<float>::zeros({1, 2, 4}), ids, ones, "scores (1, 2, 4)");
  refused(scores, tensor<std::int64_t>::full({1, 3}, 6), ones, "token 6 of source 0");
  refused(scores, ids, tensor<std::uint8_t>::zeros({1, 3}), "nothing to copy");
}
