// wrapped_model: what the trainer needs of the wrapper that makes a model parallel: a ddp, or what
// shards parameters, layers or stages.
//
// Two groups. The data group: the ranks that work on different samples. Samplers deal samples out
// over it, counts and figures of samples are sums over it, dropout takes its rank. The job group:
// all ranks that train this model. Log lines, signals, checkpoints and decisions are made over it.
// Ranks of the job with equal ranks in their data groups work on the same samples, each on its part
// of the computation. A ddp has one group for both.
//
// Everything is called on all ranks of the job, from one thread and in the same order, so that each
// function may communicate. The free functions are found by the wrapper's namespace; those of ddp
// are in ddp/training_state.hpp.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <utility>

#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>
#include <parx/ddp/reducer.hpp>

namespace parx::inline PARX_ABI::train {

template <typename Wrapper, typename Optimizer>
concept wrapped_model =
    requires(Wrapper& wrapper, Optimizer& optimizer, checkpoint_parts& parts,
             const saved_checkpoint& saved, const std::string& path, call_site site) {
      { wrapper.data_group() } -> std::same_as<process_group&>;
      { wrapper.job_group() } -> std::same_as<process_group&>;
      // The ranks whose gradients make up the whole; nullptr where every rank holds all of them.
      { wrapper.gradient_group() } -> std::same_as<process_group*>;

  // The parameters that lie here, by path; train(), eval(), reseed() as far as it has them.
  wrapper.module();
  // A scope in which backward adds gradients up on this rank only.
  wrapper.no_sync();
  wrapper.zero_grad();
  // Any rank of the job raises its flag before a backward pass; after the step all of them see
  // the same answer.
  wrapper.raise_flag();
  { wrapper.flag_raised() } -> std::same_as<bool>;
  // All ranks get the buffers (running statistics) that are saved.
  wrapper.broadcast_buffers(site);

  // What backward passes have waited for, and the messages that gradients are sent in.
  { wrapper.times() } -> std::same_as<ddp_times>;
  { wrapper.bucket_count() } -> std::convertible_to<std::size_t>;
  { wrapper.bucket_bytes(std::size_t{}) } -> std::convertible_to<std::size_t>;

  // The norm of the whole gradient: the same number on all ranks, whoever holds which part.
  { grad_norm(wrapper, optimizer.targets(), site) } -> std::same_as<double>;

  // What this rank puts into a checkpoint: model, optimizer, what is remembered from step to
  // step. Memory of its own is given to parts.keep().
  add_training_state(wrapper, optimizer, parts, site);
  // The same for something else that is the parameters' (an optim::ema): the part `path`.
  add_part(wrapper, path, optimizer, parts);
  // The inverse of add_training_state, and the model's part of it alone.
  load_training_state(wrapper, optimizer, saved);
  load_model(wrapper, saved);
  // Why the others cannot go on where a rank is lost; empty for what is regroupable.
  { reason_to_stop_at_loss(wrapper) } -> std::same_as<std::string>;
  // Rank 0 of the job writes the whole model, wherever its parts lie, as one file.
  save_gathered(wrapper, path, site);
};

/// What can go on with the ranks of another group, each of which has the whole model.
template <typename Wrapper>
concept regroupable = requires(Wrapper& wrapper, process_group next) {
  wrapper.regroup(std::move(next));
};

}  // namespace parx::train
