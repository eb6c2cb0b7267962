// abort_reason: the text that a rank which fails by an exception sends to the others.
#pragma once

#include <string>

#include <parx/comm/process_group.hpp>

namespace parx::inline PARX_ABI {

/// For process_group::abort: the current exception with its causes behind this rank's number in the
/// job, as in "rank 3: cannot open "train.csv"". Call it in a catch block. The stack trace in which
/// LibTorch's exceptions end is left out: it is of the rank that prints it.
[[nodiscard]] std::string abort_reason(const process_group& group);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/comm/detail/abort_reason_impl.hpp>
#endif
