// Definitions of require_fits.hpp.
#pragma once

#include <string>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/plan/require_fits.hpp>
#include <parx/plan/table.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE void require_fits(const model_shapes& shapes, const cluster& machine,
                              const plan_layout& layout, const step_work& work,
                              std::size_t optimizer_bytes) {
  const planned_step wanted = plan_step(shapes, machine, work, layout, optimizer_bytes);
  if (wanted.fits) return;
  const auto size = [](std::size_t bytes) { return detail::readable_bytes(bytes); };
  const planned_memory& m = wanted.memory;
  std::string others;
  for (const planned_step& each :
       plan(shapes, machine, work, {.optimizer_bytes = optimizer_bytes}).steps) {
    if (!each.fits) continue;
    others += formatted("{}{} ({})", others.empty() ? "" : ", ", each.layout.name,
                        size(each.memory.total()));
  }
  throw_usage(
      "{} of {:.4g} million parameters needs {} on each rank (values {}, gradients {}, "
      "optimizer {}, units and rows in use {}, activations {}), and the {} ranks of a host "
      "have {} each. {}",
      layout.name, static_cast<double>(shapes.count()) / 1e6, size(m.total()), size(m.values),
      size(m.gradients), size(m.optimizer), size(m.working), size(m.activations),
      machine.ranks_a_host(), size(machine.memory_of_rank()),
      others.empty() ? "Take more hosts, fewer ranks on each, or a smaller model or batch"
                     : "What fits: " + others);
}

}  // namespace parx
