// parallel_for and ordered_reduce: each block once, the same bits with any number of threads, and
// nothing that can hang: exceptions, nested calls, two callers, fork, workers that get no core.
#include <parx/core/parallel_for.hpp>

#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/core/file_text.hpp>
#include <parx/core/formatted.hpp>
#include <parx/tensor/flush_denormals.hpp>

namespace {

constexpr int thread_counts[] = {1, 2, 3, 8};

/// PARX_TEST_ROUNDS=1000 for a soak.
int rounds(int usual) {
  const char* const wanted = std::getenv("PARX_TEST_ROUNDS");
  return wanted != nullptr ? std::atoi(wanted) : usual;
}

float sum_of(const std::vector<float>& x) {
  return parx::ordered_reduce<float>(x.size(), 1000, [&](std::size_t first, std::size_t last) {
    float sum = 0;
    for (std::size_t i = first; i < last; ++i) sum += x[i];
    return sum;
  });
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_block_runs_once_and_is_cut_by_sizes_alone) {
  for (const int threads : thread_counts) {
    parx::set_num_threads(threads);
    BOOST_TEST(parx::get_num_threads() == threads);
    for (int round = 0; round < rounds(200); ++round) {
      const auto count = static_cast<std::size_t>(round % 37);
      for (const std::size_t grain : {0U, 1U, 3U, 50U}) {
        std::vector<std::atomic<int>> hits(count);
        std::atomic<int> wrong{0};
        parx::parallel_for(count, grain, [&](std::size_t first, std::size_t last) {
          const std::size_t step = std::max<std::size_t>(grain, 1);
          if (first % step != 0 || last != std::min(count, first + step)) ++wrong;
          for (std::size_t i = first; i < last; ++i) ++hits[i];
        });
        for (const auto& each : hits) wrong += each != 1;
        BOOST_REQUIRE(wrong == 0);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(all_threads_take_part) {
  parx::set_num_threads(3);
  std::atomic<int> here{0};
  parx::parallel_for(3, 1, [&](std::size_t, std::size_t) {
    // Nobody ends before three threads have come.
    ++here;
    while (here < 3) std::this_thread::yield();
  });
  BOOST_TEST(here == 3);
}

BOOST_AUTO_TEST_CASE(a_sum_has_the_same_bits_with_any_number_of_threads) {
  std::vector<float> x(100'001);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1.F / static_cast<float>(i + 1);
  parx::set_num_threads(1);
  const float alone = sum_of(x);
  for (const int threads : thread_counts) {
    parx::set_num_threads(threads);
    for (int i = 0; i < 20; ++i) BOOST_TEST(sum_of(x) == alone);
  }
  BOOST_TEST(parx::ordered_reduce<int>(0, 4, [](std::size_t, std::size_t) { return 1; }) == 0);
}

BOOST_AUTO_TEST_CASE(the_exception_of_the_lowest_block_comes_out_and_the_next_call_works) {
  for (const int threads : thread_counts) {
    parx::set_num_threads(threads);
    for (int round = 0; round < rounds(50); ++round) {
      std::string caught;
      try {
        parx::parallel_for(30, 1, [](std::size_t i, std::size_t) {
          if (i % 7 == 3) throw std::runtime_error(std::to_string(i));
        });
      } catch (const std::runtime_error& failure) {
        caught = failure.what();
      }
      BOOST_TEST(caught == "3");
      std::atomic<int> ran{0};
      parx::parallel_for(30, 1, [&](std::size_t, std::size_t) { ++ran; });
      BOOST_TEST(ran == 30);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_nested_call_runs_on_its_own_thread) {
  parx::set_num_threads(4);
  std::atomic<int> elsewhere{0}, ran{0}, refused{0};
  parx::parallel_for(16, 1, [&](std::size_t, std::size_t) {
    const auto outer = std::this_thread::get_id();
    parx::parallel_for(5, 1, [&](std::size_t, std::size_t) {
      ++ran;
      if (std::this_thread::get_id() != outer) ++elsewhere;
    });
    try {
      parx::set_num_threads(2);
    } catch (const parx::usage_error&) {
      ++refused;
    }
  });
  BOOST_TEST(ran == 80);
  BOOST_TEST(elsewhere == 0);
  BOOST_TEST(refused == 16);
}

// A caller whose workers have lost their cores works alone for a while.
void let_workers_lose_their_cores() {
  const auto caller = std::this_thread::get_id();
  parx::parallel_for(64, 1, [&](std::size_t, std::size_t) {
    if (std::this_thread::get_id() != caller)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    else
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  });
}

BOOST_AUTO_TEST_CASE(a_call_is_a_call_while_workers_have_lost_their_cores) {
  for (int round = 0; round < 5; ++round) {
    parx::set_num_threads(2 + round % 2);
    let_workers_lose_their_cores();
    int refused = 0;
    const auto caller = std::this_thread::get_id();
    std::atomic<int> alone{0};
    parx::parallel_for(16, 1, [&](std::size_t, std::size_t) {
      if (std::this_thread::get_id() != caller) return;
      ++alone;
      try {
        parx::set_num_threads(1);  // would wait for this very call
      } catch (const parx::usage_error&) {
        ++refused;
      }
    });
    BOOST_TEST(alone > 0);
    BOOST_TEST(refused == alone);
  }
}

BOOST_AUTO_TEST_CASE(new_workers_have_lost_no_core) {
  for (int round = 0; round < 5; ++round) {
    parx::set_num_threads(2);
    let_workers_lose_their_cores();
    parx::set_num_threads(3);
    std::atomic<int> here{0};
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    parx::parallel_for(3, 1, [&](std::size_t, std::size_t) {
      ++here;
      while (here < 3 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    });
    BOOST_TEST((std::chrono::steady_clock::now() < limit));
  }
}

BOOST_AUTO_TEST_CASE(several_threads_of_the_program_may_call_at_once) {
  parx::set_num_threads(3);
  std::vector<float> x(20'000);
  std::iota(x.begin(), x.end(), 0.5F);
  const float expected = sum_of(x);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < rounds(200); ++i) wrong += sum_of(x) != expected;
    });
  }
  for (int i = 0; i < 20; ++i) parx::set_num_threads(1 + i % 4);
  for (std::thread& each : callers) each.join();
  BOOST_TEST(wrong == 0);
}

// libgomp's child hangs here: its workers are not in the child.
BOOST_AUTO_TEST_CASE(a_forked_child_has_workers_of_its_own) {
  parx::set_num_threads(3);
  parx::parallel_for(8, 1, [](std::size_t, std::size_t) {});
  for (int i = 0; i < 5; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      std::atomic<int> here{0};
      parx::parallel_for(3, 1, [&](std::size_t, std::size_t) {
        ++here;
        while (here < 3) std::this_thread::yield();
      });
      ::_exit(here == 3 && parx::get_num_threads() == 3 ? 0 : 1);
    }
    int status = -1;
    BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
    BOOST_TEST(status == 0);
  }
}

// The caller waits for blocks, not for threads. Workers of the lowest priority beside busy threads
// get no core for long; OpenMP's join would wait for all of them, each time.
BOOST_AUTO_TEST_CASE(a_worker_that_gets_no_core_is_not_waited_for) {
  const pid_t child = ::fork();  // so that priorities and the mask do not outlive the test
  if (child == 0) {
    ::alarm(60);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
    ::sched_setaffinity(0, sizeof one, &one);
    const sched_param none{};
    ::sched_setscheduler(0, SCHED_IDLE, &none);
    parx::set_num_threads(4);
    parx::parallel_for(8, 1, [](std::size_t, std::size_t) {});  // workers inherit the priority
    std::atomic<bool> stop{false};
    std::thread busy([&] {
      ::sched_setscheduler(0, SCHED_OTHER, &none);
      while (!stop) {
      }
    });
    ::sched_setscheduler(0, SCHED_OTHER, &none);  // this thread shares the core with the busy one
    const auto begin = std::chrono::steady_clock::now();
    std::atomic<int> ran{0};
    for (int i = 0; i < 200; ++i) {
      parx::parallel_for(16, 1, [&](std::size_t, std::size_t) { ++ran; });
    }
    const auto took = std::chrono::steady_clock::now() - begin;
    stop = true;
    busy.join();
    ::_exit(ran != 3200 ? 1 : took > std::chrono::seconds(20) ? 2 : 0);
  }
  int status = -1;
  BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
  BOOST_TEST(status == 0);
}

BOOST_AUTO_TEST_CASE(blocks_round_as_the_caller_does) {
  const volatile float tiny = 1e-39F;
  for (const int threads : thread_counts) {
    parx::set_num_threads(threads);
    const auto product = [&] {
      std::vector<float> y(64);
      parx::parallel_for(y.size(), 1, [&](std::size_t i, std::size_t) { y[i] = tiny * 0.5F; });
      return y;
    };
    BOOST_TEST(product() == std::vector<float>(64, 0.5e-39F));
    const parx::flush_denormals flushing;
#if defined(__x86_64__) || defined(__aarch64__)
    BOOST_TEST(product() == std::vector<float>(64, 0.F));
#endif
  }
}

BOOST_AUTO_TEST_CASE(idle_workers_sleep) {
  parx::set_num_threads(4);
  parx::parallel_for(8, 1, [](std::size_t, std::size_t) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto used = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec * 1'000'000L + usage.ru_utime.tv_usec;
  };
  const long before = used();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  BOOST_TEST(used() - before < 20'000);
}

BOOST_AUTO_TEST_CASE(too_few_threads_are_refused) {
  BOOST_CHECK_THROW(parx::set_num_threads(0), parx::usage_error);
  BOOST_CHECK_THROW(parx::set_num_threads(-3), parx::usage_error);
}
