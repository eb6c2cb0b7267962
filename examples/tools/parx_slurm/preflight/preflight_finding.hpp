// preflight_finding: what would go wrong on a node of a job, as a part of a sentence.
#pragma once

#include <cstdint>
#include <string>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::slurm {

struct preflight_finding {
  std::string node;           ///< without which the job can go on
  std::string fact;           ///< the first words of its sentence: what is wrong
  std::string remedy;         ///< an imperative, or empty
  bool fatal = true;          ///< the job would fail, or hang, on this node
  std::int64_t free_mb = -1;  ///< the amount that stands before `fact` in its sentence; -1: none
  std::string other = {};     ///< not empty: the fault lies between `node` and this one
};

}  // namespace parx::slurm
