// automatic_layout: the fastest layout that fits, by the planner's figures (plan.hpp).
#pragma once

#include <algorithm>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/plan/layout.hpp>
#include <parx/plan/plan.hpp>

namespace parx::inline PARX_ABI {

/// What a model and its ranks permit beside ddp and zero.
struct model_abilities {
  int most_stages = 1;      ///< blocks()
  bool can_be_cut = false;  ///< a plan of tensor parallelism is known
  int most_zero = 3;        ///< what can be sharded
  /// The ranks of the job: a plan counts every host as full. 0: those of the plan.
  int ranks = 0;
  bool has_even_hosts = true;  ///< each host has as many ranks as any other
};

/// Pure. The first of plan()'s layouts that the model can have: those that fit come first, the
/// fastest of them at the front. Without `work` only traffic and memory count. Throws usage_error
/// where nothing fits.
[[nodiscard]] inline layout automatic_layout(const model_shapes& shapes, const cluster& machine,
                                             const step_work& work,
                                             const model_abilities& abilities = {},
                                             std::size_t optimizer_bytes = 8) {
  const training_plan found = plan(shapes, machine, work, {.optimizer_bytes = optimizer_bytes});
  const auto first =
      std::find_if(found.steps.begin(), found.steps.end(), [&](const planned_step& each) {
        const layout& how = each.layout.how;
        return how.pp <= abilities.most_stages && how.zero <= abilities.most_zero &&
               (how.tp == 1 || abilities.can_be_cut) && abilities.ranks % (how.pp * how.tp) == 0 &&
               (!how.hybrid || abilities.has_even_hosts);
      });
  require(first != found.steps.end() && first->fits,
          "layout \"auto\": no layout of this model fits into the memory of {} ranks on {} hosts: "
          "take more ranks or hosts (parx_plan shows what each layout needs)",
          machine.ranks, machine.hosts);
  return first->layout.how;
}

}  // namespace parx
