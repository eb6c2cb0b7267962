// Ranks that have done their part and leave while others still wait for what they have sent: no
// rank waits for another to leave, and nobody takes one that has left for lost.
#include "processes.hpp"

#include <boost/test/unit_test.hpp>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <parx/comm.hpp>
#include <parx/core/tls.hpp>

using namespace processes;

namespace {

struct network {
  std::string name;
  parx::environment env;
};

/// Shared memory, TCP with a secret, several connections, TLS, and ranks on two hosts in turn.
std::vector<network> networks() {
  const std::string secret = "a secret of the test, long enough";
  std::vector<network> all{
      {"shared memory", {{"PARX_SECRET", secret}}},
      {"TCP", {{"PARX_SECRET", secret}, {"PARX_TRANSPORT", "tcp"}}},
      {"TCP, two connections",
       {{"PARX_SECRET", secret}, {"PARX_TRANSPORT", "tcp"}, {"PARX_STREAMS", "2"}}},
      {"both", {{"PARX_SECRET", secret}, {"PARX_HOST_ID", ""}}}};
  if (parx::why_no_tls().empty()) {
    all.push_back({"TLS", {{"PARX_SECRET", secret}, {"PARX_TRANSPORT", "tcp"}, {"PARX_TLS", "1"}}});
  }
  return all;
}

/// Runs such a job over each network, all at a time. Every rank must end well.
void expect_success(int world, const std::function<void(parx::world&)>& body) {
  std::vector<job> jobs(networks().size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    for (int rank = 0; rank < world; ++rank) {
      parx::environment env = networks()[i].env;
      if (env.contains("PARX_HOST_ID")) env["PARX_HOST_ID"] = rank % 2 == 0 ? "even" : "odd";
      jobs[i].start(rank, world, body, env);
    }
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto results = jobs[i].wait(60s);
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      BOOST_TEST(results[rank].exit_code == 0,
                 networks()[i].name << ", rank " << rank << ": " << results[rank].text);
    }
  }
}

void check(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("wrong result: ") + what);
}

constexpr auto late = 800ms;

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_whose_part_is_done_leave_while_the_root_waits_for_a_late_one) {
  expect_success(5, [](parx::world& world) {
    if (world.rank() == 1) std::this_thread::sleep_for(late);
    const std::vector<int> mine(8, world.rank());
    std::vector<int> sum(8), all(8 * 5);
    parx::reduce(world, mine, sum, {.root = 0, .op = parx::reduce_op::sum});
    check(world.rank() != 0 || sum == std::vector<int>(8, 10), "reduce");
  });
}

BOOST_AUTO_TEST_CASE(a_receive_from_anybody_begins_after_others_have_left) {
  expect_success(5, [](parx::world& world) {
    int x = world.rank();
    if (world.rank() == 4) {
      std::this_thread::sleep_for(late / 2);
      check(parx::recv_any(world, x) == 2 && x == 2, "recv_any");
    } else if (world.rank() == 2) {
      std::this_thread::sleep_for(late);
      parx::send(world, x, 4);
    }
  });
}

BOOST_AUTO_TEST_CASE(a_receiver_that_comes_when_the_sender_has_left_is_given_all_of_the_message) {
  // Less than the kernel takes, more than a receiver's window: the rest is sent after the process's
  // end. In shared memory the sender waits.
  static constexpr std::size_t count = 250'000;
  expect_success(2, [](parx::world& world) {
    std::vector<float> x(count, world.rank() == 1 ? 7.0F : 0.0F);
    if (world.rank() == 1) return parx::send(world, x, 0);
    std::this_thread::sleep_for(late);
    parx::recv(world, x, 1);
    check(x == std::vector<float>(x.size(), 7), "message");
  });
}

BOOST_AUTO_TEST_CASE(what_a_rank_has_not_received_when_it_leaves_destroys_nothing_it_has_sent) {
  static constexpr std::size_t count = 250'000;
  expect_success(2, [](parx::world& world) {
    std::vector<float> x(count, 7);
    std::vector<int> unwanted(100);
    int ready = 0;
    if (world.rank() == 1) {
      parx::recv(world, ready, 0, {.tag = 1});
      parx::send(world, x, 0);
      return std::this_thread::sleep_for(late / 2);  // the unwanted message comes after all calls
    }
    parx::send(world, ready, 1, {.tag = 1});
    std::this_thread::sleep_for(late / 4);
    if (!world.shares_memory()) parx::send(world, unwanted, 1, {.tag = 2});
    std::this_thread::sleep_for(late);
    x.assign(x.size(), 0);
    parx::recv(world, x, 1);
    check(x == std::vector<float>(x.size(), 7), "message");
  });
}
