// cluster_of: the ranks and hosts of a group, for a plan.
#pragma once

#include <parx/comm/process_group.hpp>
#include <parx/plan/cluster.hpp>

namespace parx::inline PARX_ABI {

/// Local. If hosts have different numbers of ranks, all count as having as many as the fullest.
/// Speeds are cluster's defaults.
[[nodiscard]] cluster cluster_of(const process_group& group);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/plan/detail/cluster_of_impl.hpp>
#endif
