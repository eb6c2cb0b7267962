// How links over UCX end: with a killed process, a closed link, a rank that is stopped.
#include <parx/transport/ucx.hpp>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <signal.h>

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "ucx_sides.hpp"

using namespace ucx_sides;

namespace {

/// What ends a receive, which nothing else does within `limit`; "" where nothing does.
std::string end_of_receive(ucx_link& stream, std::chrono::milliseconds limit) {
  std::vector<std::byte> bytes(1 << 16);
  const auto until = clock_type::now() + limit;
  try {
    while (clock_type::now() < until) {
      if (stream.try_receive({}, {.data = bytes.data(), .size = bytes.size()}) == 0) {
        sleep_on(stream, true, false, 50ms);
      }
    }
  } catch (const link_lost& lost) {
    return lost.what();
  }
  return {};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_killed_process_is_noticed_at_once_idle_or_not) {
  for (const bool streaming : {false, true}) {
    const std::string failures = on_two_processes(
        "tcp",
        [&](const side& own) {
          ucx_link stream = own.open(1);
          std::vector<std::byte> bytes(1 << 20);
          if (own.rank == 1) {
            receive_all(stream, bytes.data(), 1);
            own.tell('k');
            if (streaming) send_all(stream, bytes.data(), bytes.size());
            ::raise(SIGKILL);
          }
          send_all(stream, bytes.data(), 1);
          own.await('k');
          const auto since = clock_type::now();
          const std::string end = end_of_receive(stream, 5s);
          side::check(end.find("UCX") != std::string::npos, "ended by: " + end);
          side::check(seconds_since(since) < 2, std::to_string(seconds_since(since)) + " s");
          try {
            for (int i = 0; i < 100; ++i) send_all(stream, bytes.data(), bytes.size());
            side::check(false, "bytes can be sent to it");
          } catch (const link_lost&) {
          }
        },
        true);
    BOOST_TEST(failures == "", (streaming ? "streaming: " : "idle: ") << failures);
  }
}

BOOST_DATA_TEST_CASE(a_closed_link_ends_the_peers_after_its_last_byte, transports, over) {
  const std::string failures = on_two_processes(over, [](const side& own) {
    std::vector<std::byte> bytes(300'000);
    ucx_link world = own.open(0);
    {
      ucx_link stream = own.open(1);
      if (own.rank == 0) {
        for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(i);
        send_all(stream, bytes.data(), bytes.size());
      } else {
        receive_all(stream, bytes.data(), bytes.size());
        for (std::size_t i = 0; i < bytes.size(); ++i) {
          side::check(bytes[i] == pattern(i), "a byte is wrong");
        }
        const std::string end = end_of_receive(stream, 5s);
        side::check(end == "it closed the connection", "ended by: " + end);
      }
    }
    {
      const std::lock_guard lock(own.network.mutex());
      own.network.forget(1);
    }
    // A rank that comes later to a group that the other has left.
    if (own.rank == 1) {
      own.await('c');
      ucx_link late = own.open(2);
      const std::string end = end_of_receive(late, 5s);
      side::check(end == "it closed the connection", "the late one ended by: " + end);
      BOOST_CHECK_THROW(send_all(late, bytes.data(), 10), link_lost);
      send_all(world, bytes.data(), 1);
    } else {
      { const ucx_link stream = own.open(2); }
      {
        const std::lock_guard lock(own.network.mutex());
        own.network.forget(2);
      }
      own.tell('c');
      receive_all(world, bytes.data(), 1);
    }
  });
  BOOST_TEST(failures == "");
}

BOOST_DATA_TEST_CASE(a_link_closes_in_time_although_its_bytes_are_under_way_to_a_stopped_rank,
                     transports, over) {
  const std::string failures = on_two_processes(
      over,
      [](const side& own) {
        ucx_link stream = own.open(1);
        std::vector<std::byte> bytes(8 << 20);
        if (own.rank == 1) {
          receive_all(stream, bytes.data(), 1);
          own.tell('s');
          ::raise(SIGSTOP);
        }
        send_all(stream, bytes.data(), 1);
        own.await('s');
        const auto until = clock_type::now() + 300ms;
        for (std::size_t sent = 0; clock_type::now() < until;) {
          sent += stream.try_send({}, {.data = bytes.data() + sent, .size = bytes.size() - sent});
        }
        const auto since = clock_type::now();
        stream.close();
        const double took = seconds_since(since);
        ::kill(own.other, SIGKILL);
        side::check(took < 1.5, "closing took " + std::to_string(took) + " s");
      },
      true);
  BOOST_TEST(failures == "");
}
