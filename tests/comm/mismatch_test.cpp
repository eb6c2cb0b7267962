// Ranks that make different calls.
#include <parx/comm.hpp>
#include <parx/comm/collectives/coalesced.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/jobs.hpp"
#include "messages.hpp"

namespace {

using namespace std::chrono_literals;
using parx_test::mentions;
using clock_type = std::chrono::steady_clock;

using counts = std::vector<std::size_t>;

/// One rank makes the other call, the rest the usual one; all must fail soon, and with the hint.
struct disagreement {
  const char* name;
  std::function<void(parx::process_group&)> usual;
  std::function<void(parx::process_group&)> other;
  const char* hint = "the ranks called different operations";
};

void expect_mismatch(jobs::kind kind, const disagreement& d, int odd = 2) {
  const auto started = clock_type::now();
  const auto failures = jobs::run_collecting(kind, 4, [&](parx::process_group& group) {
    (group.rank() == odd ? d.other : d.usual)(group);
    parx::barrier(group);  // a rank that needs nobody may leave its call before the others find out
  });
  BOOST_TEST((clock_type::now() - started < 5s), jobs::name_of(kind) << ": " << d.name);
  for (const auto& each : failures) {
    BOOST_TEST(mentions(each, "the ranks called different operations"),
               jobs::name_of(kind) << ", " << d.name << ": " << each);
    BOOST_TEST(mentions(each, d.hint), jobs::name_of(kind) << ", " << d.name << ": " << each);
    BOOST_TEST(mentions(each, "mismatch_test.cpp"), each);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(another_dtype_or_count_is_an_error_on_every_rank_that_names_both_calls) {
  for (const auto kind : jobs::common_kinds) {
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
        BOOST_TEST(mentions(each, "the ranks called different operations"), each);
        BOOST_TEST(mentions(each, "all_reduce of 10 float32 (sum)"), each);
        BOOST_TEST(mentions(each, other_type ? "all_reduce of 10 int32 (sum)"
                                             : "all_reduce of 11 float32 (sum)"),
                   each);
        BOOST_TEST(mentions(each, "mismatch_test.cpp:"), each);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(another_operation_or_root_or_order_is_found_even_without_a_common_link) {
  for (const auto kind : jobs::common_kinds) {
    const auto failures = jobs::run_collecting(kind, 4, [&](parx::process_group& group) {
      std::vector<float> x(10);
      if (group.rank() == 0) parx::barrier(group);
      else parx::all_reduce(group, x, {.use = parx::algorithm::ring});
    });
    for (const auto& each : failures) BOOST_TEST(mentions(each, "different operations"), each);
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
  for (const auto kind : jobs::common_kinds) {
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
  for (const auto kind : jobs::common_kinds) {
    for (const disagreement& each : cases) expect_mismatch(kind, each);
  }
}

BOOST_AUTO_TEST_CASE(calls_of_one_shape_that_move_other_things_are_told_apart_by_their_tags) {
  for (const auto kind : jobs::common_kinds) {
    for (const bool named : {true, false}) {
      const auto failures = jobs::run_collecting(kind, 3, [&](parx::process_group& group) {
        if (named) group.name_tags({"layer \"a\"", "layer \"b\""});
        std::vector<float> x(4), all(12);
        parx::all_reduce(group, x, {.tag = 1});
        parx::all_gather(group, x, all, {.tag = group.rank() == 1 ? 1 : 0});
      });
      for (const auto& each : failures) {
        const bool names_both =
            named ? mentions(each, "all_gather of 12 float32 for layer \"a\"",
                             "all_gather of 12 float32 for layer \"b\"")
                  : mentions(each, "12 float32 with tag 0", "12 float32 with tag 1");
        BOOST_TEST(names_both, jobs::name_of(kind) << ": " << each);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(both_ends_of_a_pair_must_name_the_same_count_in_all_to_all_v) {
  for (const auto kind : jobs::common_kinds) {
    for (const auto use : {parx::algorithm::direct, parx::algorithm::pairwise}) {
      const auto failures = jobs::run_collecting(kind, 4, [&](parx::process_group& group) {
        counts sends{2, 2, 2, 2}, receives{2, 2, 2, 2};
        if (group.rank() == 2) sends[1] = 5;  // rank 1 expects 2
        std::vector<int> x(group.rank() == 2 ? 11 : 8), y(8);
        parx::all_to_all_v(group, x, sends, y, receives, {.use = use});
        parx::barrier(group);
      });
      for (const auto& each : failures) {
        BOOST_TEST(mentions(each, "it sends 5 elements where 2 are expected from it"),
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
    BOOST_TEST(mentions(each, "where they lie in a shared buffer"), each);
}

BOOST_AUTO_TEST_CASE(a_message_of_another_length_is_an_error_that_names_both_sides) {
  for (const auto kind : jobs::common_kinds) {
    const auto failures = jobs::run_collecting(kind, 2, [&](parx::process_group& group) {
      std::vector<float> x(10), y(11);
      if (group.rank() == 0) parx::send(group, x, 1);
      else parx::recv(group, y, 0);
      parx::barrier(group);
    });
    BOOST_TEST(mentions(failures[1], "waits in recv for 11 float32"), failures[1]);
    BOOST_TEST(mentions(failures[1], "sent 10 float32"), failures[1]);
    BOOST_TEST(!failures[0].empty());
  }
}
