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

struct torch_leaf {
  torch_leaf(std::string name_in_model, at::Tensor of, gradient_kind kind)
      : name(std::move(name_in_model)),
        parameter(std::move(of)),
        shape(parameter.sizes().begin(), parameter.sizes().end()),
        is_table(kind == gradient_kind::sparse) {}
  torch_leaf(const torch_leaf&) = delete;
  torch_leaf& operator=(const torch_leaf&) = delete;
  ~torch_leaf() {
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
  at::Tensor view = {};                                    ///< of the wrapper's memory
  bool is_in_view = false;    ///< the view holds a gradient of the step that is being computed
  at::Tensor set_aside = {};  ///< the gradient of earlier steps, to which this one's is added
  /// Of a table: outside of these rows, which ascend, the view is zero; nullopt: it may not be.
  std::optional<std::vector<std::size_t>> rows = std::nullopt;
  backward_observer* observer = nullptr;
  std::size_t index = 0;  ///< the observer's

  /// Whether grad() is the view.
  [[nodiscard]] bool shows_view() const {
    const at::Tensor& grad = parameter.grad();
    return view.defined() && grad.defined() && grad.layout() == at::kStrided &&
           grad.data_ptr() == view.data_ptr();
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
    if (!is_in_view || !shows_view()) {
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
inline void require_sendable(const at::Tensor& tensor, const std::string& what, call_site site) {
  require(tensor.device().is_cpu(), "torch_ddp at {}: {} is on {}; parx sums memory of the host",
          site, what, tensor.device().str());
  require(
      tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense(),
      "torch_ddp at {}: {} has no memory of its own for each element (it is sparse, expanded or a "
      "part of another tensor): make it contiguous() before wrapping",
      site, what);
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
    const at::NoGradGuard guard;
    const at::Tensor& of = leaf_->parameter;
    leaf_->view =
        at::from_blob(memory.data(), of.sizes(), of.strides(), of.options().requires_grad(false));
  }
  void unbind() const {
    const at::NoGradGuard guard;
    if (leaf_->shows_view()) leaf_->parameter.mutable_grad() = leaf_->view.clone();
    leaf_->view.reset();
    leaf_->is_in_view = false;
  }
  [[nodiscard]] bool has_grad() const { return leaf_->is_in_view && leaf_->shows_view(); }
  void assume_grad() const {
    leaf_->rows.reset();  // written by others
    show_view();
  }
  void zero_grad() const {
    leaf_->parameter.mutable_grad().reset();
    leaf_->set_aside.reset();
    leaf_->is_in_view = false;
  }
  void attach(backward_observer* observer, std::size_t index) const noexcept {
    leaf_->observer = observer;
    leaf_->index = index;
  }
  void detach_observer() const noexcept { leaf_->observer = nullptr; }
  [[nodiscard]] backward_observer* observer() const noexcept { return leaf_->observer; }

 protected:
  void show_view() const {
    leaf_->parameter.mutable_grad() = leaf_->view;
    leaf_->is_in_view = true;
  }

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
    this->show_view();
    this->leaf_->note_rows(rows);
    return {static_cast<T*>(this->leaf_->view.data_ptr()), this->value().size()};
  }
  void clear_rows() const {
    if (!this->has_grad()) this->leaf_->clear_view();
  }
};

}  // namespace parx::detail
