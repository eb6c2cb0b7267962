#include <parx/comm.hpp>

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "comm/jobs.hpp"

namespace {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

constexpr jobs::kind kinds[] = {jobs::kind::inproc, jobs::kind::tcp, jobs::kind::shm, jobs::kind::hybrid};

}  // namespace

BOOST_AUTO_TEST_CASE(another_dtype_or_count_is_an_error_on_every_rank_that_names_both_calls) {
  for (const auto kind : kinds) {
    for (const bool other_type : {true, false}) {
      const auto started = clock_type::now();
      const auto failures = jobs::run_collecting(kind, 4, [&](parx::process_group& group) {
        std::vector<float> x(10);
        std::vector<int> y(10);
        std::vector<float> z(11);
        if (group.rank() == 2 && other_type) parx::all_reduce(group, y);
        else if (group.rank() == 2) parx::all_reduce(group, z);
        else parx::all_reduce(group, x);
      });
      BOOST_TEST((clock_type::now() - started < 2s));
      for (const auto& each : failures) {
        BOOST_TEST(contains(each, "the ranks called different operations"), each);
        BOOST_TEST(contains(each, "all_reduce of 10 float32 (sum)"), each);
        BOOST_TEST(contains(each, other_type ? "all_reduce of 10 int32 (sum)" : "all_reduce of 11 float32 (sum)"), each);
        BOOST_TEST(contains(each, "failure_test.cpp:"), each);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(another_operation_or_root_or_order_is_found_even_without_a_common_link) {
  for (const auto kind : kinds) {
    const auto failures = jobs::run_collecting(kind, 4, [&](parx::process_group& group) {
      std::vector<float> x(10);
      if (group.rank() == 0) parx::barrier(group);
      else parx::all_reduce(group, x, {.use = parx::algorithm::ring});
    });
    for (const auto& each : failures) BOOST_TEST(contains(each, "different operations"), each);
    const auto roots = jobs::run_collecting(kind, 3, [&](parx::process_group& group) {
      std::vector<float> x(10);
      parx::broadcast(group, x, {.root = group.rank() == 2 ? 1 : 0});
      parx::barrier(group);
    });
    for (const auto& each : roots) BOOST_TEST(!each.empty(), each);
    // Chain from 0 with a rank that thinks it is the root: nobody sends it anything it would read.
    const auto lonely = jobs::run_collecting(kind, 5, [&](parx::process_group& group) {
      std::vector<float> x(1);
      if (group.rank() == 4) parx::reduce(group, x, {.root = 2, .use = parx::algorithm::chain});
      else parx::broadcast(group, x, {.root = 3, .use = parx::algorithm::chain});
      parx::barrier(group);
    });
    for (const auto& each : lonely) BOOST_TEST(!each.empty());
  }
}

BOOST_AUTO_TEST_CASE(the_first_failing_ranks_reason_reaches_everybody) {
  for (const auto kind : kinds) {
    const auto failures = jobs::run_collecting(kind, 4, [&](parx::process_group& group) {
      std::vector<float> x(1000);
      parx::all_reduce(group, x);
      if (group.rank() == 1) throw std::runtime_error("out of memory in forward()");
      parx::all_reduce(group, x);
    });
    for (const auto& each : failures) BOOST_TEST(contains(each, "out of memory in forward()"), each);
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_end_without_taking_part_are_found_out_soon) {
  for (const auto kind : kinds) {
    const auto started = clock_type::now();
    const auto failures = jobs::run_collecting(kind, 3, [&](parx::process_group& group) {
      std::vector<float> x(10);
      if (group.rank() == 0) parx::all_reduce(group, x);  // the classic mistake
    });
    BOOST_TEST((clock_type::now() - started < 5s));
    BOOST_TEST((contains(failures[0], "has ended without taking part") || contains(failures[0], "lost rank")),
               failures[0]);
  }
}

BOOST_AUTO_TEST_CASE(a_late_rank_is_named_when_the_deadline_passes) {
  for (const auto kind : kinds) {
    const auto failures = jobs::run_collecting(kind, 3, [&](parx::process_group& group) {
      std::vector<float> x(10);
      parx::all_reduce(group, x);
      if (group.rank() == 1) std::this_thread::sleep_for(900ms);
      parx::all_reduce(group, x, {.timeout = 400ms});
      parx::barrier(group);  // the late rank may find its peers' data, but not its peers
    });
    BOOST_TEST(contains(failures[0], "timed out waiting for rank 1"), failures[0]);
    BOOST_TEST(contains(failures[0], "has not entered the operation"), failures[0]);
    BOOST_TEST(contains(failures[2], "rank 1"), failures[2]);
    BOOST_TEST(!failures[1].empty());
  }
}

BOOST_AUTO_TEST_CASE(a_killed_rank_ends_the_others_in_the_middle_of_every_algorithm) {
  using parx::algorithm;
  for (const auto use : {algorithm::ring, algorithm::doubling}) {
    for (const int world : {2, 3, 5}) {
      const auto network = std::make_shared<parx::inproc_network>(world);
      std::vector<std::string> failures(static_cast<std::size_t>(world));
      std::vector<std::thread> threads;
      for (int rank = 0; rank < world; ++rank) {
        threads.emplace_back([&, rank] {
          parx::process_group group(network->attach(rank));
          std::vector<float> x(500'000);
          try {
            for (int i = 0;; ++i) {
              if (rank == 1 && i == 3) {
                network->kill(1);
                return;
              }
              parx::all_reduce(group, x, {.use = use});
            }
          } catch (const parx::error& failure) {
            failures[static_cast<std::size_t>(rank)] = failure.what();
          }
        });
      }
      for (auto& each : threads) each.join();
      for (int rank = 0; rank < world; ++rank) {
        if (rank == 1) continue;
        BOOST_TEST(contains(failures[static_cast<std::size_t>(rank)], "lost rank 1"),
                   failures[static_cast<std::size_t>(rank)]);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(wrong_arguments_are_refused_before_anything_is_sent_and_the_group_stays_usable) {
  for (const auto kind : kinds) {
    const auto failure = jobs::run(kind, 2, [&](parx::process_group& group) {
      const auto refused = [&](auto&& call, const std::string& part) {
        try {
          call();
        } catch (const parx::usage_error& wrong) {
          if (contains(wrong.what(), part)) return;
          throw std::runtime_error(std::string("unclear message: ") + wrong.what());
        }
        throw std::runtime_error("was accepted: " + part);
      };
      std::vector<float> x(8), y(7);
      std::vector<int> i(8);
      refused([&] { parx::all_reduce(group, x, y); }, "8 elements, the output 7");
      refused([&] { parx::all_reduce(group, x, i); }, "float32, the output int32");
      refused([&] { parx::all_reduce(group, x, {.op = parx::reduce_op::band}); }, "band");
      refused([&] { parx::all_reduce(group, i, {.op = parx::reduce_op::avg}); }, "avg");
      refused([&] { parx::all_reduce(group, x, {.use = parx::algorithm::bruck}); }, "bruck");
      refused([&] { parx::broadcast(group, x, {.root = 2}); }, "root 2");
      refused([&] { parx::reduce(group, x, {.root = -1}); }, "root -1");
      refused([&] { parx::reduce_scatter(group, x, y); }, "2 ranks x 7");
      refused([&] { parx::all_gather(group, x, y); }, "2 ranks x 8 elements");
      refused([&] { parx::send(group, x, 5); }, "rank 5");
      refused([&] { parx::all_reduce(group, std::span<float>(x.data(), 4), std::span<float>(x.data() + 2, 4)); },
              "overlap");
      refused([&] { static_cast<void>(group.subgroup(std::vector<int>{0, 7})); }, "rank 7");
      refused([&] { static_cast<void>(group.subgroup(std::vector<int>{0, 0})); }, "twice");
      refused([&] { static_cast<void>(group.subgroup(std::vector<int>{1 - group.rank()})); }, "not among");
      std::vector<int> one{1};
      parx::all_reduce(group, one);
      if (one[0] != 2) throw std::runtime_error("the group is no longer usable");
    });
    BOOST_TEST(failure == "", failure);
  }
}

BOOST_AUTO_TEST_CASE(a_closed_group_says_why_it_was_closed) {
  const auto failures = jobs::run_collecting(jobs::kind::inproc, 2, [&](parx::process_group& group) {
    std::vector<float> x(3);
    std::vector<int> y(3);
    try {
      if (group.rank() == 0) parx::all_reduce(group, x);
      else parx::all_reduce(group, y);
    } catch (const parx::error&) {
    }
    parx::barrier(group);
  });
  for (const auto& each : failures) {
    BOOST_TEST(contains(each, "barrier"), each);
    BOOST_TEST(contains(each, "closed by an earlier failure"), each);
    BOOST_TEST(contains(each, "different operations"), each);
  }
}

BOOST_AUTO_TEST_CASE(a_message_of_another_length_is_an_error_that_names_both_sides) {
  for (const auto kind : kinds) {
    const auto failures = jobs::run_collecting(kind, 2, [&](parx::process_group& group) {
      std::vector<float> x(10), y(11);
      if (group.rank() == 0) parx::send(group, x, 1);
      else parx::recv(group, y, 0);
      parx::barrier(group);
    });
    BOOST_TEST(contains(failures[1], "waits in recv for 11 float32"), failures[1]);
    BOOST_TEST(contains(failures[1], "sent 10 float32"), failures[1]);
    BOOST_TEST(!failures[0].empty());
  }
}

BOOST_AUTO_TEST_CASE(work_that_is_dropped_waits_for_its_buffer) {
  const auto failure = jobs::run(jobs::kind::inproc, 2, [&](parx::process_group& group) {
    std::vector<int> x(100'000, 1);
    { auto dropped = parx::async_all_reduce(group, x); }
    for (const int each : x) {
      if (each != 2) throw std::runtime_error("the buffer was given back too early");
    }
  });
  BOOST_TEST(failure == "", failure);
}
