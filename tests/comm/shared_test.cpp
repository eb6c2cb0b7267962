// Collectives in shared buffers, and the links of shared memory.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "comm/jobs.hpp"

namespace {

constexpr jobs::kind kinds[] = {jobs::kind::inproc, jobs::kind::shm, jobs::kind::tcp};

/// Element k of a rank's contribution.
std::int64_t value(int rank, std::size_t k) { return static_cast<std::int64_t>(k % 1000) * (rank + 1); }

}  // namespace

BOOST_AUTO_TEST_CASE(collectives_in_shared_buffers_are_exact) {
  for (const auto kind : kinds) {
    for (const int world : {1, 2, 3, 4, 5, 8}) {
      const auto failure = jobs::run(kind, world, [&](parx::process_group& group) {
        const auto ranks = static_cast<std::size_t>(world);
        for (const std::size_t part : {std::size_t{1}, std::size_t{7}, std::size_t{40'009}}) {
          const std::size_t n = part * ranks;
          auto shared = parx::allocate_shared<std::int64_t>(group, n + 3);
          const std::span<std::int64_t> data{shared.data() + 3, n};  // an offset must not matter
          const auto fill = [&] {
            for (std::size_t k = 0; k < n; ++k) data[k] = value(group.rank(), k);
          };
          const auto sum = [&](std::size_t k) { return value(0, k) * world * (world + 1) / 2; };
          const auto me = static_cast<std::size_t>(group.rank());

          fill();
          parx::all_reduce(group, data);
          for (std::size_t k = 0; k < n; ++k) parx::require(data[k] == sum(k), "all_reduce at {}", k);

          fill();
          const std::vector<std::int64_t> mine(data.begin(), data.end());
          parx::all_reduce(group, mine, data);
          for (std::size_t k = 0; k < n; ++k) parx::require(data[k] == sum(k), "out of place at {}", k);

          fill();
          std::vector<std::int64_t> block(part);
          parx::reduce_scatter(group, data, block);
          for (std::size_t k = 0; k < part; ++k) {
            parx::require(block[k] == sum(me * part + k), "reduce_scatter at {}", k);
          }

          for (std::size_t k = 0; k < part; ++k) block[k] = value(group.rank(), k);
          parx::all_gather(group, block, data);
          for (std::size_t k = 0; k < n; ++k) {
            parx::require(data[k] == value(static_cast<int>(k / part), k % part), "all_gather at {}", k);
          }

          fill();
          parx::broadcast(group, data, {.root = world - 1});
          for (std::size_t k = 0; k < n; ++k) parx::require(data[k] == value(world - 1, k), "broadcast at {}", k);
        }
      });
      BOOST_TEST(failure == "", jobs::name_of(kind) << ", " << world << " ranks: " << failure);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_shared_buffer_on_one_rank_only_is_found_out) {
  const auto failures = jobs::run_collecting(jobs::kind::shm, 2, [](parx::process_group& group) {
    auto shared = parx::allocate_shared<float>(group, 1 << 20);
    std::vector<float> ordinary(1 << 20);
    parx::reduce_options options;
    options.use = parx::algorithm::shared;
    if (group.rank() == 0) {
      parx::all_reduce(group, shared, options);
    } else {
      parx::all_reduce(group, ordinary);
    }
  });
  for (const auto& failure : failures) BOOST_TEST(failure.find("shared") != std::string::npos, failure);
}

BOOST_AUTO_TEST_CASE(ranks_that_use_different_areas_or_sizes_are_told) {
  for (const auto kind : {jobs::kind::inproc, jobs::kind::shm}) {
    const auto areas = jobs::run_collecting(kind, 2, [](parx::process_group& group) {
      auto first = parx::allocate_shared<float>(group, 100'000);
      auto second = parx::allocate_shared<float>(group, 100'000);
      parx::reduce_options options;
      options.use = parx::algorithm::shared;
      parx::all_reduce(group, group.rank() == 0 ? first : second, options);
    });
    for (const auto& failure : areas) {
      BOOST_TEST(failure.find("different operations") != std::string::npos, failure);
    }
    const auto sizes = jobs::run_collecting(kind, 3, [](parx::process_group& group) {
      auto area = parx::allocate_shared<float>(group, group.rank() == 1 ? 2'000'000 : 1000);
      parx::barrier(group);
    });
    for (const auto& failure : sizes) BOOST_TEST(failure.find("the same size") != std::string::npos, failure);
  }
}

BOOST_AUTO_TEST_CASE(memory_that_was_offered_is_not_read_after_its_sender_gave_up) {
  const auto failures = jobs::run_collecting(jobs::kind::shm, 2, [](parx::process_group& group) {
    std::vector<std::int32_t> data(2'000'000, 1);
    if (group.rank() == 0) {
      parx::send(group, std::vector<std::int32_t>(1), 1);  // opens the link
      std::this_thread::sleep_for(std::chrono::milliseconds(150));  // the other has left its recv
      try {
        parx::send(group, data, 1, {.timeout = std::chrono::milliseconds(300)});
      } catch (const parx::error&) {
        std::fill(data.begin(), data.end(), 2);
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
        throw;
      }
    } else {
      std::vector<std::int32_t> got(1);
      parx::recv(group, got, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      parx::recv(group, data, 0);
      throw std::runtime_error("received what was never sent");
    }
  });
  BOOST_TEST(failures[0].find("timed out") != std::string::npos, failures[0]);
  BOOST_TEST(failures[1].find("never sent") == std::string::npos, failures[1]);
  BOOST_TEST(!failures[1].empty());
}
