// callbacks: user functions that the trainer calls, as Hugging Face's TrainerCallback.
//
//   trainer.add_callbacks({.on_evaluate = [&](const auto& state, const auto& figures) { ... }});
//
// Called on every rank, on the thread that trains. A callback that communicates must do so on all
// ranks. An exception ends training on all ranks.
#pragma once

#include <functional>

#include <parx/train/record.hpp>
#include <parx/train/state.hpp>

namespace parx::inline PARX_ABI::train {

struct callbacks {
  using at_state = std::function<void(const trainer_state&)>;
  using at_figures = std::function<void(const trainer_state&, const record&)>;

  at_state on_train_begin = {};
  at_state on_step_end = {};  ///< after the optimizer's step
  at_state on_epoch_end = {};
  at_figures on_log = {};       ///< with the log line
  at_figures on_evaluate = {};  ///< with the metrics, "eval_loss", ...
  /// Called when the checkpoint of this step is on the disk. With such a callback training waits
  /// for the disk; otherwise the checkpoint is written in the background. Add it before train().
  at_state on_save = {};
  at_state on_train_end = {};
};

}  // namespace parx::train
