// What the ranks of a group are told when one of them fails.
#include <parx/comm.hpp>
#include <parx/comm/collectives/coalesced.hpp>
#include <parx/comm/detail/progress/parting.hpp>
#include <parx/core/stopped.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/jobs.hpp"
#include "messages.hpp"

namespace {

using namespace std::chrono_literals;
using parx_test::mentions;
using clock_type = std::chrono::steady_clock;

using counts = std::vector<std::size_t>;

}  // namespace

BOOST_AUTO_TEST_CASE(the_first_failing_ranks_reason_reaches_everybody) {
  for (const auto kind : jobs::common_kinds) {
    const auto failures = jobs::run_collecting(kind, 4, [&](parx::process_group& group) {
      std::vector<float> x(1000);
      parx::all_reduce(group, x);
      if (group.rank() == 1) throw std::runtime_error("out of memory in forward()");
      parx::all_reduce(group, x);
    });
    for (const auto& each : failures)
      BOOST_TEST(mentions(each, "out of memory in forward()"), each);
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_end_without_taking_part_are_found_out_soon) {
  for (const auto kind : jobs::common_kinds) {
    const auto started = clock_type::now();
    const auto failures = jobs::run_collecting(kind, 3, [&](parx::process_group& group) {
      std::vector<float> x(10);
      if (group.rank() == 0) parx::all_reduce(group, x);  // the classic mistake
    });
    BOOST_TEST((clock_type::now() - started < 5s));
    BOOST_TEST((mentions(failures[0], "has ended without taking part") ||
                mentions(failures[0], "lost rank")),
               failures[0]);
    BOOST_TEST((!mentions(failures[0], "it closed the connection") ||
                mentions(failures[0], "a rank that has fewer batches than the others ends so")),
               failures[0]);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_has_left_after_its_part_is_not_missed_by_one_that_awaits_another) {
  for (const int world : {3, 6}) {
    jobs::expect_success(world, [&](parx::process_group& group) {
      std::vector<int> x(8, group.rank());
      if (group.rank() == 1) std::this_thread::sleep_for(600ms);
      parx::reduce(group, x, {.root = 0, .op = parx::reduce_op::sum});
      const int sum = world * (world - 1) / 2;
      jobs::check(group.rank() != 0 || x == std::vector<int>(8, sum), "reduce");
    });
  }
}

BOOST_AUTO_TEST_CASE(the_words_of_a_rank_that_has_left_tell_what_may_still_come) {
  using parx::detail::parting;
  parx::detail::wait_report counts;
  counts.calls = {{.group = 7, .calls = 5, .known = 1}};
  counts.sent = {{7, 2, 9}, {7, 3, 1}};
  parx::detail::wait_report other;
  other.calls = {{.group = 8, .calls = 0, .known = 1}};
  for (int peer = 0; peer < 100; ++peer) other.sent.push_back({8, peer, 1});
  const std::string text = parting::from(counts).to_text() + parting::from(other).to_text();
  const auto words = parting::all_in(text);
  BOOST_TEST_REQUIRE(words.size() == 2u);
  const auto is_in = [&](std::uint64_t group, std::uint64_t sequence) {
    parx::detail::call_header call;
    call.group = group;
    call.sequence = sequence;
    return parting::may_be_in(words, call);
  };
  BOOST_TEST(is_in(7, 2));
  BOOST_TEST(is_in(7, 9));   // the set-up of the fifth
  BOOST_TEST(is_in(7, 10));  // the fifth
  BOOST_TEST(!is_in(7, 11));
  BOOST_TEST(!is_in(7, 12));
  BOOST_TEST(!is_in(8, 2));
  BOOST_TEST(is_in(9, 2));  // of which nothing was said
  BOOST_TEST(parting::may_have_sent(words, 7, 2, 8));
  BOOST_TEST(!parting::may_have_sent(words, 7, 2, 9));
  BOOST_TEST(!parting::may_have_sent(words, 7, 4, 0));
  BOOST_TEST(parting::may_have_sent(words, 8, 2, 1));  // too many receivers to be told
  for (std::size_t size = 0; size < text.size(); ++size) {
    BOOST_TEST_REQUIRE(parting::all_in(text.substr(0, size)).size() <= 1u);
  }
}

BOOST_AUTO_TEST_CASE(a_late_rank_is_named_when_the_deadline_passes) {
  for (const auto kind : jobs::common_kinds) {
    const auto failures = jobs::run_collecting(kind, 3, [&](parx::process_group& group) {
      std::vector<float> x(10);
      parx::all_reduce(group, x);
      if (group.rank() == 1) std::this_thread::sleep_for(900ms);
      parx::all_reduce(group, x, {.timeout = 400ms});
      parx::barrier(group);  // the late rank may find its peers' data, but not its peers
    });
    BOOST_TEST(mentions(failures[0], "timed out waiting for rank 1"), failures[0]);
    BOOST_TEST(mentions(failures[0], "has not entered the operation"), failures[0]);
    BOOST_TEST(mentions(failures[2], "rank 1"), failures[2]);
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
        BOOST_TEST(mentions(failures[static_cast<std::size_t>(rank)], "lost rank 1"),
                   failures[static_cast<std::size_t>(rank)]);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_closed_group_says_why_it_was_closed) {
  const auto failures =
      jobs::run_collecting(jobs::kind::inproc, 2, [&](parx::process_group& group) {
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
    BOOST_TEST(mentions(each, "barrier"), each);
    BOOST_TEST(mentions(each, "was refused because of an earlier failure"), each);
    BOOST_TEST(mentions(each, "different operations"), each);
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

BOOST_AUTO_TEST_CASE(
    an_exception_passes_a_pending_request_of_every_kind_and_reaches_all_ranks_at_once) {
  std::vector<float> x(4), y(4), all(12), many(2'000'000);
  using handle = std::function<parx::work(parx::process_group&)>;
  const std::vector<std::pair<const char*, handle>> handles{
      {"async_recv", [&](auto& g) { return parx::async_recv(g, x, 1); }},
      {"async_recv_any", [&](auto& g) { return parx::async_recv_any(g, x); }},
      {"async_recv_any_shape",
       [&](auto& g) {
         return parx::async_recv_any_shape(g, 1, [&](parx::dtype, const parx::axis_extents&) {
           return std::as_writable_bytes(std::span(x));
         });
       }},
      {"async_send", [&](auto& g) { return parx::async_send(g, many, 1); }},
      {"batch", [&](auto& g) { return parx::batch(g).send(x, 2).recv(y, 1, {.tag = 3}).start(); }},
      {"async_all_reduce", [&](auto& g) { return parx::async_all_reduce(g, many); }},
      {"async_all_gather", [&](auto& g) { return parx::async_all_gather(g, x, all); }},
      {"async_barrier", [&](auto& g) { return parx::async_barrier(g); }},
  };
  for (const auto kind : jobs::common_kinds) {
    for (const auto& [name, start] : handles) {
      const auto began = clock_type::now();
      const auto failures = jobs::run_collecting(
          kind, 3,
          [&, &start = start](parx::process_group& group) {
            std::vector<float> z(4);
            if (group.rank() == 0) {
              const auto pending = start(group);
              throw std::runtime_error("the matrix is singular");
            }
            auto answer = parx::async_recv(group, z, 0, {.tag = 7});
            while (group.rank() == 1 && !answer.test()) {  // by polling, the other one waits
            }
            answer.wait();
          },
          {.timeout = 60s});
      BOOST_TEST((clock_type::now() - began < 8s), jobs::name_of(kind) << ", " << name);
      for (const auto& each : failures) {
        BOOST_TEST(mentions(each, "the matrix is singular"), jobs::name_of(kind)
                                                                 << ", " << name << ": " << each);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_others_are_told_of_a_request_that_an_exception_left_if_it_is_handled) {
  for (const auto kind : jobs::common_kinds) {
    std::string later;
    const auto failures = jobs::run_collecting(kind, 2, [&](parx::process_group& group) {
      std::vector<float> x(4);
      if (group.rank() == 1) {
        parx::recv(group, x, 0);
        return;
      }
      try {
        const auto pending = parx::async_recv(group, x, 1, {.tag = 2});
        throw std::invalid_argument("the file is empty");
      } catch (const std::invalid_argument&) {
      }
      std::this_thread::sleep_for(1500ms);
      later = parx_test::message_of([&] { parx::barrier(group); });
    });
    const char* const left = "rank 0: an exception has left the scope of recv on group \"world\"";
    BOOST_TEST(mentions(failures[1], left, "failure_test.cpp:"), failures[1]);
    BOOST_TEST(mentions(later, "was refused because of an earlier failure", left), later);
  }
}

BOOST_AUTO_TEST_CASE(
    a_request_that_all_ranks_leave_by_their_exceptions_ends_and_the_group_goes_on) {
  for (const auto kind : jobs::common_kinds) {
    const auto failures = jobs::run_collecting(kind, 3, [&](parx::process_group& group) {
      std::vector<int> x(100'000, 1);
      for (const bool by_signal : {false, true}) {
        // Which exception all ranks throw, however late each is, the type alone says.
        if (by_signal && group.rank() == 1) std::this_thread::sleep_for(800ms);
        try {
          const auto pending = parx::async_all_reduce(group, x);
          if (by_signal) throw parx::stopped_by_signal(15, "saved");
          throw std::runtime_error("the loss is not a number");
        } catch (const std::runtime_error&) {
        }
      }
      for (const int each : x) jobs::check(each == 9, "a sum is not finished");
      parx::barrier(group);
    });
    parx_test::expect_failures(failures, "");
  }
}

BOOST_AUTO_TEST_CASE(a_reason_of_several_lines_reaches_the_other_ranks_as_lines) {
  for (const auto kind : {jobs::kind::tcp, jobs::kind::shm, jobs::kind::hybrid}) {
    const auto failures = jobs::run_collecting(kind, 2, [](parx::process_group& group) {
      if (group.rank() == 1) group.abort("two rules:\n  a\n  b\x1b[31m");
      else parx::barrier(group);
    });
    BOOST_TEST(mentions(failures[0], "two rules:\n      a\n      b\\x1b[31m"), failures[0]);
  }
}

BOOST_AUTO_TEST_CASE(every_operation_is_refused_by_a_group_that_an_earlier_failure_has_closed) {
  const auto failure = jobs::run(jobs::kind::inproc, 2, [&](parx::process_group& group) {
    group.abort("enough for today");
    std::vector<float> x(2), y(4);
    const counts even{2, 2};
    const std::vector<std::function<void()>> calls{
        [&] { parx::gather(group, x, y); },
        [&] { parx::scatter(group, y, x); },
        [&] { parx::all_to_all(group, y); },
        [&] { parx::all_to_all_v(group, y, even, y, even); },
        [&] { parx::all_gather_v(group, x, y, even); },
        [&] { parx::reduce_scatter_v(group, y, x, even); },
        [&] { parx::scan(group, x); },
        [&] { parx::exscan(group, x); },
        [&] { parx::all_reduce(group, x, parx::user_op([](float a, float b) { return a + b; })); },
        [&] { parx::all_reduce_coalesced(group, std::array{parx::view_of(x), parx::view_of(y)}); },
        [&] { parx::batch(group).send(x, 1).recv(y, 1).run(); },
        [&] { static_cast<void>(parx::recv_any(group, x)); },
        [&] { static_cast<void>(parx::all_gather_object(group, std::string("x"))); },
        [&] { static_cast<void>(parx::split(group, 0)); },
        [&] { parx::monitored_barrier(group); },
        [&] { parx::async_scan(group, x).wait(); },
    };
    try {
      parx::all_gather_v(group, x, y, even);
    } catch (const parx::error& refusal) {
      if (!mentions(refusal.what(), "all_gather_v on group")) throw;
    }
    for (std::size_t i = 0; i < calls.size(); ++i) {
      try {
        calls[i]();
      } catch (const parx::error& refusal) {
        if (refusal.code_value() == parx::errc::closed &&
            mentions(refusal.what(), "enough for today"))
          continue;
        throw std::runtime_error(refusal.what());
      }
      throw std::runtime_error("call " + std::to_string(i) + " was accepted");
    }
  });
  BOOST_TEST(failure == "", failure);
}
