// process_link: a link between two processes, with what hybrid_links::wait() needs to sleep on.
#pragma once

#include <poll.h>

#include <vector>

#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

/// How to sleep on one link.
struct sleep_plan {
  bool awaiting = false;     ///< the peer has not connected yet
  bool looks_twice = false;  ///< poll alone is not enough: also check ready() before sleeping
};

class process_link : public link {
 public:
  /// Called before a sleep. Appends to `polled` the descriptors that end it.
  [[nodiscard]] virtual sleep_plan before_sleep(bool readable, bool writable,
                                                std::vector<pollfd>& polled) = 0;
  /// For a link that looks twice: whether bytes can move now, so that the caller must not sleep.
  [[nodiscard]] virtual bool ready(bool readable, bool writable) const noexcept = 0;
  /// Called after the sleep, with the events of all appended entries combined.
  virtual void after_sleep(short /*events*/) {}
  virtual void close() noexcept = 0;
};

}  // namespace parx::detail
