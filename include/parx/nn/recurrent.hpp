// gru and lstm: recurrent layers over sequences, and their cells, with PyTorch's parameters and
// names (weight_ih_l0, bias_hh_l1_reverse, ...).
//
//   parx::nn::gru<> encoder{64, 128, {.layers = 2}};
//   const auto [output, h] = encoder(x);  // (positions, batch, 128), (2, batch, 128)
//
// The product with the inputs of all positions is one matrix product; the states follow one after
// another. These layers are not cut by tensor parallelism: their inputs are whole.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/ops/arrange.hpp>
#include <parx/autograd/ops/cast.hpp>
#include <parx/autograd/ops/linear.hpp>
#include <parx/autograd/ops/recurrent.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/nn/dropout.hpp>
#include <parx/nn/linear.hpp>
#include <parx/nn/module.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::nn {

struct recurrent_options {
  std::size_t layers = 1;
  nn::bias bias = nn::bias::learned;
  bool bidirectional = false;  ///< a second layer from the last position on; outputs side by side
  bool batch_first = false;    ///< inputs and outputs are (batch, positions, width)
  double dropout = 0;          ///< of each layer's output but the last one's
};

/// The last layer's output at all positions, and the last states of each layer (and direction),
/// (layers, batch, width).
template <typename T>
struct gru_result {
  variable<T> output, h;
};
template <typename T>
struct lstm_result {
  variable<T> output, h, c;
};

namespace detail {

/// The parameters of one layer in one direction.
template <typename T>
struct recurrent_weights {
  using A = arithmetic_type<T>;
  parameter<T> weight_ih, weight_hh, bias_ih, bias_hh;

  recurrent_weights(std::size_t gates, std::size_t in, std::size_t width, bias biases)
      : weight_ih("weight_ih", {gates * width, in}),
        weight_hh("weight_hh", {gates * width, width}) {
    if (biases == bias::none) return;
    for (parameter<T>* each : {&bias_ih, &bias_hh}) {
      *each = parameter<T>("bias", {gates * width});
      each->exempt_from_decay();
    }
  }
  [[nodiscard]] variable<A> of_input(const variable<A>& x) const {
    return parx::linear<A>(x, cast<A>(weight_ih), cast<A>(bias_ih));
  }
  [[nodiscard]] variable<A> of_state(const variable<A>& h) const {
    return parx::linear<A>(h, cast<A>(weight_hh), cast<A>(bias_hh));
  }
  template <typename Visit>
  void members(Visit& visit, const std::string& suffix, std::size_t width) {
    const initializer start = init::fan_in_uniform(width);
    visit("weight_ih" + suffix, weight_ih, start);
    visit("weight_hh" + suffix, weight_hh, start);
    visit("bias_ih" + suffix, bias_ih, start);
    visit("bias_hh" + suffix, bias_hh, start);
  }
};

enum class sequence_order { forward, backward };

/// One step of each kind: the state's parts are h, and c of an LSTM.
struct gru_steps {
  static constexpr std::size_t gates = 3, parts = 1;
  template <typename T, typename A = arithmetic_type<T>>
  static void step(const recurrent_weights<T>& weights, const variable<A>& of_x,
                   std::vector<variable<A>>& state) {
    state[0] = parx::gru_gates<A>(of_x, weights.of_state(state[0]), state[0]);
  }
};
struct lstm_steps {
  static constexpr std::size_t gates = 4, parts = 2;
  template <typename T, typename A = arithmetic_type<T>>
  static void step(const recurrent_weights<T>& weights, const variable<A>& of_x,
                   std::vector<variable<A>>& state) {
    const variable<A> both =
        parx::lstm_gates<A>(of_x + weights.of_state(state[0]), state[1]);
    state = {select(both, 0, 0), select(both, 0, 1)};
  }
};

}  // namespace detail

/// The common base of gru and lstm.
template <typename Derived, typename Steps, typename T>
class recurrent_layers : public module<Derived> {
 public:
  using value_type = T;

  template <typename Visit>
  void members(Visit& visit) {
    const std::size_t directions = options_.bidirectional ? 2 : 1;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      weights_[i].members(
          visit, "_l" + std::to_string(i / directions) + (i % directions == 1 ? "_reverse" : ""),
          width_);
    }
    visit("dropout", dropout_);
  }

 protected:
  using A = arithmetic_type<T>;
  using states = std::vector<variable<A>>;

  recurrent_layers(std::size_t in, std::size_t width, recurrent_options options)
      : width_(width), options_(options), dropout_(options.dropout) {
    require(options.layers > 0 && width > 0, "a recurrent network has layers and a width above 0");
    const std::size_t directions = options.bidirectional ? 2 : 1;
    for (std::size_t i = 0; i < options.layers * directions; ++i) {
      weights_.emplace_back(Steps::gates, i < directions ? in : directions * width, width,
                            options.bias);
    }
  }

  /// The output, and each part of the last states. `first` has a tensor (layers, batch, width) for
  /// each part, or none.
  [[nodiscard]] std::pair<variable<A>, states> run(const variable<A>& input, const states& first) {
    require(input.rank() == 3 && input.size() > 0,
            "a recurrent network takes (positions, batch, width) with elements, not shape {}",
            to_string(input.shape()));
    variable<A> x = options_.batch_first ? transpose(input, 0, 1) : input;
    const std::size_t directions = options_.bidirectional ? 2 : 1, batch = x.extent(1);
    const shape wanted{weights_.size(), batch, width_};
    for (const variable<A>& each : first) {
      require(each.shape() == wanted, "first states of shape {} in place of {}",
              to_string(each.shape()), to_string(wanted));
    }
    std::vector<states> last(Steps::parts);
    for (std::size_t layer = 0; layer < options_.layers; ++layer) {
      states outputs;
      if (layer > 0) x = dropout_(x);
      for (std::size_t d = 0; d < directions; ++d) {
        const std::size_t number = layer * directions + d;
        states state;
        for (std::size_t part = 0; part < Steps::parts; ++part) {
          state.push_back(first.empty() ? variable<A>(tensor<A>::zeros({batch, width_}))
                                        : select(first[part], 0, number));
        }
        outputs.push_back(
            through(weights_[number], x, state,
                    d == 0 ? detail::sequence_order::forward : detail::sequence_order::backward));
        for (std::size_t part = 0; part < Steps::parts; ++part) last[part].push_back(state[part]);
      }
      x = directions == 1 ? outputs[0] : concat(outputs, -1);
    }
    states stacked;
    for (const states& each : last) stacked.push_back(stack(each, 0));
    return {options_.batch_first ? transpose(x, 0, 1) : x, std::move(stacked)};
  }

 private:
  /// One layer in one direction; leaves the last state.
  [[nodiscard]] static variable<A> through(const detail::recurrent_weights<T>& weights,
                                           const variable<A>& x, states& state,
                                           detail::sequence_order order) {
    const variable<A> of_x = weights.of_input(x);
    const std::size_t positions = x.extent(0);
    states outputs(positions);
    for (std::size_t i = 0; i < positions; ++i) {
      const std::size_t at = order == detail::sequence_order::backward ? positions - 1 - i : i;
      Steps::template step<T>(weights, select(of_x, 0, at), state);
      outputs[at] = state[0];
    }
    return stack(outputs, 0);
  }

  std::size_t width_;
  recurrent_options options_;
  std::vector<detail::recurrent_weights<T>> weights_;
  nn::dropout dropout_;
};

/// Gated recurrent units; see gru_cell.
template <typename T = float>
class gru : public recurrent_layers<gru<T>, detail::gru_steps, T> {
 public:
  using A = arithmetic_type<T>;

  /// From `in` to `width` features.
  gru(std::size_t in, std::size_t width, recurrent_options options = {})
      : recurrent_layers<gru<T>, detail::gru_steps, T>(in, width, options) {}

  /// x is (positions, batch, in), the first states h (layers, batch, width), or zeros without them.
  [[nodiscard]] gru_result<A> forward(const variable<A>& x, const variable<A>& h = {}) {
    std::vector<variable<A>> first;
    if (h.defined()) first = {h};
    auto [output, last] = this->run(x, first);
    return {std::move(output), std::move(last[0])};
  }
};

/// Long short-term memory; see lstm_cell.
template <typename T = float>
class lstm : public recurrent_layers<lstm<T>, detail::lstm_steps, T> {
 public:
  using A = arithmetic_type<T>;

  /// From `in` to `width` features.
  lstm(std::size_t in, std::size_t width, recurrent_options options = {})
      : recurrent_layers<lstm<T>, detail::lstm_steps, T>(in, width, options) {}

  /// As gru, with states h and c.
  [[nodiscard]] lstm_result<A> forward(const variable<A>& x, const variable<A>& h = {},
                                       const variable<A>& c = {}) {
    require(h.defined() == c.defined(), "lstm: first states are h and c, or neither");
    std::vector<variable<A>> first;
    if (h.defined()) first = {h, c};
    auto [output, last] = this->run(x, first);
    return {std::move(output), std::move(last[0]), std::move(last[1])};
  }
};

/// One step of a GRU: see parx::gru_cell.
template <typename T = float>
class gru_cell : public module<gru_cell<T>> {
 public:
  using value_type = T;
  using A = arithmetic_type<T>;

  gru_cell(std::size_t in, std::size_t width, nn::bias bias = nn::bias::learned)
      : width_(width), weights_(3, in, width, bias) {}
  [[nodiscard]] variable<A> forward(const variable<A>& x, const variable<A>& h) const {
    return parx::gru_cell<A>(x, h, cast<A>(weights_.weight_ih), cast<A>(weights_.weight_hh),
                             cast<A>(weights_.bias_ih), cast<A>(weights_.bias_hh));
  }
  template <typename Visit>
  void members(Visit& visit) {
    weights_.members(visit, "", width_);
  }

 private:
  std::size_t width_;
  detail::recurrent_weights<T> weights_;
};

/// One step of an LSTM: see parx::lstm_cell.
template <typename T = float>
class lstm_cell : public module<lstm_cell<T>> {
 public:
  using value_type = T;
  using A = arithmetic_type<T>;

  lstm_cell(std::size_t in, std::size_t width, nn::bias bias = nn::bias::learned)
      : width_(width), weights_(4, in, width, bias) {}
  [[nodiscard]] lstm_state<A> forward(const variable<A>& x, const lstm_state<A>& state) const {
    return parx::lstm_cell<A>(x, state, cast<A>(weights_.weight_ih), cast<A>(weights_.weight_hh),
                              cast<A>(weights_.bias_ih), cast<A>(weights_.bias_hh));
  }
  template <typename Visit>
  void members(Visit& visit) {
    weights_.members(visit, "", width_);
  }

 private:
  std::size_t width_;
  detail::recurrent_weights<T> weights_;
};

}  // namespace parx::nn
