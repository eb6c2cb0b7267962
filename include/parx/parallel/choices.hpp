// parallel_choices: what a parallel model lets its user choose beside the layout.
#pragma once

#include <parx/fsdp/unit_choice.hpp>
#include <parx/plan/work.hpp>
#include <parx/tensor_parallel/plan.hpp>

namespace parx::inline PARX_ABI {

/// What the library chooses by itself for the models that it knows.
struct parallel_choices {
  /// With tp=: how layers are cut. Empty: tp::ready_plan(model).
  tp::plan tp{};
  /// With zero=: what is gathered together. Empty: each block of the model that is one module.
  unit_choice units{};
  /// With "auto": what a step computes and keeps (plan/work.hpp). Without it traffic and memory
  /// alone count, and neither stages nor cut layers are looked at.
  step_work work{};
};

}  // namespace parx
