// fsdp: a model whose parameters, gradients and optimizer state are sharded over the ranks, as by
// PyTorch's FullyShardedDataParallel and ZeRO 1 to 3. Most programs use it by parx::parallel.
//
//   parx::models::llama<> model{config};          // shapes only: no rank has all of it, ever
//   parx::fsdp fsdp{model, world, {.units = parx::by_type<parx::models::llama_layer<>>}};
//   parx::optim::adamw opt{fsdp.parameters(), {.lr = 3e-4}};
//   for (auto& batch : loader.epoch(e)) {
//     parx::nn::cross_entropy(fsdp(batch.x), batch.y).backward();
//     parx::optim::clip_grad_norm(opt.targets(), 1.0);
//     opt.step();
//   }
//
// As in ddp, each rank trains on its own samples, and a step uses the mean gradient over all of
// them. The results are bit-identical to ddp's with the same reduction order, for every stage,
// choice of units and number of hosts. All ranks call the model together, even without gradients,
// because each has only a part of its values. If the layers are already cut over other ranks
// (tensor_parallel.hpp), fsdp shards this rank's part of each parameter.
//
// Rajbhandari et al.: ZeRO (arXiv 1910.02054). Zhao et al.: PyTorch FSDP (arXiv 2304.11277).
#pragma once

#include <utility>

#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>
#include <parx/fsdp/any_fsdp.hpp>
#include <parx/fsdp/instances.hpp>
#include <parx/fsdp/options.hpp>
#include <parx/nn/any_module.hpp>
#include <parx/nn/module.hpp>

namespace parx::inline PARX_ABI {

template <nn::module_type Module>
class fsdp : public any_fsdp<nn::any_module_of<Module>> {
 public:
  /// Collective over `group`. Checks that all ranks have the same parameters, units and options
  /// (errc::mismatch with the difference otherwise). If the model has no values, each rank
  /// initializes its part as initialize(0) does. If it has values, each rank receives its part of
  /// rank 0's, and the model's own memory is released. Model and group are borrowed and must
  /// outlive this object; the model must not move. Once this object is destroyed, the model has no
  /// values. Throws usage_error for invalid options, or if the model is in another wrapper.
  /// Parameters that are frozen take no memory for gradients until they are unfrozen.
  fsdp(Module& model, process_group& group, fsdp_options options = {},
       call_site site = call_site::current())
      : any_fsdp<nn::any_module_of<Module>>(nn::any_module_of<Module>(model), group,
                                            std::move(options), site),
        model_(model) {}

  /// The model's forward pass. Collective: every rank calls it.
  template <typename... Inputs>
  decltype(auto) operator()(Inputs&&... inputs) {
    return model_(std::forward<Inputs>(inputs)...);
  }

 private:
  Module& model_;
};

}  // namespace parx
