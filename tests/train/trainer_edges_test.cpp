// What a run does where something is unusual: metrics that tie, gradients that are not numbers, a
// model in evaluation mode, an optimizer of a part of it.
#include <parx/train/trainer.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "runs.hpp"

using namespace runs;

namespace {

train::trainer_options quiet(std::uint64_t steps) {
  return {
      .max_steps = steps, .logging_steps = 1, .disable_progress = true, .log_to_console = false};
}

bool mentions(const std::exception& found, const std::string& words) {
  return std::string(found.what()).find(words) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(of_models_with_equal_metrics_the_first_is_kept_and_loaded) {
  const folder place("ties"), moved("ties_moved");
  setup s{.options = quiet(6)};
  s.options.output_dir = place.path;
  s.options.learning_rate = 0.0;
  s.options.eval_strategy = train::strategy::steps;
  s.options.eval_steps = 2;
  s.options.save_steps = 2;
  s.options.save_total_limit = 1;
  s.options.load_best_model_at_end = true;
  s.options.metric_for_best_model = "accuracy";
  for (const result& each : on_ranks(2, s)) {
    BOOST_TEST(each.state.best_global_step == 2u);
    BOOST_TEST(each.state.best_model_checkpoint == place.path + "/checkpoint-2");
  }
  BOOST_TEST(std::filesystem::exists(place.path + "/checkpoint-2/manifest.json"));
  BOOST_TEST(!std::filesystem::exists(place.path + "/checkpoint-4"));

  // A folder that has another name since: the best model is in it, not where it was.
  std::filesystem::rename(place.path, moved.path);
  s.options.output_dir = moved.path;
  s.options.max_steps = 8;
  s.options.resume_from_checkpoint = train::resume::latest;
  const auto resumed = on_ranks(1, s);
  BOOST_TEST(resumed[0].state.best_model_checkpoint == moved.path + "/checkpoint-2");

  // Without its best model it says so at once.
  std::filesystem::remove_all(moved.path + "/checkpoint-2");
  s.options.max_steps = 10;
  int steps = 0;
  BOOST_CHECK_EXCEPTION(
      on_ranks(1, s,
               [&](auto& trainer) {
                 trainer.add_callbacks({.on_step_end = [&](const auto&) { ++steps; }});
               }),
      parx::error, [](const auto& found) { return mentions(found, "checkpoint-2"); });
  BOOST_TEST(steps == 0);
}
