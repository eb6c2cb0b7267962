// require_memory: refuses an fsdp that does not fit into memory, before any is allocated.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <parx/comm/process_group.hpp>
#include <parx/fsdp/options.hpp>
#include <parx/fsdp/sharded_parameter.hpp>
#include <parx/fsdp/unit_plan.hpp>
#include <parx/plan/cluster_of.hpp>
#include <parx/plan/require_fits.hpp>

namespace parx::inline PARX_ABI::detail {

/// `all` are the parameters in the order of the plan. Optimizer and activations are unknown here
/// and count as 0. Throws as require_fits does.
inline void require_memory(const unit_plan& plan,
                           const std::vector<std::unique_ptr<sharded_parameter>>& all,
                           const process_group& group, const fsdp_options& options,
                           const std::string& who) {
  model_shapes shapes;
  shapes.units.clear();
  for (const planned_unit& each : plan.units()) shapes.units.push_back(each.path);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const unit_place& place = plan.place(i);
    const bool by_rows = place.flat == unit_place::nowhere;
    shapes.parameters.push_back({.path = all[i]->name(),
                                 .extents = all[i]->extents(),
                                 .type = all[i]->type(),
                                 .rows = by_rows ? table_rows::of_a_batch : table_rows::none,
                                 .trainable = all[i]->is_trained(),
                                 .unit = place.unit});
  }
  const bool shared = options.stage == 3 && options.values != value_storage::gathered &&
                      group.shares_memory();
  require_fits(who, shapes, cluster_of(group),
               {.how = {.zero = options.stage}, .host_pages = shared});
}

}  // namespace parx::detail
