// preflight: what would go wrong on the nodes of a job, before it is started. Pure: from the facts
// of the nodes to a line for each node and a sentence for each fault, with its remedy.
#pragma once

#include <string>
#include <vector>

#include "tools/common/host_facts.hpp"
#include "tools/common/host_tests.hpp"

namespace parx::inline PARX_ABI::slurm {

/// The hash that most nodes have, of the program or the image; empty where none has one.
[[nodiscard]] std::string usual_hash(const std::vector<host_facts>& facts,
                                     std::string host_facts::*hash = &host_facts::program_hash);

/// A sentence for each fault. `expected`: all nodes of the job, by Slurm's names; `facts` are of
/// those that answered, in any order.
[[nodiscard]] std::vector<finding> preflight(const std::vector<std::string>& expected,
                                             const std::vector<host_facts>& facts,
                                             const host_needs& needs);

/// "n07  ok  bin 91ab03de  cores 32  AVX2  memory 61 GB  /dev/shm 14 GB  clock +0.003 s".
[[nodiscard]] std::string node_line(const host_facts& node, const std::vector<finding>& found);

}  // namespace parx::slurm
