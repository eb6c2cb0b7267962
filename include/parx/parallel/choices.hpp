// parallel_choices: what a parallel model lets its user choose beside the layout.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <parx/fsdp/unit_choice.hpp>
#include <parx/pipeline/action.hpp>
#include <parx/plan/work.hpp>
#include <parx/tensor_parallel/plan.hpp>

namespace parx::inline PARX_ABI {

/// How a model is divided into stages, and in what order they work. Equal on all ranks.
struct pipeline_choices {
  /// The first block of each stage, from 0. Empty: balanced by `weights`.
  std::vector<std::size_t> cut{};
  /// The cost of each block, in any unit, such as measure()'s seconds. Empty: its parameter count.
  std::vector<double> weights{};
  /// With schedule=eager_1f1b: a message's time in forwards and backwards of a micro-batch, as
  /// measure() gives it.
  double hop = 0;
  /// Your own table (from_csv) instead of the layout's schedule; it fixes the number of
  /// micro-batches, and its ranks are pp.
  std::optional<pipeline_table> table{};
};

/// What the library chooses by itself for the models that it knows.
struct parallel_choices {
  /// With tp=: how layers are cut. Empty: tp::ready_plan(model).
  tp::plan tp{};
  /// With zero=: what is gathered together. Empty: each block of the model that is one module.
  unit_choice units{};
  /// With pp=.
  pipeline_choices pipeline{};
  /// With "auto": what a step computes and keeps (plan/work.hpp). Without it traffic and memory
  /// alone count, and neither stages nor cut layers are looked at.
  step_work work{};
};

}  // namespace parx
