#include <parx/comm.hpp>
#include <parx/comm/collectives/coalesced.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/jobs.hpp"

namespace {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr jobs::kind kinds[] = {jobs::kind::inproc, jobs::kind::tcp, jobs::kind::shm,
                                jobs::kind::hybrid};

using counts = std::vector<std::size_t>;

/// One rank makes the other call, the rest the usual one; all must fail soon, and with the hint.
struct disagreement {
  const char* name;
  std::function<void(parx::process_group&)> usual;
  std::function<void(parx::process_group&)> other;
  const char* hint = "the ranks called different operations";
};

constexpr double total_of_nothing = 0;

void expect_mismatch(jobs::kind kind, const disagreement& d, int odd = 2) {
  const auto started = clock_type::now();
  const auto failures = jobs::run_collecting(kind, 4, [&](parx::process_group& group) {
    (group.rank() == odd ? d.other : d.usual)(group);
    parx::barrier(group);  // a rank that needs nobody may leave its call before the others find out
  });
  BOOST_TEST((clock_type::now() - started < 5s), jobs::name_of(kind) << ": " << d.name);
  for (const auto& each : failures) {
    BOOST_TEST(contains(each, "the ranks called different operations"),
               jobs::name_of(kind) << ", " << d.name << ": " << each);
    BOOST_TEST(contains(each, d.hint), jobs::name_of(kind) << ", " << d.name << ": " << each);
    BOOST_TEST(contains(each, "failure_test.cpp"), each);
  }
}

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
        BOOST_TEST(contains(each, other_type ? "all_reduce of 10 int32 (sum)"
                                             : "all_reduce of 11 float32 (sum)"),
                   each);
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

BOOST_AUTO_TEST_CASE(every_operation_finds_another_operation_count_dtype_root_or_reduction) {
  using parx::process_group;
  const auto floats = [](std::size_t n) { return std::vector<float>(n); };
  const std::vector<disagreement> cases{
      {"gather and scatter",
       [&](auto& g) {
         auto x = floats(4), y = floats(16);
         parx::gather(g, x, y);
       },
       [&](auto& g) {
         auto x = floats(4), y = floats(16);
         parx::scatter(g, y, x);
       },
       "gather of 16 float32"},
      {"gather's count",
       [&](auto& g) {
         auto x = floats(4), y = floats(16);
         parx::gather(g, x, y);
       },
       [&](auto& g) {
         auto x = floats(5), y = floats(20);
         parx::gather(g, x, y);
       },
       "gather of 20 float32"},
      {"gather's root",
       [&](auto& g) {
         auto x = floats(4), y = floats(16);
         parx::gather(g, x, y);
       },
       [&](auto& g) {
         auto x = floats(4), y = floats(16);
         parx::gather(g, x, y, {.root = 1});
       },
       "with root"},
      {"scatter's dtype",
       [&](auto& g) {
         auto x = floats(4), y = floats(16);
         parx::scatter(g, y, x);
       },
       [&](auto& g) {
         std::vector<int> x(4), y(16);
         parx::scatter(g, y, x);
       },
       "scatter of 16 int32"},
      {"all_to_all and all_gather",
       [&](auto& g) {
         auto x = floats(8);
         parx::all_to_all(g, x);
       },
       [&](auto& g) {
         auto x = floats(2), y = floats(8);
         parx::all_gather(g, x, y);
       },
       "all_to_all of 8 float32"},
      {"all_to_all's count",
       [&](auto& g) {
         auto x = floats(8);
         parx::all_to_all(g, x);
       },
       [&](auto& g) {
         auto x = floats(12);
         parx::all_to_all(g, x);
       },
       "all_to_all of 12 float32"},
      {"scan's reduction",
       [&](auto& g) {
         auto x = floats(8);
         parx::scan(g, x);
       },
       [&](auto& g) {
         auto x = floats(8);
         parx::scan(g, x, {.op = parx::reduce_op::max});
       },
       "(max)"},
      {"scan and exscan",
       [&](auto& g) {
         auto x = floats(8);
         parx::scan(g, x);
       },
       [&](auto& g) {
         auto x = floats(8);
         parx::exscan(g, x);
       },
       "exscan of 8 float32"},
      {"exscan's dtype",
       [&](auto& g) {
         auto x = floats(8);
         parx::exscan(g, x);
       },
       [&](auto& g) {
         std::vector<double> x(8);
         parx::exscan(g, x);
       },
       "exscan of 8 float64"},
      {"the order of two calls",
       [&](auto& g) {
         auto x = floats(8);
         parx::scan(g, x);
         parx::broadcast(g, x);
       },
       [&](auto& g) {
         auto x = floats(8);
         parx::broadcast(g, x);
         parx::scan(g, x);
       },
       "broadcast of 8 float32"},
      {"reduce's root",
       [&](auto& g) {
         auto x = floats(8);
         parx::reduce(g, x);
       },
       [&](auto& g) {
         auto x = floats(8);
         parx::reduce(g, x, {.root = 3});
       },
       "with root"},
      {"the algorithm",
       [&](auto& g) {
         auto x = floats(8);
         parx::all_reduce(g, x, {.use = parx::algorithm::ring});
       },
       [&](auto& g) {
         auto x = floats(8);
         parx::all_reduce(g, x, {.use = parx::algorithm::tree});
       },
       "by tree"},
  };
  for (const auto kind : kinds) {
    for (const disagreement& each : cases) expect_mismatch(kind, each);
  }
}

BOOST_AUTO_TEST_CASE(what_names_and_counts_do_not_show_is_compared_as_well) {
  struct six { char c[6]; };
  struct twelve { char c[12]; };
  static const double total = 4;
  const auto sum = [](const auto& a, const auto&) { return a; };
  const char* const arithmetic = "the calls differ in the factor, in divide_by, in the order";
  const char* const sizes = "the calls differ in their uneven counts";
  const auto floats = [](std::size_t n) { return std::vector<float>(n); };
  const std::vector<disagreement> cases{
      {"the factor",
       [&](auto& g) {
         auto x = floats(8);
         parx::all_reduce(g, x, {.op = parx::reduce_op::premul_sum, .factor = 2});
       },
       [&](auto& g) {
         auto x = floats(8);
         parx::all_reduce(g, x, {.op = parx::reduce_op::premul_sum, .factor = 2.0000001});
       },
       arithmetic},
      {"divide_by",
       [&](auto& g) {
         auto x = floats(8);
         parx::all_reduce(g, x);
       },
       [&](auto& g) {
         auto x = floats(8);
         parx::all_reduce(g, x, {.divide_by = &total});
       },
       arithmetic},
      {"commutative or not",
       [&](auto& g) {
         auto x = floats(8);
         parx::all_reduce(g, x,
                          parx::user_op(sum, {.order = parx::reduction_order::any,
                                              .use = parx::algorithm::tree}));
       },
       [&](auto& g) {
         auto x = floats(8);
         parx::all_reduce(g, x, parx::user_op(sum, {.use = parx::algorithm::tree}));
       },
       arithmetic},
      {"the order of a sum",
       [&](auto& g) {
         auto x = floats(8);
         parx::all_reduce(g, x, {.use = parx::algorithm::direct});
       },
       [&](auto& g) {
         auto x = floats(8);
         parx::all_reduce(g, x,
                          {.order = parx::reduction_order::serial, .use = parx::algorithm::direct});
       },
       arithmetic},
      {"an operation of the user's",
       [&](auto& g) {
         auto x = floats(8);
         parx::all_reduce(g, x, {.use = parx::algorithm::tree});
       },
       [&](auto& g) {
         auto x = floats(8);
         parx::all_reduce(g, x, parx::user_op(sum, {.use = parx::algorithm::tree}));
       },
       "(user's operation)"},
      {"the size of structs",
       [&](auto& g) {
         std::vector<six> x(8);
         parx::broadcast(g, x);
       },
       [&](auto& g) {
         std::vector<twelve> x(8);
         parx::broadcast(g, x);
       },
       sizes},
      {"the size of what is broadcast",
       [&](auto& g) {
         auto x = floats(8);
         parx::broadcast(g, x);
       },
       [&](auto& g) {
         auto x = floats(7);
         parx::broadcast(g, x);
       },
       "there is broadcast_object"},
      {"uneven counts of one sum",
       [&](auto& g) {
         const counts cut{1, 2, 3, 2};
         auto x = floats(cut[static_cast<std::size_t>(g.rank())]), y = floats(8);
         parx::all_gather_v(g, x, y, cut, {.use = parx::algorithm::ring});
       },
       [&](auto& g) {
         auto x = floats(3), y = floats(8);
         parx::all_gather_v(g, x, y, counts{2, 1, 3, 2}, {.use = parx::algorithm::ring});
       },
       sizes},
      {"uneven counts of a root",
       [&](auto& g) {
         auto x = floats(2), y = floats(8);
         parx::gather_v(g, x, y, counts{2, 2, 2, 2});
       },
       [&](auto& g) {
         auto x = floats(1), y = floats(8);
         parx::gather_v(g, x, y, counts{3, 2, 1, 2});
       },
       sizes},
      {"even and uneven",
       [&](auto& g) {
         auto x = floats(2), y = floats(8);
         parx::reduce_scatter(g, y, x, {.use = parx::algorithm::ring});
       },
       [&](auto& g) {
         auto x = floats(2), y = floats(8);
         parx::reduce_scatter_v(g, y, x, counts{2, 2, 2, 2}, {.use = parx::algorithm::ring});
       },
       sizes},
      {"coalesced sizes",
       [&](auto& g) {
         auto x = floats(3), y = floats(5);
         parx::all_reduce_coalesced(g, std::array{parx::view_of(x), parx::view_of(y)});
       },
       [&](auto& g) {
         auto x = floats(5), y = floats(3);
         parx::all_reduce_coalesced(g, std::array{parx::view_of(x), parx::view_of(y)});
       },
       sizes},
      {"coalesced or not",
       [&](auto& g) {
         auto x = floats(3), y = floats(5);
         parx::all_reduce_coalesced(g, std::array{parx::view_of(x), parx::view_of(y)});
       },
       [&](auto& g) {
         auto x = floats(8);
         parx::all_reduce(g, x);
       },
       sizes},
  };
  for (const auto kind : kinds) {
    for (const disagreement& each : cases) expect_mismatch(kind, each);
  }
}

BOOST_AUTO_TEST_CASE(both_ends_of_a_pair_must_name_the_same_count_in_all_to_all_v) {
  for (const auto kind : kinds) {
    for (const auto use : {parx::algorithm::direct, parx::algorithm::pairwise}) {
      const auto failures = jobs::run_collecting(kind, 4, [&](parx::process_group& group) {
        counts sends{2, 2, 2, 2}, receives{2, 2, 2, 2};
        if (group.rank() == 2) sends[1] = 5;  // rank 1 expects 2
        std::vector<int> x(group.rank() == 2 ? 11 : 8), y(8);
        parx::all_to_all_v(group, x, sends, y, receives, {.use = use});
        parx::barrier(group);
      });
      for (const auto& each : failures) {
        BOOST_TEST(contains(each, "it sends 5 elements where 2 are expected from it"),
                   jobs::name_of(kind) << ": " << each);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(buffers_at_other_places_of_a_shared_area_are_found_before_they_are_read) {
  const auto failures = jobs::run_collecting(jobs::kind::inproc, 3, [](parx::process_group& group) {
    auto area = parx::allocate_shared<float>(group, 100);
    const std::size_t at = group.rank() == 1 ? 8 : 0;
    parx::all_reduce(group, std::span(area.data() + at, 50), {.use = parx::algorithm::shared});
  });
  for (const auto& each : failures)
    BOOST_TEST(contains(each, "where they lie in a shared buffer"), each);
}

BOOST_AUTO_TEST_CASE(the_first_failing_ranks_reason_reaches_everybody) {
  for (const auto kind : kinds) {
    const auto failures = jobs::run_collecting(kind, 4, [&](parx::process_group& group) {
      std::vector<float> x(1000);
      parx::all_reduce(group, x);
      if (group.rank() == 1) throw std::runtime_error("out of memory in forward()");
      parx::all_reduce(group, x);
    });
    for (const auto& each : failures)
      BOOST_TEST(contains(each, "out of memory in forward()"), each);
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
    BOOST_TEST((contains(failures[0], "has ended without taking part") ||
                contains(failures[0], "lost rank")),
               failures[0]);
    BOOST_TEST((!contains(failures[0], "it closed the connection") ||
                contains(failures[0], "a rank that has fewer batches than the others ends so")),
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

BOOST_AUTO_TEST_CASE(
    wrong_arguments_are_refused_before_anything_is_sent_and_the_group_stays_usable) {
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
      refused(
          [&] {
            parx::all_reduce(group, std::span<float>(x.data(), 4),
                             std::span<float>(x.data() + 2, 4));
          },
          "overlap");
      refused([&] { static_cast<void>(group.subgroup(std::vector<int>{0, 7})); }, "rank 7");
      refused([&] { static_cast<void>(group.subgroup(std::vector<int>{0, 0})); }, "twice");
      refused([&] { static_cast<void>(group.subgroup(std::vector<int>{1 - group.rank()})); },
              "not among");
      const std::size_t own = static_cast<std::size_t>(group.rank());
      std::vector<float> sixteen(16), none;
      const counts cut{3, 5}, long_cut{3, 5, 0},
          own_cut{own == 0 ? 8u : 0u, own == 0 ? 0u : 8u};  // all for itself
      const counts vast{std::numeric_limits<std::size_t>::max(), 2};
      // Each names the operation, the group and the place.
      refused([&] { parx::scan(group, x, y); }, "scan on group \"world\" at failure_test.cpp:");
      refused([&] { parx::all_gather(group, x, y); },
              "all_gather on group \"world\" at failure_test.cpp:");
      refused([&] { parx::reduce_scatter(group, x, y); },
              "reduce_scatter on group \"world\" at failure_test.cpp:");
      refused([&] { parx::all_reduce(group, x, {.op = parx::reduce_op::bor}); },
              "all_reduce on group \"world\" at failure_test.cpp:");
      refused([&] { parx::broadcast(group, x, {.use = parx::algorithm::ring}); },
              "broadcast on group \"world\" at failure_test.cpp:");
      refused([&] { parx::recv(group, x, -2); }, "recv on group \"world\" at failure_test.cpp:");
      refused([&] { parx::batch(group).send(x, 2); },
              "send on group \"world\" at failure_test.cpp:");
      refused(
          [&] {
            static_cast<void>(group.subgroup(std::vector<int>{0, 7}));
          },
          "at failure_test.cpp:");
      // Roots, counts and types.
      refused([&] { parx::gather(group, x, sixteen, {.root = 2}); },
              "root 2 is not in this group of 2 ranks");
      refused([&] { parx::scatter(group, x, y, {.root = -1}); }, "root -1 is not");
      refused([&] { static_cast<void>(parx::gather_object(group, 1, {.root = 9})); },
              "root 9 is not");
      refused([&] { parx::gather(group, x, i, {.root = group.rank()}); },
              "float32, the output int32");
      refused([&] { parx::gather(group, x, x, {.root = group.rank()}); },
              "2 ranks x 8 elements = 16, not 8");
      refused([&] { parx::scatter(group, x, x, {.root = group.rank()}); },
              "2 ranks x 8 elements = 16, not 8");
      refused([&] { parx::all_to_all(group, y); }, "7 elements cannot be cut into 2 blocks");
      refused([&] { parx::all_to_all(group, x, y); }, "8 elements, the output 7");
      refused([&] { parx::scan(group, x, {.op = parx::reduce_op::avg}); },
              "avg is not defined for it");
      refused([&] { parx::exscan(group, i, {.op = parx::reduce_op::avg}); },
              "avg is not defined for it");
      refused([&] { parx::all_reduce(group, i, {.divide_by = &total_of_nothing}); },
              "divide_by needs");
      refused(
          [&] {
            parx::all_reduce(
                group, x,
                parx::user_op([](float a, float) { return a; }, {.use = parx::algorithm::ring}));
          },
          "needs an operation that commutes");
      refused(
          [&] {
            parx::reduce(group, x, parx::user_op([](float a, float) { return a; }, {.root = 4}));
          },
          "root 4");
      // Uneven counts that do not fit.
      refused([&] { parx::all_gather_v(group, x, sixteen, cut); },
              "the sum of all counts, 8 elements, not 16");
      refused([&] { parx::all_gather_v(group, x, x, cut); },
              own == 0 ? "counts[0] is 3" : "counts[1] is 5");
      refused([&] { parx::all_gather_v(group, x, x, long_cut); },
              "counts has 3 entries for 2 ranks");
      std::vector<int> keys(8), received(8);  // integers, as counts are
      refused([&] { parx::all_to_all_v(group, keys, received, std::vector<int>{4, 4},
                                       std::vector<int>{4, 4}); },
              "send_counts has 8 entries and receive_counts 2, but both have one for each of the 2 "
              "ranks. As in MPI, the arguments are: group, input, send_counts, output, "
              "receive_counts");
      refused([&] { parx::all_gather_v(group, x, x, vast); },
              "the sum of counts is more than memory can hold");
      refused([&] { parx::reduce_scatter_v(group, sixteen, x, cut); },
              "the sum of all counts, 8 elements, not 16");
      refused([&] { parx::reduce_scatter_v(group, x, x, cut); },
              "the output holds 8 elements, but counts");
      refused([&] { parx::gather_v(group, y, x, cut, {.root = group.rank()}); },
              "the input holds 7 elements, but counts");
      refused(
          [&] {
            parx::gather_v(group, std::span(x.data(), cut[own]), y, cut, {.root = group.rank()});
          },
          "8 elements, not 7");
      refused(
          [&] {
            parx::scatter_v(group, y, std::span(x.data(), cut[own]), cut, {.root = group.rank()});
          },
          "8 elements, not 7");
      refused([&] { parx::scatter_v(group, x, y, vast); }, "more than memory can hold");
      refused([&] { parx::all_to_all_v(group, x, own_cut, y, own_cut); },
              "sum of all receive_counts, 8 elements, not 7");
      refused([&] { parx::all_to_all_v(group, y, own_cut, x, own_cut); },
              "sum of all send_counts, 8 elements, not 7");
      refused(
          [&] {
            parx::all_to_all_v(group, x, counts{4, 4}, x,
                               counts{own == 0 ? 5u : 3u, own == 0 ? 3u : 5u});
          },
          "sends itself 4 elements, but expects 5");
      refused([&] { parx::all_to_all_v(group, x, cut, x, counts{8}); },
              "send_counts has 2 entries and receive_counts 1");
      // Sizes beyond memory.
      const parx::const_buffer_view huge{x.data(), std::numeric_limits<std::size_t>::max() / 4,
                                         parx::dtype::float64};
      refused([&] { parx::all_gather(group, huge, x); }, "more than memory can hold");
      refused([&] { parx::send(group, huge, 0); }, "more than memory can hold");
      const parx::const_buffer_view large{x.data(), std::numeric_limits<std::size_t>::max() / 2 - 8,
                                          parx::dtype::uint8};
      const parx::buffer_view bytes{y.data(), 28, parx::dtype::uint8};
      refused([&] { parx::all_gather(group, large, bytes); },
              "for each of 2 ranks are more than memory can hold");
      const parx::const_buffer_view wrong{x.data(), 8, static_cast<parx::dtype>(99)};
      refused([&] { parx::all_gather(group, wrong, bytes); }, "99 is not the number of a dtype");
      // Of other ranks' blocks too, which may pass through this one.
      const counts beyond{own == 0 ? 8 : std::size_t{1} << 62, own == 0 ? std::size_t{1} << 62 : 8};
      refused([&] { parx::scatter_v(group, none, x, beyond, {.root = 1 - group.rank()}); },
              "the sum of counts is more than memory can hold");
      refused([&] { parx::gather_v(group, x, none, beyond, {.root = 1 - group.rank()}); },
              "the sum of counts is more than memory can hold");
      // Buffers that overlap by mistake.
      refused([&] { parx::scan(group, std::span(x.data(), 4), std::span(x.data() + 2, 4)); },
              "overlap");
      refused(
          [&] {
            parx::gather(group, std::span(sixteen.data() + 3, 8), sixteen, {.root = group.rank()});
          },
          "overlap");
      refused(
          [&] {
            parx::scatter(group, sixteen, std::span(sixteen.data() + 3, 8), {.root = group.rank()});
          },
          "overlap");
      refused([&] { parx::all_to_all(group, std::span(x.data(), 4), std::span(x.data() + 2, 4)); },
              "overlap");
      refused([&] { parx::all_gather_v(group, std::span(x.data() + 1, cut[own]), x, cut); },
              "overlap");
      // Coalesced buffers.
      refused([&] { parx::all_reduce_coalesced(group, {}); }, "no buffers");
      refused(
          [&] {
            parx::all_reduce_coalesced(group, std::array{parx::view_of(x), parx::view_of(i)});
          },
          "buffer 1 holds int32, but buffer 0 float32");
      refused([&] { parx::broadcast_coalesced(group, std::array{parx::view_of(x)}, {.root = 2}); },
              "root 2");
      refused(
          [&] {
            parx::all_gather_coalesced(group, std::array{parx::const_view_of(x)},
                                       std::array{parx::view_of(y)});
          },
          "buffer 0: the input holds 8 elements, the output 7");
      refused([&] { parx::all_gather_coalesced(group, std::array{parx::const_view_of(x)}, {}); },
              "1 inputs and 0 outputs");
      // Each is told by the name that was called.
      const counts three{1, 1, 1}, none_at_all{0, 0};
      refused([&] { parx::all_gather_v(group, x, y, three); }, "all_gather_v on group");
      refused([&] { parx::gather_v(group, x, y, three); }, "gather_v on group");
      refused([&] { parx::scatter_v(group, x, y, three); }, "scatter_v on group");
      refused([&] { parx::scatter_v(group, none, none, none_at_all, {.root = 2}); },
              "scatter_v on group");
      refused([&] { parx::reduce_scatter_v(group, x, y, three); }, "reduce_scatter_v on group");
      refused([&] { parx::all_to_all_v(group, x, three, y, three); }, "all_to_all_v on group");
      refused([&] { parx::all_gather(group, x, y); }, "all_gather on group");
      refused([&] { parx::all_reduce_coalesced(group, {}); }, "all_reduce_coalesced on group");
      std::vector<int> one{1};
      parx::all_reduce(group, one);
      if (one[0] != 2) throw std::runtime_error("the group is no longer usable");
    });
    BOOST_TEST(failure == "", failure);
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
    BOOST_TEST(contains(each, "barrier"), each);
    BOOST_TEST(contains(each, "was refused because of an earlier failure"), each);
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

BOOST_AUTO_TEST_CASE(a_reason_of_several_lines_reaches_the_other_ranks_as_lines) {
  for (const auto kind : {jobs::kind::tcp, jobs::kind::shm, jobs::kind::hybrid}) {
    const auto failures = jobs::run_collecting(kind, 2, [](parx::process_group& group) {
      if (group.rank() == 1) group.abort("two rules:\n  a\n  b\x1b[31m");
      else parx::barrier(group);
    });
    BOOST_TEST(contains(failures[0], "two rules:\n      a\n      b\\x1b[31m"), failures[0]);
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
      if (!contains(refusal.what(), "all_gather_v on group")) throw;
    }
    for (std::size_t i = 0; i < calls.size(); ++i) {
      try {
        calls[i]();
      } catch (const parx::error& refusal) {
        if (refusal.code_value() == parx::errc::closed &&
            contains(refusal.what(), "enough for today"))
          continue;
        throw std::runtime_error(refusal.what());
      }
      throw std::runtime_error("call " + std::to_string(i) + " was accepted");
    }
  });
  BOOST_TEST(failure == "", failure);
}
