// agree: an error on one rank becomes an error on every rank, with that rank's reason.
#pragma once

#include <parx/comm/process_group.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI::detail {

/// Collective, or local if `group` is nullptr. Runs `act`; if it throws on any rank, every rank
/// throws parx::error with the reason of the lowest such rank. The group stays usable.
void agree(process_group* group, call_site site, function_ref<void()> act);

/// The same, but only rank 0 runs `act`.
void agree_on_rank0(process_group* group, call_site site, function_ref<void()> act);

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/agreement_impl.hpp>
#endif
