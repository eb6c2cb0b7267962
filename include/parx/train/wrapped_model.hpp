// wrapped_model: the interface between the trainer and the wrapper that makes a model parallel: a
// parx::parallel, ddp or fsdp.
//
// There are two groups. The data group has the ranks that work on different samples: samplers
// divide the samples over it, counts of samples are summed over it, dropout is seeded with its
// rank. The job group has all ranks that train this model: log lines, signals, checkpoints and
// decisions concern all of it. Ranks of the job with equal ranks in their data groups work on the
// same samples, each on its part of the computation. A ddp has one group for both.
//
// Everything is called on all ranks of the job, from one thread and in the same order, so each
// function may communicate. The free functions are found by argument-dependent lookup. Those of
// parx's own wrappers are in checkpoint/save.hpp; sharded_over() is in the chapter of each sharding
// wrapper.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <utility>

#include <parx/checkpoint/distributed_wrapper.hpp>
#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>
#include <parx/reduction/times.hpp>

namespace parx::inline PARX_ABI::train {

template <typename Wrapper, typename Optimizer>
concept wrapped_model = requires(Wrapper& wrapper, Optimizer& optimizer, checkpoint_parts& parts,
                                 const saved_checkpoint& saved, const std::string& path,
                                 call_site site) {
  { wrapper.data_group() } -> std::same_as<process_group&>;
  { wrapper.job_group() } -> std::same_as<process_group&>;

  // The model with this rank's parameters; train(), eval(), reseed() are called if it has them.
  wrapper.module();
  // A scope in which backward accumulates gradients on this rank only.
  wrapper.no_sync();
  wrapper.zero_grad();
  // Any rank of the job may raise its flag before a backward pass; after the step flag_raised()
  // is the same on all of them.
  wrapper.raise_flag();
  { wrapper.flag_raised() } -> std::same_as<bool>;
  // Copies the buffers (running statistics) that would be saved to all ranks.
  wrapper.broadcast_buffers(site);

  // How long backward passes communicated and waited, and the sizes of the gradient buckets.
  { wrapper.times() } -> std::same_as<reduction_times>;
  { wrapper.bucket_count() } -> std::convertible_to<std::size_t>;
  { wrapper.bucket_bytes(std::size_t{}) } -> std::convertible_to<std::size_t>;

  // Adds to a checkpoint what this rank saves: model, optimizer, and any state that lasts from
  // step to step. parts.keep() takes memory that must live until the checkpoint is written.
  add_training_state(wrapper, optimizer, parts, site);
  // The same for other state of the parameters (an optim::ema), as the part `path`.
  add_part(wrapper, path, optimizer, parts);
  // The inverse of add_training_state, and the model's part of it alone.
  load_training_state(wrapper, optimizer, saved);
  load_model(wrapper, saved);
  // The inverse of add_part.
  load_part(wrapper, path, optimizer, saved);
  // Why training cannot continue after a rank is lost; empty if the wrapper is regroupable.
  { wrapper.reason_to_stop_at_loss() } -> std::same_as<std::string>;
  // Writes the whole model as one file.
  save(wrapper, path, site);
};

namespace detail {

// Values, not concepts: where one is false the compiler says the sentence beside it and no more.
template <typename Model>
inline constexpr bool is_in_a_wrapper = requires(Model& model) { model.data_group(); };
template <typename Wrapper, typename Optimizer>
inline constexpr bool has_its_whole_chapter =
    !distributed<Wrapper> || std::derived_from<Wrapper, whole_wrapper> ||
    (wrapped_model<Wrapper, Optimizer> && requires(Wrapper& wrapper) { sharded_over(wrapper); });

/// Names what a wrapper that is none of parx's lacks.
template <typename Wrapper, typename Optimizer>
[[nodiscard]] consteval bool is_complete() {
  static_assert(!is_in_a_wrapper<Wrapper> || distributed<Wrapper> ||
                    wrapped_model<Wrapper, Optimizer>,
                "this wrapper lacks what a trainer asks of it: train/wrapped_model.hpp lists that");
  return true;
}

}  // namespace detail

/// A wrapper that can continue with the ranks of another group, each of which has the whole model.
template <typename Wrapper>
concept regroupable = requires(Wrapper& wrapper, process_group next) {
  wrapper.regroup(std::move(next));
};

}  // namespace parx::train
