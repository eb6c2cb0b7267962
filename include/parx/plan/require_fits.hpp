// require_fits: refuses a layout that does not fit into memory, before anything is allocated.
#pragma once

#include <cstddef>
#include <string>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/plan/plan.hpp>
#include <parx/plan/table.hpp>

namespace parx::inline PARX_ABI {

/// Local. Throws usage_error unless `layout` fits; the error says what `who` needs, and which
/// layouts would fit. A caller that does not know the optimizer or the batch leaves optimizer_bytes
/// and `work` at 0. With equal arguments the result is the same on all ranks.
inline void require_fits(const std::string& who, const model_shapes& shapes,
                         const cluster& machine, const planned_layout& layout,
                         const step_work& work = {}, std::size_t optimizer_bytes = 0) {
  const planned_step wanted = plan_step(shapes, machine, work, layout, optimizer_bytes);
  if (wanted.fits) return;
  const auto size = [](std::size_t bytes) { return detail::readable_bytes(bytes); };
  const planned_memory& m = wanted.memory;
  std::string others;
  for (const planned_step& each :
       plan(shapes, machine, work, {.optimizer_bytes = optimizer_bytes}).steps) {
    if (!each.fits) continue;
    others += formatted("{}{} ({})", others.empty() ? "" : ", ", to_string(each.layout.how),
                        size(each.memory.total()));
  }
  throw_usage(
      "{} of {:.4g} million parameters needs {} on each rank (values {}, gradients {}, "
      "optimizer {}, units and rows in use {}, activations {}), and the {} ranks of a host "
      "have {} each. {}",
      who, static_cast<double>(shapes.count()) / 1e6, size(m.total()), size(m.values),
      size(m.gradients), size(m.optimizer), size(m.working), size(m.activations),
      machine.ranks_a_host(), size(machine.memory_of_rank()),
      others.empty() ? "Take more hosts, fewer ranks on each, or a smaller model or batch"
                     : "What fits: " + others);
}

}  // namespace parx
