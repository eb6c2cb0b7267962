// Real processes that do not meet: ranks that never come, do not match or fail too early.
#include <parx/launch.hpp>

#include <boost/test/unit_test.hpp>

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "launch/processes.hpp"
#include "messages.hpp"

namespace {

using namespace std::chrono_literals;
using processes::job;
using parx_test::mentions;

/// Processes that take the cores from others while it lives.
class busy_cores {
 public:
  busy_cores() {
    for (unsigned i = 0; i < 4 * std::max(1U, std::thread::hardware_concurrency()); ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(60);
        for (volatile bool forever = true; forever;) {
        }
      }
      if (child > 0) children_.push_back(child);
    }
  }
  ~busy_cores() {
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }
  busy_cores(const busy_cores&) = delete;
  busy_cores& operator=(const busy_cores&) = delete;

 private:
  std::vector<pid_t> children_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_that_never_come_are_named) {
  job all;
  const parx::environment hurry{{"PARX_RENDEZVOUS_TIMEOUT", "1.0"}};
  for (const int rank : {0, 2}) all.start(rank, 5, [](parx::world&) {}, hurry);
  for (const auto& each : all.wait()) {
    BOOST_TEST(each.exit_code == 1);
    BOOST_TEST(mentions(each.text, "1, 3, 4"), each.text);
  }
}

BOOST_AUTO_TEST_CASE(of_many_ranks_that_never_come_sixteen_are_named_and_the_others_counted) {
  job all;
  all.start(3, 22, [](parx::world&) {}, {{"PARX_RENDEZVOUS_TIMEOUT", "1.5"}});
  all.start(0, 22, [](parx::world&) {}, {{"PARX_RENDEZVOUS_TIMEOUT", "1.5"}});
  for (const auto& each : all.wait()) {
    BOOST_TEST(each.exit_code == 1);
    BOOST_TEST(mentions(each.text, "ranks 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17 "
                                   "and 4 more did not come"),
               each.text);
  }
}

BOOST_AUTO_TEST_CASE(an_unreachable_master_is_named_with_its_address) {
  job all;
  all.start(1, 2, [](parx::world&) {}, {{"PARX_RENDEZVOUS_TIMEOUT", "0.5"}});
  const auto results = all.wait();
  BOOST_TEST(results[0].exit_code == 1);
  BOOST_TEST(mentions(results[0].text, "127.0.0.1:" + std::to_string(all.port())), results[0].text);
  BOOST_TEST(mentions(results[0].text, "refused"), results[0].text);
}

BOOST_AUTO_TEST_CASE(ranks_that_disagree_about_the_world_size_are_refused) {
  job all;
  const parx::environment hurry{{"PARX_RENDEZVOUS_TIMEOUT", "5"}};
  all.start(0, 2, [](parx::world&) {}, hurry);
  std::this_thread::sleep_for(300ms);
  all.start(1, 3, [](parx::world&) {}, hurry);
  const auto results = all.wait();
  BOOST_TEST(mentions(results[0].text, "rank 1"), results[0].text);  // which one it is
  for (const auto& each : results) {
    BOOST_TEST(each.exit_code == 1);
    BOOST_TEST(mentions(each.text, "it has a world size of 3, but rank 0 has 2. All ranks of a job "
                                   "must be started alike"),
               each.text);
    BOOST_TEST(each.seconds < 4.0);
  }
}

BOOST_AUTO_TEST_CASE(a_second_process_with_the_same_rank_is_refused) {
  job all;
  const parx::environment hurry{{"PARX_RENDEZVOUS_TIMEOUT", "5"}};
  const auto sleeper = [](parx::world&) { std::this_thread::sleep_for(1500ms); };
  all.start(0, 2, sleeper, hurry);
  std::this_thread::sleep_for(300ms);
  all.start(1, 2, sleeper, hurry);
  all.start(1, 2, sleeper, hurry);
  const auto results = all.wait();
  const int refused = (results[1].exit_code != 0 ? 1 : 0) + (results[2].exit_code != 0 ? 1 : 0);
  BOOST_TEST(refused == 1);
  BOOST_TEST(results[0].exit_code == 0, results[0].text);
  BOOST_TEST((mentions(results[1].text, "rank 1 of 2 is taken") ||
              mentions(results[2].text, "rank 1 of 2 is taken")),
             results[1].text + results[2].text);
}

BOOST_AUTO_TEST_CASE(a_port_that_is_in_use_names_its_owner) {
  const auto listener = processes::bound_socket();
  ::listen(listener.get(), 1);
  job all(processes::port_of(listener));
  all.start(0, 2, [](parx::world&) {});
  const auto results = all.wait();
  BOOST_TEST(results[0].exit_code == 1);
  BOOST_TEST(mentions(results[0].text, std::to_string(::getpid())), results[0].text);
  BOOST_TEST(mentions(results[0].text, "that of PARX_MASTER_PORT"), results[0].text);
}

BOOST_AUTO_TEST_CASE(a_rank_that_fails_before_all_have_come_tells_the_others_why) {
  for (const int failing : {0, 1}) {
    job all;
    for (int rank = 0; rank < 2; ++rank) {
      parx::environment extra{{"PARX_RENDEZVOUS_TIMEOUT", "5"}};
      if (rank == failing) extra["PARX_SOCKET_IFNAME"] = "=nosuch0";
      all.start(rank, 3, [](parx::world&) {}, extra);
      std::this_thread::sleep_for(300ms);  // rank 1 comes when rank 0 has failed
    }
    for (const auto& each : all.wait()) {
      BOOST_TEST(each.exit_code != 0);
      BOOST_TEST(mentions(each.text, "nosuch0"), "failing " << failing << ": " << each.text);
    }
  }
}

BOOST_AUTO_TEST_CASE(what_ends_a_job_while_its_world_is_made_is_said_on_every_rank) {
  // Ranks of two hosts measure their links. On an idle machine rank 0 always finds the time.
  const busy_cores others;
  bool failed = false;
  for (int i = 0; i < 300 && !failed; ++i) {
    job all;
    for (int rank = 0; rank < 2; ++rank) {
      parx::environment extra{{"PARX_HOST_ID", rank == 0 ? "here" : "there"}};
      if (rank == 0) extra["PARX_TIMEOUT"] = "0.001";
      all.start(rank, 2, [](parx::world&) {}, extra);
    }
    const auto ends = all.wait();
    failed = ends[0].exit_code == 1;
    if (!failed) continue;
    const std::string reason = "timed out waiting for rank 1";
    BOOST_TEST(mentions(ends[0].text, reason), ends[0].text);
    BOOST_TEST(mentions(ends[1].text, reason), ends[1].text);
  }
  BOOST_TEST(failed);
}
