#include <parx/comm/host_pages.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include <boost/test/unit_test.hpp>

#include "comm/jobs.hpp"
#include "launch/processes.hpp"

namespace {

using parx::host_pages;

std::uint32_t value(std::size_t step, std::size_t i) {
  return static_cast<std::uint32_t>(step * 1'000'003 + i);
}

void pause_now_and_then(std::mt19937& random) {
  if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
}

/// Steps in which each rank writes its part, after every rank has read the whole. Throws where a
/// rank reads anything but the last step's values.
void take_steps(parx::process_group& group, std::size_t size) {
  std::mt19937 random(static_cast<unsigned>(group.rank()));
  host_pages<std::uint32_t> made(group, size);
  host_pages<std::uint32_t> pages = std::move(made);
  const std::uint32_t* const address = pages.all().data();
  std::size_t next = 0;
  for (int rank = 0; rank < group.size(); ++rank) {  // the parts are the array, in order
    parx::require(pages.part(rank).data() == address + next, "part {} is out of place", rank);
    next += pages.part(rank).size();
  }
  parx::require(next == size, "{} of {} elements are in parts", next, size);
  for (const std::uint32_t each : pages.all()) parx::require(each == 0, "not zero at first");
  const auto begin = static_cast<std::size_t>(pages.part().data() - address);
  for (std::size_t step = 1; step <= 12; ++step) {
    pause_now_and_then(random);
    pages.update([&](std::span<std::uint32_t> part) {
      pause_now_and_then(random);
      for (std::size_t i = 0; i < part.size(); ++i) part[i] = value(step, begin + i);
    });
    pause_now_and_then(random);
    parx::require(pages.all().data() == address, "it has moved");
    for (std::size_t i = 0; i < size; ++i) {
      parx::require(pages.all()[i] == value(step, i), "rank {} reads {} at {} in step {}",
                    group.rank(), pages.all()[i], i, step);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(all_ranks_read_what_each_has_written_in_its_part) {
  for (const auto kind : {jobs::kind::inproc, jobs::kind::shm}) {
    for (const int world : {1, 2, 3, 4}) {
      for (const std::size_t size : {0U, 1U, 1024U, 4096U, 4097U, 30'001U}) {
        const auto failure =
            jobs::run(kind, world, [&](parx::process_group& group) { take_steps(group, size); });
        BOOST_TEST(failure == "", jobs::name_of(kind) << ", " << world << " ranks: " << failure);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(parts_are_equal_but_for_a_page_for_each_rank) {
  const auto failure = jobs::run(jobs::kind::inproc, 4, [&](parx::process_group& group) {
    const host_pages<float> even(group, 4 * 2048), odd(group, 4 * 2048 + 1);
    for (int rank = 0; rank < 4; ++rank) {
      parx::require(even.part(rank).size() == 2048, "even, part {}", rank);
      parx::require(odd.part(rank).size() == (rank < 2 ? 3072 : rank == 2 ? 2049 : 0),
                    "odd, part {} has {}", rank, odd.part(rank).size());
    }
  });
  BOOST_TEST(failure == "");
}

BOOST_AUTO_TEST_CASE(ranks_that_do_not_share_memory_are_told_what_to_do) {
  for (const auto kind : {jobs::kind::tcp, jobs::kind::hybrid}) {
    const auto failures = jobs::run_collecting(kind, 3, [](parx::process_group& group) {
      try {
        host_pages<float> pages(group, 10);
      } catch (const parx::usage_error& refused) {
        const std::string text = refused.what();
        parx::require(text.find("subgroup of one host's ranks") != text.npos, "{}", text);
        parx::barrier(group);  // the group can still be used
        return;
      }
      parx::require(false, "it was not refused");
    });
    for (const std::string& failure : failures) BOOST_TEST(failure == "");
  }
}

BOOST_AUTO_TEST_CASE(processes_see_one_array) {
  processes::job job;
  for (int rank = 0; rank < 3; ++rank) {
    job.start(rank, 3, [](parx::world& world) { take_steps(world, 30'001); });
  }
  for (const auto& outcome : job.wait()) BOOST_TEST(outcome.exit_code == 0, outcome.text);
}
