// checkpoint: activation checkpointing. A part of the forward pass keeps its inputs only, and runs
// again when backward needs its intermediate results: one more forward pass for much less memory.
//
//   auto y = parx::checkpoint(block, x);                       // a module or a function
//   auto y = parx::checkpoint([&](const auto& v) { return block(v) + v; }, x);
//
// Not to be confused with saved states of training, which are the checkpoint chapter. Gradients are
// those of the plain pass, bit by bit: operations run in the same order, the precision of autocast
// is restored, random layers of parx::nn draw the same numbers and collectives of parx layers are
// not repeated (recompute.hpp). Parameters and variables that the part captures get their gradients
// too, and DDP is notified of each parameter once, when its gradient is final.
//
// Where backward runs in two halves, the part runs again in the first one, and the operands of its
// weights' gradients are kept until the second: between the halves a checkpointed part takes as
// much memory as a plain one. It does not run a third time, and no weight's gradient is stored.
// Chen, Xu, Zhang, Guestrin: Training Deep Nets with Sublinear Memory Cost (arXiv 1604.06174).
// Source: PyTorch's torch.utils.checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/anomaly.hpp>
#include <parx/autograd/autocast.hpp>
#include <parx/autograd/recompute.hpp>
#include <parx/autograd/region.hpp>
#include <parx/autograd/variable.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

template <typename T, typename Part>
class checkpoint_node final : public node<T> {
 public:
  checkpoint_node(const parx::shape& s, Part part, std::vector<counted<node_base>> used,
                  once_results results)
      : node<T>(false, s),
        part_(std::move(part)),
        used_(std::move(used)),
        results_(std::move(results)),
        precision_(autocast_type()) {
    if (const anomaly_watch* const watch = anomaly_watch::current()) module_ = watch->module();
  }

  [[nodiscard]] std::size_t inputs() const noexcept override { return used_.size(); }
  [[nodiscard]] node_base* input(std::size_t i) const noexcept override { return used_[i].get(); }
  void run(backward_half half) override {
    if (half == backward_half::weights && this->leads_to_border) {
      if (rest_.is_left()) return rest_.run_weights();
      if (given_) given_->accept(this->gradient);
      return;
    }
    if (!this->gradient.defined()) return;
    const std::uint64_t oldest = node_base::next_sequence();
    const variable<T> again = recompute();
    require(again.shape() == this->shape(),
            "the recomputation of a checkpointed part gave shape {}, its first run {}: it must "
            "take the same way both times",
            to_string(again.shape()), to_string(this->shape()));
    if (!again.requires_grad()) return;
    if (again.node()->sequence < oldest) {
      // A part that returns one of its inputs has no graph of its own.
      if (again.node()->is_of(half)) again.node()->accept(this->gradient);
      else given_ = again.node();
      return;
    }
    again.node()->accept(this->gradient);
    if (half == backward_half::inputs) {
      rest_ = half_run_pass::inner(*again.node(), oldest);
      part_.reset();
      results_.clear();
      this->drop_gradient();
    } else {
      run_inner_backward(*again.node(), oldest);
    }
  }
  void release() noexcept override {
    this->released = true;
    part_.reset();
    used_.clear();
    results_.clear();
    rest_ = {};
    given_ = {};
  }

 private:
  [[nodiscard]] variable<T> recompute() {
    const enable_grad tape;
    const region_scope here(this->region);
    const autocast_scope precision(precision_);
    const region_run run(region_run::purpose::recomputation, results_);
    std::optional<watched_module> within;
    if (anomaly_watch* const watch = anomaly_watch::current()) within.emplace(*watch, module_);
    return (*part_)();
  }

  std::optional<Part> part_;
  std::vector<counted<node_base>> used_;
  once_results results_;
  half_run_pass rest_;      // of the recomputed graph, between the halves of backward
  counted<node<T>> given_;  // the input that the part returned, if its gradient is due later
  dtype precision_;
  std::string module_;  // in which the part is, under detect_anomaly
};

/// A function is copied, so that it may be a temporary; a module, which is not copyable, is
/// borrowed.
template <typename Function>
using part_function =
    std::conditional_t<std::is_lvalue_reference_v<Function> &&
                           !std::is_copy_constructible_v<std::remove_reference_t<Function>>,
                       Function, std::remove_cvref_t<Function>>;

}  // namespace detail

/// f(inputs...), which returns a variable, without recording it until backward. `f` must compute
/// the same when it is called again during backward. A module given as an lvalue is borrowed until
/// then, and so is what a lambda refers to; inputs are kept. Your own layers that draw random
/// numbers, count calls or talk to other ranks must do so in detail::once(). Local; under no_grad a
/// plain call.
template <typename Function, typename... Inputs>
[[nodiscard]] auto checkpoint(Function&& f, const Inputs&... inputs) {
  using result = std::remove_cvref_t<std::invoke_result_t<Function&, const Inputs&...>>;
  using value = typename result::value_type;
  static_assert(std::is_same_v<result, variable<value>>, "the part must return one variable");
  if (!detail::recording()) return f(inputs...);
  std::tuple<detail::part_function<Function>, Inputs...> kept(std::forward<Function>(f), inputs...);
  auto part = [kept = std::move(kept)]() mutable -> result {
    return std::apply([](auto& call, const auto&... input) -> result { return call(input...); },
                      kept);
  };
  detail::used_nodes used;
  detail::once_results results;
  result y;
  {
    const detail::recording_scope no_tape(false, &used);
    const detail::region_run run(detail::region_run::purpose::first, results);
    y = part();
  }
  if (y.requires_grad()) used.note(y.node().get());
  if (used.nodes.empty()) return y;
  using recomputed = detail::checkpoint_node<value, decltype(part)>;
  detail::counted<detail::node<value>> node(new recomputed(
      y.shape(), std::move(part), std::move(used.nodes), std::move(results)));
  return result(y.value(), std::move(node));
}

}  // namespace parx
