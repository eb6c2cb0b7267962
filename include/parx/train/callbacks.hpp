// callbacks: functions of the user's at the trainer's turning points, Hugging Face's
// TrainerCallback.
//
//   trainer.add_callbacks({.on_evaluate = [&](const auto& state, const auto& figures) { ... }});
//
// Called on every rank, on the thread that trains. One that communicates does so on all ranks. An
// exception ends training on all ranks.
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
  at_figures on_log = {};       ///< with the line
  at_figures on_evaluate = {};  ///< with the figures, "eval_loss", ...
  /// When the checkpoint of this step is on the disk, for which training waits then; without one it
  /// is written while training goes on. Added before train().
  at_state on_save = {};
  at_state on_train_end = {};
};

}  // namespace parx::train
