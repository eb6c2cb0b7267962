// Ranks go on after kill -9 of any of them: between processes that share memory, that talk over
// TCP, and that do both.
#include <parx/launch.hpp>

#include <boost/test/unit_test.hpp>

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <parx/comm.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/store/tcp_server.hpp>
#include <parx/transport/detail/peer_directory.hpp>

#include "launch/processes.hpp"
#include "messages.hpp"

namespace {

using namespace std::chrono_literals;
using processes::job;
using parx_test::mentions;

/// What torchrun sets, whose store outlives every rank.
parx::environment under_an_agent(int rank, int world, std::uint16_t port,
                                 const std::string& kind) {
  parx::environment env{{"RANK", std::to_string(rank)},
                        {"WORLD_SIZE", std::to_string(world)},
                        {"LOCAL_RANK", std::to_string(rank)},
                        {"LOCAL_WORLD_SIZE", std::to_string(world)},
                        {"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", std::to_string(port)},
                        {"TORCHELASTIC_RUN_ID", "shrink"},
                        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                        {"PARX_RECORDER", "off"}};
  if (kind == "tcp") env["PARX_TRANSPORT"] = "tcp";
  if (kind == "hybrid") env["PARX_HOST_ID"] = rank % 2 == 0 ? "even" : "odd";
  return env;
}

/// The sum over ranks of 2^(rank in the job) says who took part.
void check_sum(parx::process_group& group, int job_rank, const std::vector<int>& expected) {
  double wanted = 0;
  for (const int each : expected) wanted += static_cast<double>(1 << each);
  std::vector<double> values(50'000, static_cast<double>(1 << job_rank));
  parx::all_reduce(group, std::span(values));
  if (std::any_of(values.begin(), values.end(), [&](double v) { return v != wanted; })) {
    throw std::runtime_error("wrong sum");
  }
  const auto place = std::find(expected.begin(), expected.end(), job_rank) - expected.begin();
  if (group.size() != static_cast<int>(expected.size()) || group.rank() != place) {
    throw std::runtime_error("wrong place in the new group");
  }
}

/// Sums until something fails, which must be the library's error.
void sum_until_it_fails(parx::process_group& group, std::size_t count) {
  std::vector<double> values(count);
  try {
    for (;;) parx::all_reduce(group, std::span(values));
  } catch (const parx::error&) {
  }
}

struct plan {
  int world;
  std::vector<int> victims;        // the first dies in a sum, the next as `second` says
  enum { alone, in_shrink, after_shrink } second = alone;
  std::string kind = "auto";
};

void run_and_kill(const plan& p, std::chrono::microseconds when) {
  const parx::tcp_store_server server({.address = "127.0.0.1"});
  job all;
  std::vector<int> left;
  for (int rank = 0; rank < p.world; ++rank) {
    const bool dies = std::find(p.victims.begin(), p.victims.end(), rank) != p.victims.end();
    if (!dies) left.push_back(rank);
  }
  int ready[2];
  BOOST_REQUIRE(::pipe(ready) == 0);
  for (int rank = 0; rank < p.world; ++rank) {
    all.start_program(rank, p.world, [&](parx::init_options options) {
      options.env = under_an_agent(rank, p.world, server.port(), p.kind);
      return parx::run([&](parx::world& world) {
        parx::barrier(world);
        if (::write(ready[1], "x", 1) != 1) throw std::runtime_error("the test has gone");
        const bool is_second = p.victims.size() > 1 && rank == p.victims[1];
        // One rank is late: it computes, and has not noticed anything yet.
        if (rank == left.back()) std::this_thread::sleep_for(50ms);
        sum_until_it_fails(world, 200'000);
        if (is_second && p.second == plan::in_shrink) {
          std::thread([when] {
            std::this_thread::sleep_for(when);
            ::kill(::getpid(), SIGKILL);
          }).detach();
        }
        auto group = world.shrink();
        if (p.second != plan::alone) {
          if (is_second && p.second == plan::after_shrink) ::kill(::getpid(), SIGKILL);
          if (group.size() > static_cast<int>(left.size())) {
            sum_until_it_fails(group, 1000);
            group = world.shrink();
          }
        }
        check_sum(group, world.rank(), left);
        check_sum(group, world.rank(), left);
      }, std::move(options));
    });
  }
  char go[8];
  ::close(ready[1]);
  for (ssize_t heard = 0, got = 1; heard < p.world && got > 0; heard += got) {
    got = ::read(ready[0], go, sizeof go);
  }
  ::close(ready[0]);
  std::this_thread::sleep_for(when);
  ::kill(all.pid(static_cast<std::size_t>(p.victims.front())), SIGKILL);
  const auto results = all.wait();
  for (const int rank : left) {
    const auto& each = results[static_cast<std::size_t>(rank)];
    BOOST_TEST(each.exit_code == 0, "rank " << rank << " of " << p.world << " (" << p.kind
                                            << ") without " << p.victims.front() << ": "
                                            << each.text);
    BOOST_TEST(each.seconds < 6, each.seconds);
  }
}

/// Four ranks, of which 0 and 2 are to go on.
void run_four(const std::function<void(parx::world&, int rank)>& body) {
  const parx::tcp_store_server server({.address = "127.0.0.1"});
  job all;
  for (int rank = 0; rank < 4; ++rank) {
    all.start_program(rank, 4, [&](parx::init_options options) {
      options.env = under_an_agent(rank, 4, server.port(), "auto");
      return parx::run([&](parx::world& world) { body(world, rank); }, std::move(options));
    });
  }
  const auto results = all.wait();
  for (const std::size_t rank : {0U, 2U}) {
    BOOST_TEST(results[rank].exit_code == 0, "rank " << rank << ": " << results[rank].text);
    BOOST_TEST(results[rank].seconds < 6, results[rank].seconds);
  }
}

parx::detail::peer_record record_of(parx::store& job_store, int rank) {
  const std::string key = parx::detail::peer_directory::key(rank);
  return parx::detail::peer_record::from_text(job_store.get(key, parx::deadline::after(10s)));
}

/// Listens at a port of this host, as soon as that is free; 0: at any.
parx::descriptor listener_at(std::uint16_t port) {
  auto made = parx::detail::stream_socket(AF_INET);
  const auto address = parx::detail::socket_address::tcp("127.0.0.1", port);
  const int yes = 1;
  ::setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const auto limit = parx::deadline::after(5s);
  while (::bind(made.get(), address.data(), address.length) != 0) {
    if (limit.passed()) throw std::runtime_error("the port of the lost rank stays taken");
    std::this_thread::sleep_for(1ms);
  }
  if (::listen(made.get(), 64) != 0) throw std::runtime_error("cannot listen");
  return made;
}

/// More by hand: PARX_TEST_KILLS=200 for at least as many kills.
int rounds() {
  const char* wanted = std::getenv("PARX_TEST_KILLS");
  return wanted != nullptr ? std::max(1, (std::atoi(wanted) + 20) / 21) : 1;
}

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_go_on_without_any_one_of_them) {
  for (int round = 0; round < rounds(); ++round) {
    for (const std::string kind : {"auto", "tcp", "hybrid"}) {
      for (const int world : {3, 4}) {
        for (int victim = 0; victim < world; ++victim) {
          run_and_kill({.world = world, .victims = {victim}, .kind = kind},
                       std::chrono::microseconds(1000 + (round * 977 + victim * 313) % 9000));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_second_rank_may_die_during_the_shrink_or_after_it) {
  for (const int delay : {100, 3000, 9000}) {
    run_and_kill({.world = 4, .victims = {1, 2}, .second = plan::in_shrink},
                 std::chrono::microseconds(delay));
  }
  run_and_kill({.world = 4, .victims = {3, 0}, .second = plan::after_shrink}, 2ms);
}

// What a rank does that is killed between its record and its word that it has seen the list.
BOOST_AUTO_TEST_CASE(a_rank_that_dies_once_it_is_on_the_list_is_not_in_the_group) {
  // Its host may have given it the port of a rank whose death no one has noticed.
  for (const bool takes_port : {false, true}) {
    run_four([&](parx::world& world, int rank) {
      const auto store = world.job_store();
      const auto limit = parx::deadline::after(10s);
      if (rank == 3) ::kill(::getpid(), SIGKILL);
      if (!takes_port) sum_until_it_fails(world, 1000);
      if (rank == 1) {
        auto record = record_of(*store, 1);
        if (takes_port) record.port = record_of(*store, 3).port;
        const auto taken = listener_at(takes_port ? record.port : 0);
        store->set("shrink/1/rank/1", record.to_text(), limit);
        store->wait(std::vector<std::string>{"shrink/1/members"}, limit);
        ::kill(::getpid(), SIGKILL);
      }
      store->wait(std::vector<std::string>{"shrink/1/rank/1"}, limit);
      auto group = world.shrink();
      check_sum(group, rank, {0, 2});
      if (store->get("shrink/1/members") != "0 1 2") {
        throw std::runtime_error("rank 1 was never on the list");
      }
    });
  }
}

BOOST_AUTO_TEST_CASE(the_port_of_a_lost_rank_may_be_taken_before_the_next_loss) {
  run_four([](parx::world& world, int rank) {
    if (rank == 3) ::kill(::getpid(), SIGKILL);
    sum_until_it_fails(world, 1000);
    auto group = world.shrink();
    const auto taken = listener_at(rank == 0 ? record_of(*world.job_store(), 3).port : 0);
    check_sum(group, rank, {0, 1, 2});
    if (rank == 1) ::kill(::getpid(), SIGKILL);
    sum_until_it_fails(group, 1000);
    group = world.shrink();
    check_sum(group, rank, {0, 2});
  });
}

BOOST_AUTO_TEST_CASE(a_rank_that_hangs_is_left_out_and_told_so_where_it_goes_on) {
  for (const bool is_stopped : {false, true}) {  // by SIGSTOP; else it is in a call of its own
    const parx::tcp_store_server server({.address = "127.0.0.1"});
    int wakes[2], done[2];
    BOOST_TEST_REQUIRE((::pipe(wakes) == 0 && ::pipe(done) == 0));
    job all;
    for (int rank = 0; rank < 3; ++rank) {
      all.start_program(rank, 3, [&](parx::init_options options) {
        options.env = under_an_agent(rank, 3, server.port(), "auto");
        return parx::run([&](parx::world& world) {
          try {
            parx::barrier(world);
          } catch (const parx::error&) {  // another one shrinks already
          }
          char byte = 'x';
          if (rank == 1) {
            ::close(done[1]);
            if (is_stopped) ::kill(::getpid(), SIGSTOP);
            else if (::read(wakes[0], &byte, 1) != 1) throw std::runtime_error("the test has gone");
            static_cast<void>(world.shrink());
            return;
          }
          auto group = world.shrink(1s);
          check_sum(group, rank, {0, 2});
          check_sum(group, rank, {0, 2});
          if (::write(done[1], &byte, 1) != 1) throw std::runtime_error("the test has gone");
        }, std::move(options));
      });
    }
    char bytes[2];
    ::close(done[1]);
    BOOST_TEST(::read(done[0], bytes, 1) == 1);
    BOOST_TEST(::read(done[0], bytes, 1) == 1);
    BOOST_TEST(::write(wakes[1], bytes, 1) == 1);
    if (is_stopped) ::kill(all.pid(1), SIGCONT);
    const auto results = all.wait();
    BOOST_TEST(results[0].exit_code == 0, results[0].text);
    BOOST_TEST(results[2].exit_code == 0, results[2].text);
    BOOST_TEST(results[1].exit_code == 1, results[1].text);
    BOOST_TEST(mentions(results[1].text, "rank 1 was left out"), results[1].text);
    for (const int each : {wakes[0], wakes[1], done[0]}) ::close(each);
  }
}

BOOST_AUTO_TEST_CASE(where_rank_0_kept_the_store_its_loss_is_said_to_be_final) {
  job all;
  for (int rank = 0; rank < 3; ++rank) {
    all.start(rank, 3, [rank](parx::world& world) {
      if (rank == 0) {
        std::vector<double> values(1000);
        parx::all_reduce(world, std::span(values));
        ::kill(::getpid(), SIGKILL);
      }
      sum_until_it_fails(world, 1000);
      static_cast<void>(world.shrink());
    });
  }
  const auto results = all.wait();
  for (std::size_t rank = 1; rank < 3; ++rank) {
    BOOST_TEST(results[rank].exit_code == 1, results[rank].text);
    BOOST_TEST(mentions(results[rank].text, "cannot go on: rank 0"), results[rank].text);
  }
}
