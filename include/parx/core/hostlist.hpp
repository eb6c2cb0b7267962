// expand_hostlist: Slurm's compressed lists of host names, "n[01-03,7],gpu-a".
//
// Not by `scontrol show hostnames`, which needs a readable slurm.conf and may retry for a minute
// without one. A pure function. Numbers keep their leading zeros; brackets do not nest, as in
// Slurm. Several brackets in one name expand like nested loops, the last one fastest (Slurm has the
// same first host, but another order from three brackets on).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// The host names in `text`, in its order; none for an empty text. Throws usage_error, naming the
/// position, for text that is not a host list and for lists of over 200 000 hosts or of names
/// that no host can have.
/// Format: https://slurm.schedmd.com/slurm.conf.html (NodeName).
[[nodiscard]] std::vector<std::string> expand_hostlist(std::string_view text);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/hostlist_impl.hpp>
#endif
