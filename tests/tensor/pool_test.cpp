#include <parx/tensor/pool.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <parx/tensor/storage.hpp>

using parx::memory_pool;

BOOST_AUTO_TEST_CASE(blocks_are_aligned_to_cache_lines_and_large_enough) {
  auto& pool = memory_pool::instance();
  for (std::size_t bytes = 0; bytes < 5000; bytes += 7) {
    void* block = pool.allocate(bytes);
    BOOST_REQUIRE(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
    std::memset(block, 1, bytes);
    pool.deallocate(block, bytes);
  }
}

BOOST_AUTO_TEST_CASE(at_most_a_quarter_of_a_block_above_a_kibibyte_is_wasted) {
  auto& pool = memory_pool::instance();
  for (std::size_t bytes = 1024; bytes < (1U << 22); bytes += bytes / 3 + 1) {
    const std::size_t before = pool.stats().live_bytes;
    void* block = pool.allocate(bytes);
    const std::size_t taken = pool.stats().live_bytes - before;
    pool.deallocate(block, bytes);
    BOOST_TEST(taken >= bytes);
    BOOST_TEST(taken <= bytes + bytes / 4 + 64);
  }
}

BOOST_AUTO_TEST_CASE(a_freed_block_is_used_again_without_asking_the_heap) {
  auto& pool = memory_pool::instance();
  void* first = pool.allocate(100'000);
  pool.deallocate(first, 100'000);
  const auto before = pool.stats();
  void* second = pool.allocate(99'000);
  BOOST_TEST(second == first);
  BOOST_TEST(pool.stats().system_allocations == before.system_allocations);
  pool.deallocate(second, 99'000);
}

BOOST_AUTO_TEST_CASE(the_peak_is_the_largest_sum_of_live_blocks) {
  auto& pool = memory_pool::instance();
  pool.reset_peak();
  const std::size_t start = pool.stats().live_bytes;
  {
    const auto a = parx::storage::allocate(1'000'000);
    const auto b = parx::storage::allocate(1'000'000);
  }
  const auto c = parx::storage::allocate(1'000'000);
  BOOST_TEST(pool.stats().peak_bytes >= start + 2'000'000);
  BOOST_TEST(pool.stats().peak_bytes <= start + 2'600'000);
  BOOST_TEST(pool.stats().live_bytes >= start + 1'000'000);
}

BOOST_AUTO_TEST_CASE(trim_gives_waiting_blocks_back) {
  auto& pool = memory_pool::instance();
  pool.deallocate(pool.allocate(1 << 20), 1 << 20);
  BOOST_TEST(pool.stats().pooled_bytes > 0U);
  pool.trim();
  BOOST_TEST(pool.stats().pooled_bytes == 0U);
}

BOOST_AUTO_TEST_CASE(a_block_that_no_machine_has_is_refused_with_its_size_and_the_rest_given_back) {
  auto& pool = memory_pool::instance();
  const auto held = parx::storage::allocate(1 << 20);
  const auto says_sizes = [](const std::bad_alloc& refused) {
    const std::string text = refused.what();
    return text.find("MiB more; tensors hold ") != std::string::npos &&
           text.find("hold 0.0") == std::string::npos;
  };
  BOOST_CHECK_EXCEPTION((void)pool.allocate(std::size_t{1} << 63U), std::bad_alloc, says_sizes);
#ifndef PARX_POOL_POISONS  // AddressSanitizer ends a program that asks the heap for so much
  pool.deallocate(pool.allocate(1 << 20), 1 << 20);
  BOOST_CHECK_EXCEPTION((void)pool.allocate(std::size_t{1} << 50U), std::bad_alloc, says_sizes);
  BOOST_TEST(pool.stats().pooled_bytes == 0U);
#endif
  (void)held;
}

BOOST_AUTO_TEST_CASE(threads_share_the_pool_and_no_block_is_given_out_twice) {
  const std::size_t before = memory_pool::instance().stats().live_bytes;
  std::vector<int> clashes(4, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &clashes] {
      for (int round = 0; round < 2000; ++round) {
        const auto block = parx::storage::allocate(256);
        auto* const values = static_cast<int*>(block.data());
        for (int i = 0; i < 64; ++i) values[i] = t;
        for (int i = 0; i < 64; ++i) clashes[static_cast<std::size_t>(t)] += values[i] != t;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const int clash : clashes) BOOST_TEST(clash == 0);
  BOOST_TEST(memory_pool::instance().stats().live_bytes == before);
}

BOOST_AUTO_TEST_CASE(wrapped_memory_is_never_unique_and_never_freed) {
  std::vector<float> mine(10, 3.0F);
  {
    const auto wrapped = parx::storage::wrap(mine.data(), 40);
    BOOST_TEST(wrapped.data() == mine.data());
    BOOST_TEST(!wrapped.unique());
  }
  BOOST_TEST(mine[9] == 3.0F);
}
