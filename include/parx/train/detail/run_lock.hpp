// run_lock: keeps an output_dir to one run at a time. Two that share one would replace each other's
// checkpoints and logs, and each would end as if all were well.
//
// Held by rank 0 while it trains; the kernel lets go of it when the process ends, however it ends.
// On a file system without locks there is none. Local.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include <parx/checkpoint/checkpoint_folder.hpp>
#include <parx/checkpoint/staged_folder.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::train::detail {

class run_lock {
 public:
  /// Holds nothing.
  run_lock() = default;

  /// Throws errc::io when another run keeps `folder`, or the lock's file cannot be made. A run that
  /// was killed a moment ago, to begin anew, may take two seconds to leave.
  explicit run_lock(const std::string& folder);

 private:
  /// Says in the file who holds it, for the message of a process that cannot take the lock.
  void sign() const;
  [[nodiscard]] std::string holder() const;

  descriptor file_;
};

}  // namespace parx::train::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/run_lock_impl.hpp>
#endif
