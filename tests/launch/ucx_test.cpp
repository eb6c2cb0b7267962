// Jobs of processes on emulated hosts, with UCX between them: those that work, those that are
// refused, and ranks that are killed, stopped or leave.
#include <parx/transport/ucx.hpp>

#include <boost/test/unit_test.hpp>

#include <signal.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <parx/comm.hpp>
#include <parx/launch.hpp>

#include "launch/processes.hpp"
#include "messages.hpp"

namespace {

using namespace std::chrono_literals;
using processes::job;
using parx_test::mentions;

/// The environment of a rank on a host of its own.
parx::environment on_host(int host, parx::environment more = {}) {
  more.insert(
      {{"PARX_TRANSPORT", "ucx"}, {"PARX_HOST_ID", std::to_string(host)}, {"UCX_TLS", "tcp"}});
  return more;
}

void sums_are_right(parx::world& world) {
  if (world.shares_memory()) throw std::logic_error("this is one host");
  for (const std::size_t count : {1u, 1'000u, 500'000u}) {
    std::vector<float> x(count, 1.0F);
    parx::all_reduce(world, x);
    const auto all = static_cast<float>(world.size());
    if (x.front() != all || x.back() != all) throw std::logic_error("wrong sum");
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_on_two_hosts_share_memory_inside_and_ucx_between_them) {
  for (const bool with_secret : {false, true}) {
    job all;
    for (int rank = 0; rank < 4; ++rank) {
      auto env = on_host(rank / 2);
      if (with_secret) env["PARX_SECRET"] = "open-sesame-0123456789";
      all.start(rank, 4, sums_are_right, env);
    }
    for (const auto& each : all.wait()) BOOST_TEST(each.exit_code == 0, each.text);
  }
}

BOOST_AUTO_TEST_CASE(a_job_that_is_to_encrypt_is_not_started_over_ucx) {
  job all;
  for (int rank = 0; rank < 2; ++rank) {
    all.start(rank, 2, sums_are_right,
              on_host(rank, {{"PARX_SECRET", "open-sesame-0123456789"}, {"PARX_TLS", "1"}}));
  }
  for (const auto& each : all.wait()) {
    BOOST_TEST(each.exit_code != 0);
    BOOST_TEST(mentions(each.text, "PARX_TRANSPORT=ucx with PARX_TLS=1"), each.text);
  }
}

BOOST_AUTO_TEST_CASE(transports_that_ucx_does_not_have_are_refused_by_a_sentence) {
  job all;
  for (int rank = 0; rank < 2; ++rank) {
    auto env = on_host(rank);
    env["UCX_TLS"] = "pigeons";
    all.start(rank, 2, sums_are_right, env);
  }
  for (const auto& each : all.wait()) {
    BOOST_TEST(each.exit_code != 0);
    BOOST_TEST(mentions(each.text, "UCX_TLS"), each.text);
  }
}

BOOST_AUTO_TEST_CASE(a_killed_rank_is_named_by_all_the_others) {
  for (const bool idle : {true, false}) {
    job all;
    for (int rank = 0; rank < 4; ++rank) {
      all.start(
          rank, 4,
          [&](parx::world& world) {
            std::vector<float> x(200'000);
            parx::barrier(world);
            if (idle && world.rank() == 2) std::this_thread::sleep_for(60s);
            for (;;) parx::all_reduce(world, x);
          },
          on_host(rank));
    }
    std::this_thread::sleep_for(1s);
    ::kill(all.pid(2), SIGKILL);
    const auto ends = all.wait();
    for (const std::size_t rank : {0u, 1u, 3u}) {
      BOOST_TEST_CONTEXT("rank " << rank << (idle ? ", idle: " : ": ") << ends[rank].text) {
        BOOST_TEST(ends[rank].exit_code == 1);
        BOOST_TEST(mentions(ends[rank].text, "rank 2"));
        BOOST_TEST(mentions(ends[rank].text, "ended or was killed"));
        BOOST_TEST(ends[rank].seconds < 2.0);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_stopped_rank_costs_the_others_their_deadline_and_is_named) {
  job all;
  for (int rank = 0; rank < 3; ++rank) {
    all.start(
        rank, 3,
        [](parx::world& world) {
          std::vector<float> x(2'000'000);
          parx::barrier(world);
          if (world.rank() == 1) ::raise(SIGSTOP);
          parx::all_reduce(world, x);
        },
        on_host(rank, {{"PARX_TIMEOUT", "1.5"}}));
  }
  const auto ends = all.wait(6s);  // which then kills rank 1
  for (const std::size_t rank : {0u, 2u}) {
    BOOST_TEST_CONTEXT(ends[rank].text) {
      BOOST_TEST(ends[rank].exit_code == 1);
      BOOST_TEST(mentions(ends[rank].text, "rank 1"));
      BOOST_TEST(ends[rank].seconds < 5.5);
    }
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_leave_one_after_the_other_do_not_wait_for_a_killed_one) {
  for (const bool one_is_killed : {false, true}) {
    job all;
    for (int rank = 0; rank < 8; ++rank) {
      all.start(
          rank, 8,
          [&](parx::world& world) {
            std::vector<float> x(1'000, 1.0F);
            parx::all_reduce(world, x);
            parx::barrier(world);
            if (one_is_killed && world.rank() == 5) ::raise(SIGKILL);
            std::this_thread::sleep_for(std::chrono::milliseconds(5 * world.rank()));
          },
          on_host(rank));
    }
    const auto ends = all.wait();
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      if (one_is_killed && rank == 5) continue;
      BOOST_TEST(ends[rank].exit_code == 0, "rank " << rank << ": " << ends[rank].text);
      BOOST_TEST(ends[rank].seconds < (one_is_killed ? 10.0 : 4.0),
                 "rank " << rank << " after " << ends[rank].seconds);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rank_may_die_after_its_last_message_and_the_message_arrives) {
  job all;
  for (int rank = 0; rank < 2; ++rank) {
    all.start(
        rank, 2,
        [](parx::world& world) {
          std::vector<int> x(300'000, world.rank() == 0 ? 0 : 7);
          parx::barrier(world);
          if (world.rank() == 1) {
            parx::send(world, x, 0);
            ::raise(SIGKILL);
          }
          std::this_thread::sleep_for(300ms);
          parx::recv(world, x, 1);
          if (x.front() != 7 || x.back() != 7) throw std::logic_error("wrong message");
        },
        on_host(rank));
  }
  const auto ends = all.wait();
  BOOST_TEST(ends[0].exit_code == 0, ends[0].text);
}
