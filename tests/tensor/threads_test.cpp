// Element-wise functions, copies, reductions and exact norms have the same bits with any number of
// threads, at sizes around those where the work is divided.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <boost/test/unit_test.hpp>

#include <parx/tensor.hpp>
#include <parx/types/square_sum.hpp>

#include "same_bits_by_threads.hpp"

using parx::tensor;

namespace {

tensor<float> numbers(const parx::shape& s, std::uint64_t seed = 1) {
  const auto x = tensor<float>::empty(s);
  parx::random_stream(seed, "numbers").normal(x, 0.F, 1.F);
  return x;
}

const parx::shape shapes[] = {{100'003}, {32'768}, {32'769}, {257, 300}, {3, 70'001},
                              {5, 7, 4001}, {70'001, 2}, {0, 4}, {40'000, 0}, {1}};

}  // namespace

BOOST_AUTO_TEST_CASE(element_wise) {
  for (const parx::shape& s : shapes) {
    const auto x = numbers(s), y = numbers(s, 2);
    const auto row = numbers({s.back()}, 3);
    require_same_bits_by_threads(
        "map", [&] { return parx::map([](float a, float b) { return a * b; }, x, y); });
    require_same_bits_by_threads("broadcast",
                 [&] { return parx::map([](float a, float b) { return a - b; }, x, row); });
    require_same_bits_by_threads("cast", [&] { return x.cast<double>(); });
    require_same_bits_by_threads("half", [&] { return x.cast<parx::bfloat16>().cast<float>(); });
    require_same_bits_by_threads("fill", [&] {
      const auto z = tensor<float>::empty(s);
      z.fill(2.5F);
      return z;
    });
    if (s.rank() < 2) continue;
    require_same_bits_by_threads("transposed", [&] { return x.transpose().clone(); });
    require_same_bits_by_threads("of transposed", [&] {
      return parx::map([](float a, float b) { return a + b; }, x.transpose(), y.transpose());
    });
  }
}

BOOST_AUTO_TEST_CASE(reductions) {
  for (const parx::shape& s : shapes) {
    const auto x = numbers(s);
    require_same_bits_by_threads("sum", [&] { return parx::sum(x); });
    require_same_bits_by_threads("sum of columns", [&] { return parx::sum(x, {0}); });
    require_same_bits_by_threads("sum of rows", [&] { return parx::sum(x, {-1}); });
    if (s.rank() > 2) {
      require_same_bits_by_threads("sum of a middle axis", [&] { return parx::sum(x, {1}); });
      require_same_bits_by_threads("sum of outer axes", [&] { return parx::sum(x, {0, 2}); });
    }
    if (x.size() == 0) continue;
    require_same_bits_by_threads("max", [&] { return parx::max(x, {-1}); });
    require_same_bits_by_threads("min", [&] { return parx::min(x, {0}); });
  }
}

// The pairwise tree of a long sum is the one of a single thread.
BOOST_AUTO_TEST_CASE(long_sums_are_pairwise) {
  const auto ones = tensor<float>::full({30'000'001}, 1.F);
  parx::set_num_threads(2);
  BOOST_TEST(parx::sum(ones).item() == 30'000'001.F, boost::test_tools::tolerance(1e-6F));
  parx::set_num_threads(1);
}

BOOST_AUTO_TEST_CASE(exact_norms) {
  const auto x = numbers({300'001});
  require_same_bits_by_threads("norm", [&] {
    parx::square_sum squares;
    squares.add(std::span<const float>(x.span()));
    return tensor<double>::full({1}, squares.norm());
  });
}

BOOST_AUTO_TEST_CASE(batches_of_products) {
  for (const auto& [batch, m, n, k] :
       {std::array<std::size_t, 4>{37, 20, 31, 17}, {3, 200, 190, 180}, {1, 70, 70, 70}}) {
    const auto a = numbers({batch, 2, m, k}), b = numbers({2, k, n}, 2);
    require_same_bits_by_threads("matmul", [&] { return parx::matmul(a, b); });
    require_same_bits_by_threads("of transposed",
                                 [&] { return parx::matmul(a.transpose(0, 1), b.select(0, 1)); });
  }
}

BOOST_AUTO_TEST_CASE(random_numbers_and_indices) {
  const parx::random_stream stream(3, "x");
  for (const std::uint64_t first : {0U, 1U, 7U}) {
    require_same_bits_by_threads("uniform", [&] {
      const auto x = tensor<double>::empty({70'001});
      stream.uniform(x.span(), -1.0, 2.0, first);
      return x;
    });
    require_same_bits_by_threads("normal", [&] {
      const auto x = tensor<float>::empty({70'001});
      stream.normal(x.span(), 1.F, 2.F, first);
      return x;
    });
  }
  const auto x = numbers({3000, 21});
  require_same_bits_by_threads("argmax", [&] { return parx::argmax(x); });
}
