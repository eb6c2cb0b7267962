// What may go wrong around a job's store: a rank that dies before all have come, connections to the
// store that break while everybody lives, and a store that has the keys of earlier starts.
#include <parx/launch/rendezvous.hpp>

#include <boost/test/unit_test.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <launch/processes.hpp>
#include <messages.hpp>

#include <parx/comm.hpp>
#include <parx/store/detail/listen.hpp>
#include <parx/store/tcp.hpp>
#include <parx/store/tcp_server.hpp>

namespace {

using namespace std::chrono_literals;
using parx_test::mentions;

/// Joins a job and returns the exit code 1 with the reason where that fails.
int join(const parx::init_options& options, std::chrono::milliseconds patience) {
  try {
    const parx::rendezvous meeting(parx::detect_launch(options.env), options.env,
                                   parx::deadline::after(patience), [] {});
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}

/// A store's server that greets its first client and does not answer its first request: it hangs up
/// or, until the client has gone, waits.
void fail_the_first_request(int listener, bool hangs_up) {
  const parx::descriptor client(::accept(listener, nullptr, nullptr));
  char bytes[4096];
  const auto got = ::recv(client.get(), bytes, sizeof bytes, 0);
  ::send(client.get(), bytes + got - 4, 4, MSG_NOSIGNAL);  // the ping's number
  ::recv(client.get(), bytes, sizeof bytes, 0);
  if (!hangs_up) ::recv(client.get(), bytes, sizeof bytes, 0);
}

/// Cuts this process's connections with a port. How many there were.
int cut_connections_with(std::uint16_t port) {
  int cut = 0;
  for (int number = 3; number < 256; ++number) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(number, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.sin_family != AF_INET || ntohs(peer.sin_port) != port) continue;
    ::shutdown(number, SHUT_RDWR);
    ++cut;
  }
  return cut;
}

/// What torchrun sets where its agent keeps the store.
parx::environment under_an_agent(int rank, int world, std::uint16_t port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(world)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)},
          {"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"PARX_RECORDER", "off"}};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_rank_that_dies_before_all_have_come_is_named_at_once) {
  for (const bool has_arrived : {false, true}) {
    processes::job all;
    for (const int rank : {0, 1, 2}) {  // the fourth never comes
      all.start_program(rank, 4, [=](const parx::init_options& options) {
        parx::launch_env job = parx::detect_launch(options.env);
        const auto dies = [] { ::raise(SIGKILL); };
        std::thread later;
        if (rank == 2 && has_arrived) {
          later = std::thread([&] { std::this_thread::sleep_for(500ms), dies(); });
        }
        try {
          const parx::rendezvous meeting(job, options.env, parx::deadline::after(20s), [&] {
            if (rank == 2 && !has_arrived) dies();
          });
        } catch (const std::exception& failure) {
          std::fprintf(stderr, "%s\n", failure.what());
        }
        if (later.joinable()) later.join();
        return 1;
      });
    }
    const auto results = all.wait();
    for (const std::size_t rank : {0U, 1U}) {
      BOOST_TEST(results[rank].seconds < 5, results[rank].text);
      BOOST_TEST(mentions(results[rank].text, "rank 2 (pid "), results[rank].text);
      BOOST_TEST(mentions(results[rank].text,
                                     "has ended or was killed before all had come"),
                 results[rank].text);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_dies_before_it_listens_is_named_at_once) {
  processes::job all;
  for (const int rank : {0, 1}) {  // the fourth never comes
    all.start_program(rank, 4,
                      [](const parx::init_options& options) { return join(options, 20s); });
  }
  const std::uint16_t port = all.port();
  all.start_program(2, 4, [port](const parx::init_options&) {
    parx::tcp_store client({.port = port});
    client.compare_set("parx//claim/2", "", "pid 7 on there");
    return ::raise(SIGKILL);
  });
  const auto results = all.wait();
  for (const std::size_t rank : {0U, 1U}) {
    BOOST_TEST(results[rank].seconds < 5, results[rank].text);
    BOOST_TEST(mentions(results[rank].text, "rank 2 (pid 7 on there) has ended or was "
                                                       "killed before all had come"),
               results[rank].text);
  }
}

BOOST_AUTO_TEST_CASE(rank_0_is_named_where_it_dies_or_stops_while_others_join) {
  for (const bool dies : {true, false}) {
    const auto listener = parx::detail::listen_on("127.0.0.1", 0);
    processes::job all(parx::detail::bound_port(listener.get()));
    all.start_program(1, 2, [](const parx::init_options& options) { return join(options, 700ms); });
    const int flags = ::fcntl(listener.get(), F_GETFL);
    ::fcntl(listener.get(), F_SETFL, flags & ~O_NONBLOCK);
    fail_the_first_request(listener.get(), dies);
    const auto results = all.wait();
    BOOST_TEST(mentions(results[0].text, "rank 1 of 2 could not join the job at"),
               results[0].text);
    BOOST_TEST(mentions(results[0].text,
                                   dies ? "rank 0, which keeps the job's store, has ended or was"
                                        : "rank 0, which keeps the job's store, does not answer"),
               results[0].text);
    BOOST_TEST(results[0].seconds < 2, results[0].text);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_0_that_stops_while_others_wait_does_not_delay_their_end) {
  processes::job all;
  for (const int rank : {0, 1}) {  // the third never comes
    all.start_program(rank, 3, [rank](const parx::init_options& options) {
      std::thread later;
      const auto stops = [] { std::this_thread::sleep_for(500ms), ::kill(::getpid(), SIGSTOP); };
      if (rank == 0) later = std::thread(stops);
      const int code = join(options, 1500ms);
      if (later.joinable()) later.join();
      return code;
    });
  }
  const auto results = all.wait(5s);  // which then kills rank 0
  BOOST_TEST(results[1].exit_code == 1, results[1].text);
  BOOST_TEST(results[1].seconds < 4, results[1].text);
  BOOST_TEST(mentions(results[1].text, "rank 0, which keeps the job's store, does not "
                                                  "answer; is its process stopped?"),
             results[1].text);
}

BOOST_AUTO_TEST_CASE(a_broken_connection_with_the_store_is_made_again_before_anybody_is_accused) {
  const std::uint16_t port = processes::free_port();
  processes::job all(port);
  for (int rank = 0; rank < 2; ++rank) {
    all.start(rank, 2, [=](parx::world& world) {
      std::vector<float> x(100, 1);
      parx::all_reduce(world, x);
      if (world.rank() == 1 && cut_connections_with(port) == 0) throw std::runtime_error("no cut");
      for (int i = 0; i < 20; ++i) {
        if (world.rank() == 0) std::this_thread::sleep_for(20ms);  // the other one waits and looks
        parx::all_reduce(world, x, {.op = parx::reduce_op::max});
      }
      if (x[0] != 2) throw std::runtime_error("another sum");
      // What ends a job is heard over the new connection.
      if (world.rank() == 0) throw std::runtime_error("that is all");
      parx::barrier(world);
    });
  }
  const auto results = all.wait();
  BOOST_TEST(mentions(results[0].text, "that is all"), results[0].text);
  BOOST_TEST(mentions(results[1].text, "that is all"), results[1].text);
  BOOST_TEST(!mentions(results[1].text, "has ended or was killed"), results[1].text);
}

BOOST_AUTO_TEST_CASE(the_ranks_of_each_start_meet_in_one_store_whatever_their_agents_have_counted) {
  const parx::tcp_store_server server({.address = "127.0.0.1"});  // as torchrun's agents keep it
  const auto start = [&](int world, int first_to_come, bool fails) {
    processes::job all(server.port());
    for (int i = 0; i < world; ++i) {
      const int rank = (first_to_come + i) % world;
      all.start_program(rank, world, [&, rank](parx::init_options options) {
        options.env = under_an_agent(rank, world, server.port());
        options.env["TORCHELASTIC_RESTART_COUNT"] = rank == 1 ? "1" : "0";
        if (fails && rank == 1) return 7;  // before it has joined
        return join(options, fails && rank != 1 ? 500ms : 10s);
      });
      std::this_thread::sleep_for(fails ? 0ms : 100ms);
    }
    return all.wait();
  };
  for (const int first_to_come : {0, 1}) {
    for (const auto& each : start(3, 0, true)) BOOST_TEST(each.exit_code != 0);
    for (const int world : {3, 2}) {
      for (const auto& each : start(world, first_to_come, false)) {
        BOOST_TEST(each.exit_code == 0, each.text);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(an_agent_that_kept_the_store_and_was_killed_is_named_and_no_rank) {
  processes::job all;
  all.start_program(0, 2, [&](const parx::init_options&) {
    const parx::tcp_store_server server({.address = "127.0.0.1", .port = all.port()});
    return ::pause();
  });
  const pid_t agent = all.pid(0);
  for (const int rank : {0, 1}) {
    all.start_program(rank, 2, [&, rank](parx::init_options options) {
      options.env = under_an_agent(rank, 2, all.port());
      const auto body = [agent](parx::world& world) {
        std::vector<float> x(1);
        parx::all_reduce(world, x);
        if (world.rank() == 0) ::kill(agent, SIGKILL);
        for (;;) parx::all_reduce(world, x);
      };
      return parx::run(body, std::move(options));
    });
  }
  const auto results = all.wait();
  for (const std::size_t rank : {1U, 2U}) {
    const std::string& text = results[rank].text;
    BOOST_TEST(results[rank].exit_code > 0, text);
    BOOST_TEST(mentions(text, "torchrun's agent, which keeps the job's store ("), text);
    BOOST_TEST(!mentions(text, "rank 0, which keeps"), text);
    BOOST_TEST(!mentions(text, "after rank 0"), text);
    BOOST_TEST(!mentions(text, "another rank failed first"), text);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_asks_which_start_this_is_hears_why_rank_0_cannot_join) {
  const parx::tcp_store_server server({.address = "127.0.0.1"});
  processes::job all(server.port());
  for (const int rank : {1, 0}) {
    all.start_program(rank, 2, [&, rank](parx::init_options options) {
      options.env = under_an_agent(rank, 2, server.port());
      if (rank == 0) options.env["PARX_TRANSPORT"] = "pigeons";
      return join(options, 20s);
    });
    std::this_thread::sleep_for(200ms);  // so that rank 1 has asked
  }
  const auto results = all.wait();
  BOOST_TEST(results[0].seconds < 5);
  BOOST_TEST(mentions(results[0].text, "pigeons"), results[0].text);
}

BOOST_AUTO_TEST_CASE(a_program_without_ucx_says_what_to_include) {
  processes::job all;
  for (const int rank : {0, 1}) {
    all.start(rank, 2, [](parx::world&) {}, {{"PARX_TRANSPORT", "ucx"}});
  }
  for (const auto& each : all.wait()) {
    BOOST_TEST(each.exit_code != 0);
    BOOST_TEST(mentions(each.text, "<parx/transport/ucx.hpp>"), each.text);
  }
}
