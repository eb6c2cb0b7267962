// The metrics of an evaluation (nn/metrics.hpp), over ranks.
#pragma once

#include <cstddef>
#include <vector>

#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>
#include <parx/nn/metrics.hpp>

namespace parx::inline PARX_ABI {

/// The sums and counts one after the other.
[[nodiscard]] std::vector<double> numbers_of(const nn::metrics& figures);

/// Collective. Gives all ranks the metrics of rank `root`; those of the others may have no names.
void broadcast(process_group& group, nn::metrics& figures, int root,
               call_site site = call_site::current());

/// Collective over `job`. Sums over `data`, the ranks with different samples. All ranks of the job
/// get the bits of its rank 0, so that decisions based on them are the same on all ranks.
void sum_over(process_group& data, process_group& job, nn::metrics& figures,
              call_site site = call_site::current());

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/reduction/detail/metrics_impl.hpp>
#endif
