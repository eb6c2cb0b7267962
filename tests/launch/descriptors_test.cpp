// Real processes: how many descriptors a job takes, and what is said when they run out.
#include <parx/launch.hpp>

#include <boost/test/unit_test.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <parx/comm.hpp>

#include "launch/processes.hpp"
#include "messages.hpp"

namespace {

using parx_test::mentions;
using processes::job;

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

enum class limit_kind { soft, hard };

/// Leaves this process `spare` descriptors.
void leave_descriptors(int spare, limit_kind kind) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = 100;
  if (kind == limit_kind::hard) limit.rlim_max = 100;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  int last = -1;
  for (int next = ::dup(STDERR_FILENO); next >= 0; next = ::dup(STDERR_FILENO)) last = next;
  for (int i = 0; i < spare; ++i) ::close(last - i);
}

}  // namespace

BOOST_AUTO_TEST_CASE(hundreds_of_groups_in_use_take_no_descriptors_inside_a_host) {
  static constexpr int world_size = 4;
  job all;
  for (int rank = 0; rank < world_size; ++rank) {
    all.start(rank, world_size, [](parx::world& world) {
      const std::vector<int> everybody{3, 1, 0, 2};
      std::vector<parx::process_group> groups;
      const auto use_one = [&] {
        groups.push_back(world.subgroup(everybody));
        parx::process_group& group = groups.back();
        std::vector<int> x(100, group.rank());
        parx::all_reduce(group, x);
        parx::require(x[7] == 6, "wrong sum");
        if (group.rank() == 3) parx::send(group, x, 0);
        if (group.rank() == 0) parx::recv(group, x, 3);
        parx::barrier(group);
      };
      use_one();
      parx::barrier(world);
      const std::size_t before = open_descriptors();
      for (int i = 0; i < 200; ++i) use_one();
      const std::size_t after = open_descriptors();
      // Connections that bring memory are closed as it arrives; some are on their way.
      parx::require(after <= before + 10, "{} descriptors, then {}", before, after);
    });
  }
  for (const auto& each : all.wait()) BOOST_TEST(each.exit_code == 0, each.text);
}

BOOST_AUTO_TEST_CASE(groups_in_reserve_take_no_descriptors) {
  job all;
  for (int rank = 0; rank < 2; ++rank) {
    all.start(rank, 2, [](parx::world& world) {
      parx::barrier(world);
      const rlimit limit{40, 40};
      ::setrlimit(RLIMIT_NOFILE, &limit);
      const std::vector<int> both{0, 1};
      std::vector<parx::process_group> groups;
      for (int i = 0; i < 1000; ++i) groups.push_back(world.subgroup(both));
      parx::async_barrier(groups.back()).wait();
      parx::barrier(groups.front());
    }, {{"PARX_TRANSPORT", "tcp"}});
  }
  for (const auto& each : all.wait()) BOOST_TEST(each.exit_code == 0, each.text);
}

BOOST_AUTO_TEST_CASE(running_out_of_descriptors_is_said_on_every_rank_with_what_to_do) {
  for (const std::string transport : {"tcp", "auto"}) {
    for (const limit_kind kind : {limit_kind::soft, limit_kind::hard}) {
      // The rank that accepts connections, the one that opens them. The last descriptor may be
      // wanted for a connection, or for the memory that comes with it.
      for (const auto& [poor, spare] :
           {std::pair(0, 0), std::pair(0, 1), std::pair(1, 0), std::pair(1, 1)}) {
        job all;
        for (int rank = 0; rank < 2; ++rank) {
          all.start(rank, 2, [poor = poor, spare = spare, kind](parx::world& world) {
            parx::barrier(world);
            if (world.rank() == poor) leave_descriptors(spare, kind);
            std::vector<parx::process_group> groups;
            for (int i = 0; i < 3; ++i) {
              groups.push_back(world.subgroup(std::vector<int>{0, 1}));
              parx::barrier(groups.back());
            }
          }, {{"PARX_TRANSPORT", transport}});
        }
        for (const auto& each : all.wait()) {
          BOOST_TEST_CONTEXT(transport << ", poor rank " << poor << ", " << spare
                                       << " left: " << each.text) {
            BOOST_TEST(each.exit_code == 1);
            BOOST_TEST(mentions(each.text, "open files"));
            BOOST_TEST(!mentions(each.text, "lost rank"));  // whose shortage it is not
            BOOST_TEST(mentions(each.text, kind == limit_kind::hard
                                               ? "all 100 that its hard limit permits"
                                               : "has lowered this process's limit to 100"));
          }
          BOOST_TEST(each.seconds < 5.0, each.text);
        }
      }
    }
  }
}
