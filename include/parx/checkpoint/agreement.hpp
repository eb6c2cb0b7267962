// agree: an error on one rank becomes an error on every rank, with that rank's reason.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <string>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI::detail {

/// Collective, or local if `group` is nullptr. Runs `act`; if it throws on any rank, every rank
/// throws parx::error with the reason of the lowest such rank. The group stays usable.
inline void agree(process_group* group, call_site site, function_ref<void()> act) {
  if (group == nullptr) return act();
  std::string failure;
  errc code = errc::io;
  bool failed = false;
  try {
    act();
  } catch (const error& reason) {
    failed = true;
    failure = reason.what();
    code = reason.code_value();
  } catch (const std::exception& reason) {
    failed = true;
    failure = reason.what();
  } catch (...) {
    failed = true;
    failure = "an exception without a text";
  }
  const auto world = static_cast<std::int64_t>(group->size());
  std::array<std::int64_t, 1> first{failed ? static_cast<std::int64_t>(group->rank()) : world};
  all_reduce(*group, first, {.op = reduce_op::min}, site);
  if (first[0] == world) return;
  const int root = static_cast<int>(first[0]);
  std::array<std::uint64_t, 2> outcome{failure.size(), static_cast<std::uint64_t>(code)};
  broadcast(*group, outcome, {.root = root}, site);
  failure.resize(outcome[0]);
  broadcast(*group, failure, {.root = root}, site);
  if (group->size() > 1) failure = formatted("rank {}: {}", root, failure);  // alike on all ranks
  throw error(static_cast<errc>(outcome[1]), failure);
}

/// The same, but only rank 0 runs `act`.
inline void agree_on_rank0(process_group* group, call_site site, function_ref<void()> act) {
  agree(group, site, [group, act] {
    if (group == nullptr || group->rank() == 0) act();
  });
}

}  // namespace parx::detail
