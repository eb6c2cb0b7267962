// run_lock: allows one run at a time to use an output_dir. Two runs in one folder would silently
// replace each other's checkpoints and logs.
//
// Held by rank 0 while it trains. Local.
#pragma once

#include <string>

#include <parx/checkpoint/signed_lock.hpp>
#include <parx/core/env.hpp>

namespace parx::inline PARX_ABI::train::detail {

using parx::detail::lock_holder;

class run_lock {
 public:
  /// Holds no lock.
  run_lock() = default;

  /// Throws errc::io if another run holds the lock of `folder`, or the lock file cannot be created.
  /// Waits up to two seconds, since a run that was just killed may take a moment to end.
  run_lock(const std::string& folder, lock_holder other,
           const environment& env = process_environment());

 private:
  parx::detail::signed_lock lock_;
};

}  // namespace parx::train::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/run_lock_impl.hpp>
#endif
