// The nodes of the graph that backward walks: intrusively counted, allocated from the memory pool,
// and without the values of the forward pass (an operation saves what its backward needs; nothing
// else is kept alive).
//
// A node's sequence number is larger than those of its inputs, so descending sequence numbers are
// an order in which every node runs after all its users, and the same order in every run of a
// program. Counts are atomic; one graph is differentiated by one thread.
#pragma once

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include <parx/autograd/observer.hpp>
#include <parx/autograd/region.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI::detail {

/// A backward in two halves first computes the gradients that lead to a border (the inputs of a
/// pipeline stage), then all others (the weights).
enum class backward_half { whole, inputs, weights };

template <typename T>
[[nodiscard]] bool all_finite(const tensor<T>& values) {
  if (!values.defined()) return true;
  const tensor<T> source = values.contiguous();
  for (const T value : source.span()) {
    if (!std::isfinite(static_cast<double>(value))) return false;
  }
  return true;
}

class node_base;
void destroy_node(node_base* dead) noexcept;

class node_base {
 public:
  node_base(const node_base&) = delete;
  node_base& operator=(const node_base&) = delete;
  virtual ~node_base() = default;

  [[nodiscard]] static void* operator new(std::size_t bytes) {
    return memory_pool::instance().allocate(bytes);
  }
  static void operator delete(void* memory, std::size_t bytes) noexcept {
    memory_pool::instance().deallocate(memory, bytes);
  }

  void hold() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
  void drop() noexcept {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy_node(this);
  }

  /// The number of inputs; input(i) is null where no gradient is wanted.
  [[nodiscard]] virtual std::size_t inputs() const noexcept { return 0; }
  [[nodiscard]] virtual node_base* input(std::size_t /*i*/) const noexcept { return nullptr; }
  /// Adds this node's contributions to the gradients of the inputs that belong to `half`, if it has
  /// a gradient itself. In the first half a node with inputs of both keeps what the second needs.
  virtual void run(backward_half /*half*/) {}
  virtual void drop_gradient() noexcept = 0;
  /// Whether no Inf or NaN has been contributed so far; checks every value.
  [[nodiscard]] virtual bool gradient_is_finite() const = 0;
  /// Drops the saved tensors and the inputs.
  virtual void release() noexcept {}
  /// A leaf that backward has reached: makes its gradient zero if nothing was contributed.
  virtual void complete() {}
  /// A named leaf without an observer: notifies `watcher` that backward reaches it.
  virtual void introduce_to(backward_observer& /*watcher*/) const {}
  /// A parameter's name.
  [[nodiscard]] virtual std::string_view label() const noexcept { return {}; }
  /// A leaf: multiplies the gradient that it has, if any.
  virtual void scale_gradient(double /*factor*/) {}

  /// Whether this input of a node gets its contributions in `half`.
  [[nodiscard]] bool is_of(backward_half half) const noexcept {
    return half == backward_half::whole || leads_to_border == (half == backward_half::inputs);
  }

  /// Larger than the numbers of all nodes before, on any thread.
  [[nodiscard]] static std::uint64_t next_sequence() noexcept {
    static std::atomic<std::uint64_t> counter{1};
    return counter.fetch_add(1, std::memory_order_relaxed);
  }

  const std::uint64_t sequence;
  const bool is_leaf;
  bool requires_grad = true;
  bool released = false;
  bool half_run = false;         // the first half of a backward has run it
  bool leads_to_border = false;  // a border, or (as find_borders() finds) computed from one
  // Of a leaf: older nodes have used a value that it no longer has. 0: it has the first one.
  std::uint64_t changed_at = 0;

  // Scratch of the backward pass that is running.
  std::uint64_t visited_by = 0;
  std::uint32_t pending = 0;
  const region_number region = current_region();  // in which it was made
  // For leaves.
  std::size_t observer_index = 0;
  backward_observer* observer = nullptr;

 protected:
  explicit node_base(bool leaf) noexcept : sequence(next_sequence()), is_leaf(leaf) {}

 private:
  friend void destroy_node(node_base* dead) noexcept;
  std::atomic<std::uint32_t> holders_{0};
  node_base* next_dead_ = nullptr;
};

/// Deletes a node whose last holder left. Deleting it may take the last holder of its inputs; those
/// are queued, not deleted recursively, so that a graph of any depth can be freed on a small stack.
inline void destroy_node(node_base* dead) noexcept {
  struct queue {
    node_base* head = nullptr;
    bool running = false;
  };
  thread_local queue waiting;
  dead->next_dead_ = waiting.head;
  waiting.head = dead;
  if (waiting.running) return;
  waiting.running = true;
  while (node_base* next = waiting.head) {
    waiting.head = next->next_dead_;
    delete next;
  }
  waiting.running = false;
}

template <typename Node>
class counted {
 public:
  counted() noexcept = default;
  explicit counted(Node* held) noexcept : held_(held) {
    if (held_ != nullptr) held_->hold();
  }
  counted(const counted& other) noexcept : counted(other.held_) {}
  counted(counted&& other) noexcept : held_(std::exchange(other.held_, nullptr)) {}
  // Not one by value, which clang 14 never destroys where a template assigns {}.
  counted& operator=(const counted& other) noexcept { return *this = counted(other); }
  counted& operator=(counted&& other) noexcept {
    counted taken(std::move(other));
    std::swap(held_, taken.held_);
    return *this;
  }
  ~counted() { reset(); }
  void reset() noexcept {
    if (Node* old = std::exchange(held_, nullptr); old != nullptr) old->drop();
  }

  [[nodiscard]] Node* get() const noexcept { return held_; }
  [[nodiscard]] Node& operator*() const noexcept { return *held_; }
  [[nodiscard]] Node* operator->() const noexcept { return held_; }
  [[nodiscard]] explicit operator bool() const noexcept { return held_ != nullptr; }

 private:
  Node* held_ = nullptr;
};

/// Where a contribution to a gradient goes. `add` is false for the first one, which overwrites: the
/// memory need not be zeroed before.
template <typename T>
struct gradient_memory {
  tensor<T> values;
  bool add = false;

  /// The factor on the old contents, for gemm.
  [[nodiscard]] T beta() const noexcept { return add ? T(1) : T(0); }
};

/// A node whose gradient is a contiguous tensor<T> of the shape of its value.
template <typename T>
class node : public node_base {
 public:
  [[nodiscard]] const parx::shape& shape() const noexcept { return shape_; }

  /// Whether the next contribution adds.
  [[nodiscard]] virtual bool has_gradient() const noexcept { return gradient.defined(); }
  /// Memory for the next contribution.
  [[nodiscard]] virtual gradient_memory<T> memory() {
    if (!gradient.defined()) {
      gradient = tensor<T>::empty(shape_);
      return {gradient, false};
    }
    // Another node's gradient may share the memory: see accept().
    if (!gradient.is_unique()) gradient = gradient.clone();
    return {gradient, true};
  }
  /// A contribution that exists as a contiguous tensor. The first one is kept as it is, so
  /// `gradient` may share memory with others until the second arrives.
  virtual void accept(tensor<T> contribution) {
    if (!gradient.defined()) {
      gradient = std::move(contribution);
      return;
    }
    add_into(memory().values, contribution);
  }
  /// Memory for contributions to a few rows of axis 0: zero wherever nothing was contributed yet.
  [[nodiscard]] virtual tensor<T> row_memory(std::span<const std::size_t> /*rows*/) {
    gradient_memory<T> target = memory();
    if (!target.add) target.values.fill(T(0));
    return target.values;
  }
  void drop_gradient() noexcept override { gradient = tensor<T>(); }
  [[nodiscard]] bool gradient_is_finite() const override { return all_finite(gradient); }

  tensor<T> gradient;

 protected:
  node(bool leaf, const parx::shape& s) : node_base(leaf), shape_(s) {}

  static void add_into(const tensor<T>& sum, const tensor<T>& addend) {
    T* const to = sum.data();
    const T* const from = addend.data();
    for_each_element(sum.size(), [=](std::size_t i) { to[i] += from[i]; });
  }

 private:
  parx::shape shape_;
};

}  // namespace parx::detail
