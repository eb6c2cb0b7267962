// Jobs under an agent that lose ranks to kill -9, and go on with those that are left.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/launch.hpp>
#include <parx/store/tcp_server.hpp>

#include "launch/processes.hpp"

namespace lossy {

struct plan {
  std::vector<int> victims;
  int world = 3;
  std::size_t accumulation = 1;
  bool writes = false;  ///< checkpoints, evaluations, log
  std::string kind = "auto";
  /// The victim kills itself between the evaluation and the checkpoint of this step.
  std::uint64_t dies_evaluated = 0;
};

/// Where training began with so many ranks.
struct beginning {
  std::uint64_t step;
  std::size_t world;
};

/// In ascending order.
inline std::vector<int> left_of(const plan& p) {
  std::vector<int> left;
  for (int rank = 0; rank < p.world; ++rank) {
    if (std::find(p.victims.begin(), p.victims.end(), rank) == p.victims.end()) {
      left.push_back(rank);
    }
  }
  return left;
}

inline parx::environment under_an_agent(int rank, const plan& p, std::uint16_t port) {
  parx::environment env{{"RANK", std::to_string(rank)},
                        {"WORLD_SIZE", std::to_string(p.world)},
                        {"LOCAL_RANK", std::to_string(rank)},
                        {"LOCAL_WORLD_SIZE", std::to_string(p.world)},
                        {"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", std::to_string(port)},
                        {"TORCHELASTIC_RUN_ID", "shrink"},
                        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                        {"PARX_RECORDER", "off"}};
  if (p.kind == "tcp") env["PARX_TRANSPORT"] = "tcp";
  return env;
}

/// body(world, descriptor) in p.world processes. The victims are killed one after the other once
/// all have written a byte to the descriptor; the others are to end well. True where they did.
template <typename Body>
bool run_and_kill(const plan& p, std::chrono::microseconds when, Body body) {
  const parx::tcp_store_server server({.address = "127.0.0.1"});
  processes::job all;
  int ready[2];
  BOOST_REQUIRE(::pipe(ready) == 0);
  for (int rank = 0; rank < p.world; ++rank) {
    all.start_program(rank, p.world, [&](parx::init_options options) {
      options.env = under_an_agent(rank, p, server.port());
      return parx::run([&](parx::world& world) { body(world, ready[1]); }, std::move(options));
    });
  }
  ::close(ready[1]);
  char go[8];
  for (ssize_t heard = 0, got = 1; heard < p.world && got > 0; heard += got) {
    got = ::read(ready[0], go, sizeof go);
  }
  for (const int victim : p.victims) {
    std::this_thread::sleep_for(when);
    ::kill(all.pid(static_cast<std::size_t>(victim)), SIGKILL);
  }
  const auto results = all.wait();
  ::close(ready[0]);
  bool well = true;
  for (const int rank : left_of(p)) {
    const auto& each = results[static_cast<std::size_t>(rank)];
    well &= each.exit_code == 0;
    BOOST_TEST(each.exit_code == 0, "rank " << rank << " of " << p.world << ": " << each.text);
  }
  return well;
}

/// More by hand: PARX_TEST_KILLS=200.
inline int rounds() {
  const char* wanted = std::getenv("PARX_TEST_KILLS");
  return wanted != nullptr ? std::max(1, std::atoi(wanted) / 12) : 1;
}

inline std::chrono::microseconds moment(int number) {
  return std::chrono::microseconds(number * 7919 % 40'000);
}

}  // namespace lossy
