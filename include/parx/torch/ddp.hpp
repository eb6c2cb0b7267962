// torch_ddp: distributed data parallel for a libtorch module: parx::ddp over torch_module.
//
// Each rank works on its own samples. After a backward pass every rank has, in the parameters'
// grad(), the gradient of the mean over all ranks, and libtorch's optimizers take the same step on
// all of them, in the same bits. Ranks may reach different parameters: one that no rank reaches
// keeps an undefined gradient, of one that some reach the others have the mean, too. Several losses
// may be backpropagated before a step, under no_sync() as well.
//
// Convert the model (to(), double()) before it is wrapped. After that its parameters are other
// tensors, of which no wrapper knows; ddp(x) and the next backward pass that reaches a parameter
// that is still followed say so, model->forward(x) cannot.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>

#include <torch/torch.h>
#undef CHECK

#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/source.hpp>
#include <parx/ddp/ddp.hpp>
#include <parx/fsdp/same_model.hpp>
#include <parx/reduction/times.hpp>
#include <parx/torch/module.hpp>

namespace parx::inline PARX_ABI {

template <std::derived_from<::torch::nn::Module> Model>
class torch_ddp {
 public:
  /// Collective over `group`. Checks that all ranks have the same parameters and buffers (throws
  /// errc::mismatch with the difference otherwise) and gives all of them rank 0's values and
  /// buffers. `model` and `group` are borrowed. Throws usage_error for parameters that parx cannot
  /// sum, by name, and while another wrapper of the model exists. Options as those of parx::ddp,
  /// but .finish and .replicas.
  [[nodiscard]] explicit torch_ddp(Model& model, process_group& group, ddp_options options = {},
                                   call_site site = call_site::current())
      : model_(model),
        group_(group),
        module_(model, formatted("torch_ddp at {}", site), detail::gradient_kind::sparse),
        ddp_(module_, group, checked(std::move(options), site), site) {
    detail::require_same_model(group_, module_.description(), module_.who(), site);
    for (const auto& [name, parameter] : module_.frozen()) {
      detail::send_from_rank_0(parameter, group_, site);
    }
    broadcast_buffers(site);
  }
  template <detail::holds_torch_module Holder>
  explicit torch_ddp(Holder& model, process_group& group, ddp_options options = {},
                     call_site site = call_site::current())
      : torch_ddp(*model, group, std::move(options), site) {}

  /// model.forward(inputs...), of a model that was not converted since.
  template <typename... Inputs>
  decltype(auto) operator()(Inputs&&... inputs) {
    module_.check_unchanged();
    return model_.forward(std::forward<Inputs>(inputs)...);
  }

  /// The same as loss.backward() where `loss` is the mean over `count` samples, and ranks have
  /// different numbers of them: every sample then has the same weight. A rank without samples calls
  /// it with a count of 0 and any loss. All ranks give the count in a step, and all passes of it,
  /// or none. Throws usage_error, what a node of the graph throws, and parx::error when the sums
  /// fail: errc::mismatch where some ranks only have given a count.
  void backward(const at::Tensor& loss, double count, call_site site = call_site::current()) {
    module_.backward(loss, count, site);
  }
  /// loss.backward(), where `loss` may reach no parameter: every rank has the same weight.
  void backward(const at::Tensor& loss, call_site site = call_site::current()) {
    module_.backward(loss, std::nullopt, site);
  }

  /// While the result lives, passes add up on this rank; the first one after it sums them.
  no_sync_scope no_sync() noexcept { return ddp_.no_sync(); }
  /// Resets all gradients. Those of libtorch's modules and optimizers do as well.
  void zero_grad() { ddp_.zero_grad(); }

  /// Collective. Copies rank 0's buffers to all ranks, for instance before an evaluation. Running
  /// statistics stay local between steps; PyTorch's DDP copies them before every forward pass.
  void broadcast_buffers(call_site site = call_site::current()) {
    detail::send_buffers(model_, group_, site);
  }
  /// Collective. Whether all ranks have the same values of the parameters that get gradients.
  [[nodiscard]] bool replicas_equal(call_site site = call_site::current()) {
    return ddp_.replicas_equal(site);
  }

  /// Tells all ranks something by the next sums: flag_raised() is then true on all. For ranks with
  /// different numbers of batches, see parx::ddp.
  void raise_flag() noexcept { ddp_.raise_flag(); }
  [[nodiscard]] bool flag_raised() noexcept { return ddp_.flag_raised(); }
  [[nodiscard]] reduction_times times() const noexcept { return ddp_.times(); }
  [[nodiscard]] std::size_t bucket_count() const { return ddp_.bucket_count(); }
  [[nodiscard]] std::size_t bucket_bytes(std::size_t index) const {
    return ddp_.bucket_bytes(index);
  }

  [[nodiscard]] Model& module() noexcept { return model_; }
  [[nodiscard]] process_group& group() noexcept { return group_; }

 private:
  static ddp_options checked(ddp_options options, call_site site) {
    require(
        options.finish == reduction_finish::with_backward && options.replicas == 0 &&
            options.reduction_groups.empty(),
        "torch_ddp at {}: leave .finish, .replicas and .reduction_groups out: gradients are those "
        "of the whole group when backward returns",
        site);
    return options;
  }

  Model& model_;
  process_group& group_;
  detail::torch_module module_;
  ddp<detail::torch_module> ddp_;
};

template <detail::holds_torch_module Holder>
torch_ddp(Holder&, process_group&, ddp_options = {})
    -> torch_ddp<std::remove_cvref_t<decltype(*std::declval<Holder&>())>>;

}  // namespace parx
