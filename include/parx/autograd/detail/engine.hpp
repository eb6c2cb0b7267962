// The backward pass: collect the graph, count what each leaf will get, walk it in descending
// sequence. In one go or in two halves, each of which walks the nodes that have something to
// contribute in it: every gradient gets the same contributions in the same order either way.
//
// One observer that wants the gradient of the sum makes it that for the whole pass; a leaf that has
// no observer gets what the caller asked for, scaled when it is complete. Knows nodes, not values,
// so one pass may cross element types. Runs on the calling thread; scratch memory is kept per
// thread. A node may start another backward: over leaves that this one does not reach, or over a
// graph of its own making that ends at older nodes (recomputation).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <parx/autograd/anomaly.hpp>
#include <parx/autograd/backward_options.hpp>
#include <parx/autograd/detail/node.hpp>
#include <parx/core/check.hpp>
#include <parx/tensor/flush_denormals.hpp>

namespace parx::inline PARX_ABI::detail {

class backward_pass {
 public:
  /// Nodes that are older than sequence number `oldest` get contributions and nothing else.
  explicit backward_pass(graph_after after, std::uint64_t oldest = 0)
      : after_(after), oldest_(oldest) {
    std::swap(scratch_, idle_scratch());
  }
  backward_pass(const backward_pass&) = delete;
  backward_pass& operator=(const backward_pass&) = delete;
  ~backward_pass() {
    scratch_.clear();
    std::swap(scratch_, idle_scratch());
  }

  /// Finds the nodes behind `root`. Throws usage_error when a part of the graph was freed before.
  void collect(node_base& root) {
    const std::uint64_t pass = next_pass();
    visit(root, pass);
    while (!scratch_.stack.empty()) {
      node_base* const here = scratch_.stack.back();
      scratch_.stack.pop_back();
      for (std::size_t i = 0; i < here->inputs(); ++i) {
        node_base* const input = here->input(i);
        if (input == nullptr || input->sequence < oldest_) continue;
        visit(*input, pass);
      }
    }
    std::sort(scratch_.order.begin(), scratch_.order.end(),
              [](const auto& a, const auto& b) { return a->sequence > b->sequence; });
  }

  /// Marks the nodes that have a border behind them, for a backward in two halves.
  void find_borders() {
    in_halves_ = true;
    for (std::size_t n = scratch_.order.size(); n-- > 0;) {
      node_base& here = *scratch_.order[n];
      here.leads_to_border = false;
      for (std::size_t i = 0; i < here.inputs() && !here.leads_to_border; ++i) {
        here.leads_to_border = here.input(i) != nullptr && here.input(i)->leads_to_border;
      }
    }
  }

  /// Asks the observers what to differentiate, and returns the factor to start from.
  [[nodiscard]] double start(const backward_options& options) {
    group_by_observer();
    count_ = options.count;
    of_ = options.of;
    for (const observed& each : scratch_.observers) {
      // What an observer would take may change until its half begins; all take the sum.
      if (in_halves_ || each.observer->wanted() == gradient_of::sum) of_ = gradient_of::sum;
    }
    const double mean = count_ == 0 ? 1 : 1 / count_;
    unobserved_scale_ = options.of == of_ ? 1 : mean;
    return of_ == gradient_of::sum ? 1 : mean;
  }

  /// Counts what the leaves of `half` wait for, and announces it to their observers.
  void begin(node_base& root, backward_half half) {
    if (root.is_leaf && root.is_of(half)) ++root.pending;
    for (const counted<node_base>& here : scratch_.order) {
      for (std::size_t i = 0; i < here->inputs(); ++i) {
        node_base* const input = here->input(i);
        if (counts(input) && input->is_of(half)) ++input->pending;
      }
    }
    if (half == backward_half::weights) group_by_observer();  // some may have come or gone
    for (const observed& each : scratch_.observers) {
      if (!scratch_.leaves[each.begin]->is_of(half)) continue;
      require(of_ == gradient_of::sum || each.observer->wanted() == gradient_of::mean,
              "a wrapper was made between the two halves of a backward: make it before");
      scratch_.reached.clear();
      for (std::size_t i = each.begin; i < each.end; ++i) {
        scratch_.reached.push_back(scratch_.leaves[i]->observer_index);
      }
      each.observer->begin_backward({count_, scratch_.reached, of_});
      scratch_.begun.push_back(each.observer);  // one that refused is not told of the pass's end
    }
    for (const counted<node_base>& leaf : scratch_.leaves) {
      if (leaf->observer != nullptr || !leaf->is_of(half)) continue;
      for (backward_observer* const each : scratch_.begun) leaf->introduce_to(*each);
      // What earlier passes left there is scaled with the rest when the leaf is complete.
      if (unobserved_scale_ != 1) leaf->scale_gradient(1 / unobserved_scale_);
    }
  }

  /// Runs all nodes of `half`; the root must have its gradient. After the inputs' half those nodes
  /// are left that have contributions to make in the weights' half.
  void run(node_base& root, backward_half half) {
    const running_scope scope(*this);
    region_walk regions;
    if (root.is_leaf && root.is_of(half)) contribution_arrived(root);
    for (counted<node_base>& here : scratch_.order) {
      if (half == backward_half::inputs && !here->leads_to_border) continue;
      const bool runs_again = half == backward_half::inputs && leads_elsewhere(*here);
      here->half_run = runs_again;
      regions.go_to(here->region);
      here->run(half);
      if (anomaly_watch* const watch = anomaly_watch::current()) {
        watch->ran(*here);
        if (!runs_again) watch->forget(*here);
      }
      if (!runs_again) here->drop_gradient();
      for (std::size_t i = here->inputs(); i-- > 0;) {
        node_base* const input = here->input(i);
        if (counts(input) && input->is_of(half)) contribution_arrived(*input);
      }
      if (runs_again || after_ == graph_after::retained) continue;
      here->release();
      here.reset();
    }
    regions.end();
    if (half == backward_half::inputs) {
      std::erase_if(scratch_.order, [](const counted<node_base>& each) { return !each; });
    }
    while (!scratch_.begun.empty()) {
      scratch_.begun.back()->end_backward();
      scratch_.begun.pop_back();
    }
  }

  /// Throws usage_error where another backward has meanwhile freed a node that is left to run.
  void require_unfreed() const {
    for (const counted<node_base>& here : scratch_.order) require_unfreed(here->released);
  }

  /// The operation that this thread runs has made its last contribution to `input`, ahead of those
  /// to its other inputs. A leaf that waits for no other is complete now. Not while somebody looks
  /// for the operation that made a NaN: what the observer does may hide it.
  static void contributed_ahead(node_base& input) {
    backward_pass* const pass = running();
    if (!input.is_leaf || input.pending != 1 || anomaly_watch::current() != nullptr) return;
    if (pass != nullptr && input.sequence >= pass->oldest_) pass->contribution_arrived(input);
  }

  /// After an exception: leaves no trace of the pass in the nodes.
  void abandon() noexcept {
    for (const counted<node_base>& leaf : scratch_.leaves) leaf->pending = 0;
    drop_gradients();
    for (backward_observer* const observer : scratch_.begun) observer->abandon_backward();
  }

  /// Of the nodes; what leaves have got stays.
  void drop_gradients() noexcept {
    for (const counted<node_base>& here : scratch_.order) {
      if (here) here->drop_gradient();
    }
  }

 private:
  /// An observer and its leaves among all, which are sorted.
  struct observed {
    backward_observer* observer = nullptr;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::uint64_t oldest = 0;  ///< sequence number among the leaves
  };
  struct scratch {
    std::vector<counted<node_base>> order;
    std::vector<node_base*> stack;
    std::vector<counted<node_base>> leaves;
    std::vector<observed> observers;
    std::vector<std::size_t> reached;
    std::vector<backward_observer*> begun;

    void clear() noexcept {
      order.clear();
      stack.clear();
      leaves.clear();
      observers.clear();
      reached.clear();
      begun.clear();
    }
  };

  /// Whether a node waits for `input`'s contributions in this pass.
  [[nodiscard]] bool counts(const node_base* input) const noexcept {
    return input != nullptr && input->is_leaf && input->sequence >= oldest_;
  }
  [[nodiscard]] static bool leads_elsewhere(const node_base& here) noexcept {
    for (std::size_t i = 0; i < here.inputs(); ++i) {
      if (here.input(i) != nullptr && !here.input(i)->leads_to_border) return true;
    }
    return false;
  }

  void group_by_observer() {
    scratch_.observers.clear();
    std::sort(scratch_.leaves.begin(), scratch_.leaves.end(), [](const auto& a, const auto& b) {
      return a->observer != b->observer ? std::less<>()(a->observer, b->observer)
                                        : a->observer_index < b->observer_index;
    });
    for (std::size_t i = 0; i < scratch_.leaves.size(); ++i) {
      const node_base& leaf = *scratch_.leaves[i];
      if (leaf.observer == nullptr) continue;
      if (scratch_.observers.empty() || scratch_.observers.back().observer != leaf.observer) {
        scratch_.observers.push_back({leaf.observer, i, i, leaf.sequence});
      }
      observed& its = scratch_.observers.back();
      its.end = i + 1;
      its.oldest = std::min(its.oldest, leaf.sequence);
    }
    // Not by address: ranks that issue collectives when they begin must agree on the order.
    std::sort(scratch_.observers.begin(), scratch_.observers.end(),
              [](const observed& a, const observed& b) { return a.oldest < b.oldest; });
  }

  static void require_unfreed(bool freed) {
    require(
        !freed,
        "backward goes through a part of the graph that an earlier backward has freed: call the "
        "earlier one as backward({{.graph = parx::graph_after::retained}}), or detach() the shared "
        "part");
  }
  void visit(node_base& found, std::uint64_t pass) {
    if (found.visited_by == pass) return;
    require_unfreed(found.released || found.half_run);
    found.visited_by = pass;
    if (found.is_leaf) {
      scratch_.leaves.emplace_back(&found);
    } else {
      scratch_.order.emplace_back(&found);
      scratch_.stack.push_back(&found);
    }
  }
  void contribution_arrived(node_base& leaf) {
    if (leaf.pending == 0 || --leaf.pending > 0) return;  // 0: it came ahead
    leaf.complete();
    if (leaf.observer != nullptr) {
      leaf.observer->leaf_ready(leaf.observer_index);
    } else if (unobserved_scale_ != 1) {
      leaf.scale_gradient(unobserved_scale_);
    }
  }

  /// The pass whose nodes this thread runs: the innermost.
  [[nodiscard]] static backward_pass*& running() noexcept {
    thread_local backward_pass* pass = nullptr;
    return pass;
  }
  class running_scope {
   public:
    explicit running_scope(backward_pass& pass) noexcept
        : outer_(std::exchange(running(), &pass)) {}
    ~running_scope() { running() = outer_; }
    running_scope(const running_scope&) = delete;
    running_scope& operator=(const running_scope&) = delete;

   private:
    backward_pass* const outer_;
  };

  [[nodiscard]] static std::uint64_t next_pass() noexcept {
    static std::atomic<std::uint64_t> counter{1};
    return counter.fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] static scratch& idle_scratch() {
    thread_local scratch idle;
    return idle;
  }

  graph_after after_;
  std::uint64_t oldest_;
  bool in_halves_ = false;
  double count_ = 1;
  gradient_of of_ = gradient_of::mean;
  double unobserved_scale_ = 1;  // on leaves without an observer, when they are complete
  scratch scratch_;
};

/// One whole pass. `start(factor)` gives the root its gradient.
template <typename Start>
void run_backward(node_base& root, const backward_options& options, Start&& start) {
  // Products of denormal gradients take ten times as long.
  const flush_denormals flushing;
  backward_pass pass(options.graph);
  try {
    pass.collect(root);
    const double factor = pass.start(options);
    pass.begin(root, backward_half::whole);
    start(options.seed * factor);
    pass.run(root, backward_half::whole);
  } catch (...) {
    pass.abandon();
    throw;
  }
}

/// The backward of a graph that a node of a running backward has made, all of it younger than
/// `oldest`; `root` has its gradient. What is older belongs to the outer pass: it counts and runs
/// those nodes, and talks to observers.
inline void run_inner_backward(node_base& root, std::uint64_t oldest) {
  backward_pass pass(graph_after::freed, oldest);
  try {
    pass.collect(root);
    pass.begin(root, backward_half::whole);
    pass.run(root, backward_half::whole);
  } catch (...) {
    pass.abandon();
    throw;
  }
}

/// A pass of which the first half has run.
class half_run_pass {
 public:
  half_run_pass() noexcept = default;
  /// Runs the first half of a whole pass, as run_backward().
  template <typename Start>
  half_run_pass(node_base& root, const backward_options& options, Start&& start)
      : half_run_pass(root, 0) {
    require(options.graph == graph_after::freed,
            "a backward in two halves frees the graph: graph_after::retained is for whole ones");
    run_inputs([&] {
      const double factor = pass_->start(options);
      pass_->begin(root, backward_half::inputs);
      start(options.seed * factor);
    });
  }
  /// The same of a graph that a node of the running first half has made: see run_inner_backward().
  static half_run_pass inner(node_base& root, std::uint64_t oldest) {
    half_run_pass made(root, oldest);
    made.run_inputs([&] { made.pass_->begin(root, backward_half::inputs); });
    return made;
  }
  half_run_pass(half_run_pass&&) noexcept = default;
  half_run_pass& operator=(half_run_pass&& other) noexcept {
    std::swap(pass_, other.pass_);
    std::swap(root_, other.root_);
    return *this;
  }
  ~half_run_pass() {
    if (pass_ != nullptr) pass_->drop_gradients();
  }

  [[nodiscard]] bool is_left() const noexcept { return pass_ != nullptr; }
  /// Runs the second half, once.
  void run_weights() {
    const flush_denormals flushing;
    const std::unique_ptr<backward_pass> pass = std::move(pass_);
    try {
      pass->require_unfreed();
      pass->begin(*root_, backward_half::weights);
      pass->run(*root_, backward_half::weights);
    } catch (...) {
      pass->abandon();
      throw;
    }
  }

 private:
  half_run_pass(node_base& root, std::uint64_t oldest)
      : root_(&root), pass_(new backward_pass(graph_after::freed, oldest)) {}

  template <typename Begin>
  void run_inputs(Begin&& begin) {
    const flush_denormals flushing;
    try {
      pass_->collect(*root_);
      pass_->find_borders();
      begin();
      pass_->run(*root_, backward_half::inputs);
    } catch (...) {
      pass_->abandon();
      throw;
    }
  }

  counted<node_base> root_;
  std::unique_ptr<backward_pass> pass_;
};

}  // namespace parx::detail
