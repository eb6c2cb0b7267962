// What parx_slurm scale makes of a training's log lines.
#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

#include "tools/parx_slurm/scaling.hpp"
#include <parx/core/error.hpp>


namespace {

using namespace parx::slurm;

/// A point whose every figure is the same.
scale_runs steady(scale_point point, double samples_per_second, double step_ms = 100) {
  return {.point = point,
          .step_ms = {step_ms, step_ms},
          .samples_per_second = {samples_per_second, samples_per_second},
          .communication_percent = {10, 12},
          .samples_of_epoch = 36'000,
          .failure = {}};
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_first_line_of_a_run_is_warm_up) {
  scale_runs runs;
  BOOST_TEST(add_run("{\"step\": 5, \"step_ms\": 900, \"samples_per_second\": 10}\n"
                     "{\"step\": 10, \"step_ms\": 100, \"samples_per_second\": 80, "
                     "\"communication_wait_percent\": 4}\n"
                     "{\"step\": 10, \"eval_loss\": 2}\n"
                     "{\"step\": 15, \"step_ms\": 120, \"samples_per_second\": 70}\n"
                     "{\"step\": 20, \"step_m",
                     runs) == 2u);
  BOOST_TEST(runs.step_ms == (std::vector<double>{100, 120}));
  BOOST_TEST(runs.samples_per_second == (std::vector<double>{80, 70}));
  BOOST_TEST(runs.communication_percent == (std::vector<double>{4, 0}));
  BOOST_TEST(add_run("{\"step_ms\": 7, \"samples_per_second\": 1}\n", runs) == 1u, "a short run");
  BOOST_TEST(add_run("", runs) == 0u);
}

BOOST_AUTO_TEST_CASE(medians_and_quartiles_are_those_of_the_values) {
  BOOST_TEST(median_of({}) == 0);
  BOOST_TEST(median_of({3}) == 3);
  BOOST_TEST(median_of({4, 1, 2, 3}) == 2.5);
  BOOST_TEST(spread_of({100}) == 0);
  BOOST_TEST(spread_of({90, 100, 110}) == 0.1, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(more_cores_are_taken_while_they_give_enough_of_their_share) {
  const auto one = steady({1, 8, 1}, 302), two = steady({2, 8, 1}, 529),
             four = steady({4, 8, 1}, 771);
  const auto verdict = recommend({one, two, four});
  BOOST_TEST((verdict.take == scale_point{2, 8, 1}));
  BOOST_TEST(
      verdict.text ==
      "take 2 nodes x 8 ranks x 1 thread: 4 nodes x 8 ranks x 1 thread is 1.46 times as fast "
      "for 2.00 times the cores (46 % marginal efficiency; the rule is 70 %)");
  BOOST_TEST((recommend({one, two, steady({4, 8, 1}, 950)}).take == scale_point{4, 8, 1}));
  BOOST_TEST((recommend({one, steady({2, 8, 1}, 250)}).take == scale_point{1, 8, 1}), "slower");
}

BOOST_AUTO_TEST_CASE(of_points_with_as_many_cores_the_fastest_is_taken) {
  const auto verdict =
      recommend({steady({1, 8, 1}, 300), steady({1, 4, 2}, 330), steady({1, 1, 8}, 280)});
  BOOST_TEST((verdict.take == scale_point{1, 4, 2}));
  BOOST_TEST(verdict.text == "take 1 node x 4 ranks x 2 threads: the fastest on 8 cores");
}

BOOST_AUTO_TEST_CASE(a_point_that_failed_has_a_line_that_says_so) {
  auto failed = steady({2, 8, 1}, 0);
  failed.samples_per_second.clear();
  failed.failure = "exit code 1";
  BOOST_TEST(
      scale_table({failed, steady({1, 8, 1}, 300), steady({1, 4, 2}, 150)}, 0.02) ==
      "nodes  ranks  threads  ms/step  spread  samples/s  speed-up  efficiency  waiting  "
      "core-h/epoch    price\n"
      "    1      4        2    100.0     0 %        150      0.50        50 %     11 %       "
      "  0.533   0.0107\n"
      "    1      8        1    100.0     0 %        300      1.00       100 %     11 %       "
      "  0.267  0.00533\n"
      "    2      8        1        -       -          -         -           -        -       "
      "      -        -  failed: exit code 1\n");
  BOOST_TEST(!recommend({failed}).take.has_value());
}

BOOST_AUTO_TEST_CASE(auto_is_every_way_to_fill_the_cores) {
  const auto points = parse_ranks_threads("auto", 6);
  BOOST_TEST((points == std::vector<scale_point>{{1, 1, 6}, {1, 2, 3}, {1, 3, 2}, {1, 6, 1}}));
  BOOST_TEST((parse_ranks_threads("4x2,8", 99) == std::vector<scale_point>{{1, 4, 2}, {1, 8, 1}}));
  for (const char* const wrong : {"", "x", "4x", "0x1", "4x2x1", "a", "-1"}) {
    BOOST_CHECK_THROW(static_cast<void>(parse_ranks_threads(wrong, 8)), parx::usage_error);
  }
}
