// adamw: Adam with decoupled weight decay, which does not pass through the moments.
//
//   w *= 1 - lr * weight_decay
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   w -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
//
// Every 16th step sets negligible first moments to zero (adamw_rule::flush), so that rows of an
// embedding without gradients stop moving: the same elements at the same steps for dense and
// row-sparse gradients. Loshchilov, Hutter: Decoupled Weight Decay Regularization (arXiv
// 1711.05101). Source: PyTorch's torch.optim.AdamW; t counts the steps of each parameter.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/optim/detail/misuse.hpp>
#include <parx/optim/optimizer.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::optim {

struct adamw_options {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
  row_updates rows = row_updates::deferred;
};

namespace detail {

/// One step of AdamW.
template <typename T>
struct adamw_rule {
  static constexpr std::size_t states = 2;

  T keep, beta1, beta2, one_minus_beta1, one_minus_beta2, minus_step_size, root_scale, epsilon;
  bool flushes;  ///< negligible first moments to zero

  adamw_rule() = default;
  adamw_rule(const adamw_options& o, std::uint64_t steps)
      : keep(static_cast<T>(1 - o.lr * o.weight_decay)),
        beta1(static_cast<T>(o.beta1)),
        beta2(static_cast<T>(o.beta2)),
        one_minus_beta1(static_cast<T>(1 - o.beta1)),
        one_minus_beta2(static_cast<T>(1 - o.beta2)),
        minus_step_size(
            static_cast<T>(-o.lr / (1 - std::pow(o.beta1, static_cast<double>(steps))))),
        root_scale(
            static_cast<T>(1 / std::sqrt(1 - std::pow(o.beta2, static_cast<double>(steps))))),
        epsilon(static_cast<T>(o.epsilon)),
        flushes(steps % 16 == 0) {}

  /// Whether elements without a gradient stay as they are.
  [[nodiscard]] bool rest_is_identity() const noexcept { return false; }

  template <std::size_t States>
  [[gnu::always_inline]] void update(lanes<T>& w, state_lanes<T, States>& state,
                                     const lanes<T>& g) const {
    if constexpr (States == states) {
      auto& [m, v] = state;
      m = multiply_add(lanes<T>(one_minus_beta1), g, beta1 * m);
      v = multiply_add(one_minus_beta2 * g, g, beta2 * v);
      move(w, m, v);
      if (flushes) flush(m, v);
    }
  }

  template <std::size_t States>
  static void rest(lanes<T>& w, state_lanes<T, States>& state, std::span<const adamw_rule> rules) {
    if constexpr (States == states) {
      // Copies stay in registers; through the references each iteration would store.
      lanes<T> value = w, m = state[0], v = state[1];
      bool moves = !m.all_zero();
      for (const adamw_rule& one : rules) {
        v = one.beta2 * v;
        if (!moves) {
          value = one.keep * value;
          continue;
        }
        m = one.beta1 * m;
        one.move(value, m, v);
        if (!one.flushes) continue;
        one.flush(m, v);
        moves = !m.all_zero();
      }
      w = value;
      state = {m, v};
    }
  }

 private:
  [[gnu::always_inline]] void move(lanes<T>& w, const lanes<T>& m, const lanes<T>& v) const {
    w = multiply_add(lanes<T>(keep), w, minus_step_size * m / scale_of(v));
  }
  /// Without gradients m shrinks by the factor beta1 a step: below this limit it would move w by
  /// less than lr * 1e-8 / (1 - beta1) in total. Zero is faster, and never becomes denormal.
  void flush(lanes<T>& m, const lanes<T>& v) const {
    m = zero_below(m, T(1e-8) * scale_of(v));
  }
  [[nodiscard]] lanes<T> scale_of(const lanes<T>& v) const {
    return multiply_add(sqrt(v), lanes<T>(root_scale), lanes<T>(epsilon));
  }
};

}  // namespace detail

template <typename T = float>
class adamw : public optimizer<adamw<T>, T, adamw_options, detail::adamw_rule<arithmetic_type<T>>> {
  using base = optimizer<adamw<T>, T, adamw_options, detail::adamw_rule<arithmetic_type<T>>>;

 public:
  static constexpr std::array<std::string_view, 2> state_names{"exp_avg", "exp_avg_sq"};
  static constexpr bool has_state_from_first_step = true;

  /// For `model.parameters()`. Throws usage_error when there are none, unless they are a rank's
  /// share of a model, or for options outside their range.
  explicit adamw(const parameter_list<T>& parameters, adamw_options options = {},
                 call_site site = call_site::current())
      : base(std::vector{parameter_group<T, adamw_options>(parameters, options)}, site) {}
  explicit adamw(const target_list<T>& targets, adamw_options options = {},
                 call_site site = call_site::current())
      : base(std::vector{parameter_group<T, adamw_options>(targets, options)}, site) {}
  explicit adamw(const std::vector<parameter<T>>& parameters, adamw_options options = {},
                 call_site site = call_site::current())
      : adamw(targets_of(parameters), options, site) {}
  explicit adamw(std::vector<target<T>> targets, adamw_options options = {},
                 call_site site = call_site::current())
      : base(std::move(targets), options, site) {}
  explicit adamw(std::vector<parameter_group<T, adamw_options>> groups,
                 call_site site = call_site::current())
      : base(std::move(groups), site) {}

  /// For other arguments: a compile-time error that says what to do.
  template <typename List, typename Options = adamw_options>
    requires detail::no_update_list<List, Options, adamw_options>
  explicit adamw(const List&, Options = {}) : adamw(std::vector<target<T>>()) {
    detail::explain_no_update_list<List, Options, adamw_options>();
  }

 private:
  friend base;

  static void check(const adamw_options& o, call_site site) {
    require(o.lr >= 0 && o.epsilon >= 0 && o.weight_decay >= 0,
            "adamw at {}: lr {}, epsilon {} and weight_decay {} must not be negative", site, o.lr,
            o.epsilon, o.weight_decay);
    require(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1,
            "adamw at {}: beta1 {} and beta2 {} must be in [0, 1)", site, o.beta1, o.beta2);
  }
  [[nodiscard]] static bool has_state(const adamw_options& /*o*/) noexcept { return true; }
  [[nodiscard]] static detail::adamw_rule<arithmetic_type<T>> rule(const adamw_options& o,
                                                                   std::uint64_t steps) {
    return {o, steps};
  }
};

}  // namespace parx::optim
