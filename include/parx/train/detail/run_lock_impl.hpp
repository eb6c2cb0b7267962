// Definitions of run_lock.hpp.
#pragma once

#include <chrono>

#include <parx/checkpoint/atomic_folder.hpp>
#include <parx/core/error.hpp>
#include <parx/train/detail/run_lock.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE run_lock::run_lock(const std::string& folder, lock_holder other, const environment& env)
    : lock_(folder + "/" + std::string(parx::detail::stale_prefix) + "run-lock", other,
            std::chrono::seconds(2), env) {
  if (lock_.is_held()) return;
  throw_error(errc::io,
              "another run trains into \"{}\" ({}). Give each run a folder of its own, or wait "
              "until that one has ended.",
              folder, lock_.holder());
}

}  // namespace parx::train::detail
