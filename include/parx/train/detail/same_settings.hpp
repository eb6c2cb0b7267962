// same_settings: all ranks train with the same options, or none does.
//
// A rank with another rhythm of lines or evaluations would soon call another operation than the
// others and be told so; one with another learning rate, loss scale or batch would train on, and
// every replica would become a model of its own. What a rank may have for itself (its bar, its
// console, detect_anomaly, the folder's path) is not compared. Collective.
#pragma once

#include <cstddef>
#include <string>

#include <parx/comm/process_group.hpp>
#include <parx/comm/rank_comparison.hpp>
#include <parx/core/error.hpp>
#include <parx/core/source.hpp>
#include <parx/train/options.hpp>
#include <parx/train/state.hpp>

namespace parx::inline PARX_ABI::train::detail {

/// What must be equal on all ranks, a line each. `rate` is that of the first step, `fresh` the
/// state of a run that begins.
[[nodiscard]] std::string settings_text(const trainer_options& o, const trainer_state& fresh,
                                        double rate, std::size_t evaluations);

/// Throws errc::mismatch on every rank, with the first settings that differ.
void require_same_settings(process_group& group, const std::string& mine, call_site site);

}  // namespace parx::train::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/same_settings_impl.hpp>
#endif
