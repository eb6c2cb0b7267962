// --parallel: lets one training program use data, tensor and pipeline parallelism.
//
// with_parallel() wraps the model as the flag says. The other functions do the same thing for every
// wrapper: the loss of a batch, figures of an evaluation, saving, generating text. A program that
// needs one kind of parallelism does not need this header: it makes that wrapper and calls its
// functions directly, as the README of this folder shows. See parallel_settings.hpp for the values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "options.hpp"
#include "parallel_settings.hpp"
#include <parx/checkpoint.hpp>
#include <parx/comm.hpp>
#include <parx/ddp.hpp>
#include <parx/fsdp.hpp>
#include <parx/mesh.hpp>
#include <parx/pipeline.hpp>
#include <parx/plan.hpp>
#include <parx/tensor_parallel.hpp>
#include <parx/train.hpp>

namespace examples {

inline void add_parallel_flag(cxxopts::Options& options) {
  options.add_options("Ranks")(
      "parallel",
      "what is sharded over the ranks: nothing (ddp), optimizer state (zero1), also gradients "
      "(zero2), also values (fsdp), the same inside each host (hybrid), with gathered also between "
      "ranks that share memory; =N: over N ranks; pp=N: N stages, with schedule=, microbatches=, "
      "chunks=; tp=N: layers cut over N ranks, with sp "
      "sequence parallel",
      text("ddp"));
}

[[nodiscard]] inline parallel_settings parallel_flag(const cxxopts::ParseResult& given) {
  return parse_parallel(given["parallel"].as<std::string>());
}

template <typename Wrapped>
inline constexpr bool is_fsdp = false;
template <typename Model>
inline constexpr bool is_fsdp<parx::fsdp<Model>> = true;

template <typename Wrapped>
inline constexpr bool is_tensor_parallel = false;
template <typename Inner>
inline constexpr bool is_tensor_parallel<parx::tensor_parallel<Inner>> = true;

template <typename Wrapped>
inline constexpr bool is_pipeline = false;
template <typename Model, typename Input, typename T>
inline constexpr bool is_pipeline<parx::meshed_model<Model, Input, T>> = true;

namespace detail {

/// The model's blocks(), which take a Batch or its input_ids; nullptr if it has none.
template <typename Batch, typename Model>
auto blocks_of(Model& model) {
  if constexpr (requires { model.template blocks<Batch>(); }) {
    return model.template blocks<Batch>();
  } else if constexpr (requires { model.blocks(); }) {
    return model.blocks();
  } else {
    return nullptr;
  }
}

/// Collective. Throws if ranks were given different flags: they would wait for each other.
inline void require_same_flag(const parallel_settings& s, parx::process_group& group) {
  const auto digest = static_cast<std::int64_t>(std::hash<std::string>{}(s.text) >> 1U);
  std::int64_t range[] = {digest, -digest};
  parx::all_reduce(group, range, {.op = parx::reduce_op::max});
  parx::require(range[0] == -range[1],
                "rank {} was given --parallel \"{}\", and another rank something else: give all of "
                "them the same",
                group.rank(), s.text);
}

[[nodiscard]] inline parx::value_storage storage_of(const parallel_settings& s) {
  return s.gathered ? parx::value_storage::gathered : parx::value_storage::by_hosts;
}

template <typename Model>
[[nodiscard]] parx::tp::plan plan_of(const parallel_settings& s, const Model& model) {
  using enum parx::nn::between_cuts;
  return parx::tp::ready_plan(model, s.by_positions ? positions : whole);
}

/// Calls use(wrapped) with a ddp or fsdp over `group`, a part of `job`.
template <typename Model, typename Use>
void with_data_parallel(const parallel_settings& s, Model& model, parx::process_group& group,
                        const parx::process_group& job, std::uint64_t seed,
                        const parx::unit_choice& units, Use&& use) {
  constexpr std::size_t adamw_bytes = 8;  // of optimizer state for each parameter
  const auto machine = parx::cluster_of(job);
  const bool shared = s.stage == 3 && !s.gathered && (s.within_hosts || group.shares_memory());
  parx::require_fits(parx::shapes_of(model), machine,
                     {.name = s.wrapper,
                      .stage = s.stage,
                      .replicas = s.tp * (s.within_hosts ? machine.hosts : 1),
                      .host_pages = shared},
                     {}, adamw_bytes);
  if (s.stage == 0) {
    model.initialize(seed);
    // Uncut parameters stay equal on all ranks of "tp" if their gradients are summed in one order.
    using enum parx::reduction_order;
    parx::ddp ddp{model, group, {.order = s.tp > 1 ? serial : any}};
    return use(ddp);
  }
  parx::fsdp fsdp{model,
                  group,
                  {.stage = s.stage,
                   .units = units,
                   .shard_within = s.within_hosts ? parx::shard_scope("host") : parx::shard_scope(),
                   .values = storage_of(s)}};
  fsdp.initialize(seed);
  use(fsdp);
}

}  // namespace detail

/// Collective. Wraps the model, which has no values yet, as --parallel says, and calls
/// use(wrapped). `units` are the units of an fsdp; Batch is the type of a batch; `seed` initializes
/// the values. Throws parx::usage_error if the number of ranks does not match, the layers cannot be
/// cut that way, or the model and AdamW's state do not fit into memory.
template <typename Batch, typename Model, typename Use>
void with_parallel(const parallel_settings& s, Model& model, parx::process_group& group,
                   std::uint64_t seed, const parx::unit_choice& units, Use&& use) {
  detail::require_same_flag(s, group);
  parx::mesh<"pp", "dp", "tp"> mesh{group, {s.pp, s.dp, s.tp}};
  if (s.pp > 1) {
    parx::require(!s.within_hosts, "--parallel \"{}\": stages go with ddp, zero1, zero2 or fsdp",
                  s.text);
    std::optional<parx::fsdp_options> sharding;
    if (s.stage > 0) {
      sharding =
          parx::fsdp_options{.stage = s.stage, .units = units, .values = detail::storage_of(s)};
    }
    auto blocks = detail::blocks_of<Batch>(model);
    if constexpr (std::is_same_v<decltype(blocks), std::nullptr_t>) {
      parx::throw_usage("--parallel \"{}\": this program's model has no blocks() to make stages of",
                        s.text);
    } else {
      auto parallel = parx::parallelize(
          model, std::move(blocks), mesh,
          {.tp = s.tp > 1 ? detail::plan_of(s, model) : parx::tp::plan{},
           .dp = sharding,
           .pp = {.schedule = s.schedule,
                  .microbatches = s.microbatches,
                  .chunks = s.chunks,
                  .seed = seed}});
      return use(parallel);
    }
  }
  if (s.tp == 1) return detail::with_data_parallel(s, model, group, group, seed, units, use);
  const auto cut = parx::parallelize(model, mesh["tp"], detail::plan_of(s, model));
  detail::with_data_parallel(s, model, mesh["dp"], group, seed, units, [&](auto& inner) {
    parx::tensor_parallel parallel{cut, inner, mesh.all()};
    use(parallel);
  });
}

/// Whether this rank needs samples: the middle stages of a pipeline do not.
template <typename Wrapped>
[[nodiscard]] bool reads_batches(const Wrapped& wrapped) {
  if constexpr (is_pipeline<Wrapped>) {
    return wrapped.reads_batches();
  } else {
    return true;
  }
}

/// A pipeline's micro-batches of a batch; a short batch makes fewer, so that none is empty.
template <typename Wrapped, typename Batch>
std::vector<Batch> microbatches_of(Wrapped& wrapped, const Batch& batch) {
  return parx::split_batch(
      batch, std::min(wrapped.table().microbatches, static_cast<int>(batch.size())));
}

/// Collective: the loss of a batch, for a trainer: criterion(forward(wrapped, batch), batch). A
/// pipeline also runs backward here, and does not need `forward`.
template <typename Wrapped, typename Batch, typename Forward, typename Criterion>
auto train_loss(Wrapped& wrapped, const Batch& batch, Forward forward, Criterion criterion) {
  if constexpr (is_pipeline<Wrapped>) {
    const auto parts = microbatches_of(wrapped, batch);
    return wrapped.step(std::span<const Batch>(parts), criterion);
  } else {
    return criterion(forward(wrapped, batch), batch);
  }
}
/// Collective: the figures of a batch, for an evaluation. Each is a name and a function of the
/// model's result and the batch.
template <typename Wrapped, typename Batch, typename Forward, typename... Criterion>
parx::train::metrics measure(Wrapped& wrapped, const Batch& batch, Forward forward,
                             const std::pair<const char*, Criterion>&... figures) {
  if constexpr (is_pipeline<Wrapped>) {
    const auto parts = microbatches_of(wrapped, batch);
    return {{figures.first, wrapped.evaluate(std::span<const Batch>(parts), figures.second)}...};
  } else {
    const auto result = forward(wrapped, batch);
    return {{figures.first, figures.second(result, batch)}...};
  }
}

/// Collective. Gives `copy`, a model of the same configuration, all values on every rank.
template <typename Wrapped, typename Model>
void copy_values(Wrapped& wrapped, Model& copy) {
  const parx::sharding how = [&] {
    if constexpr (parx::distributed<Wrapped>) {
      return sharded_over(wrapped);
    } else {
      return parx::sharded_over(wrapped.group(), wrapped.replica_group());
    }
  }();
  // Of the ranks that have the same part, the first one adds it to zeros.
  std::map<std::string, parx::parameter<float>> parts;
  wrapped.module().for_each_parameter([&](const std::string& path, parx::parameter<float>& part) {
    if (how.copies(path, part.spec()).index == 0) parts.emplace(path, part);
  });
  copy.materialize();
  copy.for_each_parameter([&](const std::string& path, parx::parameter<float>& whole) {
    const auto values = whole.value().span();
    std::fill(values.begin(), values.end(), 0.0F);
    if (const auto part = parts.find(path); part != parts.end()) {
      const float* const from = part->second.value().data();
      part->second.spec().for_each_run([&](const parx::shard_run& run) {
        std::copy_n(from + run.local, run.length, values.data() + run.global);
      });
    }
    parx::all_reduce(wrapped.job_group(), values);
  });
}

/// Collective. Calls f(generator), where `generator` is the model, a copy or an adapter of it that
/// models::generate takes. If a rank has the whole model, f only runs on rank 0; else on all ranks,
/// which generate the same text together.
template <typename Wrapped, typename Model, typename F>
void on_model(Wrapped& wrapped, Model& model, F&& f) {
  if constexpr (is_pipeline<Wrapped>) {
    Model whole{model.config()};
    copy_values(wrapped, whole);
    if (wrapped.job_group().rank() == 0) f(whole);
  } else if constexpr (is_tensor_parallel<Wrapped>) {
    parx::tp::generating generator{wrapped.cut(), model};
    on_model(wrapped.inner(), generator, f);
  } else if constexpr (is_fsdp<Wrapped>) {
    wrapped.call([&] { f(model); });
  } else if (wrapped.group().rank() == 0) {
    f(model);
  }
}

/// Collective. Saves the model as a folder in Hugging Face's layout.
template <typename Wrapped>
void save_model(Wrapped& wrapped, const parx::json::value& config, const std::string& folder,
                const parx::text_files& files) {
  parx::process_group& job = wrapped.job_group();
  if constexpr (parx::distributed<Wrapped>) {
    if (job.rank() == 0) parx::save_pretrained_config(config, folder, files);
    parx::barrier(job);
    save_gathered(wrapped, folder + "/model.safetensors");
  } else if (job.rank() == 0) {
    parx::save_pretrained(wrapped.module(), config, folder, files);
  }
  parx::print0(job, "model: {}\n", folder);
}

}  // namespace examples
