// --parallel: how a training program deals its model out over the ranks, and what it does with a
// model that no rank has as a whole.
//
//   --parallel ddp | zero1 | zero2 | fsdp | hybrid
//
// See parallel_settings.hpp for all that it may say.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
#include <parx/plan.hpp>

namespace examples {

inline void add_parallel_flag(cxxopts::Options& options) {
  options.add_options("Ranks")(
      "parallel",
      "what is cut over the ranks: nothing (ddp), the optimizer's state (zero1), gradients as well "
      "(zero2), values as well (fsdp), the same inside each host (hybrid); =N: over N ranks; pp=N: "
      "N stages, with schedule=, microbatches=, chunks=; tp=N: layers cut over N ranks",
      text("ddp"));
}

[[nodiscard]] inline parallel_settings parallel_flag(const cxxopts::ParseResult& given) {
  return parse_parallel(given["parallel"].as<std::string>());
}

/// Collective. Calls use(wrapped) with the model, which has no values yet, as --parallel says.
/// `units` are what is gathered at a time. The first values come from `seed`. Throws
/// parx::usage_error where that and AdamW's state take more memory than there is.
template <typename Model, typename Use>
void with_parallel(const parallel_settings& s, Model& model, parx::process_group& group,
                   std::uint64_t seed, const parx::unit_choice& units, Use&& use) {
  parx::require(s.pp == 1 && s.tp == 1,
                "--parallel \"{}\": this program cuts its model into neither stages nor layers",
                s.said);
  const parx::mesh<"dp"> mesh{group, {s.dp}};
  constexpr std::size_t moments = 8;
  const auto machine = parx::cluster_of(group);
  const bool shared = s.stage == 3 && (s.within_hosts || group.shares_memory());
  parx::require_fits(parx::shapes_of(model), machine,
                     {.name = s.way,
                      .stage = s.stage,
                      .replicas = s.within_hosts ? machine.hosts : 1,
                      .host_pages = shared},
                     {}, moments);
  if (s.stage == 0) {
    model.initialize(seed);
    parx::ddp ddp{model, group};
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

template <typename Wrapped>
inline constexpr bool is_cut = false;
template <typename Model>
inline constexpr bool is_cut<parx::fsdp<Model>> = true;

/// Collective. f() with methods of the model: on rank 0 alone where every rank has all of it, else
/// on all of them together.
template <typename Wrapped, typename F>
void on_model(Wrapped& wrapped, F&& f) {
  if constexpr (is_cut<Wrapped>) {
    wrapped.call(std::forward<F>(f));
  } else if (wrapped.group().rank() == 0) {
    std::forward<F>(f)();
  }
}

/// Collective. Gives `copy`, a model of the same configuration, all values on every rank.
template <typename Wrapped, typename Model>
void copy_values(Wrapped& wrapped, Model& copy) {
  std::vector<parx::parameter<float>> parts = wrapped.parameters();
  std::size_t next = 0;
  copy.materialize();
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

/// Collective. The model as a folder in Hugging Face's layout.
template <typename Wrapped>
void save_model(Wrapped& wrapped, const parx::json::value& config, const std::string& folder,
                const parx::text_files& files) {
  const bool is_first = wrapped.group().rank() == 0;
  if constexpr (is_cut<Wrapped>) {
    if (is_first) parx::save_pretrained_config(config, folder, files);
    parx::barrier(wrapped.group());
    save_gathered(wrapped, folder + "/model.safetensors");
  } else if (is_first) {
    parx::save_pretrained(wrapped.module(), config, folder, files);
  }
  parx::print0(wrapped.group(), "model: {}\n", folder);
}

}  // namespace examples
