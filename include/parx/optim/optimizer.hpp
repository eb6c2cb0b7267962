// optimizer: the common base of sgd and adamw: the targets, the options, and the state of each
// target.
//
// step() applies the gradients and consumes them: the next backward overwrites them, so a training
// loop needs no zero_grad(). Several backward passes before one step() add up.
// For 16-bit parameters an optimizer keeps float32 copies (master weights) and updates those: see
// detail/master_copy.hpp.
// An embedding's gradient has few rows: a step costs what these rows cost, and the result equals
// that of a dense step up to rounding (row_updates). An optimizer belongs to one thread, which is
// also the one that reads its parameters' values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/lazy_state.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/log.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/core/source.hpp>
#include <parx/optim/detail/master_copy.hpp>
#include <parx/optim/detail/row_ledger.hpp>
#include <parx/optim/group.hpp>
#include <parx/optim/target.hpp>
#include <parx/tensor/tensor.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::optim {

/// How a step updates the rows of an embedding that have no gradient.
enum class row_updates {
  deferred,  ///< weight decay and momentum as with a dense gradient, applied when a row is read
  lazy,      ///< neither value nor state changes, as with PyTorch's SparseAdam
};

namespace detail {

/// Warns of a step() for which no target has a gradient.
[[gnu::cold]] void warn_of_no_gradient(call_site site);

}  // namespace detail

/// Derived has a `Rule` (see detail/lanes.hpp; in arithmetic_type<T>), `Rule rule(const Options&,
/// steps) const`, `bool has_state(const Options&)`, `static constexpr std::array state_names`, one
/// name for each tensor that a slot keeps, and `static constexpr bool has_state_from_first_step`:
/// false where options can do without it. `check(const Options&, call_site)` throws
/// usage_error. Options have `lr` and `rows`.
template <typename Derived, typename T, typename Options, typename Rule>
class optimizer : public lazy_state {
 public:
  using value_type = T;
  using options_type = Options;
  using state_type = arithmetic_type<T>;

  /// Updates every target that has a gradient, then drops the gradients. Local, does not block.
  /// Throws usage_error where gradients have not left this rank yet (ddp's no_sync()). Warns once
  /// where there is no gradient at all, because no backward pass came before.
  void step(call_site site = call_site::current()) {
    for (const slot& one : slots_) one.updated.before_step();  // throws before any is updated
    bool is_idle = !slots_.empty();
    for (slot& one : slots_) {
      if (!one.updated.has_grad()) continue;
      is_idle = false;
      ++one.steps;
      const Options& options = options_[one.group];
      require_same_part(one);
      if (Derived::has_state(options)) make_state(one);
      const Rule rule = Derived::rule(options, one.steps);
      if constexpr (is_half<T>) {
        update_masters(one, options.rows, rule);
      } else if (const auto rows = one.updated.row_grad()) {
        update_rows(one, options.rows, rule, *rows);
      } else {
        const std::span<T> value = one.updated.value();
        update(one, rule, value.data(), one.updated.grad().data(), 0, value.size());
      }
      one.updated.note_change();
      one.updated.zero_grad();
    }
    if (is_idle && !was_idle_) [[unlikely]] {
      was_idle_ = true;
      detail::warn_of_no_gradient(site);
    }
  }

  /// Drops the gradients without applying them.
  void zero_grad() {
    for (const slot& one : slots_) one.updated.zero_grad();
  }

  /// Handles of all that it updates: `clip_grad_norm(opt.targets(), 1.0)`.
  [[nodiscard]] target_list<T> targets() const {
    target_list<T> all;
    for (const slot& one : slots_) all.push_back(one.updated);
    all.axes = axes_;
    return all;
  }

  /// The options of a parameter group; without groups there is only group 0. Changes take effect
  /// with the next step().
  [[nodiscard]] Options& options(std::size_t group = 0) noexcept { return options_[group]; }
  [[nodiscard]] const Options& options(std::size_t group = 0) const noexcept {
    return options_[group];
  }
  [[nodiscard]] std::size_t group_count() const noexcept { return options_.size(); }
  /// The learning rate of all groups: `opt.set_lr(schedule.at(step))`.
  void set_lr(double lr, call_site site = call_site::current()) {
    require(lr >= 0, "set_lr at {}: a learning rate of {} is negative or no number", site, lr);
    for (Options& each : options_) each.lr = lr;
  }

  /// Calls visitor(name, tensor<state_type>&) for all state tensors, "0.weight.exp_avg", and of
  /// 16-bit targets "0.weight.master", and visitor(name, std::uint64_t&) for the number of steps of
  /// each target, "0.weight.step". A tensor has the target's size and is all zero before its first
  /// step; one that has no memory yet gets it. Up to date, and may be written, until the next step.
  template <typename Visitor>
  void for_each_state(Visitor&& visitor) {
    for_each_placed_state(
        [&](const std::string& name, auto& value, const auto& /*part*/) { visitor(name, value); });
  }
  /// The same with the part of the whole parameter that the target and its state tensors are.
  template <typename Visitor>
  void for_each_placed_state(Visitor&& visitor) {
    for_each_lazy_state([&](const std::string& name, auto& value, const auto& part) {
      if constexpr (is_lazy_tensor<std::remove_cvref_t<decltype(value)>>)
        visitor(name, value.make(), part);
      else visitor(name, value, part);
    });
  }
  /// The same for a checkpoint: with what has no memory yet, the state of a frozen parameter.
  template <typename Visitor>
  void for_each_lazy_state(Visitor&& visitor) {
    for (slot& one : slots_) {
      const std::string& name = one.updated.name();
      const std::optional<shard_spec> part = one.updated.spec();
      const std::string steps = name + ".step";
      (void)one.updated.value();  // applies deferred row updates, to the state as well
      require_same_part(one);
      for (std::size_t i = 0; i < Derived::state_names.size(); ++i) {
        lazy_tensor<state_type> each{.is_made = !one.state.empty(),
                                     .make = [&one, i]() -> tensor<state_type>& {
                                       make_state(one);
                                       return one.state[i];
                                     },
                                     .drop = [&one] { drop_state(one); },
                                     .counter = Derived::has_state_from_first_step ? steps : ""};
        visitor(name + "." + std::string(Derived::state_names[i]), each, part);
      }
      if constexpr (is_half<T>) {
        lazy_tensor<state_type> master{.is_made = one.master.is_made(),
                                       .make = [&one]() -> tensor<state_type>& {
                                         return one.master.follow(one.updated.value());
                                       },
                                       .drop = [&one] { one.master = {}; },
                                       .counter = steps};
        visitor(name + ".master", master, part);
      }
      visitor(steps, one.steps, part);
    }
  }

 protected:
  optimizer(std::vector<target<T>> targets, Options options, call_site site)
      : optimizer(std::vector<parameter_group<T, Options>>{{std::move(targets), options}}, site) {}
  optimizer(std::vector<parameter_group<T, Options>> groups, call_site site) {
    std::size_t count = 0;
    bool is_share = false;
    std::string asked;
    for (const auto& group : groups) {
      count += group.targets.size();
      is_share = is_share || group.scope == parameter_scope::share;
      if (group.site.line > 0) asked = formatted(", and parameters() at {} gave none", group.site);
    }
    require(count > 0 || is_share,
            "optimizer at {}: it needs at least one parameter{}; does the model's members() visit "
            "them?",
            site, asked);
    slots_.reserve(count);
    for (auto& group : groups) {
      Derived::check(group.options, site);
      for (target<T>& one : group.targets) {
        require(
            !updates(one),
            "optimizer at {}: parameter \"{}\" is given twice, so each step would move it twice",
            site, one.name());
        slots_.push_back({.updated = std::move(one), .group = options_.size()});
      }
      options_.push_back(group.options);
      axes_.insert(axes_.end(), group.axes.begin(), group.axes.end());
    }
  }

 private:
  [[nodiscard]] bool updates(const target<T>& one) const {
    return one.owner().defined() &&
           std::any_of(slots_.begin(), slots_.end(), [&](const slot& each) {
             return each.updated.owner().defined() &&
                    each.updated.owner().node().get() == one.owner().node().get();
           });
  }

  struct nothing {};
  using state_tensors = std::vector<tensor<state_type>>;
  template <typename U>
  struct helpers {
    using ledger = detail::row_ledger<U, Rule>;
    using master = nothing;
  };
  template <typename U>
  requires is_half<U>
  struct helpers<U> {
    using ledger = nothing;
    using master = detail::master_copy<U>;
  };
  using ledger = typename helpers<T>::ledger;
  struct slot {
    target<T> updated;
    std::size_t group = 0;
    std::size_t elements = 0;  // that the state is of; 0 before there is any
    state_tensors state = {};
    std::uint64_t steps = 0;
    std::unique_ptr<ledger> rows = {};  // refers to `state`; slots stay where they are
    typename helpers<T>::master master = {};
  };

  /// A parameter may be cut over ranks, or become whole, after a step: the state fits it no more.
  static void require_same_part(slot& one) {
    const std::size_t now = one.updated.size();
    if (one.elements == 0) one.elements = now;
    require(
        one.elements == now,
        "optimizer: \"{}\" had {} elements on this rank at the first step and has {}: it has been "
        "cut, or made whole, since. Make a new optimizer",
        one.updated.name(), one.elements, now);
  }
  /// The state tensors of a slot, zero at first.
  static void make_state(slot& one) {
    while (one.state.size() < Derived::state_names.size()) {
      one.state.push_back(tensor<state_type>::zeros({one.updated.size()}));
    }
  }

  static void drop_state(slot& one) {
    one.rows = {};  // refers to it
    one.state.clear();
  }

  static void update(slot& one, const Rule& rule, state_type* value, const state_type* grad,
                     std::size_t begin, std::size_t count) {
    constexpr std::size_t grain = parx::elements_of_a_block / 4;  // four arrays of memory
    parallel_for(count, grain, [&](std::size_t first, std::size_t last) {
      if (one.state.empty()) {
        detail::update_lanes<0>(rule, value, one.state, grad, begin + first, last - first);
      } else {
        detail::update_lanes<Rule::states>(rule, value, one.state, grad, begin + first,
                                           last - first);
      }
    });
  }

  /// A step of the float32 copy of a 16-bit target. Rows without a gradient are updated at once, or
  /// not at all (lazy).
  static void update_masters(slot& one, row_updates wish, const Rule& rule) {
    if constexpr (is_half<T>) {
      tensor<float>& master = one.master.follow(one.updated.value());
      const tensor<float> grad = tensor<float>::empty(master.shape());
      const auto update_part = [&](const T* from, std::size_t begin, std::size_t count) {
        detail::convert_by_threads(from + begin, grad.data() + begin, count);
        update(one, rule, master.data(), grad.data(), begin, count);
      };
      if (const auto rows = one.updated.row_grad(); rows && wish == row_updates::lazy) {
        const std::size_t width = master.size() / std::max<std::size_t>(rows->values.shape()[0], 1);
        for (const std::size_t row : rows->rows)
          update_part(rows->values.data(), row * width, width);
      } else {
        update_part(one.updated.grad().data(), 0, master.size());
      }
      one.master.round_to(one.updated.value());
    }
  }

  static void update_rows(slot& one, row_updates wish, const Rule& rule,
                          const row_gradient<T>& gradient) {
    if (wish == row_updates::deferred && !rule.rest_is_identity()) {
      if (!one.rows) one.rows = std::make_unique<ledger>(one.updated.owner(), one.state);
      one.rows->step(rule, gradient);
      return;
    }
    const tensor<T>& value = one.updated.owner().value_at_rows(gradient.rows);
    const std::size_t width = value.size() / std::max<std::size_t>(value.shape()[0], 1);
    parallel_for(gradient.rows.size(), parx::rows_of_a_block(width),
                 [&](std::size_t first, std::size_t last) {
                   for (const std::size_t row : gradient.rows.subspan(first, last - first)) {
                     update(one, rule, value.data(), gradient.values.data(), row * width, width);
                   }
                 });
  }

  std::vector<Options> options_;  // one for each group
  std::vector<slot> slots_;
  std::vector<share_axes> axes_;  // of the groups that are a share of a model
  bool was_idle_ = false;         // a step without a gradient has been told
};

inline void detail::warn_of_no_gradient(call_site site) {
  log0(
      log_level::warn,
      "step at {}: no parameter has a gradient, so nothing changes: call backward() of the loss, "
      "or forward_backward() of the model, before each step; zero_grad() comes before them, or not "
      "at all",
      site);
}

}  // namespace parx::optim
