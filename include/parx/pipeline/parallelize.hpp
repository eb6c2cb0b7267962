// parallelize over a mesh: pipeline, tensor and data parallelism together (3D parallelism).
//
//   parx::mesh<"pp", "dp", "tp"> mesh{world, {2, 2, 2}};
//   parx::models::llama<> model{config};                // shapes alone
//   auto parallel = parx::parallelize(model, mesh, {.tp = parx::tp::ready_plan(model),
//                                                   .pp = {.microbatches = 8}});
//   parx::optim::adamw opt{parallel.parameters(), {.lr = 3e-4f}};
//   auto loss = parallel.step(batch, [&](auto& logits, auto& part) {
//     return parx::nn::cross_entropy(logits, part.labels);
//   });                                                 // (sum, count) on all ranks
//   opt.step();
//
// Samples are distributed over mesh["dp"]; ranks that differ only in "pp" and "tp" get the same. An
// axis with one rank, or one that the mesh does not have, costs nothing. Losses, norms and
// parameters are those of one process that accumulates the same micro-batches, except for the order
// of sums.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hash.hpp>
#include <parx/mesh/mesh.hpp>
#include <parx/pipeline/pipeline.hpp>
#include <parx/pipeline/sharding.hpp>
#include <parx/tensor_parallel/parallelize.hpp>

namespace parx::inline PARX_ABI {

struct parallel_options {
  /// How layers are cut over mesh["tp"]: tp::ready_plan(model). Ignored if that axis has one rank.
  tp::plan tp{};
  /// What is sharded over mesh["dp"]: zero(1), zero(3). Empty: nothing (ddp).
  std::optional<fsdp_options> dp{};
  /// The stages over mesh["pp"]. Its groups are the mesh's.
  pipeline_options pp{};
};

namespace detail {

[[nodiscard]] inline int axis_size(const mesh<>& of, std::string_view name) {
  for (const mesh_axis& each : of.layout().axes()) {
    if (each.name == name) return each.size;
  }
  return 1;
}

/// The group over those of these axes that have several ranks; this rank alone if none has.
[[nodiscard]] inline process_group& axes_group(mesh<>& of,
                                               std::initializer_list<std::string_view> names) {
  std::vector<std::string_view> known;
  for (const std::string_view name : names) {
    if (axis_size(of, name) > 1) known.push_back(name);
  }
  return of.flatten(known);
}

/// Cuts the layers of a model. A base of meshed_model, so that it runs before the stages are
/// made.
template <typename Model>
struct layers_over_mesh {
  layers_over_mesh(Model& model, mesh<>& of, const parallel_options& options, call_site site) {
    for (const mesh_axis& each : of.layout().axes()) {
      require(each.name == "pp" || each.name == "dp" || each.name == "tp",
              "parallelize at {}: the mesh has the axis \"{}\", and a model is cut over pp "
              "(stages), dp (samples) and tp (layers)",
              site, each.name);
    }
    require(options.pp.data_parallel == nullptr && options.pp.tensor_parallel == nullptr &&
                options.pp.model_parallel == nullptr && options.pp.job == nullptr,
            "parallelize at {}: the groups of .pp are those of the mesh: leave them out", site);
    const int ranks = axis_size(of, "tp");
    require(ranks == 1 || !options.tp.empty(),
            "parallelize at {}: the axis \"tp\" has {} ranks, and .tp is empty: give "
            "tp::ready_plan(model) or a plan of your own",
            site, ranks);
    // tp's parallelize compares plans along "tp" only.
    std::string lines;
    for (const tp::plan_line& each : options.tp) {
      lines += formatted("{}: {}\n", each.pattern, tp::to_string(each.rule));
    }
    const auto digest = static_cast<std::int64_t>(fnv1a(lines) >> 1);
    std::int64_t range[] = {digest, -digest};
    all_reduce(of.all(), range, {.op = reduce_op::max}, site);
    require(range[0] == -range[1],
            "parallelize at {}: the ranks of {} have different plans for .tp; rank {} has\n{}",
            site, of.all().name(), of.all().rank(), lines);
    if (ranks > 1) cut.emplace(parallelize(model, axes_group(of, {"tp"}), options.tp, site));
  }

  std::optional<parallelized> cut;
};

[[nodiscard]] inline pipeline_options over_mesh(mesh<>& of, parallel_options given) {
  pipeline_options options = std::move(given.pp);
  if (given.dp) options.sharding = std::move(given.dp);
  options.data_parallel = &axes_group(of, {"dp"});
  options.tensor_parallel = &axes_group(of, {"tp"});
  options.model_parallel = &axes_group(of, {"pp", "tp"});
  options.job = &of.all();
  return options;
}

}  // namespace detail

/// The result of parallelize(): a pipeline, to use by hand or with a trainer.
template <typename Model, typename Input, typename T>
class meshed_model : private detail::layers_over_mesh<Model>, public pipeline<Model, Input, T> {
  using layers = detail::layers_over_mesh<Model>;

 public:
  /// See parallelize.
  meshed_model(Model& model, nn::model_blocks<Input, T> blocks, mesh<>& over,
                 parallel_options options, call_site site = call_site::current())
      : layers(model, over, options, site),
        pipeline<Model, Input, T>(model, std::move(blocks), detail::axes_group(over, {"pp"}),
                                  detail::over_mesh(over, std::move(options)), site) {}
};

/// Collective over the mesh. The model must have no values yet, and no rank ever has all of it; its
/// values come from `seed` of options.pp, or from a checkpoint. Model and mesh are borrowed and
/// must outlive the result; the model must not move. Throws as tp's parallelize and pipeline's
/// constructor do, and usage_error for a mesh with other axes: all before the first step.
template <typename Model, typename Input, typename T>
[[nodiscard]] meshed_model<Model, Input, T> parallelize(
    Model& model, nn::model_blocks<Input, T> blocks, mesh<>& over, parallel_options options = {},
    call_site site = call_site::current()) {
  return {model, std::move(blocks), over, std::move(options), site};
}
/// For a model whose blocks() need no argument.
template <typename Model>
[[nodiscard]] auto parallelize(Model& model, mesh<>& over, parallel_options options = {},
                               call_site site = call_site::current()) {
  return parallelize(model, model.blocks(), over, std::move(options), site);
}

}  // namespace parx
