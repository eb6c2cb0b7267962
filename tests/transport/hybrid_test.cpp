// What a process's groups leave behind, and how they sleep when descriptors are few.
#include <parx/transport/hybrid.hpp>

#include <boost/test/unit_test.hpp>

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <parx/comm.hpp>
#include <parx/comm/threads.hpp>
#include <parx/store/hash.hpp>

#include "comm/jobs.hpp"

namespace {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

bool is_readable(int number) {
  pollfd polled{number, POLLIN, 0};
  return ::poll(&polled, 1, 0) > 0;
}

/// The two ends of a wake_channel.
std::array<std::unique_ptr<parx::detail::wake_channel>, 2> connected_wake_channels() {
  int ends[2] = {-1, -1};
  ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends);
  return {std::make_unique<parx::detail::wake_channel>(parx::descriptor(ends[0])),
          std::make_unique<parx::detail::wake_channel>(parx::descriptor(ends[1]))};
}

std::vector<std::uint64_t> woken_groups(parx::detail::wake_channel& wakes) {
  std::vector<std::uint64_t> groups;
  wakes.receive([&](std::uint64_t group) { groups.push_back(group); });
  return groups;
}

/// Two ranks in this process, on one thread.
struct joined_pair {
  std::array<std::shared_ptr<parx::detail::endpoint>, 2> endpoints;
  std::array<std::unique_ptr<parx::links>, 2> worlds;

  joined_pair() {
    const auto store = std::make_shared<parx::hash_store>();
    for (const std::size_t rank : {0u, 1u}) {
      endpoints[rank] = std::make_shared<parx::detail::endpoint>(parx::detail::endpoint_options{
          .job_store = store, .store_host = "127.0.0.1", .rank = static_cast<int>(rank),
          .world_size = 2, .local_world_size = 2, .may_spin = false, .env = {}});
      worlds[rank] = std::make_unique<parx::hybrid_links>(endpoints[rank]);
    }
  }
  /// A group of both.
  [[nodiscard]] std::array<std::unique_ptr<parx::links>, 2> subgroup(std::uint64_t id) const {
    const std::vector<int> both{0, 1};
    return {worlds[0]->subgroup(both, id), worlds[1]->subgroup(both, id)};
  }
};

/// Rank 1 sends rank 0 a byte, which opens the link between them.
void send_byte(parx::links& from, parx::links& to) {
  std::byte byte{};
  static_cast<void>(from.link_to(0, parx::channel::message).try_send({&byte, 1}, {}));
  BOOST_TEST(to.link_to(1, parx::channel::message).try_receive({&byte, 1}, {}) == 1u);
}

/// What ends a receive from rank 0 within a second; "" where nothing does.
std::string end_of_receive(parx::links& network) {
  parx::link& stream = network.link_to(0, parx::channel::message);
  std::byte byte{};
  const auto until = clock_type::now() + 1s;
  try {
    while (clock_type::now() < until) {
      stream.try_receive({&byte, 1}, {});
      network.wait({{0, parx::channel::message, true, false}}, 1s);
    }
  } catch (const parx::link_lost& lost) {
    return lost.what();
  }
  return {};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_wake_channel_names_the_groups_to_wake_and_tells_of_the_others_end) {
  auto [here, there] = connected_wake_channels();
  BOOST_TEST(here->pid() == ::getpid());
  BOOST_TEST(woken_groups(*here).empty());
  std::vector<std::uint64_t> sent;
  for (std::uint64_t group = 0; group < 100; ++group) sent.push_back(group << 40);
  for (const auto group : sent) there->wake(group);
  BOOST_TEST(is_readable(here->descriptor()));
  BOOST_TEST(woken_groups(*here) == sent);
  BOOST_TEST(!is_readable(here->descriptor()));
  BOOST_TEST(!here->ended());
  there->wake(7);
  there.reset();
  BOOST_TEST(woken_groups(*here) == std::vector<std::uint64_t>{7});
  BOOST_TEST(woken_groups(*here).empty());
  BOOST_TEST(here->ended());
  here->wake(7);  // nobody receives it
}

BOOST_AUTO_TEST_CASE(a_sleeper_is_woken_by_itself_and_its_descriptor_is_used_again) {
  parx::detail::sleeping_groups all;
  const int first = all.begin_sleep(1);
  const int second = all.begin_sleep(2);
  BOOST_TEST(first != second);
  all.wake(3);
  all.wake(2);
  all.wake(2);
  BOOST_TEST(!is_readable(first));
  BOOST_TEST(is_readable(second));
  all.end_sleep(1);
  all.end_sleep(2);
  all.wake(2);  // it does not sleep
  for (const std::uint64_t group : {4U, 5U}) {
    const int number = all.begin_sleep(group);
    BOOST_TEST((number == first || number == second));
    BOOST_TEST(!is_readable(number));
  }
}

BOOST_AUTO_TEST_CASE(a_sleeper_whose_wake_up_is_lost_looks_again_in_bounded_time) {
  const joined_pair ranks;
  send_byte(*ranks.worlds[1], *ranks.worlds[0]);
  std::atomic<std::uint64_t> word{0};
  const std::vector<parx::link_interest> interests{
      {1, parx::channel::message, true, false, &word, 1}};
  std::thread peer([&] {
    std::this_thread::sleep_for(300ms);
    word = 1;  // and no nudge()
  });
  const auto since = clock_type::now();
  while (word == 0) ranks.worlds[0]->wait(interests, 60s);
  BOOST_TEST((clock_type::now() - since < 20s));
  peer.join();
}

BOOST_AUTO_TEST_CASE(a_wake_up_that_another_group_receives_reaches_the_sleeper_that_it_is_for) {
  const joined_pair pair;
  static constexpr std::uint64_t sleeping = 5;
  const auto one = pair.subgroup(sleeping);
  const auto other = pair.subgroup(6);
  send_byte(*one[1], *one[0]);
  send_byte(*other[1], *other[0]);
  auto& sleeper =
      static_cast<parx::detail::process_link&>(one[0]->link_to(1, parx::channel::message));
  auto& listener =
      static_cast<parx::detail::process_link&>(other[0]->link_to(1, parx::channel::message));

  const parx::detail::sleep_scope asleep(pair.endpoints[0]->sleeping_groups(), sleeping);
  std::vector<pollfd> polled;
  static_cast<void>(sleeper.before_sleep(true, false, polled));
  std::byte byte{};
  static_cast<void>(one[1]->link_to(0, parx::channel::message).try_send({&byte, 1}, {}));
  BOOST_TEST(is_readable(polled.front().fd));
  BOOST_TEST(!is_readable(asleep.descriptor()));
  static_cast<void>(listener.before_sleep(true, false, polled));
  listener.after_sleep(POLLIN);
  BOOST_TEST(!is_readable(polled.front().fd));
  BOOST_TEST(is_readable(asleep.descriptor()));
  sleeper.after_sleep(0);
}

BOOST_AUTO_TEST_CASE(groups_on_threads_of_their_own_sleep_over_one_wake_channel) {
  static constexpr int rounds = 200;
  const auto started = clock_type::now();
  const auto failure = jobs::run(jobs::kind::shm, 2, [&](parx::process_group& world) {
    std::vector<parx::process_group> groups;
    for (int i = 0; i < 3; ++i) groups.push_back(world.subgroup(std::vector<int>{0, 1}));
    std::vector<std::vector<int>> values(groups.size(), std::vector<int>(1, 1));
    for (int round = 0; round < rounds; ++round) {
      std::vector<parx::work> all;
      for (std::size_t i = 0; i < groups.size(); ++i) {
        all.push_back(parx::async_all_reduce(groups[i], values[i], {.op = parx::reduce_op::max}));
      }
      for (parx::work& each : all) each.wait();
    }
    for (const auto& each : values) parx::require(each[0] == 1, "wrong maximum");
  });
  BOOST_TEST(failure == "");
  BOOST_TEST((clock_type::now() - started < 10s));
}

BOOST_AUTO_TEST_CASE(a_group_that_ends_is_found_to_have_ended_while_the_wake_channel_goes_on) {
  const joined_pair pair;
  BOOST_TEST_CONTEXT("both had opened the link") {
    const auto group = pair.subgroup(5);
    send_byte(*group[1], *group[0]);
    std::thread leaver([&] {
      std::this_thread::sleep_for(20ms);
      group[0]->close();
    });
    BOOST_TEST(end_of_receive(*group[1]) == "it closed the connection");
    leaver.join();
  }
  for (const bool closed_first : {true, false}) {
    BOOST_TEST_CONTEXT("nobody had claimed the link, which came late: " << closed_first) {
      const auto group = pair.subgroup(closed_first ? 6 : 7);
      if (closed_first) group[0]->close();
      static_cast<void>(group[1]->link_to(0, parx::channel::message));
      std::byte byte{};  // rank 0 takes in what has come, for another link
      pair.worlds[0]->link_to(1, parx::channel::message).try_receive({&byte, 1}, {});
      group[0]->close();
      BOOST_TEST(end_of_receive(*group[1]) == "it closed the connection");
    }
  }
  send_byte(*pair.worlds[1], *pair.worlds[0]);
}

BOOST_AUTO_TEST_CASE(connections_that_nobody_claimed_go_with_their_group) {
  for (const auto kind : {jobs::kind::tcp, jobs::kind::shm}) {
    std::size_t before = 0;
    std::size_t after = 0;
    const auto failure = jobs::run(kind, 3, [&](parx::process_group& world) {
      const std::vector<int> all{0, 1, 2};
      const auto round = [&] {
        {
          auto group = world.subgroup(all);
          std::vector<int> x{group.rank()};
          // Rank 2 opens a link to rank 0, which takes the connection in with those of the barrier
          // and never looks at it.
          if (group.rank() == 1) parx::send(group, x, 2);
          if (group.rank() == 2) parx::require(parx::recv_any(group, x) == 1, "rank 1 has sent");
          parx::barrier(group);
        }
        parx::barrier(world);
      };
      round();
      if (world.rank() == 0) before = open_descriptors();
      parx::barrier(world);
      for (int i = 0; i < 20; ++i) round();
      if (world.rank() == 0) after = open_descriptors();
      parx::barrier(world);
    });
    BOOST_TEST(failure == "", jobs::name_of(kind) << ": " << failure);
    // Three ranks that have slept for the first time, and a connection or two on their way: not
    // twenty.
    BOOST_TEST(after <= before + 5, jobs::name_of(kind)
                                        << ": " << before << " descriptors, then " << after);
  }
}

BOOST_AUTO_TEST_CASE(a_listener_hands_no_pacing_on_and_remembers_what_other_hosts_are_due) {
  const auto fresh = parx::detail::stream_socket(AF_INET);
  const std::string usual = parx::detail::congestion_control_of(fresh.get());
  BOOST_TEST(!usual.empty());
  const parx::detail::incoming_connections incoming("127.0.0.1", "");
  BOOST_TEST(incoming.network_control() == usual);
  const std::string inherited = parx::detail::congestion_control_of(incoming.listeners().first);
  BOOST_TEST((inherited == usual || usual.starts_with("bbr")));
  BOOST_TEST(!inherited.starts_with("bbr"));
}

BOOST_AUTO_TEST_CASE(a_refused_connection_says_for_good_that_the_ranks_process_has_ended) {
  const auto store = std::make_shared<parx::hash_store>();
  const auto joined = [&](int rank) {
    return std::make_shared<parx::detail::endpoint>(
        parx::detail::endpoint_options{.job_store = store,
                                       .store_host = "127.0.0.1",
                                       .rank = rank,
                                       .world_size = 2,
                                       .local_world_size = 2,
                                       .may_spin = false,
                                       .env = {{"PARX_TRANSPORT", "tcp"}}});
  };
  auto gone = joined(0);
  const auto here = joined(1);
  const std::string host = gone->own().address;
  const std::uint16_t port = gone->own().port;
  gone.reset();
  parx::hybrid_links world(here);
  std::byte byte{};
  std::string said;
  const auto until = clock_type::now() + 5s;
  while (said.empty() && clock_type::now() < until) {
    try {
      world.link_to(0, parx::channel::collective).try_send({&byte, 1}, {});
    } catch (const parx::link_lost& lost) {
      said = lost.what();
      BOOST_TEST((lost.how == parx::link_end::closed));
    }
  }
  BOOST_TEST(said.find("does not answer") != std::string::npos, said);
  // Another program may be given the port.
  const auto address = parx::detail::socket_address::tcp(host, port);
  const parx::descriptor other(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(other.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  BOOST_REQUIRE_EQUAL(::bind(other.get(), address.data(), address.length), 0);
  BOOST_REQUIRE_EQUAL(::listen(other.get(), 1), 0);
  BOOST_TEST(here->job()->has_ended(0));
}

BOOST_AUTO_TEST_CASE(a_long_link_is_read_whole) {
  const auto link =
      std::filesystem::temp_directory_path() / fmt::format("parx_link_{}", ::getpid());
  const std::string target(1000, 'x');
  std::filesystem::create_symlink(target, link);
  BOOST_TEST(parx::detail::read_link(link.c_str()) == target);
  std::filesystem::remove(link);
  BOOST_TEST(parx::detail::read_link(link.c_str()) == "");
}

BOOST_AUTO_TEST_CASE(a_rank_sleeps_although_it_awaits_more_links_than_it_may_have_descriptors) {
  static constexpr int world = 300;
  const auto store = std::make_shared<parx::hash_store>();
  const auto shared = std::make_shared<parx::detail::endpoint>(parx::detail::endpoint_options{
      .job_store = store, .store_host = "127.0.0.1", .rank = 0, .world_size = world,
      .local_world_size = world, .may_spin = false, .env = {}});
  for (int rank = 1; rank < world; ++rank) {
    store->set(parx::detail::endpoint::record_key(rank), shared->own().to_text());
  }
  parx::hybrid_links network(shared);
  std::vector<parx::link_interest> interests;
  for (int peer = 1; peer < world; ++peer) {
    static_cast<void>(network.link_to(peer, parx::channel::message));
    interests.push_back({peer, parx::channel::message, true, false});
  }

  rlimit usual{};
  ::getrlimit(RLIMIT_NOFILE, &usual);
  const rlimit tight{128, usual.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &tight);
  const auto started = clock_type::now();
  for (int i = 0; i < 20; ++i) network.wait(interests, 50ms);
  const auto slept = clock_type::now() - started;
  network.wake();
  const auto woken = clock_type::now();
  network.wait({}, 10s);
  const auto until_awake = clock_type::now() - woken;
  ::setrlimit(RLIMIT_NOFILE, &usual);

  BOOST_TEST((slept >= 20ms), "poll was refused");
  BOOST_TEST((until_awake < 5s));
}

BOOST_AUTO_TEST_CASE(an_error_keeps_what_the_store_said_when_it_did_not_tell_a_peers_address) {
  const auto store = std::make_shared<parx::hash_store>();
  parx::process_group group(std::make_unique<parx::hybrid_links>(
      std::make_shared<parx::detail::endpoint>(parx::detail::endpoint_options{
          .job_store = store, .store_host = "127.0.0.1", .rank = 0, .world_size = 2,
          .local_world_size = 2, .may_spin = false, .env = {}})));
  const std::vector<int> x{1};
  std::string said;
  bool store_timed_out = false;
  try {
    parx::send(group, x, 1, {.timeout = 50ms});
  } catch (const parx::error& failure) {
    said = failure.what();
    try {
      if (failure.cause()) std::rethrow_exception(failure.cause());
    } catch (const parx::error& cause) {
      store_timed_out = cause.code_value() == parx::errc::timeout;
    }
  }
  BOOST_TEST(store_timed_out);
  const auto lost = said.find("has not told its address within");
  const auto cause = said.find("; caused by: store get of \"rank/1\"");
  const auto advice = said.find(". The group is closed; restart the job to go on");
  BOOST_TEST((lost < cause && cause < advice && advice != std::string::npos), said);
  // The other ranks are told the same, without the advice.
  const std::string told = parx::failure_from_text(store->get("abort")).value().text;
  BOOST_TEST(told.find("caused by: store get of \"rank/1\"") != std::string::npos, told);
  BOOST_TEST(told.find("restart") == std::string::npos, told);
}

BOOST_AUTO_TEST_CASE(a_rank_tells_the_others_the_causes_of_the_exception_that_ended_it) {
  std::string said;
  try {
    parx::run_threads(2, [&](parx::process_group& group) {
      if (group.rank() == 1) {
        try {
          throw std::runtime_error("the disk is gone");
        } catch (...) {
          std::throw_with_nested(std::runtime_error("cannot read train.csv"));
        }
      }
      try {
        parx::barrier(group);
      } catch (const parx::error& failure) {
        said = failure.what();
      }
    });
  } catch (const std::runtime_error&) {
  }
  BOOST_TEST(said.find("because another rank failed first: rank 1: cannot read train.csv; caused "
                       "by: the disk is gone. The group is closed") != std::string::npos,
             said);
}

BOOST_AUTO_TEST_CASE(a_group_tells_where_its_ranks_are_and_whether_they_share_memory) {
  struct expected {
    jobs::kind kind;
    std::vector<int> hosts;
    bool shares;
  };
  for (const expected& each : std::initializer_list<expected>{
           {jobs::kind::shm, {0, 0, 0, 0}, true},
           {jobs::kind::tcp, {0, 0, 0, 0}, false},
           {jobs::kind::inproc, {0, 0, 0, 0}, true},
           {jobs::kind::hybrid, {0, 1, 0, 1}, false}}) {
    const auto failure = jobs::run(each.kind, 4, [&](parx::process_group& group) {
      parx::require(group.hosts() == each.hosts, "hosts");
      parx::require(group.shares_memory() == each.shares, "shared memory");
      // Ranks 3 and 1, in this order: the first of them is on host 0 of their group.
      if (group.rank() % 2 == 0) return;
      const auto pair = group.subgroup(std::vector<int>{3, 1});
      parx::require(pair.hosts() == std::vector<int>{0, 0}, "hosts of a subgroup");
      parx::require(pair.shares_memory() == (each.kind != jobs::kind::tcp), "its memory");
    });
    BOOST_TEST(failure == "", jobs::name_of(each.kind) << ": " << failure);
  }
}

BOOST_AUTO_TEST_CASE(a_shared_buffer_shows_the_parts_of_the_ranks_that_are_on_this_host) {
  for (const auto kind : {jobs::kind::shm, jobs::kind::hybrid, jobs::kind::tcp}) {
    const auto failure = jobs::run(kind, 4, [&](parx::process_group& group) {
      auto mine = parx::allocate_shared<int>(group, 3);
      mine[2] = 10 + group.rank();
      parx::barrier(group);
      for (int rank = 0; rank < 4; ++rank) {
        const bool seen = kind == jobs::kind::shm || rank == group.rank() ||
                          (kind == jobs::kind::hybrid && (rank - group.rank()) % 2 == 0);
        parx::require((mine.of(rank) != nullptr) == seen, "whose part is seen");
        parx::require(!seen || mine.of(rank)[2] == 10 + rank, "what is in it");
      }
      parx::require(mine.of(group.rank()) == mine.data(), "its own part");
      parx::barrier(group);
    });
    BOOST_TEST(failure == "", jobs::name_of(kind) << ": " << failure);
  }
}
