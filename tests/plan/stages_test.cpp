// What a plan says of stages and cut layers, against the simulator of schedules and by formula.
#include <parx/plan/stages.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

#include <boost/test/unit_test.hpp>

#include "../messages.hpp"
#include <parx/pipeline/one_f_one_b.hpp>
#include <parx/pipeline/simulate.hpp>
#include <parx/plan/plan.hpp>
#include <parx/plan/table.hpp>

using namespace parx;
using parx_test::mentions;

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20U;

/// Four layers of a matrix of 2^20 elements.
model_shapes four_layers() {
  model_shapes shapes;
  for (const char* unit : {"a", "b", "c", "d"}) {
    shapes.units.emplace_back(unit);
    shapes.parameters.push_back({.path = std::string(unit) + ".weight", .extents = {1024, 1024},
                                 .unit = shapes.units.size() - 1});
  }
  return shapes;
}
/// Links of 1 MiB/s without latency, 4 s of forward and 8 s of backward.
cluster slow(int ranks, int hosts = 1) {
  return {.ranks = ranks, .hosts = hosts, .network = {MiB, 0}, .memory_link = {MiB, 0},
          .flops = 1, .memory_bandwidth = 1e30, .memory_of_host = std::size_t{1} << 40U};
}
constexpr step_work work{.forward_flops = 4, .backward_flops = 8, .activation_bytes = 20 * MiB,
                         .layers = 4, .boundary_bytes = MiB};

planned_step made(const cluster& machine, const planned_layout& layout) {
  return plan_step(four_layers(), machine, work, layout);
}
double bytes_along(const planned_step& step, const std::string& axis) {
  for (const planned_traffic& each : step.traffic) {
    if (each.axis == axis) return each.bytes;
  }
  return 0;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_time_of_1f1b_is_that_of_its_simulation) {
  for (const int p : {1, 2, 3, 4, 6}) {
    for (const int m : {1, 2, 3, 4, 8, 11}) {
      const auto table = schedules::one_f_one_b({.ranks = p, .microbatches = m});
      for (const double hop : {0.0, 0.25, 1.5}) {
        const double simulated =
            simulate(table, {.f = 1, .b = 2, .hop = hop}).makespan();
        BOOST_TEST(one_f_one_b_seconds(p, m, 1, 2, hop) == simulated, p << " " << m << " " << hop);
      }
      BOOST_TEST(one_f_one_b_seconds(p, m, 1, 2) == 3 * (m + p - 1));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rank_has_its_part_of_the_heaviest_stage) {
  for (const auto& [pp, tp] : {std::pair{1, 2}, {2, 1}, {2, 2}, {4, 2}}) {
    const auto step = made(slow(8), {{.pp = pp, .tp = tp}});
    const auto parts = static_cast<std::size_t>(pp * tp);
    BOOST_TEST(step.memory.values == 16 * MiB / parts);
    BOOST_TEST(step.memory.gradients == 16 * MiB / parts);
    BOOST_TEST(step.memory.optimizer == 32 * MiB / parts);
  }
  // Three stages of four layers: one of them has two. Vectors are whole.
  model_shapes shapes = four_layers();
  for (planned_parameter& each : shapes.parameters) each.extents = {1024};
  const auto step = plan_step(shapes, slow(6), work, {{.pp = 3, .tp = 2}});
  BOOST_TEST(step.memory.values == 2u * 4096);
  // What goes between layers is whole on all ranks that cut them, the rest of 16 MiB is not; a
  // stage of one layer keeps that of as many micro-batches as there are stages.
  BOOST_TEST(made(slow(8), {{.pp = 4, .tp = 2}}).memory.activations ==
             4 * (4 * MiB + 16 * MiB / 2) / 4);
}

BOOST_AUTO_TEST_CASE(traffic_along_each_axis_follows_the_formulas) {
  // 2 x 2 x 2 ranks: 4 micro-batches, of 1 MiB between two layers.
  const auto cube = made(slow(8), {{.pp = 2, .tp = 2}});
  BOOST_TEST(bytes_along(cube, "pp") == 4.0 * MiB);
  // Two layers, two all-reduces each way of 2 (t - 1) / t.
  BOOST_TEST(bytes_along(cube, "tp") == 4.0 * 2 * 2 * 2 * MiB);
  BOOST_TEST(bytes_along(cube, "dp") == 4.0 * MiB);  // 2 (n - 1) / n of 4 MiB
  // Inner stages send both ways.
  BOOST_TEST(bytes_along(made(slow(4), {{.pp = 4}}), "pp") == 2 * 4.0 * MiB);
  BOOST_TEST(bytes_along(made(slow(4), {{.pp = 4}}), "dp") == 0);
}

BOOST_AUTO_TEST_CASE(time_is_that_of_the_schedule_and_of_what_it_waits_for) {
  cluster fast = slow(4);
  fast.memory_link = {1e30, 0};
  // Four stages of 1 s and 2 s, four micro-batches: (4 + 3) 3 s, of which 9 s are idle.
  const auto stages = made(fast, {{.pp = 4}});
  BOOST_TEST(stages.compute == 12);
  BOOST_TEST(stages.bubble == 9);
  BOOST_TEST(stages.seconds == 21);
  const auto both = made(fast, {{.pp = 2, .tp = 2}});
  BOOST_TEST(both.seconds == 3 * (4 + 1));
  // A layer cut in two: 4 micro-batches, of which each sends 2 MiB a layer and way at 1 MiB/s.
  const auto cut = made(slow(2), {{.tp = 2}});
  BOOST_TEST(cut.seconds == 12 + 2 * 2 * (4 * 2.0));
  // Lines along an axis share a host's link to others.
  BOOST_TEST(link_along(slow(8, 2), 1, 4).bytes_per_second == 1.0 * MiB);
  BOOST_TEST(link_along(slow(8, 2), 4, 2).bytes_per_second == MiB / 4.0);
  BOOST_TEST(link_along(slow(8, 2), 2, 4).bytes_per_second == MiB / 2.0);
}

BOOST_AUTO_TEST_CASE(a_plan_lists_stages_and_cut_layers_fastest_first_and_says_why) {
  const auto names = [](const training_plan& found) {
    std::vector<std::string> all;
    for (const planned_step& each : found.steps) all.push_back(to_string(each.layout.how));
    return all;
  };
  // 64 MiB of state: no rank of 4 has that, but a quarter fits everywhere.
  cluster small = slow(4, 4);
  small.memory_of_host = 60 * MiB;
  const training_plan found = plan(four_layers(), small, work);
  BOOST_TEST(found.steps.front().fits);
  const auto& last = found.steps.back();
  BOOST_TEST(to_string(last.layout.how) == "ddp");
  BOOST_TEST(!last.fits);
  const std::string text = to_text(found);
  BOOST_TEST(mentions(text, "pp=4,microbatches=4"), text);
  BOOST_TEST(mentions(text, "in the bubble of 4 stages"), text);
  const auto all = names(plan(four_layers(), slow(8, 2), work));
  for (const char* name : {"pp=2,dp=2,tp=2,microbatches=4", "dp=4,tp=2", "pp=4,tp=2,microbatches=8",
                           "pp=2,dp=4,microbatches=2", "dp=2,tp=4"}) {
    BOOST_TEST((std::find(all.begin(), all.end(), name) != all.end()), name);
  }
  BOOST_TEST((std::find(all.begin(), all.end(), "tp=8") == all.end()));  // over two hosts
}

BOOST_AUTO_TEST_CASE(layouts_that_cannot_be_planned_are_refused) {
  const auto refused = [](const planned_layout& layout, const step_work& of, const char* why) {
    BOOST_CHECK_EXCEPTION((void)plan_step(four_layers(), slow(8), of, layout), usage_error,
                          [&](const usage_error& wrong) { return mentions(wrong.what(), why); });
  };
  refused({{.pp = 3}}, work, "8 ranks are not 3 stages x 1 parts");
  refused({{.pp = 8}}, work, "8 stages of 4 layers");
  refused({{.tp = 2}}, {.forward_flops = 1, .backward_flops = 2},
          "give step_work::layers");
}
