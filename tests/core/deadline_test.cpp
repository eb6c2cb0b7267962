// The limits by which every wait of parx ends.
#include <parx/core/deadline.hpp>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <climits>

using namespace std::chrono_literals;
using parx::deadline;

BOOST_AUTO_TEST_CASE(a_deadline_that_has_passed_leaves_no_time_and_no_wait) {
  for (const auto& each : {deadline::after(0ms), deadline::after(-5s),
                           deadline::after(10ms, deadline::clock::now() - 1h),
                           deadline::after(10ms, deadline::clock::time_point{} - 1h)}) {
    BOOST_TEST(each.passed());
    BOOST_TEST((each.remaining() == 0ms));
    BOOST_TEST(each.poll_timeout() == 0);
    BOOST_TEST(each.poll_timeout(100) == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_deadline_in_the_future_is_waited_for_and_never_longer) {
  const auto later = deadline::after(1h);
  BOOST_TEST(!later.passed());
  BOOST_TEST((later.remaining() > 59min && later.remaining() <= 1h));
  BOOST_TEST(later.poll_timeout(200) == 200);
  BOOST_TEST((later.poll_timeout() > 0 && later.poll_timeout() <= 3'600'000));
  // A part of a millisecond is waited for, or poll(2) would be called again and again.
  BOOST_TEST(deadline::after(2ms, deadline::clock::now() - 1500us).poll_timeout() <= 1);
  BOOST_TEST(deadline::after(10000h).poll_timeout() == INT_MAX);
}

BOOST_AUTO_TEST_CASE(a_limit_beyond_the_clock_and_an_unset_one_never_pass) {
  for (const auto& each :
       {deadline::never(), deadline::unset(), deadline::after(deadline::duration::max())}) {
    BOOST_TEST(!each.passed());
    BOOST_TEST(each.is_never());
    BOOST_TEST((each.remaining() == deadline::duration::max()));
    BOOST_TEST(each.poll_timeout() == -1);
    BOOST_TEST(each.poll_timeout(50) == 50);
  }
  BOOST_TEST(deadline::unset().elapsed_seconds() == 0);
}
