// run_lock: allows one run at a time to use an output_dir. Two runs in one folder would silently
// replace each other's checkpoints and logs.
//
// Held by rank 0 while it trains; the kernel releases it when the process ends, however it ends. On
// a file system without locks it does nothing. Local.
#pragma once

#include <string>

#include <parx/core/descriptor.hpp>

namespace parx::inline PARX_ABI::train::detail {

class run_lock {
 public:
  /// Holds no lock.
  run_lock() = default;

  /// Throws errc::io if another run holds the lock of `folder`, or the lock file cannot be created.
  /// Waits up to two seconds, since a run that was just killed may take a moment to end.
  explicit run_lock(const std::string& folder);

 private:
  /// Writes into the file who holds the lock, for the error message of another process.
  void sign() const;
  [[nodiscard]] std::string holder() const;

  descriptor file_;
};

}  // namespace parx::train::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/run_lock_impl.hpp>
#endif
