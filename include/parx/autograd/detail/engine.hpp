// The backward pass: collect the graph, count what each leaf will get, walk it in descending
// sequence.
//
// One observer that wants the gradient of the sum makes it that for the whole pass; a leaf that has
// no observer gets what the caller asked for, scaled when it is complete. Knows nodes, not values,
// so one pass may cross element types. Runs on the calling thread; scratch memory is kept per
// thread. A node may start another backward: over leaves that this one does not reach, or over a
// graph of its own making that ends at older nodes (recomputation).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <parx/autograd/anomaly.hpp>
#include <parx/autograd/detail/node.hpp>
#include <parx/core/check.hpp>
#include <parx/tensor/flush_denormals.hpp>

namespace parx::inline PARX_ABI {

enum class graph_after {
  freed,     ///< what the operations saved is dropped as backward passes
  retained,  ///< backward can run again
};

struct backward_options {
  double seed = 1;   ///< factor on the gradient
  double count = 1;  ///< the weight of the loss: see weighted_loss
  /// What leaves without an observer get. The mean of each backward adds up to a mean of means: to
  /// add up batches of different weights, take sums and divide by the sum of the counts.
  gradient_of of = gradient_of::mean;
  graph_after graph = graph_after::freed;
};

namespace detail {

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
        if (input->is_leaf) ++input->pending;
      }
    }
    if (root.is_leaf) ++root.pending;
    std::sort(scratch_.order.begin(), scratch_.order.end(),
              [](const auto& a, const auto& b) { return a->sequence > b->sequence; });
  }

  /// Announces the pass to the observers and returns the factor to start from.
  [[nodiscard]] double begin(const backward_options& options) {
    group_by_observer();
    gradient_of of = options.of;
    for (const observed& each : scratch_.observers) {
      if (each.observer->wanted() == gradient_of::sum) of = gradient_of::sum;
    }
    for (const observed& each : scratch_.observers) {
      scratch_.reached.clear();
      for (std::size_t i = each.begin; i < each.end; ++i) {
        scratch_.reached.push_back(scratch_.leaves[i]->observer_index);
      }
      each.observer->begin_backward({options.count, scratch_.reached, of});
      scratch_.begun.push_back(each.observer);  // one that refused is not told of the pass's end
    }
    const double mean = options.count == 0 ? 1 : 1 / options.count;
    const double factor = of == gradient_of::sum ? 1 : mean;
    unobserved_scale_ = options.of == of ? 1 : mean;
    for (const counted<node_base>& leaf : scratch_.leaves) {
      if (leaf->observer != nullptr) continue;
      for (backward_observer* const each : scratch_.begun) leaf->introduce_to(*each);
      // What earlier passes left there is scaled with the rest when the leaf is complete.
      if (unobserved_scale_ != 1) leaf->scale_gradient(1 / unobserved_scale_);
    }
    return factor;
  }

  /// Runs all nodes; the root must have its gradient.
  void run(node_base& root) {
    const running_scope scope(*this);
    if (root.is_leaf) contribution_arrived(root);
    for (counted<node_base>& here : scratch_.order) {
      if (here->is_leaf) continue;
      here->run();
      if (anomaly_watch* const watch = anomaly_watch::current()) watch->ran(*here);
      here->drop_gradient();
      for (std::size_t i = here->inputs(); i-- > 0;) {
        node_base* const input = here->input(i);
        if (input != nullptr && input->is_leaf && input->sequence >= oldest_) {
          contribution_arrived(*input);
        }
      }
      if (after_ == graph_after::freed) {
        here->release();
        here.reset();
      }
    }
    while (!scratch_.begun.empty()) {
      scratch_.begun.back()->end_backward();
      scratch_.begun.pop_back();
    }
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
    for (const counted<node_base>& here : scratch_.order) {
      if (here) here->drop_gradient();
    }
    for (backward_observer* const observer : scratch_.begun) observer->abandon_backward();
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

  void group_by_observer() {
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

  void visit(node_base& found, std::uint64_t pass) {
    if (found.visited_by == pass) return;
    require(
        !found.released,
        "backward goes through a part of the graph that an earlier backward has freed: call the "
        "earlier one as backward({{.graph = parx::graph_after::retained}}), or detach() the shared "
        "part");
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
  double unobserved_scale_ = 1;  // on leaves without an observer, when they are complete
  scratch scratch_;
};

/// One whole pass. `start(factor)` gives the root its gradient.
template <typename Start>
void run_backward(node_base& root, const backward_options& options, Start&& start) {
  require(options.count >= 0, "the weight of a loss is not negative: {}", options.count);
  // Products of denormal gradients take ten times as long.
  const flush_denormals flushing;
  backward_pass pass(options.graph);
  try {
    pass.collect(root);
    start(options.seed * pass.begin(options));
    pass.run(root);
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
    pass.run(root);
  } catch (...) {
    pass.abandon();
    throw;
  }
}

}  // namespace detail
}  // namespace parx
