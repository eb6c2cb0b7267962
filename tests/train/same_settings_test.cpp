#include <parx/train/detail/same_settings.hpp>

#include <boost/test/unit_test.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runs.hpp"
#include <messages.hpp>

using namespace runs;

BOOST_AUTO_TEST_CASE(a_rank_that_would_train_otherwise_is_named_before_the_first_step) {
  const std::vector<std::pair<std::string, std::function<void(setup&)>>> cases{
      {"learning rate of the first step = 0.5", [](setup& s) { s.options.learning_rate = 0.5; }},
      {"fp16 = true", [](setup& s) { s.options.fp16 = true; }},
      {"samples of a step on all ranks = 12", [](setup& s) { s.batch_size = 4; }},
      {"seed = 9", [](setup& s) { s.options.seed = 9; }},
      {"logging_steps = 2", [](setup& s) { s.options.logging_steps = 2; }},
      {"output_dir given = true", [](setup& s) { s.options.output_dir = "/nonexistent"; }}};
  for (const auto& each : cases) {
    std::vector<std::string> texts(3);
    parx::run_threads(3, [&](parx::process_group& group) {
      setup s{.options = quiet(3)};
      if (group.rank() == 2) each.second(s);
      texts[static_cast<std::size_t>(group.rank())] =
          parx_test::message_of([&] { (void)run(group, s, [](auto&) {}); });
    });
    for (const std::string& text : texts) {
      BOOST_TEST(parx_test::mentions(text, "rank 2 has other settings than rank 0",
                                     "+ rank 2: " + each.first),
                 each.first << ": " << text);
    }
  }
}

BOOST_AUTO_TEST_CASE(ranks_may_differ_in_what_is_their_own) {
  parx::run_threads(2, [](parx::process_group& group) {
    setup s{.options = quiet(2)};
    s.options.detect_anomaly = group.rank() == 1;
    s.options.tensorboard = group.rank() == 0;
    (void)run(group, s, [](auto&) {});
  });
}
