// Integer-valued inputs and weights: every intermediate is exact in float, so that any order of
// summation must give the same bits.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd.hpp>
#include <parx/comm.hpp>
#include <parx/nn.hpp>

#include <gradients.hpp>

namespace exact {

using parx::tensor;

inline tensor<float> integers(std::size_t rows, std::size_t columns, int salt) {
  tensor<float> x = tensor<float>::zeros({rows, columns});
  for (std::size_t i = 0; i < x.size(); ++i) {
    x.data()[i] = static_cast<float>((static_cast<int>(i) * 7 + salt * 13) % 5 - 2);
  }
  return x;
}

struct model : parx::nn::module<model> {
  parx::nn::linear<> first{6, 8};
  parx::nn::linear<> second{8, 3};
  parx::nn::linear<> spare{6, 8};  // used on request only
  bool use_spare = false;

  parx::variable<float> forward(const parx::variable<float>& x) {
    return second(parx::relu(use_spare ? first(x) + spare(x) : first(x)));
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("first", first);
    visit("second", second);
    visit("spare", spare);
  }
};

inline void make_integer_valued(model& m) {
  int salt = 0;
  m.materialize();
  m.for_each_parameter([&](const std::string&, auto& p) {
    auto value = p.value();
    for (std::size_t i = 0; i < value.size(); ++i) {
      value.data()[i] = static_cast<float>((static_cast<int>(i) * 3 + salt) % 3 - 1);
    }
    ++salt;
  });
}

using parx_test::gradients_of;

/// The sum of squared differences over all rows and columns.
inline parx::weighted_loss<float> loss_of(const parx::variable<float>& prediction,
                                          const tensor<float>& wanted, double count) {
  const parx::variable<float> difference = prediction - parx::variable<float>(wanted);
  return {parx::sum(difference * difference), count};
}

/// The rows of a global batch of 16 that a rank works on, dealt unevenly.
inline std::pair<std::size_t, std::size_t> rows_of(int rank, int world) {
  return {parx::chunk_begin(16, world, rank), parx::chunk_begin(16, world, rank + 1)};
}

/// What one process computes on the global batch; `spare`: whether it uses that layer.
inline std::vector<float> single_process(bool spare) {
  model m;
  m.use_spare = spare;
  make_integer_valued(m);
  loss_of(m(integers(16, 6, 1)), integers(16, 3, 2), 16).backward();
  return gradients_of(m);
}

}  // namespace exact
