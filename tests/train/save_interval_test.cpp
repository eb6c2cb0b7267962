// How often a run saves that decides it by itself.
#include <parx/train/save_interval.hpp>
#include <parx/train/trainer.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include "runs.hpp"

using namespace runs;

namespace {

/// The expected time of a run that works for one second, by Daly's equation 13 without the time of
/// a restart: failures are exponential, and may hit a checkpoint, too.
double expected_time(double interval, double save, double failures) {
  return failures * std::expm1((interval + save) / failures) / interval;
}
/// Its minimum, by trying.
double least_time(double save, double failures) {
  double least = 1e300;
  for (double interval = failures * 1e-5; interval < failures * 3; interval *= 1.002) {
    least = std::min(least, expected_time(interval, save, failures));
  }
  return least;
}

BOOST_AUTO_TEST_CASE(the_interval_wastes_no_more_than_the_best_one) {
  for (const double failures : {600.0, 6 * 3600.0, 30 * 86400.0}) {
    for (const double part : {1e-7, 1e-5, 1e-3, 1e-2, 0.1, 0.5}) {
      const double save = failures * part;
      const double chosen = train::save_interval(save, failures);
      const double waste = expected_time(chosen, save, failures) - 1;
      const double least = least_time(save, failures) - 1;
      BOOST_TEST(waste < least * 1.01, "save " << save << " s, failures " << failures
                                               << " s: waste " << waste << " instead of " << least);
    }
  }
  // A checkpoint that takes longer than failures leave time for.
  BOOST_TEST(train::save_interval(3000, 1000) == 1000);
  BOOST_TEST(train::save_interval(0.5, 6 * 3600.0) == std::sqrt(21600.0),
             boost::test_tools::tolerance(0.01));
}

BOOST_AUTO_TEST_CASE(the_first_checkpoint_is_early_and_decides_about_the_others) {
  using schedule = train::detail::save_schedule;
  schedule when;
  when.begin(100);
  const auto start = schedule::clock::time_point{};
  for (int i = 1; i <= 5; ++i) {
    BOOST_TEST(!when.is_due(99 + static_cast<std::uint64_t>(i)));
    // The first step takes longer.
    when.end_step(100 + static_cast<std::uint64_t>(i), start + std::chrono::seconds(100 + 2 * i));
  }
  BOOST_TEST(when.is_due(105));
  BOOST_TEST(!when.is_decided());
  BOOST_TEST(when.step_seconds() == 2);
  const std::string told = when.decide(2, 0.5, 6 * 3600.0);
  BOOST_TEST(told.find("every 73 steps (146 s)") != told.npos, told);
  when.note_saved(105);
  BOOST_TEST(!when.is_due(177));
  BOOST_TEST(when.is_due(178));
  when.note_saved(150);  // for another reason
  BOOST_TEST(!when.is_due(222));
  BOOST_TEST(when.is_due(223));
}

BOOST_AUTO_TEST_CASE(all_ranks_save_at_the_same_steps) {
  const folder place("save_interval");
  setup s{.options = quiet(40)};
  s.options.output_dir = place.path;
  s.options.save_steps = train::save_steps_auto;
  s.options.mean_hours_between_failures = 1e-6;  // 3.6 ms: as often as the slowest rank can
  const auto results = on_ranks(3, s);
  BOOST_TEST(results.size() == 3U);
  std::set<int> steps;
  for (const auto& each : std::filesystem::directory_iterator(place.path)) {
    const std::string name = each.path().filename().string();
    if (name.starts_with("checkpoint-")) steps.insert(std::stoi(name.substr(11)));
  }
  BOOST_TEST(steps.contains(5));
  BOOST_TEST(steps.contains(40));
  BOOST_TEST(steps.size() >= 3U);
}

}  // namespace
