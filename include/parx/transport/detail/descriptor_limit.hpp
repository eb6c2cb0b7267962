// descriptor_limit: raises the limit on open descriptors, and explains errors where they run out.
#pragma once

#include <sys/resource.h>

#include <cerrno>
#include <string>

#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

/// Raises the soft limit on open descriptors to the hard limit: each TCP link of each group takes
/// one.
inline void raise_descriptor_limit() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// The text of an errno from a call that makes a descriptor, with advice where none is left.
[[nodiscard, gnu::cold]] inline std::string shortage_text(int number) {
  if (number == ENFILE) {
    return formatted("{}, all processes of this host together: raise fs.file-max there",
                     errno_text(number));
  }
  rlimit limit{};
  if (number != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return errno_text(number);
  const std::string limits =
      limit.rlim_cur < limit.rlim_max
          ? formatted("something has lowered this process's limit to {} since parx raised it to "
                        "the hard limit, {}: leave it there",
                        limit.rlim_cur, limit.rlim_max)
          : formatted("this process has all {} that its hard limit permits: raise that where the "
                        "job is started (`ulimit -Hn`; under Slurm LimitNOFILE of slurmd)",
                        limit.rlim_max);
  return formatted("{}; {}, or keep fewer groups at a time, since over TCP each takes a "
                     "descriptor for every rank that it talks to",
                     errno_text(number), limits);
}

}  // namespace parx::detail
