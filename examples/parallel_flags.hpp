// --parallel: how a training program deals its model out over the ranks, and what it does with a
// model that no rank has as a whole.
//
//   --parallel fsdp                 one of ddp, zero1, zero2, fsdp, hybrid
//   --parallel fsdp=2,tp=2,sp       the same of a model whose layers are cut over pairs of ranks
//   --parallel pp=2,dp=2,tp=2       stages
//   --parallel pp=2,zero1=2         stages whose optimizer state is cut over pairs of ranks
//
// See parallel_settings.hpp for all that it may say.
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
#include <parx/ddp/training_state.hpp>
#include <parx/fsdp.hpp>
#include <parx/fsdp/training_state.hpp>
#include <parx/mesh.hpp>
#include <parx/pipeline/parallelize.hpp>
#include <parx/pipeline/training_state.hpp>
#include <parx/plan.hpp>
#include <parx/tensor_parallel/generating.hpp>
#include <parx/tensor_parallel/plans.hpp>
#include <parx/tensor_parallel/training_state.hpp>
#include <parx/train.hpp>

namespace examples {

inline void add_parallel_flag(cxxopts::Options& options) {
  options.add_options("Ranks")(
      "parallel",
      "what is cut over the ranks: nothing (ddp), the optimizer's state (zero1), gradients as well "
      "(zero2), values as well (fsdp), the same inside each host (hybrid); =N: over N ranks; pp=N: "
      "N stages, with schedule=, microbatches=, chunks=; tp=N: layers cut over N ranks, with sp "
      "positions as well",
      text("ddp"));
}

[[nodiscard]] inline parallel_settings parallel_flag(const cxxopts::ParseResult& given) {
  return parse_parallel(given["parallel"].as<std::string>());
}

template <typename Wrapped>
inline constexpr bool is_cut = false;
template <typename Model>
inline constexpr bool is_cut<parx::fsdp<Model>> = true;

template <typename Wrapped>
inline constexpr bool has_cut_layers = false;
template <typename Inner>
inline constexpr bool has_cut_layers<parx::tensor_parallel<Inner>> = true;

template <typename Wrapped>
inline constexpr bool is_staged = false;
template <typename Model, typename Input, typename T>
inline constexpr bool is_staged<parx::parallel_model<Model, Input, T>> = true;

namespace detail {

/// The forward pass of a model in pieces that see a Batch or its input_ids; nullptr of one that has
/// none.
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

/// Collective. Throws where ranks were given different flags: they would wait for each other.
inline void require_same_flag(const parallel_settings& s, parx::process_group& group) {
  const auto digest = static_cast<std::int64_t>(std::hash<std::string>{}(s.said) >> 1U);
  std::int64_t range[] = {digest, -digest};
  parx::all_reduce(group, range, {.op = parx::reduce_op::max});
  parx::require(range[0] == -range[1],
                "--parallel \"{}\" is what rank {} was given, and another rank something else: "
                "give all of them the same",
                s.said, group.rank());
}

template <typename Model>
[[nodiscard]] parx::tp::plan plan_of(const parallel_settings& s, const Model& model) {
  using enum parx::nn::between_cuts;
  return parx::tp::ready_plan(model, s.by_positions ? positions : whole);
}

/// Calls use(wrapped) with a ddp or fsdp over `group`, a part of `job`.
template <typename Model, typename Use>
void with_samples(const parallel_settings& s, Model& model, parx::process_group& group,
                  const parx::process_group& job, std::uint64_t seed,
                  const parx::unit_choice& units, Use&& use) {
  constexpr std::size_t moments = 8;
  const auto machine = parx::cluster_of(job);
  const bool shared = s.stage == 3 && (s.within_hosts || group.shares_memory());
  parx::require_fits(parx::shapes_of(model), machine,
                     {.name = s.way,
                      .stage = s.stage,
                      .replicas = s.tp * (s.within_hosts ? machine.hosts : 1),
                      .host_pages = shared},
                     {}, moments);
  if (s.stage == 0) {
    model.initialize(seed);
    // What lies whole on the ranks of an axis stays equal there if its sums have one order.
    using enum parx::reduction_order;
    parx::ddp ddp{model, group, {.order = s.tp > 1 ? serial : any}};
    return use(ddp);
  }
  parx::fsdp fsdp{
      model, group,
      {.stage = s.stage,
       .units = units,
       .shard_within = s.within_hosts ? parx::shard_scope("host") : parx::shard_scope()}};
  fsdp.initialize(seed);
  use(fsdp);
}

}  // namespace detail

/// Collective. Calls use(wrapped) with the model, which has no values yet, as --parallel says.
/// `units` are what is gathered at a time; Batch is what a step gets. The first values come from
/// `seed`. Throws parx::usage_error where there are not as many ranks, layers cannot be cut so, or
/// the model and AdamW's state take more memory than there is.
template <typename Batch, typename Model, typename Use>
void with_parallel(const parallel_settings& s, Model& model, parx::process_group& group,
                   std::uint64_t seed, const parx::unit_choice& units, Use&& use) {
  detail::require_same_flag(s, group);
  parx::mesh<"pp", "dp", "tp"> mesh{group, {s.pp, s.dp, s.tp}};
  if (s.pp > 1) {
    parx::require(!s.within_hosts, "--parallel \"{}\": stages go with ddp, zero1, zero2 or fsdp",
                  s.said);
    std::optional<parx::fsdp_options> sharding;
    if (s.stage > 0) sharding = parx::fsdp_options{.stage = s.stage, .units = units};
    auto blocks = detail::blocks_of<Batch>(model);
    if constexpr (std::is_same_v<decltype(blocks), std::nullptr_t>) {
      parx::throw_usage("--parallel \"{}\": this program's model has no blocks() to make stages of",
                        s.said);
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
  if (s.tp == 1) return detail::with_samples(s, model, group, group, seed, units, use);
  const auto cut = parx::parallelize(model, mesh["tp"], detail::plan_of(s, model));
  detail::with_samples(s, model, mesh["dp"], group, seed, units, [&](auto& inner) {
    parx::tensor_parallel parallel{cut, inner, mesh.all()};
    use(parallel);
  });
}

/// Whether this rank needs samples; loaders of stages in the middle fetch none.
template <typename Wrapped>
[[nodiscard]] bool reads_batches(const Wrapped& wrapped) {
  if constexpr (is_staged<Wrapped>) {
    return wrapped.reads_batches();
  } else {
    return true;
  }
}

/// nn::cross_entropy of what the model returns, of whose classes a rank may have a part.
template <typename Wrapped, typename Logits, typename Labels>
auto cross_entropy(Wrapped& wrapped, const Logits& logits, const Labels& labels,
                   const parx::cross_entropy_options& options = {}) {
  if constexpr (is_staged<Wrapped> || has_cut_layers<Wrapped>) {
    return wrapped.cross_entropy(logits, labels, options);
  } else {
    return parx::nn::cross_entropy(logits, labels, options);
  }
}

/// The parts of a batch; of a short one, a row each at least.
template <typename Wrapped, typename Batch>
std::vector<Batch> microbatches_of(Wrapped& wrapped, const Batch& batch) {
  return parx::split_batch(
      batch, std::min(wrapped.table().microbatches, static_cast<int>(batch.size())));
}

/// Collective: the loss of a batch for a trainer. `forward`(wrapped, batch) makes what
/// `criterion`(result, batch) judges; stages are run forwards and backwards here.
template <typename Wrapped, typename Batch, typename Forward, typename Criterion>
auto train_loss(Wrapped& wrapped, const Batch& batch, Forward forward, Criterion criterion) {
  if constexpr (is_staged<Wrapped>) {
    const auto parts = microbatches_of(wrapped, batch);
    return wrapped.step(std::span<const Batch>(parts), criterion);
  } else {
    return criterion(forward(wrapped, batch), batch);
  }
}
/// Collective: figures of a batch for an evaluation, each a function of the model's result and the
/// batch.
template <typename Wrapped, typename Batch, typename Forward, typename... Criterion>
parx::train::metrics measure(Wrapped& wrapped, const Batch& batch, Forward forward,
                             const std::pair<const char*, Criterion>&... figures) {
  if constexpr (is_staged<Wrapped>) {
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
  copy.materialize();
  if constexpr (is_staged<Wrapped>) {
    // Of those that have the same part, the first one adds it to zeros.
    const auto how = sharded_over(wrapped);
    std::map<std::string, parx::parameter<float>> parts;
    wrapped.module().for_each_parameter([&](const std::string& path, auto& part) {
      if (how.copies(path, part.spec()).index == 0) parts.emplace(path, part);
    });
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
  } else if constexpr (has_cut_layers<Wrapped>) {
    std::vector<parx::parameter<float>> all = copy.parameters();
    std::size_t next = 0;
    wrapped.for_each_whole_value([&](const std::string&, const parx::tensor<float>& whole) {
      std::copy(whole.begin(), whole.end(), all[next++].value().begin());
    });
  } else {
    std::vector<parx::parameter<float>> parts = wrapped.parameters();
    std::size_t next = 0;
    copy.for_each_parameter([&](const std::string&, parx::parameter<float>& whole) {
      const auto part = parts[next++].value().span();
      if constexpr (is_cut<Wrapped>) {
        // The parts of the ranks follow each other in the whole.
        parx::process_group& group = wrapped.shard_group();
        const std::size_t own = part.size();
        std::vector<std::size_t> sizes(static_cast<std::size_t>(group.size()));
        parx::all_gather(group, std::span(&own, 1), sizes);
        parx::all_gather_v(group, part, whole.value().span(), sizes);
      } else {
        std::copy(part.begin(), part.end(), whole.value().begin());
      }
    });
  }
}

/// Collective. f(writer), which writes texts as the model does, and is the model or a copy of it or
/// cut as it is: on rank 0 alone where a rank has all of it, else on all of them together.
template <typename Wrapped, typename Model, typename F>
void on_model(Wrapped& wrapped, Model& model, F&& f) {
  if constexpr (is_staged<Wrapped>) {
    Model whole{model.config()};
    copy_values(wrapped, whole);
    if (wrapped.job_group().rank() == 0) f(whole);
  } else if constexpr (has_cut_layers<Wrapped>) {
    parx::tp::generating writer{wrapped.cut(), model};
    on_model(wrapped.inner(), writer, f);
  } else if constexpr (is_cut<Wrapped>) {
    wrapped.call([&] { f(model); });
  } else if (wrapped.group().rank() == 0) {
    f(model);
  }
}

/// Collective. The model as a folder in Hugging Face's layout.
template <typename Wrapped>
void save_model(Wrapped& wrapped, const parx::json::value& config, const std::string& folder,
                const parx::text_files& files) {
  parx::process_group& job = wrapped.job_group();
  if constexpr (is_cut<Wrapped> || has_cut_layers<Wrapped> || is_staged<Wrapped>) {
    if (job.rank() == 0) parx::save_pretrained_config(config, folder, files);
    parx::barrier(job);
    save_gathered(wrapped, folder + "/model.safetensors");
  } else if (job.rank() == 0) {
    parx::save_pretrained(wrapped.module(), config, folder, files);
  }
  parx::print0(job, "model: {}\n", folder);
}

}  // namespace examples
