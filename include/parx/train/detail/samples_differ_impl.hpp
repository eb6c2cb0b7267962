// Definitions of samples_differ.hpp.
#pragma once

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/train/detail/samples_differ.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE void require_own_part(std::size_t rank, std::size_t world, const process_group& group,
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

PARX_INLINE void require_replicas(int replicas, int dealt) {
  require(dealt == replicas,
          "trainer: the layout has {} virtual replicas, and the sampler deals samples to {}: give "
          "the loader the model, parx::data::loader{{dataset, model, options}}, which deals to "
          "them shuffled samples, and sequential ones with .samples = {{.replicas = {}}}",
          replicas, dealt, replicas);
}

PARX_INLINE void require_evaluable(const evaluation_data& given, const process_group& group,
                                   const std::string& prefix) {
  require(given.batches > 0,
          "trainer: the evaluation \"{}\" has no batch: {} samples for {} ranks, {} a batch. Give "
          "it samples, and remainder::exact and last_batch::keep so that none are left out",
          prefix, given.samples, group.size(), given.batch_size);
  require_own_part(given.rank, given.world, group, formatted("the evaluation \"{}\"", prefix));
}

}  // namespace parx::train::detail
