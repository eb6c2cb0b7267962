#include <parx/comm/schedule/explain.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <span>
#include <vector>

using parx::algorithm;
using parx::algorithm_rule;
using parx::call_shape;
using parx::link_costs;
using parx::operation;

namespace {

algorithm chosen(operation what, int world, std::size_t bytes) {
  return parx::choose({.what = what, .world = world, .count = bytes});
}

std::string error_of(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const parx::usage_error& error) {
    return error.what();
  }
  return "nothing was refused";
}

constexpr std::size_t large = std::size_t{64} << 20;

}  // namespace

BOOST_AUTO_TEST_CASE(small_vectors_take_few_steps_and_large_ones_few_bytes) {
  for (const int w : {2, 4, 8, 100}) {
    BOOST_TEST((chosen(operation::all_reduce, w, 4) == algorithm::doubling));
    BOOST_TEST((chosen(operation::all_reduce, w, large) == algorithm::ring));
  }
  BOOST_TEST((chosen(operation::all_reduce, 64, 256 << 10) == algorithm::halving));
  BOOST_TEST((chosen(operation::broadcast, 8, 4) == algorithm::tree));
  BOOST_TEST((chosen(operation::broadcast, 8, large) == algorithm::chain));
  BOOST_TEST((chosen(operation::all_gather, 8, 64) == algorithm::direct));
  BOOST_TEST((chosen(operation::all_gather, 32, 64) == algorithm::doubling));
  BOOST_TEST((chosen(operation::all_gather, 100, 6400) == algorithm::bruck));
  BOOST_TEST((chosen(operation::reduce_scatter, 8, large) == algorithm::ring));
  BOOST_TEST((chosen(operation::gather, 100, 100) == algorithm::tree));
  BOOST_TEST((chosen(operation::gather, 100, large) == algorithm::direct));
  BOOST_TEST((chosen(operation::all_to_all, 64, 64 * 8) == algorithm::bruck));
  BOOST_TEST((chosen(operation::all_to_all, 64, 1 << 20) == algorithm::direct));
  BOOST_TEST((chosen(operation::scan, 16, 4) == algorithm::doubling));
  BOOST_TEST((chosen(operation::scan, 16, large) == algorithm::chain));
}

BOOST_AUTO_TEST_CASE(prices_are_the_formulas_of_the_literature) {
  const link_costs c{.alpha = 1, .per_peer = 0.25, .beta = 0.5, .gamma = 0.125, .crowding = 1};
  const auto price = [&](operation what, algorithm use, int world, std::size_t n) {
    return parx::price({.what = what, .world = world, .count = n}, use, c);
  };
  // P = 8, n = 800: 2(P-1) alpha + 2n(P-1)/P beta + n(P-1)/P gamma = 14 + 700 + 87.5.
  BOOST_TEST(price(operation::all_reduce, algorithm::ring, 8, 800) == 801.5);
  BOOST_TEST(price(operation::all_reduce, algorithm::doubling, 8, 800) == 3 * (1 + 400 + 100.0));
  BOOST_TEST(price(operation::broadcast, algorithm::tree, 5, 100) == 3 * (1 + 50.0));
  BOOST_TEST(price(operation::broadcast, algorithm::chain, 5, 100) == 4 + 50.0);
  BOOST_TEST(price(operation::broadcast, algorithm::scatter_gather, 8, 800) == 10 + 700.0);
  BOOST_TEST(price(operation::all_gather, algorithm::ring, 8, 800) == 7 + 350.0);
  BOOST_TEST(price(operation::all_to_all, algorithm::pairwise, 8, 800) == 7 + 350.0);
  BOOST_TEST(price(operation::barrier, algorithm::dissemination, 9, 0) == 4.0);
}

BOOST_AUTO_TEST_CASE(between_ranks_of_one_host_over_tcp_the_choice_is_what_was_measured_there) {
  // Fastest at 4 and 8 ranks on two cores; see loopback_costs.
  auto order = parx::reduction_order::any;
  const std::vector<int> one_host(8, 0);
  const auto fastest = [&](operation what, int world, std::size_t n) {
    return parx::choose({.what = what,
                         .world = world,
                         .count = n,
                         .order = order,
                         .host_of = std::span(one_host).first(static_cast<std::size_t>(world))},
                        parx::loopback_costs);
  };
  for (const int world : {4, 8}) {
    BOOST_TEST((fastest(operation::all_reduce, world, 16 << 10) == algorithm::doubling));
    BOOST_TEST((fastest(operation::all_reduce, world, 256 << 10) == algorithm::halving));
    BOOST_TEST((fastest(operation::all_reduce, world, 1 << 20) == algorithm::halving));
    BOOST_TEST((fastest(operation::all_reduce, world, 16 << 20) == algorithm::ring));
    BOOST_TEST((fastest(operation::all_gather, world, 32 << 10) == algorithm::doubling));
    BOOST_TEST((fastest(operation::all_gather, world, 256 << 10) == algorithm::doubling));
    BOOST_TEST((fastest(operation::all_gather, world, 16 << 20) == algorithm::ring));
    BOOST_TEST((fastest(operation::reduce_scatter, world, 4 << 10) == algorithm::halving));
    BOOST_TEST((fastest(operation::reduce_scatter, world, 256 << 10) == algorithm::halving));
    BOOST_TEST((fastest(operation::reduce_scatter, world, 16 << 20) == algorithm::ring));
  }
  BOOST_TEST((fastest(operation::all_reduce, 8, 64 << 10) == algorithm::halving));
  order = parx::reduction_order::serial;
  for (const int world : {4, 8}) {
    BOOST_TEST((fastest(operation::all_reduce, world, 16 << 10) == algorithm::chain));
    BOOST_TEST((fastest(operation::all_reduce, world, 1 << 20) == algorithm::direct));
    BOOST_TEST((fastest(operation::reduce_scatter, world, 4 << 10) == algorithm::chain));
    BOOST_TEST((fastest(operation::reduce_scatter, world, 128 << 10) == algorithm::direct));
  }
}

BOOST_AUTO_TEST_CASE(serial_order_is_chosen_where_it_is_asked_for_and_in_shared_memory_always) {
  using parx::reduction_order;
  for (const operation what : {operation::all_reduce, operation::reduce_scatter}) {
    for (const int world : {2, 3, 8, 64}) {
      for (const std::size_t n : {4u, 16u << 10, 1u << 20, 64u << 20}) {
        const std::vector<int> one_host(static_cast<std::size_t>(world), 0);
        call_shape shape{.what = what, .world = world, .count = n, .host_of = one_host};
        const auto is_serial = [&] {
          return find_algorithm(what, parx::choose(shape, parx::loopback_costs))->order ==
                 reduction_order::serial;
        };
        shape.order = reduction_order::serial;
        BOOST_TEST(is_serial());
        shape.order = reduction_order::any;
        shape.staging_bytes = parx::slice_bytes(world);
        BOOST_TEST((is_serial() || world == 2));
        // Not against what the user says.
        const auto rules = parx::parse_algorithm_list("all_reduce:ring,reduce_scatter:ring");
        BOOST_TEST((parx::choose(shape, {}, rules) == algorithm::ring));
        shape.order = reduction_order::serial;
        BOOST_TEST((parx::choose(shape, {}, rules) != algorithm::ring));
      }
    }
  }
  // Between hosts, as many bytes as the ring where latency counts for nothing.
  const link_costs wide{.crowding = 1};
  const auto cost = [&](algorithm use) {
    return parx::price({.what = operation::all_reduce, .world = 8, .count = large}, use, wide);
  };
  BOOST_TEST(cost(algorithm::direct) < cost(algorithm::ring) * 1.01);
}

BOOST_AUTO_TEST_CASE(a_small_broadcast_in_shared_buffers_waits_for_no_meeting) {
  // As measured: a tree or chain is faster up to the first size, shared buffers from the second on.
  struct border {
    int world;
    std::size_t relayed, shared;
  };
  for (const border at : {border{2, 1 << 10, 4 << 10}, {3, 4 << 10, 16 << 10},
                          {4, 4 << 10, 16 << 10}, {8, 4 << 10, 16 << 10}}) {
    const std::vector<int> one_host(static_cast<std::size_t>(at.world), 0);
    call_shape shape{.what = operation::broadcast,
                     .world = at.world,
                     .shared = parx::shared_buffers::output,
                     .host_of = one_host};
    for (const std::size_t n : {std::size_t{4}, at.relayed}) {
      shape.count = n;
      BOOST_TEST((parx::choose(shape, parx::memory_costs) != algorithm::shared));
    }
    for (const std::size_t n : {at.shared, std::size_t{16} << 20}) {
      shape.count = n;
      BOOST_TEST((parx::choose(shape, parx::memory_costs) == algorithm::shared));
    }
  }
}

BOOST_AUTO_TEST_CASE(every_price_is_positive_and_grows_with_the_bytes) {
  const std::vector<int> host_of{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5};
  for (const auto& entry : parx::catalog()) {
    for (const int world : {2, 3, 8, 12}) {
      call_shape shape{.what = entry.what, .world = world, .count = 240};
      if (world == 12) shape.host_of = host_of;
      if (!can_do(entry, shape)) continue;
      const double small = parx::price(shape, entry.name);
      shape.count = 24'000'000;
      BOOST_TEST_CONTEXT(name_of(entry.what) << " by " << name_of(entry.name)) {
        BOOST_TEST(small > 0);
        BOOST_TEST((entry.what == operation::barrier || parx::price(shape, entry.name) > small));
        BOOST_TEST(std::isfinite(parx::price(shape, entry.name)));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_choice_is_the_same_on_all_ranks) {
  // In an uneven all_to_all each rank sends a different number of bytes.
  for (const auto& entry : parx::catalog()) {
    algorithm first = algorithm::automatic;
    for (int rank = 0; rank < 6; ++rank) {
      call_shape shape{
          .what = entry.what, .rank = rank, .world = 6, .count = 600, .element_bytes = 4};
      if (entry.what == operation::all_to_all) {
        std::vector<std::size_t> counts(6, static_cast<std::size_t>(rank) * 1'000'000);
        shape.blocks = shape.incoming = parx::partition::uneven(counts);
        shape.count = shape.blocks.total();
      }
      const algorithm now = parx::choose(shape);
      BOOST_TEST((rank == 0 || now == first));
      first = now;
    }
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_share_hosts_reduce_inside_them_first) {
  std::vector<int> host_of;
  for (int r = 0; r < 64; ++r) host_of.push_back(r / 16);
  call_shape shape{.what = operation::all_reduce, .world = 64, .count = 1024};
  BOOST_TEST((parx::choose(shape) == algorithm::doubling));
  shape.host_of = host_of;
  BOOST_TEST((parx::choose(shape) == algorithm::hierarchical));
  shape.order = parx::reduction_order::ranks;
  BOOST_TEST((parx::choose(shape) == algorithm::doubling));
}

BOOST_AUTO_TEST_CASE(a_list_names_an_algorithm_for_each_operation) {
  const auto rules = parx::parse_algorithm_list("all_reduce:ring,broadcast:tree");
  BOOST_TEST_REQUIRE(rules.size() == 2u);
  call_shape shape{.what = operation::all_reduce, .world = 8, .count = 4};
  BOOST_TEST((parx::choose(shape, {}) == algorithm::doubling));
  BOOST_TEST((parx::choose(shape, {}, rules) == algorithm::ring));
  shape.what = operation::broadcast;
  shape.count = large;
  BOOST_TEST((parx::choose(shape, {}, rules) == algorithm::tree));
  shape.what = operation::barrier;
  BOOST_TEST((parx::choose(shape, {}, rules) == algorithm::dissemination));
  BOOST_TEST(parx::parse_algorithm_list("").empty());
}

BOOST_AUTO_TEST_CASE(a_rules_file_chooses_by_size_and_ranks) {
  const auto rules = parx::parse_algorithm_rules(
      "# site rules\n"
      "all_reduce 0 64K 2 16 tree   # small\n"
      "\n"
      "all_reduce 64K * 2 16 halving\r\n"
      "all_gather * * * * doubling\n"
      "all_gather 0 * 0 * ring",
      "rules.txt");
  BOOST_TEST_REQUIRE(rules.size() == 4u);
  const auto by_rule = [&](operation what, int world, std::size_t bytes) {
    return parx::choose({.what = what, .world = world, .count = bytes}, {}, rules);
  };
  BOOST_TEST((by_rule(operation::all_reduce, 8, 0) == algorithm::tree));
  BOOST_TEST((by_rule(operation::all_reduce, 8, 64 << 10) == algorithm::tree));
  BOOST_TEST((by_rule(operation::all_reduce, 8, (64 << 10) + 1) == algorithm::halving));
  BOOST_TEST((by_rule(operation::all_reduce, 17, 4) == algorithm::doubling));  // no rule: by price
  BOOST_TEST((by_rule(operation::all_gather, 8, 4) == algorithm::doubling));
  // doubling cannot: the next rule that can decides.
  BOOST_TEST((by_rule(operation::all_gather, 6, 4) == algorithm::ring));
  BOOST_TEST(rules[1].source == "rules.txt:4");
}

BOOST_AUTO_TEST_CASE(an_error_in_the_rules_names_the_place_and_the_valid_names) {
  const auto list = [](std::string_view text) {
    return error_of([&] { (void)parx::parse_algorithm_list(text); });
  };
  const auto file = [](std::string_view text) {
    return error_of([&] { (void)parx::parse_algorithm_rules(text, "rules.txt"); });
  };
  const auto has = [](const std::string& text, std::string_view part) {
    BOOST_TEST(text.find(part) != std::string::npos, text << " | lacks | " << part);
  };
  has(list("all_reduce:ring,all_redduce:ring"),
      "PARX_ALGO:1:17: \"all_redduce\" is no collective operation");
  has(list("all_reduce:rung"),
      "PARX_ALGO:1:12: \"rung\" is no algorithm of all_reduce; it has: automatic, doubling, ring");
  has(list("ring"), "PARX_ALGO:1:1: \"ring\" is not of the form operation:algorithm");
  has(list("all_reduce:ring,,"), "PARX_ALGO:1:17:");
  has(list("send:direct"), "\"send\" is no collective operation");
  has(file("# x\nall_reduce 0 * 0 * bruck"),
      "rules.txt:2:20: \"bruck\" is no algorithm of all_reduce");
  has(file("all_reduce 0 64X 0 * ring"), "rules.txt:1:14: \"64X\" is no size");
  has(file("all_reduce -1 64 0 * ring"), "rules.txt:1:12: \"-1\" is no size");
  has(file("all_reduce 0 99999999999G 0 * ring"), "is no size");
  has(file("all_reduce 64K 1K 0 * ring"), "rules.txt:1:16: max_bytes is below min_bytes");
  has(file("all_reduce 0 1K 9 8 ring"), "rules.txt:1:19: max_ranks is below min_ranks");
  has(file("all_reduce 0 1K ring"), "rules.txt:1:17: a rule has 6 words");
  has(file("all_reduce 0 1K 0 8 ring now"), "rules.txt:1:26: a rule has 6 words");
}

BOOST_AUTO_TEST_CASE(an_explanation_lists_every_algorithm_with_its_price_and_the_reason) {
  const call_shape shape{.what = operation::all_gather, .world = 6, .count = 600};
  const auto rules = parx::parse_algorithm_list("all_gather:ring");
  const auto rows = parx::explain_table(shape, {}, rules);
  BOOST_TEST_REQUIRE(rows.size() == 6u);
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    chosen += rows[i].chosen ? 1U : 0U;
    if (i > 0 && !std::isnan(rows[i].seconds)) BOOST_TEST(rows[i - 1].seconds <= rows[i].seconds);
    if (!std::isnan(rows[i].seconds)) {
      BOOST_TEST(rows[i].seconds == parx::price(shape, rows[i].name));
    }
    if (rows[i].name == algorithm::ring) BOOST_TEST(rows[i].why == "PARX_ALGO:1 says so");
    if (rows[i].name == algorithm::doubling) {
      BOOST_TEST(rows[i].why == "needs a power of two of ranks");
    }
  }
  BOOST_TEST(chosen == 1u);
  BOOST_TEST(rows[0].why == "cheapest");
  BOOST_TEST(std::isnan(rows[4].seconds));
  const std::string text = parx::explain_text(shape, rows);
  BOOST_TEST(text.find("all_gather of 600 bytes on 6 ranks\n") == 0u, text);
  BOOST_TEST(text.find("* ring") != std::string::npos, text);
}
