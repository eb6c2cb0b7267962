#include <parx/comm.hpp>

#include <boost/test/unit_test.hpp>

#include <malloc.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "comm/jobs.hpp"
#include "comm/matrix.hpp"

// Random operations on random groups that come and go, for PARX_SOAK_SECONDS (2) over each kind of
// link: no wrong result, and neither memory nor descriptors grow.
namespace {

using clock_type = std::chrono::steady_clock;
constexpr int world = 5;

double soak_seconds() {
  const char* given = std::getenv("PARX_SOAK_SECONDS");
  return given != nullptr ? std::atof(given) : 2;
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

std::size_t resident_mib() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages >> pages;
  return pages * 4096 >> 20;
}

/// What all ranks draw alike.
class dice {
 public:
  explicit dice(unsigned seed) : random_(seed) {}
  std::size_t below(std::size_t n) { return random_() % n; }

  std::vector<int> members() {
    std::vector<int> ranks;
    while (ranks.size() < 2) {
      ranks.clear();
      for (int rank = 0; rank < world; ++rank) {
        if (below(2) == 0) ranks.push_back(rank);
      }
    }
    for (std::size_t i = ranks.size() - 1; i > 0; --i) std::swap(ranks[i], ranks[below(i + 1)]);
    return ranks;
  }

  matrix::trial trial(int size) {
    matrix::trial next;
    next.what =
        static_cast<parx::operation>(below(static_cast<std::size_t>(parx::operation::barrier)));
    next.type = below(2) == 0 ? parx::dtype::float32 : parx::dtype::int64;
    next.count = below(20) == 0 ? 300'000 : below(2000);
    next.root =
        parx::has_root(next.what) ? static_cast<int>(below(static_cast<std::size_t>(size))) : 0;
    next.in_place = below(2) == 0;
    next.uneven = matrix::has_blocks(next.what) && below(3) == 0 &&
                  !(next.in_place && next.what == parx::operation::all_to_all);
    return next;
  }

 private:
  std::mt19937 random_;
};

/// A group that this rank is in, or only the knowledge that it exists.
struct circle {
  std::vector<int> members;
  std::optional<parx::process_group> group;
};

circle draw_circle(parx::process_group& everybody, dice& chance) {
  circle made{chance.members(), std::nullopt};
  const auto& ranks = made.members;
  if (std::find(ranks.begin(), ranks.end(), everybody.rank()) != ranks.end()) {
    made.group = everybody.subgroup(ranks);
  }
  return made;
}

void work_until(clock_type::time_point end, parx::process_group& everybody, dice& chance) {
  static constexpr std::size_t groups_alive = 12;
  std::vector<circle> circles(groups_alive);
  for (circle& each : circles) each = draw_circle(everybody, chance);
  for (std::size_t round = 0;; ++round) {
    if (round % 50 == 0) {
      std::vector<std::uint8_t> enough{static_cast<std::uint8_t>(clock_type::now() >= end)};
      parx::broadcast(everybody, enough);
      if (enough[0] != 0) return;
    }
    if (chance.below(10) == 0) circles[chance.below(groups_alive)] = draw_circle(everybody, chance);
    circle& here = circles[chance.below(groups_alive)];
    const auto next = chance.trial(static_cast<int>(here.members.size()));
    if (here.group) matrix::run(*here.group, next, {});
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(nothing_goes_wrong_or_grows_in_a_long_mixture_of_everything) {
  // Threads come and go with the groups; each arena of malloc that they leave behind would look
  // like a leak.
  ::mallopt(M_ARENA_MAX, 1);
  for (const auto kind : {jobs::kind::tcp, jobs::kind::shm, jobs::kind::hybrid}) {
    const auto half = std::chrono::duration_cast<clock_type::duration>(
        std::chrono::duration<double>(soak_seconds() / 2));
    std::size_t descriptors[2] = {};
    std::size_t mib[2] = {};
    const auto failure = jobs::run(kind, world, [&](parx::process_group& group) {
      dice chance(20261121);
      for (int phase = 0; phase < 2; ++phase) {
        work_until(clock_type::now() + half, group, chance);
        parx::barrier(group);  // everybody has let go of the small groups
        if (group.rank() == 0) {
          descriptors[phase] = open_descriptors();
          mib[phase] = resident_mib();
        }
        parx::barrier(group);
      }
    });
    BOOST_TEST(failure == "", jobs::name_of(kind) << ": " << failure);
    BOOST_TEST(descriptors[1] <= descriptors[0] + 8, jobs::name_of(kind) << ": " << descriptors[0]
                                                                         << " descriptors, then "
                                                                         << descriptors[1]);
    BOOST_TEST(mib[1] <= mib[0] + 64, jobs::name_of(kind)
                                          << ": " << mib[0] << " MiB, then " << mib[1]);
  }
}
