// node_state: whether a node can be had, by the word that sinfo prints for it. Pure.
#pragma once

#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::slurm {

enum class availability {
  free,         ///< idle, or with some cores free
  busy,         ///< all its cores belong to jobs, or a job is ending on it
  planned,      ///< kept free for a job that waits
  maintenance,  ///< in a reservation for maintenance
  reserved,     ///< in a reservation of somebody
  drained,      ///< its administrator gives it no more jobs
  down,         ///< it does not answer, or failed, or is being rebooted
};

struct node_state {
  availability is = availability::down;
  bool powered_off = false;  ///< to save energy: Slurm starts it for a job, which takes minutes
};

/// `word` is sinfo's %t or %T: "idle", "mix-", "drng", "idle~", "DOWN*", "draining@". An unknown
/// word counts as down.
/// Source: https://slurm.schedmd.com/sinfo.html#SECTION_NODE-STATE-CODES.
[[nodiscard]] node_state parse_node_state(std::string_view word);

[[nodiscard]] std::string to_string(availability is);

}  // namespace parx::slurm
