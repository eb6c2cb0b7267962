// measure: latency and bandwidth between the hosts of a group.
//
// Rank 0 runs a ping-pong with the first rank of another host for about a tenth of a second and
// broadcasts the result: all ranks must choose algorithms by the same numbers.
#pragma once

#include <parx/comm/process_group.hpp>

namespace parx::inline PARX_ABI {

/// Prepares a group for choosing algorithms; otherwise its first collective does so. Collective the
/// first time. If the ranks are on several hosts, that takes about 100 ms, unless the group it was
/// made from has already measured.
void ready_choice(const process_group& group, call_site site = call_site::current());

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/comm/detail/measure_impl.hpp>
#endif
