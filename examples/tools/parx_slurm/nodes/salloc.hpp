// salloc: the options that ask Slurm for the nodes that slurm::candidates() has counted. Pure.
#pragma once

#include <string>
#include <vector>

#include "tools/common/compress_hostlist.hpp"
#include "tools/parx_slurm/nodes/where.hpp"

namespace parx::inline PARX_ABI::slurm {

namespace detail {

/// Features that together every usable node has one of and none of `unfit` has; empty where there
/// are none.
[[nodiscard]] std::vector<std::string> telling_features(const std::vector<sinfo_node>& usable,
                                                        const std::vector<sinfo_node>& unfit);

}  // namespace detail

/// "-p zen -N 3 --ntasks-per-node=1 -c 8 -t 30 -C avx2". One task a node, which is what parxrun
/// wants; `nodes` are all of the cluster. Nodes of the partition that would be refused, and that
/// Slurm could choose all the same, are kept out by a feature where one tells them apart, else by
/// name.
[[nodiscard]] std::vector<std::string> salloc_options(const candidate& chosen,
                                                      const std::vector<sinfo_node>& nodes,
                                                      const node_request& request);

}  // namespace parx::slurm
