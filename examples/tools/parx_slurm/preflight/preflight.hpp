// preflight: what would go wrong on the nodes of a job, before it is started. Pure: from the facts
// of the nodes to a line for each node and a sentence for each fault, with its remedy.
#pragma once

#include <string>
#include <vector>

#include "tools/common/host_facts.hpp"
#include "tools/parx_slurm/preflight/preflight_finding.hpp"

namespace parx::inline PARX_ABI::slurm {

/// What the job takes of each node.
struct preflight_needs {
  int ranks = 1;               ///< of a node
  int threads = 1;             ///< of a rank
  int nodes = 1;               ///< in all
  std::int64_t memory_mb = 0;  ///< 0: not known
  std::int64_t tmp_mb = 0;     ///< free space in TMPDIR; 0: not known
  std::int64_t time_s = 0;     ///< how long it takes; 0: not known
  std::string cache = {};      ///< a path that parx_slurm prepare has still to make; empty: none
};

/// The hash that most nodes have, of the program or the image; empty where none has one.
[[nodiscard]] std::string usual_hash(const std::vector<host_facts>& facts,
                                     std::string host_facts::*hash = &host_facts::program_hash);

/// The fact of a node of which nothing is known.
inline constexpr std::string_view did_not_answer = "it did not answer";

/// A sentence for each fault. `expected`: all nodes of the job, by Slurm's names; `facts` are of
/// those that answered, in any order.
[[nodiscard]] std::vector<preflight_finding> preflight(const std::vector<std::string>& expected,
                                                       const std::vector<host_facts>& facts,
                                                       const preflight_needs& needs);

/// "n07  ok  bin 91ab03de  cores 32  AVX2  memory 61 GB  /dev/shm 14 GB  clock +0.003 s".
[[nodiscard]] std::string node_line(const host_facts& node,
                                    const std::vector<preflight_finding>& found);

/// The findings as sentences; nodes of which the same is said share one: "n[1-4]: 2 cores for ...".
/// Where they have different amounts, it names the least: "n[1-4]: 60 GB (n2, the least) of ...".
[[nodiscard]] std::vector<std::string> sentences_of(const std::vector<preflight_finding>& found);

/// The nodes of which nothing is known.
[[nodiscard]] std::vector<std::string> silent_nodes(const std::vector<preflight_finding>& found);

/// The nodes without which the job can go on: those of fatal findings.
[[nodiscard]] std::vector<std::string> bad_nodes(const std::vector<preflight_finding>& found);

}  // namespace parx::slurm
