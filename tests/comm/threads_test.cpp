// Threads as ranks: which exception is rethrown, and metrics over all ranks.
#include <parx/comm/threads.hpp>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <parx/comm/collectives/barrier.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/comm/metrics.hpp>

BOOST_AUTO_TEST_CASE(the_cause_comes_out_although_its_echo_was_there_first) {
  const auto run = [] {
    parx::run_threads(2, [](parx::process_group& group) {
      if (group.rank() == 0) parx::barrier(group);  // ends at once, with the reason of rank 1
      group.abort("rank 1 has an open problem");
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      throw std::runtime_error("out of memory");
    });
  };
  BOOST_CHECK_EXCEPTION(run(), std::runtime_error, [](const auto& cause) {
    return cause.what() == std::string("out of memory");
  });
}

BOOST_AUTO_TEST_CASE(whatever_a_rank_throws_ends_the_others) {
  std::string text;
  const auto run = [&] {
    parx::run_threads(2, [&](parx::process_group& group) {
      if (group.rank() == 1) throw 42;
      try {
        parx::barrier(group);
      } catch (const parx::error& ended) {
        text = ended.what();
        throw;
      }
    });
  };
  BOOST_CHECK_THROW(run(), int);
  BOOST_TEST(text.find("rank 1: an exception that is not a std::exception") != std::string::npos,
             text);
}

BOOST_AUTO_TEST_CASE(the_stack_trace_of_libtorchs_exceptions_stays_on_its_rank) {
  std::string text;
  const auto run = [&] {
    parx::run_threads(2, [&](parx::process_group& group) {
      if (group.rank() == 1) {
        throw std::runtime_error(
            "shapes differ\nException raised from meta at ./a.cpp:63 (most "
            "recent call first):\nframe #0: c10::Error::Error\n");
      }
      try {
        parx::barrier(group);
      } catch (const parx::error& ended) {
        text = ended.what();
      }
    });
  };
  BOOST_CHECK_THROW(run(), std::runtime_error);
  BOOST_TEST(text.find("rank 1: shapes differ. The group is closed") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(a_reason_is_quoted_without_its_full_stop) {
  std::string text;
  const auto run = [&] {
    parx::run_threads(2, [&](parx::process_group& group) {
      if (group.rank() == 1) throw std::runtime_error("no file. Check the path.");
      try {
        parx::barrier(group);
      } catch (const parx::error& ended) {
        text = ended.what();
      }
    });
  };
  BOOST_CHECK_THROW(run(), std::runtime_error);
  BOOST_TEST(text.find("no file. Check the path. The group is closed") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(a_figure_over_all_ranks_is_divided_once) {
  struct tally {
    double sum, count;
  };
  std::vector<double> means(3);
  parx::run_threads(3, [&](parx::process_group& group) {
    const double rank = group.rank();
    means[static_cast<std::size_t>(group.rank())] =
        parx::global_mean(group, tally{10 * rank, rank});
  });
  for (const double mean : means) BOOST_TEST(mean == 10);
}

BOOST_AUTO_TEST_CASE(a_rank_that_ends_before_its_last_words_arrive_has_taken_part) {
  std::vector<int> heard(3);
  const parx::threads_options slow{.network = {.delay = std::chrono::milliseconds(700)},
                                   .group = {}};
  parx::run_threads(
      3,
      [&](parx::process_group& group) {
        std::vector<int> word(1, group.rank() == 0 ? 7 : 0);
        parx::broadcast(group, word, {.root = 0, .use = parx::algorithm::tree});
        heard[static_cast<std::size_t>(group.rank())] = word[0];
      },
      slow);
  for (const int each : heard) BOOST_TEST(each == 7);
}
