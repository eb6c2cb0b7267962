// samples_differ: checks that every rank works on different samples. A loader that was made without
// the model gives all ranks the same samples in the same order, and training would run as if there
// were one rank. Local.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/train/run_plan.hpp>

namespace parx::inline PARX_ABI::train::detail {

/// Throws usage_error unless `rank` and `world`, a sampler's, are those of `group`. `what` says in
/// the message what the samples are for.
inline void require_own_part(std::size_t rank, std::size_t world, const process_group& group,
                             std::string_view what) {
  const auto own = static_cast<std::size_t>(group.rank());
  const auto ranks = static_cast<std::size_t>(group.size());
  if (rank == own && world == ranks) return;
  constexpr const char* advice =
      "Give the loader the model: parx::data::loader{dataset, model, {.batch_size = ...}}";
  require(world != 1,
          "trainer: each of the {} ranks would take all samples of {}, in the same order, because "
          "the loader knows neither the model nor a sampler. {}",
          ranks, what, advice);
  throw_usage(
      "trainer: this is rank {} of {}, but the sampler of {} takes the part of rank {} of {}, so "
      "that some samples would come several times and others never. {}",
      own, ranks, what, rank, world, advice);
}
template <typename Sampler>
void check_samples_differ(const Sampler& sampler, const process_group& group,
                          std::string_view what) {
  require_own_part(sampler.rank(), sampler.world(), group, what);
}

/// The virtual replicas of the model's layout; 0 without.
template <typename Wrapper>
[[nodiscard]] int replicas_in(const Wrapper& wrapper) {
  if constexpr (requires { wrapper.layout().replicas; }) return wrapper.layout().replicas;
  else return 0;
}

/// The seed of dropout in a step. A virtual replica has a number of its own, which the model knows.
template <typename Wrapper>
[[nodiscard]] std::uint64_t seed_of_step(Wrapper& wrapper, std::uint64_t seed, std::uint64_t step) {
  return step_seed(seed, step, replicas_in(wrapper) > 0 ? 0 : wrapper.data_group().rank());
}

/// Throws usage_error unless the samples are `dealt` to as many virtual replicas as the model has.
inline void require_replicas(int replicas, int dealt) {
  require(dealt == replicas,
          "trainer: the layout has {} virtual replicas, and the sampler deals samples to {}: give "
          "the loader the model, parx::data::loader{{dataset, model, options}}, which deals to "
          "them shuffled samples, and sequential ones with .samples = {{.replicas = {}}}",
          replicas, dealt, replicas);
}
template <typename Sampler, typename Wrapper>
void check_replicas(const Sampler& sampler, const Wrapper& wrapper) {
  int dealt = 0;
  if constexpr (requires { sampler.options().replicas; }) dealt = sampler.options().replicas;
  require_replicas(replicas_in(wrapper), dealt);
}

/// Whether a sampler deals the samples to virtual replicas.
template <typename Sampler>
[[nodiscard]] bool has_replicas(const Sampler& sampler) {
  if constexpr (requires { sampler.options().replicas; }) return sampler.options().replicas > 0;
  else return false;
}
/// To how many it deals them.
template <typename Sampler>
[[nodiscard]] std::size_t parts_of(const Sampler& sampler, std::size_t ranks) {
  if constexpr (requires { sampler.parts(); }) {
    if (has_replicas(sampler)) return sampler.parts();
  }
  return ranks;
}

/// A loader whose samples can be divided anew over other ranks, as those of a data::loader.
template <typename Loader>
concept dealable = requires(const Loader& loader, const process_group& group) {
  { loader.dealt_to(group) } -> std::same_as<Loader>;
};

/// The loader with the samples of this rank of `group`: the same samples as before unless ranks
/// have been lost.
template <typename Loader>
[[nodiscard]] decltype(auto) dealt_to(const process_group& group, const Loader& loader) {
  if constexpr (dealable<Loader>) {
    return loader.dealt_to(group);
  } else {
    return (loader);
  }
}

/// The samples of an evaluation, as its loader gives them.
struct evaluation_data {
  std::size_t samples = 0;
  std::size_t batches = 0;  ///< of this rank
  std::size_t batch_size = 0;
  std::size_t rank = 0;  ///< of the sampler
  std::size_t world = 1;
};
/// Throws usage_error if it has no batch or several ranks would take the same samples.
inline void require_evaluable(const evaluation_data& given, const process_group& group,
                              const std::string& prefix) {
  require(given.batches > 0,
          "trainer: the evaluation \"{}\" has no batch: {} samples for {} ranks, {} a batch. Give "
          "it samples, and remainder::exact and last_batch::keep so that none are left out",
          prefix, given.samples, group.size(), given.batch_size);
  require_own_part(given.rank, given.world, group, formatted("the evaluation \"{}\"", prefix));
}
template <typename Loader>
[[nodiscard]] evaluation_data evaluation_data_of(const Loader& loader) {
  const auto& sampler = loader.sampler();
  return {.samples = static_cast<std::size_t>(sampler.size()),
          .batches = static_cast<std::size_t>(loader.batches()),
          .batch_size = static_cast<std::size_t>(loader.batch_size()),
          .rank = static_cast<std::size_t>(sampler.rank()),
          .world = static_cast<std::size_t>(sampler.world())};
}

}  // namespace parx::train::detail
