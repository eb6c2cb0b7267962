// same_settings: checks that all ranks train with the same options.
//
// If logging_steps or eval_steps differed, a collective would soon report the mismatch. But if the
// learning rate, loss scale or batch size differed, training would run and the replicas would
// silently diverge. Options that may differ (progress bar, console, detect_anomaly, the folder's
// path) are not compared. Collective.
#pragma once

#include <cstddef>
#include <string>

#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>
#include <parx/train/options.hpp>
#include <parx/train/state.hpp>

namespace parx::inline PARX_ABI::train::detail {

/// Everything that must be equal on all ranks, one line each. `rate` is that of the first step,
/// `fresh` the state of a run that begins.
[[nodiscard]] std::string settings_text(const trainer_options& o, const trainer_state& fresh,
                                        double rate, std::size_t evaluations);

/// Throws errc::mismatch on every rank, with the first settings that differ.
void require_same_settings(process_group& group, const std::string& mine, call_site site);

}  // namespace parx::train::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/same_settings_impl.hpp>
#endif
