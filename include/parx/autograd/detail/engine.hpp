// The backward pass: collects the graph, counts the contributions that each leaf will get, and runs
// the nodes in descending sequence. As a whole or in two halves, each of which runs the nodes that
// contribute something in it: every gradient gets the same contributions in the same order.
//
// If any observer wants the gradient of the sum, the whole pass computes that; a leaf without an
// observer gets what the caller asked for, scaled when it is complete. The pass knows nodes, not
// values, so it may cross element types. Runs on the calling thread; scratch memory is kept per
// thread. A node may start another backward: over leaves that this one does not reach, or over a
// graph that it has made itself and that ends at older nodes (recomputation).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <parx/autograd/anomaly.hpp>
#include <parx/autograd/backward_options.hpp>
#include <parx/autograd/detail/node.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/flush_denormals.hpp>

namespace parx::inline PARX_ABI::detail {

class backward_pass {
 public:
  /// Nodes older than sequence number `oldest` get contributions, but are not run. `site` is the
  /// user's line, for errors.
  explicit backward_pass(graph_after after, call_site site, std::uint64_t oldest = 0)
      : after_(after), site_(site), oldest_(oldest) {
    std::swap(scratch_, idle_scratch());
  }
  backward_pass(const backward_pass&) = delete;
  backward_pass& operator=(const backward_pass&) = delete;
  ~backward_pass() {
    scratch_.clear();
    std::swap(scratch_, idle_scratch());
  }

  /// Finds the nodes behind `root`. Throws usage_error when a part of the graph has been freed, and
  /// when a leaf has changed since an operation used it.
  void collect(node_base& root);

  /// Marks the nodes that have a border behind them, for a backward in two halves.
  void find_borders();

  /// Asks the observers what to differentiate, and returns the factor on the root's gradient.
  [[nodiscard]] double start(const backward_options& options);

  /// Counts the contributions to the leaves of `half`, and notifies their observers.
  void begin(node_base& root, backward_half half);

  /// Runs all nodes of `half`; the root must have its gradient. The inputs' half keeps those nodes
  /// that contribute in the weights' half.
  void run(node_base& root, backward_half half);

  /// Throws usage_error where another backward has meanwhile freed a node that is still to run.
  void require_unfreed() const {
    for (const counted<node_base>& here : scratch_.order) require_unfreed(here->released);
  }

  /// The running operation of this thread has made its last contribution to `input`, before those
  /// to its other inputs. A leaf that waits for no other is complete now. Does nothing under
  /// detect_anomaly: the observer could change the gradient before it is checked.
  static void input_gradient_is_final(node_base& input);

  /// After an exception: removes all traces of the pass from the nodes.
  void abandon() noexcept;

  /// Drops the gradients of the nodes to run; leaves keep theirs.
  void drop_gradients() noexcept;

 private:
  /// An observer and its range in scratch::leaves.
  struct observed {
    backward_observer* observer = nullptr;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::uint64_t oldest = 0;  ///< the lowest sequence number of these leaves
  };
  struct scratch {
    std::vector<counted<node_base>> order;
    std::vector<node_base*> stack;
    std::vector<counted<node_base>> leaves;
    std::vector<observed> observers;
    std::vector<std::size_t> reached;
    std::vector<backward_observer*> begun;

    void clear() noexcept;
  };

  /// Whether this pass counts the contributions to `input`: a leaf that belongs to it.
  [[nodiscard]] bool counts(const node_base* input) const noexcept {
    return input != nullptr && input->is_leaf && input->sequence >= oldest_;
  }
  [[nodiscard]] static bool leads_elsewhere(const node_base& here) noexcept;

  void group_by_observer();

  void require_unfreed(bool freed) const;
  [[noreturn]] void refuse_changed(const node_base& leaf) const;
  void visit(node_base& found, std::uint64_t pass);
  void contribution_arrived(node_base& leaf);

  /// The pass whose nodes this thread runs: the innermost.
  [[nodiscard]] static backward_pass*& running() noexcept;
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
  [[nodiscard]] static scratch& idle_scratch();

  graph_after after_;
  call_site site_;
  std::uint64_t oldest_;
  bool in_halves_ = false;
  double count_ = 1;
  gradient_of of_ = gradient_of::mean;
  double unobserved_scale_ = 1;  // applied to leaves without an observer when they are complete
  scratch scratch_;
};

/// One whole pass. `start(factor)` gives the root its gradient.
template <typename Start>
void run_backward(node_base& root, const backward_options& options, call_site site,
                  Start&& start) {
  // Matrix products of denormal gradients take ten times as long.
  const flush_denormals flushing;
  backward_pass pass(options.graph, site);
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
/// `oldest`; `root` has its gradient. Older nodes belong to the outer pass, which runs them, counts
/// their contributions and notifies observers.
void run_inner_backward(node_base& root, std::uint64_t oldest);

/// A pass of which the first half has run.
class half_run_pass {
 public:
  half_run_pass() noexcept = default;
  /// Runs the first half of a whole pass, as run_backward().
  template <typename Start>
  half_run_pass(node_base& root, const backward_options& options, call_site site, Start&& start)
      : half_run_pass(root, site, 0) {
    require(options.graph == graph_after::freed,
            "a backward in two halves frees the graph: graph_after::retained is for whole ones");
    run_inputs([&] {
      const double factor = pass_->start(options);
      pass_->begin(root, backward_half::inputs);
      start(options.seed * factor);
    });
  }
  /// The same for a graph that a node of the running first half has made: see run_inner_backward().
  static half_run_pass inner(node_base& root, std::uint64_t oldest);
  half_run_pass(half_run_pass&&) noexcept = default;
  half_run_pass& operator=(half_run_pass&& other) noexcept;
  ~half_run_pass() {
    if (pass_ != nullptr) pass_->drop_gradients();
  }

  [[nodiscard]] bool is_left() const noexcept { return pass_ != nullptr; }
  /// Runs the second half, once.
  void run_weights();

 private:
  half_run_pass(node_base& root, call_site site, std::uint64_t oldest)
      : root_(&root), pass_(new backward_pass(graph_after::freed, site, oldest)) {}

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

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/autograd/detail/engine_impl.hpp>
#endif
