// measure: what a message and a byte cost between the hosts of a group.
//
// Rank 0 plays ping-pong with the first rank of another host, for about a tenth of a second, and
// tells all ranks what it found: all must choose algorithms by the same numbers.
#pragma once

#include <parx/comm/process_group.hpp>

namespace parx::inline PARX_ABI {

/// Readies a group for the choice of algorithms, as its first collective does otherwise. Collective
/// the first time; where the group's ranks are on several hosts it then takes about 100 ms, unless
/// the group it was made from has measured.
void ready_choice(const process_group& group, call_site site = call_site::current());

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/comm/detail/measure_impl.hpp>
#endif
