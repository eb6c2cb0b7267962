// Deferred row updates have the bits of dense ones, as a user compiles them: at -O2, by either
// compiler. (The other tests are compiled at lower levels, where g++ does not fuse products and
// sums, and from a library.) Prints what differs and ends with 1.
#include <parx/optim/adamw.hpp>
#include <parx/optim/sgd.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

using namespace parx;

namespace {

int failures = 0;

template <typename T>
tensor<T> uniform(shape extents, std::mt19937& random) {
  auto values = tensor<T>::empty(extents);
  for (T& each : values) each = static_cast<T>(random() % 20'001) / T(10'000) - T(1);
  return values;
}

template <typename T>
bool same_bits(const tensor<T>& a, const tensor<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// 300 steps of a table in which few rows have a gradient: by a ledger, and every row every time.
template <typename T, template <typename> typename Rule, std::size_t States, typename Options>
void compare(const char* name, Options options) {
  constexpr std::size_t rows = 40;
  constexpr std::size_t width = 37;  // whole registers and a rest
  std::mt19937 random(5);
  const parameter<T> table("table", uniform<T>({rows, width}, random));
  const tensor<T> dense = table.value().clone();
  std::vector<tensor<T>> state, dense_state;
  for (std::size_t i = 0; i < States; ++i) {
    state.push_back(tensor<T>::zeros({rows * width}));
    dense_state.push_back(tensor<T>::zeros({rows * width}));
  }
  optim::detail::row_ledger<T, Rule<T>> ledger(table, state);
  for (std::uint64_t step = 1; step <= 300; ++step) {
    options.lr *= step < 50 ? 1.05 : 0.99;
    const Rule<T> rule(options, step);
    std::vector<std::size_t> touched;
    for (std::size_t row = 0; row + 3 < rows; ++row) {
      if (random() % (row * row + 1) < 2) touched.push_back(row);
    }
    const tensor<T> gradient = tensor<T>::zeros({rows, width});
    for (const std::size_t row : touched) {
      const tensor<T> values = uniform<T>({width}, random);
      std::copy_n(values.data(), width, gradient.data() + row * width);
    }
    ledger.step(rule, {gradient, touched});
    optim::detail::update_lanes<States>(rule, dense.data(), dense_state, gradient.data(), 0,
                                        dense.size());
  }
  bool same = same_bits(table.value(), dense);
  for (std::size_t i = 0; i < States; ++i) same = same && same_bits(state[i], dense_state[i]);
  if (same) return;
  ++failures;
  std::printf("%s of %zu bytes: deferred rows have other bits than dense ones\n", name, sizeof(T));
}

template <typename T>
void compare_all() {
  using optim::adamw_options;
  using optim::sgd_options;
  using optim::detail::adamw_rule;
  using optim::detail::sgd_rule;
  compare<T, adamw_rule, 2>("adamw", adamw_options{});
  compare<T, adamw_rule, 2>("adamw without decay", adamw_options{.weight_decay = 0});
  compare<T, adamw_rule, 2>("adamw with short memories",
                            adamw_options{.beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.3});
  compare<T, sgd_rule, 1>("sgd with momentum", sgd_options{.momentum = 0.9});
  compare<T, sgd_rule, 1>("sgd with momentum and decay",
                          sgd_options{.momentum = 0.9, .weight_decay = 0.1});
  compare<T, sgd_rule, 1>(
      "nesterov",
      sgd_options{.momentum = 0.9, .weight_decay = 0.1, .form = optim::momentum_form::nesterov});
  compare<T, sgd_rule, 0>("sgd with decay", sgd_options{.weight_decay = 0.1});
}

}  // namespace

int main() {
  compare_all<float>();
  compare_all<double>();
  return failures == 0 ? 0 : 1;
}
