#include <parx/train/trainer.hpp>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cstddef>
#include <span>
#include <thread>
#include <vector>

#include "runs.hpp"

using namespace runs;

namespace {

// Takes long for the first batch of an epoch, as a data set does that opens its files then.
struct slow_to_begin {
  parx::data::tensor_dataset<> points = runs::points(32);

  [[nodiscard]] std::size_t size() const { return points.size(); }
  [[nodiscard]] auto fetch(std::span<const std::size_t> rows) const {
    if (rows.front() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return points.fetch(rows);
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_line_of_the_console_says_how_late_a_loader_is_that_is_late) {
  const auto said = [](double percent) {
    return train::dict_text(train::detail::console_figures(
        {{"loss", 1}, {"step_ms", 2}, {"data_wait_percent", percent}, {"eta_seconds", 9}}));
  };
  BOOST_TEST(said(38) == "{'loss': 1, 'data_wait_percent': 38}");
  BOOST_TEST(said(1) == "{'loss': 1}");
}

BOOST_AUTO_TEST_CASE(the_wait_for_the_first_batch_counts_as_waiting_for_data) {
  for (const std::size_t workers : {0U, 1U}) {
    parx::run_threads(1, [&](parx::process_group& group) {
      const slow_to_begin source;
      classifier model(0);
      parx::ddp ddp{model, group};
      parx::optim::sgd opt{ddp.parameters()};
      const parx::data::loader loader{
          source,
          {.batch_size = 8,
           .sampler = parx::data::distributed_sampler{
               32, group, {.order = parx::data::sample_order::sequential}},
           .workers = workers}};
      auto options = quiet(4);
      options.logging_steps = 2;
      train::trainer trainer{
          ddp, opt, loader,
          [](auto& m, auto& batch) { return parx::nn::cross_entropy(m(batch.x), batch.y); },
          options};
      trainer.train();
      const auto waits = curve(trainer.state(), "data_wait_percent");
      BOOST_REQUIRE(waits.size() == 2u);
      BOOST_TEST(waits[0] > 50);
      BOOST_TEST(waits[1] < waits[0]);
    });
  }
}
