// The functions that a trainer needs from a ddp besides forward and backward
// (train/wrapped_model.hpp): saving and loading checkpoints. Every rank holds the whole state.
#pragma once

#include <memory>
#include <string>

#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/ddp/ddp.hpp>
#include <parx/ddp/hook_state.hpp>
#include <parx/ddp/save.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// Throws usage_error for a ddp whose ranks may hold different parts of the model.
template <typename Module>
void require_one_group(const ddp<Module>& wrapper, call_site site) {
  require(wrapper.has_one_group(),
          "trainer at {}: this ddp sums some gradients over reduction_groups of their own, so its "
          "ranks may hold different parts of the model, and the norm and the checkpoint of one of "
          "them would be those of a part. Train it in a loop of your own: merge the norm with "
          "optim::grad_squares over the ranks that hold the parts, and save each part",
          site);
}

}  // namespace detail

/// Collective. Adds the parts "model", "optimizer" and, if the hook has state, "gradient_hook".
/// Model and optimizer are borrowed. Throws usage_error for a ddp with reduction groups; so does
/// save_gathered.
template <typename Module, typename Optimizer>
void add_training_state(ddp<Module>& wrapper, Optimizer& optimizer, checkpoint_parts& parts,
                        call_site site = call_site::current()) {
  detail::require_one_group(wrapper, site);
  parts.add("model", wrapper.module()).add("optimizer", optimizer);
  const auto hook = std::make_shared<hook_state>(wrapper, site);
  hook->add_to(parts);
  parts.keep(hook);
}

/// Local. Adds `state` as the part `name`; every rank has all of it. Borrowed.
template <typename Module, typename State>
void add_part(ddp<Module>& /*wrapper*/, const std::string& name, State& state,
              checkpoint_parts& parts) {
  parts.add(name, state);
}

/// Local, on every rank. Throws as load_state does if the parameters differ.
template <typename Module>
void load_model(ddp<Module>& wrapper, const saved_checkpoint& saved) {
  saved.load("model", wrapper.module());
}

/// Local, on every rank. The inverse of add_training_state.
template <typename Module, typename Optimizer>
void load_training_state(ddp<Module>& wrapper, Optimizer& optimizer,
                         const saved_checkpoint& saved) {
  load_model(wrapper, saved);
  saved.load("optimizer", optimizer);
  load_hook_state(wrapper, saved);
}

/// Local. Why training cannot continue after a rank is lost; empty if it can: every rank then holds
/// the whole state.
template <typename Module>
[[nodiscard]] std::string reason_to_stop_at_loss(ddp<Module>& wrapper) {
  if (!wrapper.has_one_group()) {
    return "this ddp sums some gradients over reduction_groups of their own, which a lost rank "
           "leaves incomplete";
  }
  if (wrapper.has_hook_state()) {
    return "this ddp's hook keeps what it has not sent yet on each rank, and a lost rank's is gone";
  }
  return {};
}

/// Collective. Rank 0 writes the parameters to `path`, see save0.
template <typename Module>
void save_gathered(ddp<Module>& wrapper, const std::string& path,
                   call_site site = call_site::current()) {
  detail::require_one_group(wrapper, site);
  save0(wrapper.group(), wrapper.module(), path, site);
}

}  // namespace parx
