// Definitions of abort_reason.hpp.
#pragma once

#include <exception>

#include <parx/comm/abort_reason.hpp>
#include <parx/comm/detail/group_core.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI {

[[gnu::cold]] PARX_INLINE std::string abort_reason(const process_group& group) {
  const std::string text = text_of(std::current_exception());
  const auto& network = detail::core_of(group)->network();
  return formatted("rank {}: {}", network.job_rank(network.rank()),
                   text.substr(0, text.find("\nException raised from ")));
}

}  // namespace parx
