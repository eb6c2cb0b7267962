// torch_leaf: a parameter of a libtorch module with its gradient, and the handle by which parx's
// wrappers see it.
//
// While a wrapper is there, the gradient lives in the wrapper's memory, and the tensor's grad() is
// a view of it with the parameter's own sizes and strides. That of an embedding made with
// .sparse(true) is summed there, too, by rows; a pass that was summed leaves it in grad() as a
// sparse tensor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#undef CHECK

#include <parx/autograd/observer.hpp>
#include <parx/autograd/parameter_handle.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI::detail {

enum class gradient_kind { strided, sparse };

/// Whether `grad` is the dense tensor `view`.
[[nodiscard]] inline bool is_view_of(const at::Tensor& grad, const at::Tensor& view) {
  return view.defined() && grad.defined() && grad.layout() == at::kStrided &&
         grad.data_ptr() == view.data_ptr();
}

/// Whether a dense tensor without gaps has anything but zeros, at the speed of memory: optimizers
/// of PyTorch 1 fill gradients with zeros before every pass.
[[nodiscard]] inline bool has_values(const at::Tensor& dense) {
  const std::size_t bytes = dense.nbytes();
  const auto* const first = static_cast<const unsigned char*>(dense.data_ptr());
  return bytes > 0 && (*first != 0 || std::memcmp(first, first + 1, bytes - 1) != 0);
}

struct torch_leaf {
  torch_leaf(std::string name_in_model, at::Tensor of, gradient_kind kind)
      : name(std::move(name_in_model)),
        parameter(std::move(of)),
        shape(parameter.sizes().begin(), parameter.sizes().end()),
        is_table(kind == gradient_kind::sparse) {}
  torch_leaf(const torch_leaf&) = delete;
  torch_leaf& operator=(const torch_leaf&) = delete;
  ~torch_leaf() {
    if (check) parameter.remove_hook(*check);
    if (post_hook != 0) accumulator->del_post_hook(post_hook);
    if (pre_hook == nullptr) return;
    std::erase_if(accumulator->pre_hooks(),
                  [this](const auto& hook) { return hook.get() == pre_hook; });
  }

  const std::string name;
  at::Tensor parameter;
  const std::vector<std::size_t> shape;
  const bool is_table;  ///< an embedding whose gradients are sparse
  /// Adds up the gradient in a backward pass. The tensor itself holds it weakly.
  std::shared_ptr<::torch::autograd::Node> accumulator = nullptr;
  ::torch::autograd::FunctionPreHook* pre_hook = nullptr;  ///< in the accumulator
  std::uintptr_t post_hook = 0;                            ///< its key there
  std::optional<unsigned> check = std::nullopt;            ///< the place of a hook of the tensor
  at::Tensor view = {};      ///< of the wrapper's memory, while that is this gradient's
  bool is_filled = false;    ///< grad() is a gradient of the step that is being computed
  std::int64_t version = 0;  ///< of grad() when the last pass had written it
  /// What the optimizer steps over, whose gradients earlier passes may have left: the parameter, or
  /// this rank's part of it.
  at::Tensor stepped = parameter;
  at::Tensor stepped_view = {};  ///< of the wrapper's memory for its gradient
  at::Tensor set_aside = {};     ///< its gradient of earlier passes, to which this one's is added
  /// Of a table: outside of these rows, which ascend, the view is zero; nullopt: it may not be.
  std::optional<std::vector<std::size_t>> rows = std::nullopt;
  backward_observer* observer = nullptr;
  std::size_t index = 0;  ///< the observer's

  /// Whether grad() is the view.
  [[nodiscard]] bool shows_view() const { return is_view_of(parameter.grad(), view); }
  [[nodiscard]] bool has_grad() const {
    return is_filled && parameter.grad().defined() && (!view.defined() || shows_view());
  }
  /// Whether the gradient was filled with zero since the last pass.
  [[nodiscard]] bool was_zeroed() const {
    const at::Tensor& grad = parameter.grad();
    return grad._version() != version && !has_values(grad);
  }
  /// Gradients are written to `memory` from now on; that of this step so far moves there.
  void bind_grad(void* memory) {
    const at::NoGradGuard guard;
    const bool moves = has_grad();
    view = at::from_blob(memory, parameter.sizes(), parameter.strides(),
                         parameter.options().requires_grad(false));
    if (!moves) return;
    view.copy_(parameter.grad());
    show_view();
  }
  void unbind_grad() {
    const at::NoGradGuard guard;
    if (shows_view()) parameter.mutable_grad() = view.clone();
    view.reset();
  }
  void show_view() {
    parameter.mutable_grad() = view;
    is_filled = true;
  }
  void drop_grad() {
    parameter.mutable_grad().reset();
    is_filled = false;
  }

  /// Before the first gradient of a pass is written.
  void set_grad_aside() {
    is_filled = false;
    at::Tensor& grad = stepped.mutable_grad();
    if (!grad.defined()) return;
    if (!is_view_of(grad, stepped_view)) set_aside = std::move(grad);
    else if (has_values(grad)) set_aside = grad.clone();
    grad.reset();
  }
  /// After the last sum of a pass.
  void add_what_was_set_aside() {
    if (!set_aside.defined()) return;
    at::Tensor& grad = stepped.mutable_grad();
    if (!grad.defined()) grad = std::move(set_aside);
    else if (grad.layout() == set_aside.layout()) grad.add_(set_aside);
    else grad = grad.to_dense() + set_aside;
    set_aside.reset();
  }

  /// Makes the memory of an absent gradient zero.
  void clear_view() {
    if (!rows) view.zero_();
    else if (!rows->empty()) view.index_fill_(0, indices(), 0);
    rows.emplace();
  }
  /// The view has contributions in these rows, which ascend.
  void note_rows(std::span<const std::size_t> more) {
    if (!rows) return;
    std::vector<std::size_t> all;
    std::set_union(rows->begin(), rows->end(), more.begin(), more.end(), std::back_inserter(all));
    rows = std::move(all);
  }
  /// A contribution that is sparse, which has been added to the view if that is shown.
  void take_rows(const at::Tensor& contribution) {
    const at::Tensor sparse = contribution.coalesce();
    const at::Tensor touched = sparse.indices()[0].contiguous();
    if (!has_grad()) {
      clear_view();
      view.index_copy_(0, touched, sparse.values());
    }
    const auto* const first = touched.data_ptr<std::int64_t>();
    note_rows(std::vector<std::size_t>(first, first + touched.numel()));
  }
  /// The gradient is complete: grad() is a sparse tensor from here on.
  void show_rows() {
    const at::Tensor touched = rows ? indices() : view.ne(0).any(1).nonzero().squeeze(1);
    const at::Tensor values = view.index_select(0, touched);
    parameter.mutable_grad() =
        at::sparse_coo_tensor(touched.unsqueeze(0), values, view.sizes())._coalesced_(true);
  }

 private:
  /// The rows as an index of LibTorch's.
  [[nodiscard]] at::Tensor indices() const {
    const at::Tensor all = at::empty({static_cast<std::int64_t>(rows->size())}, at::kLong);
    std::copy(rows->begin(), rows->end(), all.data_ptr<std::int64_t>());
    return all;
  }
};

/// Throws usage_error unless parx can send `tensor`, `what` of a module: memory of the host without
/// gaps, of elements that parx has.
inline void require_sendable(const at::Tensor& tensor, const std::string& what,
                             const std::string& who) {
  require(tensor.device().is_cpu(),
          "{}: {} is on {}; parx sums memory of the host: to(torch::kCPU) before wrapping", who,
          what, tensor.device().str());
  require(tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense(),
          "{}: {} has no memory of its own for each element (it is sparse, expanded or a part of "
          "another tensor): make it contiguous() before wrapping",
          who, what);
}

/// A distributed_parameter with elements T. A copy refers to the same leaf.
template <typename T>
class torch_parameter {
 public:
  using value_type = T;
  explicit torch_parameter(torch_leaf& leaf) noexcept : leaf_(&leaf) {}

  [[nodiscard]] std::span<T> value() const {
    return {static_cast<T*>(leaf_->parameter.data_ptr()),
            static_cast<std::size_t>(leaf_->parameter.numel())};
  }
  [[nodiscard]] const std::vector<std::size_t>& shape() const noexcept { return leaf_->shape; }
  void bind_grad(std::span<T> memory) const {
    leaf_->bind_grad(memory.data());
    leaf_->stepped_view = leaf_->view;
  }
  void unbind() const { leaf_->unbind_grad(); }
  [[nodiscard]] bool has_grad() const { return leaf_->has_grad(); }
  void assume_grad() const {
    leaf_->rows.reset();  // written by others
    leaf_->show_view();
  }
  void zero_grad() const {
    leaf_->drop_grad();
    leaf_->set_aside.reset();
  }
  void attach(backward_observer* observer, std::size_t index) const noexcept {
    leaf_->observer = observer;
    leaf_->index = index;
  }
  void detach_observer() const noexcept { leaf_->observer = nullptr; }
  [[nodiscard]] backward_observer* observer() const noexcept { return leaf_->observer; }

 protected:
  torch_leaf* leaf_;
};

/// The same of a table, of which the ranks exchange the rows that they have touched.
template <typename T>
class torch_table : public torch_parameter<T>, public row_sparse_parameter {
 public:
  using torch_parameter<T>::torch_parameter;

  [[nodiscard]] bool expects_row_grad() const noexcept { return true; }
  [[nodiscard]] std::optional<std::span<const std::size_t>> touched_rows() const {
    if (!this->has_grad() || !this->leaf_->rows) return std::nullopt;
    return std::span<const std::size_t>(*this->leaf_->rows);
  }
  [[nodiscard]] std::span<T> add_rows(std::span<const std::size_t> rows) const {
    clear_rows();
    this->leaf_->show_view();
    this->leaf_->note_rows(rows);
    return {static_cast<T*>(this->leaf_->view.data_ptr()), this->value().size()};
  }
  void clear_rows() const {
    if (!this->has_grad()) this->leaf_->clear_view();
  }
};

}  // namespace parx::detail
