// Links over one or several TCP connections: one stream of bytes whatever path they take, and one
// loss.
#include <parx/transport/hybrid.hpp>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <parx/store/tcp.hpp>
#include <parx/store/tcp_server.hpp>

#include "comm/jobs.hpp"
#include "count_allocations.hpp"

namespace {

using namespace std::chrono_literals;
using parx_test::allocations;
using clock_type = std::chrono::steady_clock;

/// The TCP sockets of this process that are connected.
std::vector<int> connections() {
  std::vector<int> found;
  DIR* files = ::opendir("/proc/self/fd");
  while (const dirent* each = ::readdir(files)) {
    const int number = std::atoi(each->d_name);
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (number > 2 && ::getpeername(number, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        (peer.ss_family == AF_INET || peer.ss_family == AF_INET6)) {
      found.push_back(number);
    }
  }
  ::closedir(files);
  return found;
}

/// Two ranks that one thread moves on, with so many connections wished for.
struct pair_of_ranks {
  pair_of_ranks(const char* of_first, const char* of_second,
                std::chrono::milliseconds silence = parx::detail::longest_silence)
      : longest_silence(silence),
        first(transport_of(0, of_first)),
        second(transport_of(1, of_second)) {
    auto& from = second->link_to(0, parx::channel::collective);
    auto& to = first->link_to(1, parx::channel::collective);
    std::byte byte{};
    while (from.try_send({&byte, 1}, {}) == 0) {
    }
    while (to.try_receive({&byte, 1}, {}) == 0) {
    }
  }
  [[nodiscard]] std::unique_ptr<parx::hybrid_links> transport_of(int rank,
                                                                     const char* streams) const {
    parx::detail::endpoint_options given{
        .job_store = store,
        .store_host = "127.0.0.1",
        .rank = rank,
        .world_size = 2,
        .local_world_size = 2,
        .may_spin = false,
        .env = {{"PARX_TRANSPORT", "tcp"}, {"PARX_STREAMS", streams}},
        .longest_silence = longest_silence};
    return std::make_unique<parx::hybrid_links>(
        std::make_shared<parx::detail::endpoint>(std::move(given)));
  }
  std::chrono::milliseconds longest_silence;
  std::shared_ptr<parx::hash_store> store = std::make_shared<parx::hash_store>();
  std::unique_ptr<parx::hybrid_links> first, second;
};

/// Seconds until so many bytes have come over the link.
double transfer_seconds(pair_of_ranks& ranks, std::size_t bytes) {
  parx::link& from = ranks.second->link_to(0, parx::channel::collective);
  parx::link& to = ranks.first->link_to(1, parx::channel::collective);
  std::vector<std::byte> given(bytes), taken(bytes);
  const auto started = clock_type::now();
  for (std::size_t sent = 0, received = 0; received < bytes;) {
    if (sent < bytes) {
      sent += from.try_send({}, {.data = given.data() + sent, .size = bytes - sent});
    }
    received += to.try_receive(
        {}, {taken.data() + received, std::min(bytes - received, std::size_t{1} << 18)});
    std::this_thread::sleep_for(50us);
  }
  return std::chrono::duration<double>(clock_type::now() - started).count();
}

/// What the cloud does: no connection carries more than this.
void limit_each_connection(const std::vector<int>& sockets, std::uint64_t bytes_per_second) {
  for (const int each : sockets) {
    ::setsockopt(each, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_second, sizeof bytes_per_second);
  }
}

std::byte pattern(std::size_t i) { return static_cast<std::byte>((i * 2654435761u) >> 13); }

}  // namespace

BOOST_DATA_TEST_CASE(
    bytes_come_in_their_order_whatever_connection_brings_them_and_nothing_is_allocated,
    boost::unit_test::data::make({"1", "4"}), connections_of_a_link) {
  pair_of_ranks ranks(connections_of_a_link, connections_of_a_link);
  parx::link& from = ranks.second->link_to(0, parx::channel::collective);
  parx::link& to = ranks.first->link_to(1, parx::channel::collective);
  std::mt19937 random(7);
  const auto up_to = [&](std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(0, most)(random);
  };
  std::vector<std::byte> head(64), given(std::size_t{3} << 20), taken(given.size() + 64);
  std::size_t wrong = 0, before = 0;
  const auto give_up = clock_type::now() + 60s;
  for (int message = 0; message < 200; ++message) {
    if (message == 10) before = allocations;
    // Small and large ones by turns, and large ones whose bytes are there little by little.
    const std::size_t body = message % 3 == 0   ? up_to(100)
                             : message % 3 == 1 ? up_to(1 << 18)
                                                : up_to(given.size());
    const std::size_t whole = head.size() + body;
    for (std::size_t i = 0; i < whole; ++i) {
      (i < head.size() ? head[i] : given[i - head.size()]) =
          pattern(i + static_cast<std::size_t>(message));
    }
    std::size_t ready = up_to(body), sent = 0, received = 0;
    while (received < whole && clock_type::now() < give_up) {
      const std::size_t of_head = std::min(sent, head.size());
      const std::size_t of_body = sent - of_head;
      if (sent < head.size() + ready) {
        sent += from.try_send(
            {.data = head.data() + of_head, .size = head.size() - of_head},
            {.data = given.data() + of_body, .size = ready - of_body, .to_follow = body - ready});
      }
      ready = std::min(body, ready + up_to(1 << 17));
      const std::size_t room = std::min(whole - received, up_to(1 << 19));
      const std::size_t split = up_to(room);
      if (room == 0) continue;
      received += to.try_receive({taken.data() + received, split},
                                 {taken.data() + received + split, room - split});
    }
    for (std::size_t i = 0; i < whole; ++i) {
      wrong += taken[i] != pattern(i + static_cast<std::size_t>(message));
    }
    if (received < whole) {
      BOOST_FAIL("message " << message << " stands still at byte " << received << " of " << whole);
    }
  }
  const std::size_t after = allocations;
  BOOST_TEST(wrong == 0u);
  BOOST_TEST(after == before);
}

BOOST_AUTO_TEST_CASE(short_messages_that_come_together_cost_one_call_and_nobody_sleeps_over_them) {
  pair_of_ranks ranks("1", "1");
  parx::link& from = ranks.second->link_to(0, parx::channel::message);
  parx::link& to = ranks.first->link_to(1, parx::channel::message);
  constexpr std::size_t messages = 20, bytes = 100;
  std::vector<std::byte> sent(bytes, std::byte{3}), taken(bytes);
  for (std::size_t i = 0; i < messages;) {
    i += from.try_send({}, {.data = sent.data(), .size = bytes, .more_follows = i + 1 < messages}) >
         0;
  }
  const auto receive = [&] {
    for (std::size_t got = 0; got < bytes;) {
      got += to.try_receive({}, {taken.data() + got, bytes - got});
    }
  };
  receive();
  std::this_thread::sleep_for(100ms);  // all of them have come, whenever the first was read
  receive();
  for (std::size_t i = 2; i < messages; ++i) {
    // Nothing is left to come, and then only the connection's end.
    if (i == messages / 2) ranks.second->close();
    const auto started = clock_type::now();
    ranks.first->wait({{.peer = 1, .traffic = parx::channel::message, .readable = true}}, 10s);
    BOOST_TEST((clock_type::now() - started < 5s));
    receive();
    BOOST_TEST(taken == sent);
  }
  BOOST_CHECK_THROW(
      for (;;) (void)to.try_receive({}, {taken.data(), bytes}), parx::link_lost);
}

BOOST_AUTO_TEST_CASE(the_smaller_number_of_connections_of_two_ranks_is_used) {
  const std::size_t before = connections().size();
  const pair_of_ranks ranks("2", "5");
  BOOST_TEST(connections().size() == before + 2 * 2);  // both ends are here
  const pair_of_ranks plain("3", "1");
  BOOST_TEST(connections().size() == before + 2 * 2 + 2 * 1);
}

BOOST_AUTO_TEST_CASE(an_invalid_number_of_connections_is_refused) {
  for (const char* wish : {"0", "-1", "65", "many"}) {
    BOOST_CHECK_EXCEPTION(pair_of_ranks(wish, "1"), parx::usage_error,
                          [&](const parx::usage_error& refused) {
                            const std::string text = refused.what();
                            return text.find("PARX_STREAMS") != std::string::npos &&
                                   text.find(wish) != std::string::npos;
                          });
  }
}

BOOST_AUTO_TEST_CASE(where_each_connection_is_limited_several_carry_more_and_a_slow_one_gets_less) {
  static constexpr std::size_t bytes = std::size_t{16} << 20;
  // So low that a busy host can take what comes: then the connections are what limits.
  static constexpr std::uint64_t limit = 5'000'000;
  const auto seconds_over = [](const char* streams, bool one_is_slow) {
    pair_of_ranks ranks(streams, streams);
    const auto all = connections();
    limit_each_connection(all, limit);
    if (one_is_slow)
      limit_each_connection({all[2]}, limit / 10);  // the sender has opened the first ones
    return transfer_seconds(ranks, bytes);
  };
  const double one = seconds_over("1", false);
  const double four = seconds_over("4", false);
  const double four_with_a_slow_one = seconds_over("4", true);
  BOOST_TEST_MESSAGE("16 MiB: " << one << " s over one connection, " << four << " s over four, "
                                << four_with_a_slow_one
                                << " s where one of the four has a tenth of the speed");
  BOOST_TEST(four < 0.5 * one);
  BOOST_TEST(four_with_a_slow_one < 0.9 * one);  // dealt in turn it would take 8.4 s
}

BOOST_AUTO_TEST_CASE(losing_one_connection_is_losing_the_peer) {
  for (const bool reset : {false, true}) {
    const auto started = clock_type::now();
    const auto failures =
        jobs::run_collecting(jobs::kind::tcp_striped, 2, [&](parx::process_group& group) {
          std::vector<float> x(1 << 20);
          parx::all_reduce(group, x);
          if (group.rank() == 0) {
            const auto all = connections();  // three, with both ends
            linger at_once{1, 0};
            if (reset) ::setsockopt(all[2], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
            ::shutdown(all[2], reset ? SHUT_RDWR : SHUT_WR);
          }
          for (int i = 0; i < 1000; ++i) parx::all_reduce(group, x);
        });
    BOOST_TEST((clock_type::now() - started < 20s));
    for (const auto& each : failures) {
      BOOST_TEST(each.find("lost rank") != std::string::npos, each);
      BOOST_TEST(each.find("connection") != std::string::npos, each);
    }
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_call_different_operations_are_told_over_several_connections_too) {
  const auto failures =
      jobs::run_collecting(jobs::kind::tcp_striped, 3, [&](parx::process_group& group) {
        std::vector<float> x(1 << 18), shorter(1000);
        parx::all_reduce(group, x);
        if (group.rank() == 1)
          parx::all_reduce(group, shorter);
        else
          parx::all_reduce(group, x);
        parx::barrier(group);
      });
  for (const auto& each : failures) {
    BOOST_TEST(each.find("all_reduce of 1000 float32 (sum)") != std::string::npos, each);
    BOOST_TEST(each.find("all_reduce of 262144 float32 (sum)") != std::string::npos, each);
  }
}

BOOST_AUTO_TEST_CASE(stores_and_links_give_a_silent_peer_up_alike_after_24_seconds) {
  struct option {
    int level, name, wanted;
    const char* what;
  };
  static constexpr std::array<option, 5> options{
      {{SOL_SOCKET, SO_KEEPALIVE, 1, "keepalive"},
       {IPPROTO_TCP, TCP_KEEPIDLE, 8, "seconds before the first probe"},
       {IPPROTO_TCP, TCP_KEEPINTVL, 4, "seconds between probes"},
       {IPPROTO_TCP, TCP_KEEPCNT, 4, "probes"},
       {IPPROTO_TCP, TCP_NODELAY, 1, "no delay"}}};
  const auto value_of = [](int socket, int level, int name) {
    int value = 0;
    socklen_t size = sizeof value;
    ::getsockopt(socket, level, name, &value, &size);
    return value;
  };
  const auto before = connections();
  parx::tcp_store_server server({.address = "127.0.0.1", .port = 0});
  parx::tcp_store store({.host = "127.0.0.1", .port = server.port()});
  store.set("key", "value");  // the server has taken the connection in
  const auto of_store = connections();
  const pair_of_ranks ranks("1", "1");
  const auto all = connections();
  BOOST_TEST(of_store.size() >= before.size() + 2);
  BOOST_TEST(all.size() == of_store.size() + 2);
  for (const int socket : all) {
    for (const option& each : options) {
      const int value = value_of(socket, each.level, each.name);
      BOOST_TEST(value == each.wanted, each.what << ": " << value);
    }
    // A link's peer may compute for longer than that before it reads: see has_fallen_silent().
    const bool is_link = std::ranges::find(of_store, socket) == of_store.end();
    BOOST_TEST(value_of(socket, IPPROTO_TCP, TCP_USER_TIMEOUT) == (is_link ? 0 : 24'000));
  }
}

BOOST_AUTO_TEST_CASE(a_peer_that_reads_nothing_for_long_is_not_taken_for_a_silent_host) {
  std::vector<std::byte> bytes(std::size_t{64} << 20);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(i);
  struct transfer {
    pair_of_ranks ranks;
    std::size_t sent = 0;

    explicit transfer(const char* streams) : ranks(streams, streams, 1500ms) {}
    void send_some(const std::vector<std::byte>& all) {
      sent += ranks.second->link_to(0, parx::channel::collective)
                  .try_send({}, {.data = all.data() + sent, .size = all.size() - sent});
    }
  };
  std::array<transfer, 2> both{transfer("1"), transfer("2")};
  for (const auto until = clock_type::now() + 2500ms; clock_type::now() < until;) {
    for (transfer& each : both) {
      each.send_some(bytes);
      each.ranks.second->wait({{0, parx::channel::collective, false, true}}, 50ms);
    }
  }
  std::vector<std::byte> got(std::size_t{1} << 20);
  for (transfer& each : both) {
    BOOST_TEST(each.sent < bytes.size());
    parx::link& to = each.ranks.first->link_to(1, parx::channel::collective);
    std::size_t received = 0;
    bool right = true;
    while (received < bytes.size() && right) {
      if (each.sent < bytes.size()) each.send_some(bytes);
      const std::size_t size = to.try_receive({}, {got.data(), got.size()});
      right = std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(size),
                         bytes.begin() + static_cast<std::ptrdiff_t>(received));
      received += size;
    }
    BOOST_TEST(right);
  }
}
