// The doors of a job, at which anybody may knock: the store, the coordinator of the nodes, the
// links of a rank. One list of attacks for all three, which have one set of limits; and what an
// agent believes of a listener that is no coordinator. PARX_TEST_SIEGES=1 for the whole list.
#include "tools/parxrun/nodes/agent_link.hpp"
#include "tools/parxrun/nodes/coordinator.hpp"

#include <sanitizers.hpp>
#include <store/raw_client.hpp>
#include <store/wire.hpp>
#include <victim.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/test/unit_test.hpp>

#include <parx/core/newcomers.hpp>
#include <parx/store/tcp.hpp>
#include <parx/transport/detail/incoming_connections.hpp>

namespace {

using namespace std::chrono_literals;
using namespace parx::detail;
using clock_type = std::chrono::steady_clock;
using parx::job_key;
using parx::json::object;

const std::string secret = "open-sesame-0123456789";
const std::string challenge = "0123456789abcdef0123456789abcdef";
constexpr auto long_enough = 60s;  // the machine is not ours alone

/// The bytes of a number, little-endian.
std::string u32(std::uint32_t number) {
  return std::string(job_key::view(number));
}

struct door {
  std::string name;
  std::function<void(const std::function<void(std::uint16_t)>& listens)> serve;
  std::function<bool(std::uint16_t port)> serves_an_honest_one;
  /// Beginnings of what a newcomer may say.
  std::vector<std::string> halves;
};

// The store.

door the_store() {
  return {"store",
          [](const auto& listens) {
            const parx::tcp_store_server server(
                {.address = "127.0.0.1", .key = job_key(secret, "run")});
            listens(server.port());
            for (;;) ::pause();
          },
          [](std::uint16_t port) {
            parx::tcp_store honest({.port = port, .key = job_key(secret, "run")});
            return honest.add("honest", 1, parx::deadline::after(long_enough)) > 0;
          },
          {"PX", "PXAUTH1\n" + std::string(32, 'n') + std::string(31, 'm')}};
}

// The coordinator.

/// An agent that comes, and what it sees.
struct honest_agent {
  explicit honest_agent(std::uint16_t port, const std::string& with = secret)
      : link(io, {.host = "127.0.0.1", .port = port, .id = "job", .secret = with},
             {.hello =
                  [this] {
                    return agent_hello{.node = process,
                                       .process = process,
                                       .nodes = "9:9",
                                       .ranks = 1,
                                       .free_port = 1};
                  },
              .message =
                  [this](const to_agent& text) {
                    seen.emplace_back(std::holds_alternative<welcome>(text) ? "admitted" : "text");
                  },
              .silent = [this] { seen.emplace_back("silent"); },
              .waits = [](const std::string&) {},
              .gave_up = [this](const std::string& why) { seen.push_back(why); },
              .vacant = [] {}}) {
    link.connect(long_enough);
  }
  /// Whether `enough` of it was seen in time.
  bool sees(std::size_t enough) {
    const auto until = clock_type::now() + long_enough;
    while (seen.size() < enough && clock_type::now() < until) io.run_one_until(until);
    return seen.size() >= enough;
  }

  const std::string process = random_hex();
  std::vector<std::string> seen;
  boost::asio::io_context io{1};
  agent_link link;
};

const parx::job_nodes nine_nodes{.least = 9, .most = 9, .host = "127.0.0.1", .id = "job"};

std::unique_ptr<coordinator> coordinator_at(boost::asio::io_context& io, parx::descriptor at) {
  return std::make_unique<coordinator>(
      io, nine_nodes, std::vector<std::string>{}, secret, parx::environment{}, std::move(at),
      [](const auto&) {}, [](const auto&) {}, [](const auto&) {});
}

door the_coordinator() {
  const std::string opening = R"({"id":"job","secret":true,"nonce":"n"})";
  return {
      "coordinator",
      [](const auto& listens) {
        boost::asio::io_context io{1};
        parx::descriptor listener = listen_on("127.0.0.1", 0);
        const std::uint16_t port = bound_port(listener.get());
        const auto kept = coordinator_at(io, std::move(listener));
        listens(port);
        for (;;) io.run_one();
      },
      [](std::uint16_t port) {
        honest_agent agent(port);
        return agent.sees(1) && agent.seen.front() == "admitted";
      },
      {std::string("\x01\0", 2), u32(agent_channel::longest_of_stranger) + std::string(4000, ' '),
       u32(1 << 20) + std::string(900, ' '),
       u32(static_cast<std::uint32_t>(opening.size())) + opening + u32(4000) +
           std::string(4000, ' ')}};
}

// The links.

link_hello proven_hello(std::uint64_t count) {
  link_hello greeting;
  greeting.group = 7;
  greeting.from = 1;
  greeting.to = 0;
  greeting.rank = 1;
  greeting.count = count;
  greeting.proof = proof_of_hello(job_key(secret, "run"), greeting, challenge);
  return greeting;
}

door the_links() {
  return {"links",
          [](const auto& listens) {
            incoming_connections incoming("127.0.0.1", "");
            incoming.accept_with("", job_key(secret, "run"), challenge);
            listens(incoming.port());
            for (;;) {
              // A link answers with the proof before its first bytes.
              if (const auto link = incoming.claim({7, 1})) {
                static_cast<void>(::send(link.socket.get(), link.proof.data(), link.proof.size(),
                                         MSG_NOSIGNAL));
              }
              std::this_thread::sleep_for(1ms);
            }
          },
          [count = std::make_shared<std::uint64_t>(0)](std::uint16_t port) {
            const link_hello greeting = proven_hello((*count)++);
            raw_client honest(port);
            honest.send(job_key::view(greeting));
            return honest.receive(sizeof(parx::mac), long_enough) ==
                   job_key::view(proof_of_welcome(job_key(secret, "run"), greeting));
          },
          {"h", std::string(job_key::view(proven_hello(0))).substr(0, sizeof(link_hello) - 1)}};
}

// The attacks.

struct attack {
  std::string name;
  std::function<void(raw_client& stranger, const door& at, std::size_t number)> begin;
  bool comes_again = false;  ///< where it is closed
  bool is_strongest = true;  ///< of its kind
};

std::vector<attack> the_list() {
  const auto half = [](raw_client& stranger, const door& at, std::size_t number) {
    stranger.send(at.halves[number % at.halves.size()]);
  };
  const auto noise = [](raw_client& stranger, const door&, std::size_t number) {
    std::string bytes(200, '\0');
    std::uint64_t state = number * 0x9E3779B97F4A7C15ULL + 1;
    for (char& each : bytes) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      each = static_cast<char>(state >> 56);
    }
    stranger.send(bytes);
  };
  const auto nothing = [](raw_client&, const door&, std::size_t) {};
  const auto browser = [](raw_client& stranger, const door&, std::size_t) {
    stranger.send("GET / HTTP/1.1\r\nHost: n1\r\n\r\n");
  };
  return {{"idle", nothing, false, false},
          {"idle, again and again", nothing, true},
          {"half a greeting", half, false, false},
          {"half a greeting, again and again", half, true},
          {"noise, again and again", noise, true},
          {"a web browser, again and again", browser, true, false}};
}

/// 1 500 strangers, for as long as `goes_on`.
void besiege(std::uint16_t port, const door& at, const attack& how,
             const std::atomic<bool>& goes_on, std::atomic<bool>& has_begun) {
  constexpr std::size_t strangers = 1500;
  std::list<raw_client> all;
  std::size_t number = 0;
  while (all.size() < strangers) how.begin(all.emplace_back(port), at, number++);
  has_begun = true;
  while (goes_on) {
    if (how.comes_again) {
      for (raw_client& each : all) {
        char byte = 0;
        if (::recv(each.number(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN) continue;
        each = raw_client(port);
        how.begin(each, at, number++);
      }
    }
    std::this_thread::sleep_for(5ms);
  }
}

/// What an honest one meets that comes before, during and after an attack.
struct siege {
  siege(const door& where, const attack& by) : at(where), how(by), server(at.serve) {}

  void run() {
    try {
      is_served_before = at.serves_an_honest_one(server.port());
      std::atomic<bool> goes_on{true}, has_begun{false};
      std::thread strangers([&] { besiege(server.port(), at, how, goes_on, has_begun); });
      while (!has_begun) std::this_thread::sleep_for(1ms);
      const auto begin = clock_type::now();
      try {
        is_served = at.serves_an_honest_one(server.port());
      } catch (const std::exception& why) {
        failure = why.what();
      }
      seconds = std::chrono::duration<double>(clock_type::now() - begin).count();
      goes_on = false;
      strangers.join();
      grown = server.grown_mib();
      is_served_after = at.serves_an_honest_one(server.port());
    } catch (const std::exception& why) {
      failure += why.what();
    }
  }

  door at;
  attack how;
  parx_test::victim server;
  bool is_served_before = false, is_served = false, is_served_after = false;
  std::string failure;
  double seconds = 0, grown = 0;
};

BOOST_AUTO_TEST_CASE(no_stranger_keeps_an_honest_one_out_of_any_of_the_doors_or_fills_its_memory) {
  const bool all = std::getenv("PARX_TEST_SIEGES") != nullptr;
  std::list<std::list<siege>> of_doors;
  for (const door& each : {the_store(), the_coordinator(), the_links()}) {
    std::list<siege>& sieges = of_doors.emplace_back();
    for (const attack& how : the_list()) {
      if (how.is_strongest || all) sieges.emplace_back(each, how);
    }
  }
  std::vector<std::thread> threads;
  for (std::list<siege>& sieges : of_doors) {
    threads.emplace_back([&sieges] {
      for (siege& each : sieges) each.run();
    });
  }
  for (std::thread& each : threads) each.join();
  for (const std::list<siege>& sieges : of_doors) {
    for (const siege& each : sieges) {
      const std::string what = each.at.name + ", " + each.how.name;
      BOOST_TEST_MESSAGE(what << ": served after " << each.seconds << " s, " << each.grown
                              << " MiB");
      BOOST_TEST(each.failure == "", what);
      BOOST_TEST((each.is_served_before && each.is_served && each.is_served_after), what);
      if constexpr (!parx_test::sanitized) BOOST_TEST(each.grown < 32, what);
      // A rank's links may take all descriptors there are.
      if (each.at.name != "links") BOOST_TEST(!each.server.ran_out(), what);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_stranger_that_says_nothing_is_dropped_where_the_caller_speaks_first) {
  const door doors[] = {the_coordinator(), the_links()};
  const parx_test::victim servers[] = {parx_test::victim(doors[0].serve),
                                       parx_test::victim(doors[1].serve)};
  raw_client strangers[] = {raw_client(servers[0].port()), raw_client(servers[1].port())};
  for (int i = 0; i < 2; ++i) strangers[i].send(doors[i].halves.front());
  for (raw_client& each : strangers) BOOST_TEST(each.receive(1, long_enough) == "closed");
}

BOOST_AUTO_TEST_CASE(newcomers_go_by_their_age) {
  newcomers some(3);
  const newcomers::time_point start{1h};
  BOOST_TEST(!some.next_end(newcomers::time).has_value());
  for (newcomers::id each = 1; each <= 3; ++each) {
    BOOST_TEST(!some.are_many());
    some.add(each, start + each * 1s);
  }
  BOOST_TEST(some.are_many());
  BOOST_TEST(some.older_than(1s, start + 1s).empty());
  BOOST_TEST((some.older_than(1s, start + 3s) == std::vector<newcomers::id>{1, 2}));
  some.remove(1);
  BOOST_TEST(!some.are_many());
  BOOST_TEST((some.next_end(5s) == start + 7s));
}

// What an agent believes.

/// A listener that sends `bytes` to each caller and keeps the connection.
class impostor {
 public:
  explicit impostor(std::vector<std::string> bytes)
      : listener_(listen_on("127.0.0.1", 0)), port_(bound_port(listener_.get())) {
    thread_ = std::thread([this, bytes = std::move(bytes)] {
      std::list<parx::descriptor> callers;
      while (!over_) {
        pollfd waits{listener_.get(), POLLIN, 0};
        if (::poll(&waits, 1, 20) <= 0) continue;
        parx::descriptor caller(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        for (const std::string& each : bytes) {
          char heard[4096];
          if (::recv(caller.get(), heard, sizeof heard, 0) <= 0) break;
          ::send(caller.get(), each.data(), each.size(), MSG_NOSIGNAL);
        }
        callers.push_back(std::move(caller));
      }
    });
  }
  ~impostor() {
    over_ = true;
    thread_.join();
  }
  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  parx::descriptor listener_;
  std::uint16_t port_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

std::string frame_of(const std::string& text) {
  return u32(static_cast<std::uint32_t>(text.size())) + text;
}

BOOST_AUTO_TEST_CASE(an_agent_ends_in_a_sentence_where_a_listener_gives_orders_without_a_proof) {
  const std::string nonce = frame_of(R"({"nonce":"k"})");
  const std::string proof = frame_of(R"({"proof":true})");
  for (const char* order : {R"({"end":{"code":0}})", R"({"welcome":0})", R"({"form":{}})",
                            R"({"stop":{"how":3}})", "nonsense"}) {
    for (const bool after_nonce : {false, true}) {
      for (const std::string& with : {secret, std::string()}) {
        std::vector<std::string> bytes{frame_of(order)};
        if (after_nonce) bytes.insert(bytes.begin(), nonce);
        if (!with.empty()) bytes.back() += std::string(sizeof(parx::mac), '\0');
        const impostor listener(bytes);
        honest_agent agent(listener.port(), with);
        BOOST_TEST_REQUIRE(agent.sees(1), order);
        BOOST_TEST(agent.seen.front().starts_with("the job's first parxrun cannot be reached"),
                   order << ": " << agent.seen.front());
      }
    }
  }
  // Without a secret nothing is proved. Even so no text leaves the agent without an end.
  for (const char* said : {R"({"end":{}})", R"({"beat":0})", R"({"beat":9000000000000000000})",
                           R"({"beat":"x"})", "nonsense", "{}"}) {
    const impostor listener({nonce, proof, frame_of(R"({"welcome":0})") + frame_of(said)});
    honest_agent agent(listener.port(), "");
    BOOST_TEST_REQUIRE(agent.sees(2), said);
    BOOST_TEST(agent.seen[0] == "admitted");
    if (agent.seen[1] == "text") continue;  // node_agent's to judge
    BOOST_TEST(agent.seen[1] == "silent");
    agent.link.connect(1s);
    BOOST_TEST_REQUIRE(agent.sees(3), said);
    BOOST_TEST(agent.seen[2].find("is given up: ") != std::string::npos, agent.seen[2]);
  }
}

BOOST_AUTO_TEST_CASE(an_agent_gives_a_silent_listener_up_when_its_time_is_over) {
  const impostor listener({});
  honest_agent agent(listener.port());
  agent.link.close();
  const auto begin = clock_type::now();
  agent.link.connect(500ms);
  BOOST_TEST_REQUIRE(agent.sees(1));
  BOOST_TEST(agent.seen[0].ends_with("it accepts connections but does not answer"), agent.seen[0]);
  BOOST_TEST((clock_type::now() - begin >= 500ms));
}

BOOST_AUTO_TEST_CASE(one_refused_connection_is_not_a_lost_coordinator) {
  boost::asio::io_context io{1};
  parx::descriptor listener = listen_on("127.0.0.1", 0);
  const std::uint16_t port = bound_port(listener.get());
  auto kept = coordinator_at(io, std::move(listener));
  honest_agent agent(port);
  const auto both_until = [&](std::size_t seen) {
    const auto until = clock_type::now() + long_enough;
    while (agent.seen.size() < seen && clock_type::now() < until) {
      io.run_for(5ms);
      agent.io.run_for(5ms);
      agent.io.restart();
      io.restart();
    }
  };
  both_until(1);
  kept.reset();  // the port is closed for a moment
  both_until(2);
  BOOST_TEST_REQUIRE(agent.seen.size() == 2U);
  BOOST_TEST(agent.seen[1] == "silent");
  agent.link.connect(long_enough);
  agent.io.run_for(200ms);
  agent.io.restart();
  kept = coordinator_at(io, listen_on("127.0.0.1", port));
  both_until(3);
  BOOST_TEST_REQUIRE(agent.seen.size() == 3U);
  BOOST_TEST(agent.seen[2] == "admitted");
  kept.reset();
  both_until(4);
  agent.link.connect(long_enough);
  both_until(5);
  BOOST_TEST_REQUIRE(agent.seen.size() == 5U);
  BOOST_TEST(agent.seen[4].find("Connection refused") != std::string::npos, agent.seen[4]);
}

}  // namespace
