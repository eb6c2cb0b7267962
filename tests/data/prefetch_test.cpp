#include <parx/data/detail/prefetch.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>

using parx::data::detail::ordered_prefetch;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_CASE(results_come_in_order_whatever_the_number_of_workers_and_their_speed) {
  for (const std::size_t workers : {0U, 1U, 2U, 7U}) {
    for (const std::size_t depth : {1U, 2U, 5U}) {
      ordered_prefetch<std::unique_ptr<std::size_t>> results(
          60, workers, depth, [](std::size_t number) {
            std::this_thread::sleep_for(std::chrono::microseconds((number * 7919) % 300));
            return std::make_unique<std::size_t>(number);
          });
      std::size_t expected = 0;
      while (auto result = results.next()) BOOST_TEST(**result == expected++);
      BOOST_TEST(expected == 60U);
      BOOST_TEST(!results.next());
    }
  }
}

BOOST_AUTO_TEST_CASE(workers_stay_within_the_window) {
  std::atomic<int> begun{0};
  ordered_prefetch<int> results(100, 3, 4, [&](std::size_t) { return ++begun; });
  for (int taken = 1; taken <= 20; ++taken) {
    results.next();
    std::this_thread::sleep_for(2ms);
    BOOST_TEST(begun.load() <= taken + 4);
  }
}

BOOST_AUTO_TEST_CASE(an_exception_arrives_in_the_place_of_its_result_and_ends_the_results) {
  for (const std::size_t workers : {0U, 1U, 3U}) {
    ordered_prefetch<std::size_t> results(1'000'000, workers, 4, [](std::size_t number) {
      if (number == 5) throw std::runtime_error("sample 5 is damaged");
      return number;
    });
    for (std::size_t i = 0; i < 5; ++i) BOOST_TEST(results.next().value() == i);
    BOOST_CHECK_EXCEPTION(results.next(), std::runtime_error,
                          [](const std::runtime_error& failure) {
                            return std::string_view(failure.what()) == "sample 5 is damaged";
                          });
    BOOST_TEST(!results.next());
  }
}

BOOST_AUTO_TEST_CASE(an_early_end_joins_the_workers) {
  std::atomic<int> running{0};
  for (int round = 0; round < 50; ++round) {
    ordered_prefetch<int> results(1000, 3, 2, [&](std::size_t) {
      ++running;
      std::this_thread::sleep_for(100us);
      --running;
      return 0;
    });
    for (int i = 0; i < round % 5; ++i) results.next();
  }
  BOOST_TEST(running.load() == 0);
}

BOOST_AUTO_TEST_CASE(nobody_spins_while_the_window_is_full_or_a_result_is_missing) {
  const auto cpu_seconds = [] {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double before = cpu_seconds();
  ordered_prefetch<int> results(10, 4, 2, [](std::size_t) {
    std::this_thread::sleep_for(30ms);
    return 0;
  });
  std::this_thread::sleep_for(150ms);
  while (results.next()) {
  }
  BOOST_TEST(cpu_seconds() - before < 0.05);
}

BOOST_AUTO_TEST_CASE(a_forked_process_drops_its_copy_at_once) {
  std::optional<ordered_prefetch<std::size_t>> results;
  results.emplace(1000, 2, 4, [](std::size_t number) { return number; });
  BOOST_TEST(*results->next() == 0u);
  std::this_thread::sleep_for(50ms);  // the window is full, and the workers wait
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(5);
    results.reset();
    ::_exit(0);
  }
  int status = -1;
  BOOST_TEST(::waitpid(child, &status, 0) == child);
  BOOST_TEST(status == 0);
  for (std::size_t i = 1; i < 20; ++i) BOOST_TEST(*results->next() == i);
}
