// after: a call after some time, on the thread of the timer's io_context.
#pragma once

#include <boost/asio/steady_timer.hpp>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// Calls `act` after `time`, unless the timer is set anew, disarmed or destroyed before.
template <typename Action>
void after(boost::asio::steady_timer::duration time, boost::asio::steady_timer& timer, Action act) {
  timer.expires_after(time);
  timer.async_wait([act, &timer](const boost::system::error_code& cancelled) {
    // A wait that was over already is not cancelled any more: its call may stand in the queue.
    if (cancelled || timer.expiry() > boost::asio::steady_timer::clock_type::now()) return;
    act();
  });
}

/// What after() was to call is not called any more.
inline void disarm(boost::asio::steady_timer& timer) {
  timer.expires_at(boost::asio::steady_timer::time_point::max());
}

}  // namespace parx::detail
