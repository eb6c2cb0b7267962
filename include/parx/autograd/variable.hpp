// variable<T>: a tensor that remembers how it was computed.
//
// A handle: copies share the value and the gradient. Operations on variables (autograd/ops) record
// a graph behind their result; backward() walks it and adds to the gradients of the leaves. The
// graph is freed with the handles: a forward pass without backward leaves nothing behind. Values
// must not be written between the forward pass and backward; an optimizer's step comes after it.
// Threads: one graph belongs to one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <utility>

#include <parx/autograd/detail/engine.hpp>
#include <parx/autograd/detail/leaf.hpp>
#include <parx/autograd/loss_watch.hpp>
#include <parx/autograd/no_grad.hpp>
#include <parx/autograd/split_backward.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

/// An optimizer's updates of a parameter's rows that are postponed until a read.
///
/// A batch uses few rows of an embedding, but an optimizer changes all the others a little at every
/// step. It may postpone that: it registers with the parameter (parameter::defer), and before each
/// read the parameter has it apply the updates of the rows to be read, all for value(), some for
/// value_at_rows(). So no reader sees an outdated row. Where others than the parameter can reach
/// the value's memory (bind_value, a tensor that somebody kept), no update may be left when a step
/// ends: parameter::may_defer(). A wrapper that keeps the values elsewhere uses the same interface:
/// it fetches rows, or throws. Threads: as the parameter, one at a time; the first read after a
/// step writes.
template <typename T>
class deferred_updates {
 public:
  virtual ~deferred_updates() = default;

  /// Brings all of `value` up to date, or the `rows` of it, in any order and with repetitions.
  virtual void settle(const tensor<T>& value) = 0;
  virtual void settle(const tensor<T>& value, std::span<const std::size_t> rows) = 0;
};

enum class gradient {
  none,    ///< a constant
  wanted,  ///< a leaf: backward adds to its grad()
};

template <typename T>
class variable {
 public:
  using value_type = T;

  variable() noexcept = default;
  /// A constant, so that a tensor can be passed wherever an operation takes a variable.
  variable(tensor<T> value)  // NOLINT(google-explicit-constructor)
      : cell_(new cell(std::move(value), {})) {}
  variable(tensor<T> value, gradient wish) : variable(std::move(value)) {
    if (wish == gradient::wanted) {
      cell_->node = detail::counted<detail::node<T>>(new detail::leaf<T>(cell_->value.shape()));
    }
  }
  /// The result of an operation; for function.hpp.
  variable(tensor<T> value, detail::counted<detail::node<T>> node)
      : cell_(new cell(std::move(value), std::move(node))) {}

  [[nodiscard]] bool defined() const noexcept { return static_cast<bool>(cell_); }
  /// Valid until the next step of an optimizer, which may postpone updates: call value() again
  /// after it. Or keep a copy of the tensor (no reference, pointer or span): then the optimizer
  /// postpones none. Throws usage_error for a parameter that has no values yet.
  [[nodiscard]] const tensor<T>& value() const {
    require_defined();
    if (cell_->deferred != nullptr) cell_->deferred->settle(cell_->value);
    if (!cell_->value.defined()) require_value();
    return cell_->value;
  }
  /// The value for a reader of only these rows (axis 0), which must exist. Other rows may be
  /// outdated, see deferred_updates. Throws as value() does.
  [[nodiscard]] const tensor<T>& value_at_rows(std::span<const std::size_t> rows) const {
    require_defined();
    if (cell_->deferred != nullptr) cell_->deferred->settle(cell_->value, rows);
    if (!cell_->value.defined()) require_value();
    return cell_->value;
  }
  /// This and what follows throw usage_error, as value() does, where this is not defined().
  [[nodiscard]] const parx::shape& shape() const {
    require_defined();
    return cell_->value.shape();
  }
  [[nodiscard]] std::size_t rank() const { return shape().rank(); }
  [[nodiscard]] std::size_t size() const { return shape().size(); }
  [[nodiscard]] std::size_t extent(int axis) const {
    require_defined();
    return cell_->value.extent(axis);
  }
  [[nodiscard]] T item() const { return value().item(); }
  /// For x[i]: a compile-time error that says what to do.
  template <typename Index>
  [[nodiscard]] variable operator[](Index /*index*/) const {
    static_assert(
        std::is_void_v<Index>,
        "a row of a variable is select(x, 0, i), rows are slice(x, 0, begin, end), and an "
        "element's number is x.value().at(i, j)");
    return *this;
  }
  /// See tensor::cut.
  [[nodiscard]] const cut_rows* cut() const noexcept {
    return cell_ ? cell_->value.cut() : nullptr;
  }

  [[nodiscard]] bool requires_grad() const noexcept {
    return cell_ && cell_->node && cell_->node->requires_grad;
  }
  [[nodiscard]] bool is_leaf() const noexcept {
    return cell_ && cell_->node && cell_->node->is_leaf;
  }
  /// The gradient of a leaf: what all backward passes since zero_grad() added up to; not defined()
  /// when none reached it. Writing to it is allowed. Throws usage_error when this is not a leaf.
  [[nodiscard]] tensor<T> grad() const { return leaf("grad").open_gradient(); }
  /// The next backward overwrites the gradient. Costs nothing: no memory is touched.
  void zero_grad() const { leaf("zero_grad").zero(); }

  /// The value without its history.
  [[nodiscard]] variable detach() const { return variable(value()); }

  /// Adds d(this)/d(leaf) * seed to the gradient of every leaf behind this scalar. Blocks while an
  /// observer's end_backward does. Throws usage_error when this is not a scalar, has no history, or
  /// its graph was freed by an earlier backward, and where a step has changed a leaf since it was
  /// used; also whatever an operation or an observer throws: gradients are incomplete then.
  void backward(const backward_options& options = {},
                call_site site = call_site::current()) const {
    backward_from(upstream_of_scalar("backward", site), options, site);
  }
  /// The same from any shape: `upstream` is the gradient of some scalar with respect to this
  /// variable. A pipeline stage gets it from the next stage, with the count of the loss: see
  /// border.hpp.
  void backward_from(tensor<T> upstream, const backward_options& options = {},
                     call_site site = call_site::current()) const {
    check_backward(upstream, options, site);
    const detail::counted<detail::node<T>> root = cell_->node;
    detail::run_backward(*root, options, site,
                         [&, this](double factor) { start_from(std::move(upstream), factor); });
  }
  /// The first of two halves, which computes only the gradients of borders; the result computes the
  /// others: see split_backward.hpp. Frees the graph as backward does.
  backward_rest backward_inputs(const backward_options& options = {},
                                call_site site = call_site::current()) const {
    return backward_inputs_from(upstream_of_scalar("backward_inputs", site), options, site);
  }
  backward_rest backward_inputs_from(tensor<T> upstream, const backward_options& options = {},
                                     call_site site = call_site::current()) const {
    check_backward(upstream, options, site);
    return backward_rest(
        detail::half_run_pass(*cell_->node, options, site, [&, this](double factor) {
          start_from(std::move(upstream), factor);
        }));
  }

  /// For function.hpp: the node behind the value, null for a constant.
  [[nodiscard]] const detail::counted<detail::node<T>>& node() const noexcept {
    return cell_->node;
  }

 protected:
  // Shared by all handles.
  struct cell {
    tensor<T> value;
    detail::counted<detail::node<T>> node;
    deferred_updates<T>* deferred = nullptr;  // to be settled before the value is read
    std::atomic<std::uint32_t> holders{0};

    cell(tensor<T> v, detail::counted<detail::node<T>> n)
        : value(std::move(v)), node(std::move(n)) {}
    void hold() noexcept { holders.fetch_add(1, std::memory_order_relaxed); }
    void drop() noexcept {
      if (holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }
    [[nodiscard]] static void* operator new(std::size_t bytes) {
      return memory_pool::instance().allocate(bytes);
    }
    static void operator delete(void* memory, std::size_t bytes) noexcept {
      memory_pool::instance().deallocate(memory, bytes);
    }
  };

  [[nodiscard]] detail::leaf<T>& leaf(const char* call) const {
    require(is_leaf(), "{}() is for leaves: variables made with gradient::wanted, and parameters",
            call);
    return static_cast<detail::leaf<T>&>(*cell_->node);
  }
  [[nodiscard]] cell& shared() const noexcept { return *cell_; }

 private:
  [[nodiscard]] tensor<T> upstream_of_scalar(const char* call, call_site site) const {
    require(size() == 1, "{} at {} starts at a scalar, not at shape {}: sum or average first", call,
            site, defined() ? to_string(shape()) : "()");
    detail::look_at_loss(static_cast<double>(item()), site);
    return tensor<T>::full(shape(), T(1));
  }
  void check_backward(const tensor<T>& upstream, const backward_options& options,
                      call_site site) const {
    require(requires_grad(),
            "backward at {} has nothing to do: no leaf that wants a gradient is behind this "
            "variable (computed under no_grad, or detached?)",
            site);
    require(upstream.shape() == shape(),
            "backward at {}: a gradient of shape {} for a variable of shape {}", site,
            to_string(upstream.shape()), to_string(shape()));
    require(options.count >= 0, "backward at {}: the weight of a loss is not negative: {}", site,
            options.count);
  }
  /// Gives the root of a backward its gradient.
  void start_from(tensor<T> upstream, double factor) const {
    if (factor != 1) {
      tensor<T> scaled = tensor<T>::empty(shape());
      const tensor<T> source = upstream.contiguous();
      for (std::size_t i = 0; i < scaled.size(); ++i) {
        scaled.data()[i] = static_cast<T>(source.data()[i] * static_cast<T>(factor));
      }
      upstream = std::move(scaled);
    }
    cell_->node->accept(std::move(upstream).contiguous());
  }
  void require_defined() const {
    if (!cell_) [[unlikely]] refuse_undefined();
  }
  [[noreturn, gnu::cold, gnu::noinline]] static void refuse_undefined() {
    throw_usage("a variable that is not defined() has no value: it was declared without one");
  }
  /// Throws for a leaf with a shape and no memory yet; a constant without a tensor passes.
  [[gnu::noinline]] void require_value() const {
    if (!is_leaf() || size() == 0) return;
    throw_usage(
        "parameter \"{}\" of shape {} has no values yet: they come from initialize(seed) or "
        "materialize() of the model, from a checkpoint, or with the model's first call",
        leaf("value").name, to_string(shape()));
  }

  detail::counted<cell> cell_;
};

}  // namespace parx
