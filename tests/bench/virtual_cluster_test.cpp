#include <bench/virtual_cluster.hpp>

#include <boost/test/unit_test.hpp>

#include <bit>
#include <cmath>
#include <ctime>

using bench::link_model;
using bench::simulate;
using bench::simulate_schedules;
using parx::algorithm;
using parx::call_shape;
using parx::operation;

namespace {

// One port a rank, as the formulas have it; no arithmetic.
const link_model plain{.latency = 10e-6, .bandwidth = 1e9, .host_bandwidth = 1e9, .gamma = 0};

double seconds(operation what, algorithm use, int world, std::size_t bytes,
               const link_model& model) {
  return simulate({.what = what, .world = world, .count = bytes}, use, model).seconds;
}

void agree(double simulated, double formula, const char* what, int world) {
  BOOST_TEST(std::abs(simulated / formula - 1) < 0.02,
             what << " on " << world << " ranks: " << simulated * 1e6 << " us, by formula "
                  << formula * 1e6 << " us");
}

double steps(int world) { return std::bit_width(static_cast<unsigned>(world - 1)); }

}  // namespace

// A formula adds latency and bytes; a schedule that streams hides one behind the other. So they
// must agree where either counts alone, and between the sum and the larger of the two where both
// do.

BOOST_AUTO_TEST_CASE(latency_alone_is_the_number_of_steps) {
  const double alpha = plain.latency;
  for (const int w : {2, 3, 8, 13, 64, 100}) {
    const auto n = static_cast<std::size_t>(w);
    agree(seconds(operation::all_reduce, algorithm::ring, w, n, plain), 2 * (w - 1) * alpha, "ring",
          w);
    // A rank of a binomial tree is as deep as it has bits, and none below P has more than this.
    agree(seconds(operation::broadcast, algorithm::tree, w, 1, plain),
          std::floor(std::log2(w)) * alpha, "tree", w);
    agree(seconds(operation::broadcast, algorithm::chain, w, 1, plain), (w - 1) * alpha, "chain",
          w);
    agree(seconds(operation::all_gather, algorithm::bruck, w, n, plain), steps(w) * alpha, "bruck",
          w);
    agree(seconds(operation::all_gather, algorithm::direct, w, n, plain), alpha, "direct", w);
    agree(seconds(operation::barrier, algorithm::dissemination, w, 0, plain), steps(w) * alpha,
          "dissemination", w);
    if (w == 3) continue;  // the one exchange does not wait for the folded rank
    const double fold = std::has_single_bit(n) ? 0 : 1;
    agree(seconds(operation::all_reduce, algorithm::doubling, w, 1, plain),
          (steps(w) + fold) * alpha, "doubling", w);
  }
}

BOOST_AUTO_TEST_CASE(bytes_alone_take_what_the_busiest_rank_sends) {
  const double beta = 1 / plain.bandwidth;
  for (const int w : {2, 4, 8, 12, 64}) {
    const std::size_t n = static_cast<std::size_t>(w) * 100'000'000;
    const double bytes = static_cast<double>(n);
    const double others = bytes * (w - 1) / w;
    agree(seconds(operation::all_reduce, algorithm::ring, w, n, plain), 2 * others * beta, "ring",
          w);
    agree(seconds(operation::all_gather, algorithm::ring, w, n, plain), others * beta, "ring", w);
    agree(seconds(operation::all_to_all, algorithm::pairwise, w, n, plain), others * beta,
          "pairwise", w);
    agree(seconds(operation::broadcast, algorithm::chain, w, n, plain), bytes * beta, "chain", w);
    if (!std::has_single_bit(static_cast<unsigned>(w))) continue;
    agree(seconds(operation::broadcast, algorithm::tree, w, n, plain), steps(w) * bytes * beta,
          "tree", w);
    agree(seconds(operation::all_reduce, algorithm::doubling, w, n, plain), steps(w) * bytes * beta,
          "doubling", w);
    agree(seconds(operation::all_reduce, algorithm::halving, w, n, plain), 2 * others * beta,
          "halving", w);
  }
}

BOOST_AUTO_TEST_CASE(latency_and_bytes_together_lie_between_their_maximum_and_their_sum) {
  for (const auto& entry : parx::catalog()) {
    for (const int w : {4, 7, 16}) {
      const std::size_t n = static_cast<std::size_t>(w) * 10'000;
      call_shape shape{.what = entry.what, .world = w, .count = n};
      if (!can_do(entry, shape)) continue;
      link_model no_latency = plain;
      no_latency.latency = 0;
      link_model no_bytes = plain;
      no_bytes.bandwidth = no_bytes.host_bandwidth = 1e18;
      const double both = simulate(shape, entry.name, plain).seconds;
      const double a = simulate(shape, entry.name, no_bytes).seconds;
      const double b = simulate(shape, entry.name, no_latency).seconds;
      BOOST_TEST_CONTEXT(name_of(entry.what) << " by " << name_of(entry.name) << " on " << w) {
        BOOST_TEST(both >= std::max(a, b) * 0.999);
        BOOST_TEST(both <= (a + b) * 1.001);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_halving_all_reduce_waits_for_every_step) {
  // Lengths differ from step to step, so nothing streams: 2 L alpha + 2 n (P-1)/P beta exactly.
  for (const int w : {2, 4, 16, 64}) {
    const std::size_t n = static_cast<std::size_t>(w) * 10'000;
    const double formula = 2 * steps(w) * plain.latency +
                           2 * static_cast<double>(n) * (w - 1) / w / plain.bandwidth;
    // The two middle steps are of one length: the first all-gather step runs along with the last
    // halving.
    const double hidden = std::min(plain.latency, 10'000 / plain.bandwidth);
    agree(seconds(operation::all_reduce, algorithm::halving, w, n, plain), formula - hidden,
          "halving", w);
  }
}

BOOST_AUTO_TEST_CASE(a_reduction_costs_what_gamma_says) {
  link_model model = plain;
  model.gamma = 20e-9;  // far slower than the network
  const std::size_t n = 8'000'000;
  agree(seconds(operation::all_reduce, algorithm::ring, 8, n, model),
        static_cast<double>(n) / 8 * (7 * model.gamma + 7 / model.bandwidth), "ring", 8);
  agree(seconds(operation::all_reduce, algorithm::doubling, 8, n, model),
        3 * static_cast<double>(n) * model.gamma, "doubling", 8);
}

BOOST_AUTO_TEST_CASE(a_straggler_delays_whoever_needs_it_and_nobody_else) {
  link_model model = plain;
  model.stragglers = {{.rank = 5, .delay = 1.0}};
  const double on_time = seconds(operation::all_reduce, algorithm::ring, 8, 8000, plain);
  const double late = seconds(operation::all_reduce, algorithm::ring, 8, 8000, model);
  BOOST_TEST(late >= 1.0 + on_time / 2);
  BOOST_TEST(late <= 1.0 + on_time * 1.001);
  // In a chain from 0, the ranks before the late one are done long before.
  const auto cast = simulate({.what = operation::broadcast, .world = 8, .count = 8000},
                             algorithm::chain, model);
  for (std::size_t r = 0; r < 8; ++r) BOOST_TEST((cast.rank_seconds[r] >= 1.0) == (r >= 5));
  // Late by less than it would have waited anyway: the last of a chain.
  model.stragglers = {{.rank = 7, .delay = 20e-6}};
  BOOST_TEST(seconds(operation::broadcast, algorithm::chain, 8, 8, model) ==
             seconds(operation::broadcast, algorithm::chain, 8, 8, plain));
}

BOOST_AUTO_TEST_CASE(a_shared_network_card_halves_the_bandwidth) {
  // Ranks 0 and 1 on one host send a block to 2 and 3 on two others.
  const auto pairs = [](int rank) {
    parx::schedule plan;
    if (rank < 2) plan.send(rank + 2, {parx::place::input, 0, 10'000'000});
    else plan.receive(rank - 2, {parx::place::output, 0, 10'000'000});
    return plan;
  };
  link_model apart = plain;
  link_model shared = plain;
  shared.host_of = {0, 0, 1, 2};
  const double alone = simulate_schedules(4, 1, pairs, apart).seconds;
  agree(alone, 10e-3 + plain.latency, "a card each", 4);
  agree(simulate_schedules(4, 1, pairs, shared).seconds, 20e-3 + plain.latency, "a card", 4);
  // The receiving side's card counts as well.
  shared.host_of = {0, 1, 2, 2};
  agree(simulate_schedules(4, 1, pairs, shared).seconds, 20e-3 + plain.latency, "a card", 4);
  // Inside a host there is no card.
  shared.host_of = {0, 0, 0, 0};
  agree(simulate_schedules(4, 1, pairs, shared).seconds,
        10e6 / shared.local_bandwidth + shared.local_latency, "no card", 4);
}

BOOST_AUTO_TEST_CASE(hosts_with_many_ranks_are_better_served_by_the_hierarchical_algorithm) {
  link_model model = plain;
  std::vector<int> host_of;
  for (int r = 0; r < 32; ++r) host_of.push_back(r / 8);
  model.host_of = host_of;
  call_shape shape{
      .what = operation::all_reduce, .world = 32, .count = 1 << 20, .host_of = host_of};
  const double flat = simulate(shape, algorithm::doubling, model).seconds;
  BOOST_TEST(simulate(shape, algorithm::hierarchical, model).seconds < flat / 2);
}

BOOST_AUTO_TEST_CASE(one_rank_that_stands_for_all_gives_the_time_of_all) {
  // A straggler without delay keeps the simulator from taking ranks together.
  link_model each_alone{.stragglers = {{.rank = 0, .delay = 0}}};
  each_alone.message_cost = 1e-6;
  link_model together;
  together.message_cost = 1e-6;
  for (const auto& entry : parx::catalog()) {
    for (const int w : {2, 6, 8, 16}) {
      const call_shape shape{
          .what = entry.what, .world = w, .count = static_cast<std::size_t>(w) * 3000};
      if (!can_do(entry, shape)) continue;
      const auto a = simulate(shape, entry.name, each_alone);
      const auto b = simulate(shape, entry.name, together);
      BOOST_TEST_CONTEXT(name_of(entry.what) << " by " << name_of(entry.name) << " on " << w) {
        BOOST_TEST(a.seconds == b.seconds);
        BOOST_TEST(a.bytes == b.bytes);
        BOOST_TEST(a.messages == b.messages);
      }
      if (entry.name == algorithm::ring || entry.name == algorithm::pairwise) {
        BOOST_TEST(b.events * static_cast<std::size_t>(w) == a.events);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_ring_of_4096_ranks_takes_seconds) {
  const int w = 4096;
  const std::clock_t begin = std::clock();  // of the processor, which other tests may share
  const auto result =
      simulate({.what = operation::all_reduce, .world = w, .count = w, .element_bytes = 4},
               algorithm::ring, plain);
  agree(result.seconds, 2 * (w - 1) * plain.latency, "ring", w);
  BOOST_TEST(result.messages == 2u * 4095 * 4096);
  const double took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  BOOST_TEST_MESSAGE(took << " s");
  BOOST_TEST(took < 60);
}

BOOST_AUTO_TEST_CASE(schedules_that_do_not_fit_together_are_refused) {
  const auto broken = [](int rank) {
    parx::schedule plan;
    if (rank == 0) plan.send(1, {parx::place::input, 0, 4});
    else plan.receive(0, {parx::place::output, 0, 5});
    return plan;
  };
  BOOST_CHECK_THROW((void)simulate_schedules(2, 1, broken), parx::usage_error);
  const auto waiting = [](int rank) {
    parx::schedule plan;
    const auto received = plan.receive(1 - rank, {parx::place::output, 0, 4});
    plan.send(1 - rank, {parx::place::input, 0, 4}, received);
    return plan;
  };
  BOOST_CHECK_THROW((void)simulate_schedules(2, 1, waiting), parx::usage_error);
}
