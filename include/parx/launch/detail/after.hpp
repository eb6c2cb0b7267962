// after: a call after some time, on the thread of the timer's io_context.
#pragma once

#include <boost/asio/steady_timer.hpp>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// Calls `act` after `time`, unless the timer is set anew or destroyed before.
template <typename Action>
void after(boost::asio::steady_timer::duration time, boost::asio::steady_timer& timer, Action act) {
  timer.expires_after(time);
  timer.async_wait([act](const boost::system::error_code& cancelled) {
    if (!cancelled) act();
  });
}

}  // namespace parx::detail
