// sharded_leaf: a parameter of a libtorch module as parx's sharding sees it: the whole, which is
// the module's tensor, and this rank's part, a leaf of its own that libtorch's optimizers step
// over.
//
// Both lie in the wrapper's memory. After a pass the gradient is that of the part. The module's
// parameter then has a mark for a gradient, one not-a-number with the parameter's sizes:
// zero_grad() of the module removes it or fills it with zero, and then the part's gradient is
// dropped; an optimizer that was made of the wrong parameters ruins the values, which the next pass
// notices.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <torch/torch.h>
#undef CHECK

#include <parx/core/check.hpp>
#include <parx/fsdp/sharded_parameter.hpp>
#include <parx/tensor/shape.hpp>
#include <parx/tensor/shard_spec.hpp>
#include <parx/torch/dtype.hpp>
#include <parx/torch/leaf.hpp>

namespace parx::inline PARX_ABI::detail {

class sharded_leaf final : public sharded_parameter {
 public:
  explicit sharded_leaf(torch_leaf& leaf)
      : sharded_parameter(leaf.name, shard_spec::whole(parx::shape(std::span(leaf.shape))),
                          dtype_of_torch(leaf.parameter.scalar_type()).value()),
        leaf_(leaf),
        mark_(at::empty({}, leaf.parameter.options().requires_grad(false))) {}
  /// Both tensors get memory of their own, with the values that there are.
  ~sharded_leaf() override {
    leaf_.drop_grad();
    leaf_.unbind_grad();
    if (!leaf_.stepped.is_same(leaf_.parameter)) {
      own(leaf_.parameter);
      own(leaf_.stepped);
      unbind_part_grad();
    }
    leaf_.observer = nullptr;
  }

  /// zero_grad() of the module has dropped the gradient of the part, too.
  void step_begins() {
    if (!shows_mark() || mark_.item<double>() == 0) leaf_.stepped.mutable_grad().reset();
    leaf_.parameter.mutable_grad().reset();
  }
  void step_ended() {
    if (!leaf_.stepped.grad().defined()) return;
    mark_.fill_(std::numeric_limits<double>::quiet_NaN());
    const std::vector<std::int64_t> strides(leaf_.shape.size());
    leaf_.parameter.mutable_grad() =
        at::from_blob(mark_.data_ptr(), leaf_.parameter.sizes(), strides, mark_.options());
  }
  /// Whether the whole still lies where place() put it.
  [[nodiscard]] bool is_in_place() const {
    return leaf_.parameter.numel() == 0 || leaf_.parameter.data_ptr() == whole_;
  }
  [[nodiscard]] const at::Tensor& part() const noexcept { return leaf_.stepped; }

  [[nodiscard]] bool is_trained() const override { return true; }
  [[nodiscard]] bool is_frozen() const override { return false; }
  [[nodiscard]] bool has_values() const override { return true; }
  [[nodiscard]] void* values() const override { return leaf_.parameter.data_ptr(); }
  [[nodiscard]] bool stays() const override { return false; }

  void place(std::byte* whole, std::byte* part, const shard_spec& spec,
             std::string /*unit*/) override {
    const at::NoGradGuard guard;
    const auto options = mark_.options();
    whole_ = whole;
    leaf_.parameter.set_data(
        at::from_blob(whole, leaf_.parameter.sizes(), leaf_.parameter.strides(), options));
    leaf_.stepped = at::from_blob(part, {static_cast<std::int64_t>(spec.size())}, options);
    leaf_.stepped.requires_grad_();
  }
  any_row_table& cut_by_rows(const row_groups& /*groups*/, call_site /*site*/) override {
    throw_usage("parameter \"{}\" is not cut by rows", name());
  }
  void open() noexcept override {}
  void close() noexcept override {}

  [[nodiscard]] bool has_whole_grad() const override { return leaf_.has_grad(); }
  void bind_whole_grad(std::byte* memory) const override { leaf_.bind_grad(memory); }
  void unbind_whole_grad() const override { leaf_.unbind_grad(); }
  void forget_whole_grad() const override { leaf_.drop_grad(); }
  [[nodiscard]] bool has_part_grad() const override {
    return is_view_of(leaf_.stepped.grad(), leaf_.stepped_view);
  }
  void bind_part_grad(std::byte* memory) const override {
    leaf_.stepped_view = at::from_blob(memory, leaf_.stepped.sizes(), mark_.options());
  }
  void unbind_part_grad() const override {
    leaf_.stepped.mutable_grad().reset();
    leaf_.stepped_view.reset();
  }
  void assume_part_grad() const override { leaf_.stepped.mutable_grad() = leaf_.stepped_view; }
  void zero_grad() const override {
    leaf_.drop_grad();
    leaf_.stepped.mutable_grad().reset();
    leaf_.set_aside.reset();
  }
  void note_change() const override {}
  void unfreeze_part() const override {}
  void attach(backward_observer& whole, backward_observer& /*part*/, closed_reads& /*reads*/,
              std::size_t index) override {
    leaf_.observer = &whole;
    leaf_.index = index;
  }
  void spread_over(std::shared_ptr<gradient_axis> /*axis*/) override {}

 private:
  static void own(at::Tensor& tensor) {
    const at::NoGradGuard guard;
    tensor.set_data(tensor.detach().clone());
  }
  [[nodiscard]] bool shows_mark() const { return is_view_of(leaf_.parameter.grad(), mark_); }

  torch_leaf& leaf_;
  at::Tensor mark_;
  const void* whole_ = nullptr;
};

}  // namespace parx::detail
