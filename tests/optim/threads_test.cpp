// Optimizers, clipping and averages have the same bits with any number of threads.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/autograd.hpp>
#include <parx/optim.hpp>

#include "same_bits_by_threads.hpp"

using parx::tensor;

namespace {

tensor<float> numbers(const parx::shape& s, std::uint64_t seed) {
  const auto x = tensor<float>::empty(s);
  parx::random_stream(seed, "numbers").normal(x, 0.F, 1.F);
  return x;
}

/// What five steps leave of a matrix, an embedding and their average.
template <typename T, typename MakeOptimizer>
tensor<float> trained(MakeOptimizer make) {
  const tensor<T> start = numbers({300, 257}, 1).template cast<T>();
  parx::parameter<T> matrix("matrix", start.clone()), table("table", start.clone());
  const std::vector<parx::parameter<T>> all{matrix, table};
  auto opt = make(all);
  parx::optim::ema<T> average(all);
  for (std::uint64_t step = 0; step < 5; ++step) {
    const parx::variable<float> factor(numbers({300, 257}, 10 + step));
    const auto ids = tensor<std::int64_t>::empty({100});
    for (std::size_t i = 0; i < 100; ++i) {
      ids.data()[i] = static_cast<std::int64_t>((i * 7 + step * 13) % 300);
    }
    const auto rows = parx::cast<float>(parx::embedding(table, ids));
    const auto loss = parx::sum(parx::cast<float>(matrix) * factor) + parx::sum(rows);
    loss.backward();
    parx::optim::clip_grad_norm(opt.targets(), 1.0);
    opt.step();
    average.update();
  }
  const auto result = tensor<float>::empty({3, 300, 257});
  result.select(0, 0).copy_from(matrix.value().template cast<float>());
  result.select(0, 1).copy_from(table.value().template cast<float>());
  const auto swapped = average.swap();
  result.select(0, 2).copy_from(matrix.value().template cast<float>());
  return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(by_threads) {
  const auto adamw = []<typename T>(const std::vector<parx::parameter<T>>& parameters) {
    return parx::optim::adamw<T>(parameters);
  };
  const auto lazy = []<typename T>(const std::vector<parx::parameter<T>>& parameters) {
    return parx::optim::adamw<T>(parameters, {.rows = parx::optim::row_updates::lazy});
  };
  const auto sgd = []<typename T>(const std::vector<parx::parameter<T>>& parameters) {
    return parx::optim::sgd<T>(parameters, {.lr = 0.1, .momentum = 0.9});
  };
  require_same_bits_by_threads("adamw", [&] { return trained<float>(adamw); });
  require_same_bits_by_threads("adamw, lazy rows", [&] { return trained<float>(lazy); });
  require_same_bits_by_threads("sgd", [&] { return trained<float>(sgd); });
  require_same_bits_by_threads("adamw, bfloat16", [&] { return trained<parx::bfloat16>(adamw); });
}
