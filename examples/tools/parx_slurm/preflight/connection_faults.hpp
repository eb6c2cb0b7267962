// connection_faults: which node is at fault where connections between nodes have failed. Pure.
//
// A failed connection has two ends, and often one of them is innocent. The other connections of
// both ends tell which: a node that has reached another one can connect, and a node that another
// one has reached can be reached. Where that does not decide, a node with failed connections to
// several others is at fault. What is left lies between two nodes, and nobody knows on which side.
#pragma once

#include <string>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::slurm {

/// A connection that was tried.
struct tried_connection {
  std::string from;
  std::string to;
  std::string problem;  ///< empty: it works
};

struct connection_fault {
  std::string node;   ///< at fault; with `other`: one of the two, the later one of the order
  std::string other;  ///< not empty: the fault lies between it and `node`
  std::vector<tried_connection> failed;  ///< the connections that tell so
};

/// `order` has all nodes that `tried` names.
[[nodiscard]] std::vector<connection_fault> connection_faults(
    const std::vector<std::string>& order, const std::vector<tried_connection>& tried);

}  // namespace parx::slurm
