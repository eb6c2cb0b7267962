// parallel: a model over the ranks of a job, in any layout. A training program is written once:
//
//   parx::models::llama<> net{{.vocab_size = 256}};                 // shapes alone
//   parx::parallel model{net, world, parx::layout::parse(flag)};    // "ddp", "fsdp", "pp=2,tp=2"
//   model.initialize(seed);                                         // or parx::load(model, path)
//   parx::optim::adamw opt{model.parameters(), {.lr = 3e-4}};
//   for (auto& batch : loader.epoch(e)) {
//     auto loss = model.forward_backward(batch, [](auto& logits, auto& part) {
//       return parx::nn::cross_entropy(logits, part.labels);
//     });                                                           // (sum, count)
//     parx::optim::clip_grad_norm(opt.targets(), 1.0);
//     opt.step();
//   }
//   parx::save(model, "model.safetensors");
//
// Bits of losses, norms and values depend on (dp, tp, sp, microbatches) alone: not on pp, zero,
// hybrid, the schedule or the network, since gradients are summed in one order, by rank
// (reduction_order::serial). Exceptions are looped BFS, and tables that are tied over stages. With
// virtual replicas (replicas=) bits of norms and values do not depend on dp either.
// A layout that the ranks or the model do not permit is a usage_error at once.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/parameter.hpp>
#include <parx/checkpoint/shard_files.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/nn/model_input.hpp>
#include <parx/nn/module.hpp>
#include <parx/parallel/any_model.hpp>
#include <parx/parallel/choices.hpp>
#include <parx/parallel/instances.hpp>
#include <parx/parallel/model.hpp>
#include <parx/plan/layout.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

void follow_a_model(process_group&, const layout& = {}, const parallel_choices& = {},
                    call_site = {});

template <typename... Others>
concept following_a_model = requires(Others&... others) { follow_a_model(others...); };

/// The template argument of a parallel of wrong arguments: its message says what is wrong.
template <typename Model, typename Others>
struct no_parallel : nn::module<no_parallel<Model, Others>> {
  static_assert(
      std::is_void_v<Others>,
      "a parallel model takes the model by its name, which it borrows, the group of all "
      "ranks, and a layout: parallel model{net, world, parx::layout::parse(\"tp=2\")}, or "
      "{.tp = 2}");
  template <typename Visit>
  void members(Visit& visit);
};

}  // namespace detail

template <typename Model>
class parallel final
    : public parallel_model<typename nn::value_type_or_float<Model>::type, nn::model_input<Model>> {
  static_assert(nn::module_type<Model>,
                "a parallel model is made of an nn::module, or of a raw_module of your arrays");

 public:
  using value_type = typename nn::value_type_or_float<Model>::type;
  using input_type = nn::model_input<Model>;

  /// Collective over `world`. Model and world are borrowed and must outlive this object; the model
  /// must not move. Values come from initialize() or load(). Parameters that have values before
  /// stay as they are on rank 0, if all ranks have values of the same ones: if not, an earlier
  /// layout has left each rank some, and they are dropped. What has no values is as of
  /// initialize(0). Throws usage_error on all ranks for a layout that ranks or model do not permit,
  /// and if ranks were given different layouts.
  parallel(Model& model, process_group& world, layout how = {},
           const parallel_choices& choices = {}, call_site site = call_site::current())
      : parallel_model<value_type, input_type>(std::make_unique<typed_model<Model>>(model), world,
                                               std::move(how), choices, site),
        model_(model) {}

  /// Collective where layers are cut or sharded. The model's forward pass. Throws usage_error if
  /// the model is in stages, of which no rank has all.
  template <typename... Inputs>
  auto operator()(Inputs&&... inputs) {
    require(this->layout_.pp == 1,
            "parallel at {}: with pp={} no rank has all layers: use forward_backward(batch, "
            "criterion) or evaluate(batch, figures)",
            this->site_, this->layout_.pp);
    return model_(std::forward<Inputs>(inputs)...);
  }

 private:
  Model& model_;
};

/// For other arguments: compile-time errors that say what to do.
template <typename Other, typename... Others>
  requires(!detail::following_a_model<Others...>)
parallel(Other&, const Others&...) -> parallel<detail::no_parallel<Other, std::tuple<Others...>>>;
template <typename Other, typename... Others>
parallel(const Other&&, const Others&...)
    -> parallel<detail::no_parallel<Other, std::tuple<Others...>>>;

/// For sharded_over(model) in checkpoint/save.hpp. Valid while the model lives.
template <typename T>
[[nodiscard]] sharding sharded_over(any_parallel<T>& model) {
  const shard_place all = place_in(model.job_group());
  shard_place stage = place_in(model.data_group());
  if (model.cut() != nullptr) stage = place_within(stage, place_in(model.cut()->axis().group()));
  return {
      .file = all,
      .copies = [&model](const std::string& name, const shard_spec&) { return model.copies(name); },
      .others = all,
      .buffers = stage};
}

}  // namespace parx
