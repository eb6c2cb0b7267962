#include <parx/store/detail/room.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include <boost/test/unit_test.hpp>

namespace {

using namespace std::chrono_literals;
using parx::detail::room;
using id = std::optional<std::uint64_t>;

const room::time_point start{1h};

// A room of 100 bytes.
struct fixture {
  room shared{100};
  void hold(std::uint64_t client, std::size_t bytes, std::chrono::milliseconds at = 0ms) {
    shared.hold(client, bytes, start + at);
  }
  [[nodiscard]] id overdue(std::chrono::milliseconds at) const {
    return shared.overdue(start + at);
  }
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(a_request_fits_if_it_and_the_held_bytes_are_below_the_limit, fixture) {
  struct row {
    std::size_t held, wanted;
    bool fits;
  };
  for (const row& each : std::vector<row>{{0, 100, true},
                                          {0, 1000, true},  // alone, it may have all
                                          {1, 99, true},
                                          {1, 100, false},
                                          {100, 0, true},
                                          {101, 0, false}}) {
    hold(1, each.held);
    BOOST_TEST_CONTEXT(each.held << " bytes held, " << each.wanted << " wanted") {
      BOOST_TEST(shared.fits(each.wanted) == each.fits);
      BOOST_TEST(shared.is_full() == (each.held > 100));
    }
  }
}

BOOST_FIXTURE_TEST_CASE(the_oldest_overdue_client_is_dropped_next, fixture) {
  hold(1, 60, 0ms);
  hold(2, 40, 10ms);
  BOOST_TEST((overdue(1h) == id{}));  // nobody needs more room
  hold(3, 40, 20ms);
  struct row {
    std::chrono::milliseconds at;
    id dropped;
  };
  for (const row& each : std::vector<row>{{250ms, {}}, {251ms, 1}}) {
    BOOST_TEST_CONTEXT("after " << each.at.count() << " ms") {
      BOOST_TEST((overdue(each.at) == each.dropped));
    }
  }
  shared.progress(1, start + 200ms);
  BOOST_TEST((overdue(450ms) == id{}));
  shared.progress(1, start + 5s);
  BOOST_TEST((overdue(5000ms) == id{}));
  BOOST_TEST((overdue(5001ms) == id{1}));  // it moves, but takes too long
  shared.forget(1);
  BOOST_TEST((overdue(1h) == id{}));  // what is left fits
  shared.wait(4, 30);
  BOOST_TEST((overdue(1h) == id{2}));  // until another wants more than is free
}

BOOST_FIXTURE_TEST_CASE(a_rank_of_the_job_is_given_the_time_of_a_busy_host, fixture) {
  shared.hold(1, 60, start, room::for_rank);
  hold(2, 60);
  BOOST_TEST((overdue(10s) == id{}));
  BOOST_TEST((overdue(10s + 1ms) == id{1}));
  shared.progress(1, start + 55s);
  BOOST_TEST((overdue(60s) == id{}));
  BOOST_TEST((overdue(60s + 1ms) == id{1}));
  shared.forget(1);
  shared.wait(3, 60);
  BOOST_TEST((overdue(251ms) == id{2}));  // a stranger still
}

BOOST_FIXTURE_TEST_CASE(waiting_clients_are_resumed_in_order_while_they_fit, fixture) {
  hold(1, 90);
  shared.wait(2, 50);
  shared.wait(3, 10);
  BOOST_TEST((shared.next() == id{}));  // 3 does not overtake 2
  BOOST_TEST(shared.is_short());
  hold(1, 50);
  BOOST_TEST((shared.next() == id{2}));
  shared.resume(2, start);
  hold(2, 50);
  BOOST_TEST((shared.next() == id{}));
  shared.forget(2);
  BOOST_TEST((shared.next() == id{3}));
  shared.resume(3, start);
  BOOST_TEST((shared.next() == id{}));
  BOOST_TEST(!shared.is_short());
}

BOOST_FIXTURE_TEST_CASE(the_oldest_goes_on_in_a_full_room_and_has_time_from_then, fixture) {
  hold(1, 60);
  hold(2, 60);
  shared.wait(2, 16);
  shared.forget(1);
  hold(3, 90);
  BOOST_TEST(shared.goes_first(2));
  BOOST_TEST(!shared.goes_first(3));
  BOOST_TEST((overdue(1h) == id{}));  // it waits: the time is not its own
  BOOST_TEST((shared.next() == id{2}));
  shared.resume(2, start + 1h);
  BOOST_TEST((shared.next() == id{}));
  BOOST_TEST((overdue(1h + 250ms) == id{}));
  BOOST_TEST((overdue(1h + 251ms) == id{2}));
}

BOOST_FIXTURE_TEST_CASE(a_client_that_has_gone_gives_back_what_it_held, fixture) {
  for (std::uint64_t client = 1; client <= 1000; ++client) {
    hold(client, 10);
    shared.wait(client, 10);
  }
  BOOST_TEST(shared.is_full());
  for (std::uint64_t client = 1000; client > 0; --client) shared.forget(client);
  BOOST_TEST(!shared.is_short());
  BOOST_TEST((shared.next() == id{}));
  BOOST_TEST(shared.fits(100));
}
