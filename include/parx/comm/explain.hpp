// explain: which algorithm a group uses for an operation, and why.
#pragma once

#include <cstddef>
#include <vector>

#include <parx/comm/process_group.hpp>
#include <parx/comm/schedule/explain.hpp>

namespace parx::inline PARX_ABI {

/// All algorithms of `what` for a whole vector of `bytes` bytes: their predicted times, the chosen
/// one and the reason. explain_text() of schedule/explain.hpp formats the result.
/// Collective if it is the group's first operation, else local.
[[nodiscard]] std::vector<explanation> explain(process_group& group, operation what,
                                               std::size_t bytes,
                                               call_site site = call_site::current());

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/comm/detail/explain_impl.hpp>
#endif
