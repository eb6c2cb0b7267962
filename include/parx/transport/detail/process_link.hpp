// process_link: a link between two processes, as the transport's sleeper sees it.
#pragma once

#include <poll.h>

#include <vector>

#include <parx/transport/transport.hpp>

namespace parx::inline PARX_ABI::detail {

/// What a sleeper does about one link.
struct sleep_plan {
  bool awaiting = false;    ///< the peer has not connected yet
  bool looks_twice = false;  ///< poll sees not all: ask ready() once the peer can see this sleep
};

class process_link : public link {
 public:
  /// Called before a sleep: appends to `polled` what it is to be ended by.
  [[nodiscard]] virtual sleep_plan before_sleep(bool readable, bool writable,
                                                std::vector<pollfd>& polled) = 0;
  /// Of a link that looks twice: whether something can move at once, so that nobody should sleep.
  [[nodiscard]] virtual bool ready(bool /*readable*/, bool /*writable*/) const noexcept {
    return false;
  }
  /// Called after it with the events that poll found, those of all appended entries in one.
  virtual void after_sleep(short events) = 0;
  virtual void close() noexcept = 0;
};

}  // namespace parx::detail
