// sgd: stochastic gradient descent with momentum, Nesterov's variant and weight decay.
//
//   g = grad + weight_decay * w;  v = momentum * v + g
//   w -= lr * (nesterov ? g + momentum * v : v)
//
// Source: PyTorch's torch.optim.SGD, without dampening.
#pragma once

#include <array>
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

/// Whether a step looks ahead by its momentum (Nesterov's).
enum class momentum_form { classical, nesterov };

struct sgd_options {
  double lr = 1e-2;
  double momentum = 0;
  double weight_decay = 0;
  momentum_form form = momentum_form::classical;
  row_updates rows = row_updates::deferred;
};

namespace detail {

/// One step of SGD. Without momentum the state does not change.
template <typename T>
struct sgd_rule {
  static constexpr std::size_t states = 1;

  T lr, momentum, decay;
  momentum_form form;
  bool flushes;  ///< tiny velocities to zero, before they become denormal and slow

  sgd_rule() = default;
  sgd_rule(const sgd_options& o, std::uint64_t steps)
      : lr(static_cast<T>(o.lr)),
        momentum(static_cast<T>(o.momentum)),
        decay(static_cast<T>(o.weight_decay)),
        form(o.form),
        flushes(steps % 16 == 0) {}

  [[nodiscard]] bool rest_is_identity() const noexcept { return momentum == 0 && decay == 0; }

  template <std::size_t States>
  [[gnu::always_inline]] void update(lanes<T>& w, state_lanes<T, States>& state,
                                     const lanes<T>& g) const {
    const lanes<T> d = multiply_add(lanes<T>(decay), w, g);
    move(w, state, d);
  }
  template <std::size_t States>
  static void rest(lanes<T>& w, state_lanes<T, States>& state, std::span<const sgd_rule> rules) {
    for (const sgd_rule& one : rules) {
      if (one.decay == 0 && is_still(state)) continue;
      const lanes<T> d = one.decay * w;
      one.move(w, state, d);
    }
  }

 private:
  template <std::size_t States>
  [[nodiscard]] static bool is_still(const state_lanes<T, States>& state) {
    if constexpr (States == states) return state[0].all_zero();
    return true;
  }
  template <std::size_t States>
  [[gnu::always_inline]] void move(lanes<T>& w, state_lanes<T, States>& state,
                                   const lanes<T>& d) const {
    if constexpr (States == states) {
      if (momentum != 0) {
        lanes<T>& v = state[0];
        v = multiply_add(lanes<T>(momentum), v, d);
        if (form == momentum_form::nesterov) {
          w = multiply_add(lanes<T>(-lr), multiply_add(lanes<T>(momentum), v, d), w);
        } else {
          w = multiply_add(lanes<T>(-lr), v, w);
        }
        if (flushes) v = zero_below(v, T(1e-20));
        return;
      }
    }
    w = multiply_add(lanes<T>(-lr), d, w);
  }
};

}  // namespace detail

template <typename T = float>
class sgd : public optimizer<sgd<T>, T, sgd_options, detail::sgd_rule<arithmetic_type<T>>> {
  using base = optimizer<sgd<T>, T, sgd_options, detail::sgd_rule<arithmetic_type<T>>>;

 public:
  static constexpr std::array<std::string_view, 1> state_names{"momentum_buffer"};
  static constexpr bool has_state_from_first_step = false;  // none without momentum

  /// For `model.parameters()`. Throws usage_error when there are none, unless they are a rank's
  /// share of a model, or for options outside their range.
  explicit sgd(const parameter_list<T>& parameters, sgd_options options = {},
               call_site site = call_site::current())
      : base(std::vector{parameter_group<T, sgd_options>(parameters, options)}, site) {}
  explicit sgd(const target_list<T>& targets, sgd_options options = {},
               call_site site = call_site::current())
      : base(std::vector{parameter_group<T, sgd_options>(targets, options)}, site) {}
  explicit sgd(const std::vector<parameter<T>>& parameters, sgd_options options = {},
               call_site site = call_site::current())
      : sgd(targets_of(parameters), options, site) {}
  explicit sgd(std::vector<target<T>> targets, sgd_options options = {},
               call_site site = call_site::current())
      : base(std::move(targets), options, site) {}
  explicit sgd(std::vector<parameter_group<T, sgd_options>> groups,
               call_site site = call_site::current())
      : base(std::move(groups), site) {}

  /// For other arguments: a compile-time error that says what to do.
  template <typename List, typename Options = sgd_options>
    requires detail::no_update_list<List, Options, sgd_options>
  explicit sgd(const List&, Options = {}) : sgd(std::vector<target<T>>()) {
    detail::explain_no_update_list<List, Options, sgd_options>();
  }

 private:
  friend base;

  static void check(const sgd_options& o, call_site site) {
    require(o.lr >= 0 && o.momentum >= 0 && o.weight_decay >= 0,
            "sgd at {}: lr {}, momentum {} and weight_decay {} must not be negative", site, o.lr,
            o.momentum, o.weight_decay);
    require(o.form == momentum_form::classical || o.momentum > 0,
            "sgd at {}: Nesterov's form needs a momentum above 0", site);
  }
  [[nodiscard]] static bool has_state(const sgd_options& o) noexcept { return o.momentum != 0; }
  [[nodiscard]] static detail::sgd_rule<arithmetic_type<T>> rule(const sgd_options& o,
                                                                 std::uint64_t steps) {
    return {o, steps};
  }
};

}  // namespace parx::optim
