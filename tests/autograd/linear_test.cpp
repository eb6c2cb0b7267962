// linear as one operation has the bits of its product and activation apart, and those of one
// thread by several.
#include <parx/autograd/ops/linear.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <parx/autograd.hpp>

#include "same_bits_by_threads.hpp"

using parx::activation, parx::tensor, parx::variable, parx::weight_layout;

namespace {

constexpr activation activations[] = {activation::none, activation::relu, activation::gelu,
                                      activation::gelu_tanh, activation::silu};

tensor<float> numbers(const parx::shape& s, std::uint64_t seed) {
  const auto x = tensor<float>::empty(s);
  // Not so large that derivatives are denormal: backward alone flushes those to zero.
  parx::random_stream(seed, "numbers").normal(x, 0.F, 0.5F);
  return x;
}

/// The result and the gradients of y = make(x, weight, bias), one after the other.
using make_result = std::function<variable<float>(
    const variable<float>&, const variable<float>&, const variable<float>&)>;
tensor<float> result_and_gradients(std::size_t rows, std::size_t in, std::size_t out,
                                   weight_layout layout, const make_result& make) {
  const parx::shape s = layout == weight_layout::out_in ? parx::shape{out, in}
                                                        : parx::shape{in, out};
  const parx::parameter<float> x("x", numbers({rows, in}, 1)), w("weight", numbers(s, 2)),
      b("bias", numbers({out}, 3));
  const variable<float> y = make(x, w, b);
  parx::sum(y * variable<float>(numbers({rows, out}, 4))).backward();
  const tensor<float> parts[] = {y.value(), x.grad(), w.grad(), b.grad()};
  const auto all = tensor<float>::empty({rows * out + rows * in + in * out + out});
  std::size_t at = 0;
  for (const tensor<float>& each : parts) {
    std::copy_n(each.contiguous().data(), each.size(), all.data() + at);
    at += each.size();
  }
  return all;
}

variable<float> apply(activation f, const variable<float>& z) {
  switch (f) {
    case activation::relu: return parx::relu(z);
    case activation::gelu: return parx::gelu(z);
    case activation::gelu_tanh: return parx::gelu(z, parx::gelu_form::tanh);
    case activation::silu: return parx::silu(z);
    case activation::none: break;
  }
  return z;
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_activation_within_the_product_has_the_bits_of_one_after_it) {
  for (const activation f : activations) {
    for (const auto& [rows, in, out] : {std::array<std::size_t, 3>{1, 40, 70}, {3, 300, 33},
                                        {50, 70, 100}, {200, 300, 10}, {70, 20, 2}}) {
      for (const weight_layout layout : {weight_layout::out_in, weight_layout::in_out}) {
        const tensor<float> together = result_and_gradients(
            rows, in, out, layout, [&](const auto& x, const auto& w, const auto& b) {
              return parx::linear(x, w, b, f, layout);
            });
        const tensor<float> apart = result_and_gradients(
            rows, in, out, layout, [&](const auto& x, const auto& w, const auto& b) {
              return apply(f, parx::linear(x, w, b, activation::none, layout));
            });
        // The bias's gradient is summed in another order.
        const std::size_t most = together.size() - out;
        BOOST_TEST(same_bits(together.slice(0, 0, most), apart.slice(0, 0, most)),
                   "activation " << int(f) << ", " << rows << " x " << in << " x " << out);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(threads_change_no_bit_of_a_result_or_a_gradient) {
  for (const activation f : activations) {
    for (const weight_layout layout : {weight_layout::out_in, weight_layout::in_out}) {
      const auto compute = [&] {
        return result_and_gradients(
            300, 190, 330, layout, [&](const auto& x, const auto& w, const auto& b) {
              return parx::linear(x, w, b, f, layout);
            });
      };
      require_same_bits_by_threads("activation " + std::to_string(int(f)), compute);
      const parx::autocast<parx::bfloat16> narrow;
      require_same_bits_by_threads("autocast, activation " + std::to_string(int(f)), compute);
    }
  }
}
