// The steps of GRU and LSTM: what they compute of the products of inputs and states, as one
// operation each.
//
// Cho et al. (arXiv 1406.1078) and Hochreiter, Schmidhuber: Long Short-Term Memory (1997), with the
// gates in PyTorch's order.
#pragma once

#include <cstddef>
#include <utility>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/autograd/ops/linear.hpp>
#include <parx/autograd/ops/rows.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/tensor/packet.hpp>
#include <parx/tensor/vector_math.hpp>

namespace parx::inline PARX_ABI {

/// The new state of GRU, (rows, width), from x W^T + b and h W^T + b, both (rows, 3 width) with the
/// gates reset, update and new:
///   r = sigmoid(x_r + h_r), z = sigmoid(x_z + h_z), n = tanh(x_n + r h_n), h' = n + z (h - n)
template <typename T>
[[nodiscard]] variable<T> gru_gates(const variable<T>& of_x, const variable<T>& of_h,
                                    const variable<T>& h) {
  const tensor<T> a = of_x.value().contiguous(), b = of_h.value().contiguous(),
                  before = h.value().contiguous();
  const std::size_t rows = h.extent(0), width = h.extent(1);
  tensor<T> y = tensor<T>::empty(h.shape());
  const tensor<T> gates = tensor<T>::empty({rows, 3 * width});  // r, z, n
  detail::for_each_row(rows, 8 * width, [&](std::size_t row) {
    const std::size_t first = row * 3 * width;
    detail::for_each_packet<T>(width, [&](std::size_t i, auto... left) PARX_PACKET_BODY {
      const auto at = [&](const tensor<T>& from, std::size_t gate) {
        return detail::load_packet(from.data() + first + gate * width + i, left...);
      };
      const detail::packet<T> r = detail::vector_sigmoid<detail::packet<T>>(at(a, 0) + at(b, 0));
      const detail::packet<T> z = detail::vector_sigmoid<detail::packet<T>>(at(a, 1) + at(b, 1));
      const detail::packet<T> n =
          detail::vector_tanh<detail::packet<T>>(detail::simd::fma(r, at(b, 2), at(a, 2)));
      const detail::packet<T> old = detail::load_packet(before.data() + row * width + i, left...);
      detail::store_packet(y.data() + row * width + i,
                           detail::simd::fma(z, detail::packet<T>(old - n), n), left...);
      detail::store_packet(gates.data() + first + i, r, left...);
      detail::store_packet(gates.data() + first + width + i, z, left...);
      detail::store_packet(gates.data() + first + 2 * width + i, n, left...);
    });
  });
  return differentiable(
      std::move(y),
      single_call(
          [=](const tensor<T>& upstream, grad_sink<T> da, grad_sink<T> db, grad_sink<T> dh) {
            const tensor<T> to_a = tensor<T>::empty(a.shape()), to_b = tensor<T>::empty(a.shape()),
                            to_h = tensor<T>::empty(before.shape());
            detail::for_each_row(rows, 8 * width, [&](std::size_t row) {
              const T* const gate = gates.data() + row * 3 * width;
              T* const ga = to_a.data() + row * 3 * width;
              T* const gb = to_b.data() + row * 3 * width;
              for (std::size_t i = 0; i < width; ++i) {
                const T r = gate[i], z = gate[width + i], n = gate[2 * width + i];
                const T u = upstream.data()[row * width + i], old = before.data()[row * width + i];
                const T hidden = b.data()[row * 3 * width + 2 * width + i];
                const T dn = u * (T(1) - z) * detail::simd::fma(-n, n, T(1));
                const T dz = u * (old - n) * (z * (T(1) - z)), dr = dn * hidden * (r * (T(1) - r));
                ga[i] = gb[i] = dr;
                ga[width + i] = gb[width + i] = dz;
                ga[2 * width + i] = dn;
                gb[2 * width + i] = dn * r;
                to_h.data()[row * width + i] = u * z;
              }
            });
            if (da.needed()) da.add(to_a);
            if (db.needed()) db.add(to_b);
            if (dh.needed()) dh.add(to_h);
          }),
      of_x, of_h, h);
}

/// The new states of LSTM, (2, rows, width): h' and c', from the sum of both products,
/// (rows, 4 width) with the gates input, forget, cell and output:
///   c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c')
template <typename T>
[[nodiscard]] variable<T> lstm_gates(const variable<T>& products, const variable<T>& c) {
  const tensor<T> a = products.value().contiguous(), before = c.value().contiguous();
  const std::size_t rows = c.extent(0), width = c.extent(1), size = rows * width;
  tensor<T> y = tensor<T>::empty({2, rows, width});
  const tensor<T> gates = tensor<T>::empty({rows, 5 * width});  // i, f, g, o, tanh(c')
  detail::for_each_row(rows, 8 * width, [&](std::size_t row) {
    T* const kept = gates.data() + row * 5 * width;
    detail::for_each_packet<T>(width, [&](std::size_t at, auto... left) PARX_PACKET_BODY {
      const auto gate = [&](std::size_t number) {
        return detail::load_packet(a.data() + row * 4 * width + number * width + at, left...);
      };
      const detail::packet<T> i = detail::vector_sigmoid<detail::packet<T>>(gate(0));
      const detail::packet<T> f = detail::vector_sigmoid<detail::packet<T>>(gate(1));
      const detail::packet<T> g = detail::vector_tanh<detail::packet<T>>(gate(2));
      const detail::packet<T> o = detail::vector_sigmoid<detail::packet<T>>(gate(3));
      const detail::packet<T> old = detail::load_packet(before.data() + row * width + at, left...);
      const detail::packet<T> now = detail::simd::fma(f, old, detail::packet<T>(i * g));
      const detail::packet<T> t = detail::vector_tanh<detail::packet<T>>(now);
      detail::store_packet(y.data() + row * width + at, detail::packet<T>(o * t), left...);
      detail::store_packet(y.data() + size + row * width + at, now, left...);
      detail::store_packet(kept + at, i, left...);
      detail::store_packet(kept + width + at, f, left...);
      detail::store_packet(kept + 2 * width + at, g, left...);
      detail::store_packet(kept + 3 * width + at, o, left...);
      detail::store_packet(kept + 4 * width + at, t, left...);
    });
  });
  return differentiable(
      std::move(y), single_call([=](const tensor<T>& upstream, grad_sink<T> da, grad_sink<T> dc) {
        const tensor<T> to_a = tensor<T>::empty(a.shape()), to_c = tensor<T>::empty(before.shape());
        detail::for_each_row(rows, 8 * width, [&](std::size_t row) {
          const T* const gate = gates.data() + row * 5 * width;
          T* const ga = to_a.data() + row * 4 * width;
          for (std::size_t at = 0; at < width; ++at) {
            const T i = gate[at], f = gate[width + at], g = gate[2 * width + at];
            const T o = gate[3 * width + at], t = gate[4 * width + at];
            const T of_h = upstream.data()[row * width + at];
            const T of_c = detail::simd::fma(of_h * o, detail::simd::fma(-t, t, T(1)),
                                             upstream.data()[size + row * width + at]);
            ga[at] = of_c * g * (i * (T(1) - i));
            ga[width + at] = of_c * before.data()[row * width + at] * (f * (T(1) - f));
            ga[2 * width + at] = of_c * i * detail::simd::fma(-g, g, T(1));
            ga[3 * width + at] = of_h * t * (o * (T(1) - o));
            to_c.data()[row * width + at] = of_c * f;
          }
        });
        if (da.needed()) da.add(to_a);
        if (dc.needed()) dc.add(to_c);
      }),
      products, c);
}

/// The states of an LSTM, (rows, width) each.
template <typename T>
struct lstm_state {
  variable<T> h, c;
};

/// One step of a GRU for rows x (rows, in) with the state h (rows, width): weight_ih is
/// (3 width, in), weight_hh (3 width, width), the biases (3 width) or not defined(). Throws
/// usage_error naming the shapes that do not fit. Source: PyTorch's GRUCell.
template <typename T>
[[nodiscard]] variable<T> gru_cell(const variable<T>& x, const variable<T>& h,
                                   const variable<T>& weight_ih, const variable<T>& weight_hh,
                                   const variable<T>& bias_ih = {}, const variable<T>& bias_hh = {},
                                   call_site = call_site::current()) {
  require(h.rank() == 2 && weight_ih.extent(0) == 3 * h.extent(1),
          "gru_cell: a state of shape {} and a weight of shape {}: (rows, width) and (3 width, in) "
          "are needed",
          to_string(h.shape()), to_string(weight_ih.shape()));
  return gru_gates(linear(x, weight_ih, bias_ih), linear(h, weight_hh, bias_hh), h);
}

/// One step of an LSTM: weight_ih is (4 width, in), the others likewise. Source: PyTorch's
/// LSTMCell.
template <typename T>
[[nodiscard]] lstm_state<T> lstm_cell(const variable<T>& x, const lstm_state<T>& state,
                                      const variable<T>& weight_ih, const variable<T>& weight_hh,
                                      const variable<T>& bias_ih = {},
                                      const variable<T>& bias_hh = {},
                                      call_site = call_site::current()) {
  require(state.h.rank() == 2 && state.c.shape() == state.h.shape() &&
              weight_ih.extent(0) == 4 * state.h.extent(1),
          "lstm_cell: states of shapes {} and {} and a weight of shape {}: (rows, width) twice and "
          "(4 width, in) are needed",
          to_string(state.h.shape()), to_string(state.c.shape()), to_string(weight_ih.shape()));
  const variable<T> both =
      lstm_gates(linear(x, weight_ih, bias_ih) + linear(state.h, weight_hh, bias_hh), state.c);
  return {select(both, 0, 0), select(both, 0, 1)};
}

}  // namespace parx
