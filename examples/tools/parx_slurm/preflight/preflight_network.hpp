// preflight_network: what the nodes have found out about each other, as findings: whether they
// took part to the end, which of them cannot be reached, and whose clock is wrong. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/common/host_facts.hpp"
#include "tools/common/host_tests.hpp"
#include "tools/parx_slurm/preflight/connection_faults.hpp"

namespace parx::inline PARX_ABI::slurm::detail {

inline constexpr std::string_view try_without = "Leave it out, or try again";

/// "it cannot connect to the first node, n1: refused", "n3 and 1 more cannot connect to it: ...",
/// or both.
[[nodiscard]] std::vector<std::string> facts_of(const connection_fault& fault,
                                                const std::string& first);

/// `nodes`: those whose facts are known, the first one among them; `any_is_silent`: of others
/// nothing is known. A node that did not take part to the end is at fault alone, whatever its peers
/// say.
void check_network(const std::vector<const host_facts*>& nodes, bool any_is_silent,
                   std::vector<finding>& found);

}  // namespace parx::slurm::detail
