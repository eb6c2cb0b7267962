#include <parx/train/run_plan.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <messages.hpp>
#include <parx/train/evaluation.hpp>
#include <parx/train/meter.hpp>
#include <parx/train/state.hpp>

namespace train = parx::train;

BOOST_AUTO_TEST_CASE(steps_and_epochs_are_counted_as_hugging_faces_trainer_counts_them) {
  // The labs' run: 10 000 rows, 2 ranks of 16 a batch, 3 epochs.
  const auto lab =
      train::make_plan({.num_train_epochs = 3, .warmup_ratio = 0.1}, 10'000, 16, 2, 313);
  BOOST_TEST(lab.steps == 939u);
  BOOST_TEST(lab.warmup_steps == 94u);
  BOOST_TEST(lab.global_batch() == 32u);
  // What is left of an epoch makes a step of its own.
  const auto uneven =
      train::make_plan({.num_train_epochs = 2, .gradient_accumulation_steps = 4}, 100, 10, 1, 10);
  BOOST_TEST(uneven.steps_per_epoch == 3u);
  BOOST_TEST(uneven.steps == 6u);
  const auto part = train::make_plan({.num_train_epochs = 0.5}, 100, 10, 1, 10);
  BOOST_TEST(part.steps == 5u);
  const auto counted = train::make_plan({.num_train_epochs = 3, .max_steps = 25}, 100, 10, 1, 10);
  BOOST_TEST(counted.steps == 25u);
  BOOST_TEST(counted.epochs == 2.5);  // not the 3 that it begins
  BOOST_CHECK_THROW((void)train::make_plan({}, 3, 10, 4, 0), parx::usage_error);
}

BOOST_AUTO_TEST_CASE(a_run_that_goes_on_with_other_batches_makes_its_epochs_full) {
  // 64 samples; the first run had batches of 16, this one has 8 or 48.
  const train::trainer_options options{.num_train_epochs = 4, .warmup_ratio = 0.1};
  const auto steps = [&](std::size_t batch, std::uint64_t step, double epoch) {
    const auto plan = train::make_plan(options, 64, batch, 1, (64 + batch - 1) / batch);
    return train::continued(plan, options, step, epoch).steps;
  };
  BOOST_TEST(steps(8, 12, 3) == 12u + 8);
  BOOST_TEST(steps(8, 5, 1.25) == 5u + 6 + 16);
  BOOST_TEST(steps(48, 5, 1.25) == 5u + 1 + 4);
  BOOST_TEST(steps(48, 4, 1) == 4u + 6);
  BOOST_TEST(steps(8, 16, 4) == 16u);
  BOOST_TEST(steps(8, 20, 5) == 20u);
  const train::trainer_options by_steps{.max_steps = 9};
  const auto plan = train::make_plan(by_steps, 64, 8, 1, 8);
  BOOST_TEST(train::continued(plan, by_steps, 4, 1).steps == 9u);
}

BOOST_AUTO_TEST_CASE(epochs_and_rates_are_finite_numbers) {
  for (const double wrong :
       {0.0, -1.0, 1e300, std::numeric_limits<double>::infinity(), double{NAN}}) {
    BOOST_CHECK_THROW(train::validate({.num_train_epochs = wrong}), parx::usage_error);
    BOOST_CHECK_NO_THROW(train::validate({.num_train_epochs = wrong, .max_steps = 1}));
  }
  for (const double wrong : {-1.0, std::numeric_limits<double>::infinity(), double{NAN}})
    BOOST_CHECK_THROW(train::validate({.learning_rate = wrong}), parx::usage_error);
}

BOOST_AUTO_TEST_CASE(the_rate_rises_and_falls_as_the_options_say) {
  const train::trainer_options options{.max_steps = 10, .warmup_steps = 2};
  const auto plan = train::make_plan(options, 100, 10, 1, 10);
  const std::vector<double> expected{0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125};
  for (std::size_t step = 0; step < expected.size(); ++step) {
    BOOST_TEST(train::learning_rate_at(options, plan, 1, step) == expected[step], "step " << step);
  }
  const train::trainer_options own{.max_steps = 10, .lr_schedule = [](std::uint64_t step) {
                                     return 0.1 * static_cast<double>(step);
                                   }};
  BOOST_TEST(train::learning_rate_at(own, plan, 1, 3) == 0.1 * 3);
  BOOST_TEST((train::is_due(train::strategy::steps, 5, 10, false) &&
              !train::is_due(train::strategy::steps, 5, 11, true)));
  BOOST_TEST((train::is_due(train::strategy::epoch, 5, 11, true) &&
              !train::is_due(train::strategy::no, 1, 1, true)));
}

BOOST_AUTO_TEST_CASE(no_two_steps_and_ranks_share_a_dropout_seed) {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    for (std::uint64_t step = 0; step < 100; ++step) {
      for (int rank = 0; rank < 8; ++rank) seeds.insert(train::step_seed(seed, step, rank));
    }
  }
  BOOST_TEST(seeds.size() == 2400u);
}

BOOST_AUTO_TEST_CASE(a_line_adds_ranks_up_before_it_divides) {
  const std::vector<train::rank_counts> ranks{{.loss_sum = 30,
                                               .loss_count = 10,
                                               .samples = 10,
                                               .tokens = 100,
                                               .steps = 5,
                                               .seconds = 2,
                                               .data = 0.5,
                                               .wait = 0.25,
                                               .communication = 1},
                                              {.loss_sum = 2,
                                               .loss_count = 2,
                                               .samples = 2,
                                               .tokens = 20,
                                               .steps = 5,
                                               .seconds = 2,
                                               .data = 0.1,
                                               .wait = 0.75,
                                               .communication = 1}};
  const auto line = train::summarise(ranks);
  BOOST_TEST(line.at("loss") == 32.0 / 12);
  BOOST_TEST(line.at("samples_per_second") == 6.0);
  BOOST_TEST(line.at("tokens_per_second") == 60.0);
  BOOST_TEST(line.at("step_ms") == 400.0);
  BOOST_TEST(line.at("data_wait_percent") == 15.0);
  BOOST_TEST(line.at("communication_wait_percent") == 25.0);
  BOOST_TEST(line.at("communication_hidden_percent") == 50.0);
  BOOST_TEST(ranks[0].compute() == 1.25);
  // One rank communicates with nobody, whatever its reducer took the time of.
  BOOST_TEST(!train::summarise(std::span(ranks).first(1)).find("communication_hidden_percent"));
  const auto table = train::rank_table(ranks);
  BOOST_TEST(table.at("compute_percent").elements()[0].as<double>() == 62.5);
  BOOST_TEST(table.at("samples_per_second").elements()[1].as<double>() == 1.0);
}

BOOST_AUTO_TEST_CASE(log_lines_have_hugging_faces_format) {
  const train::record line{{"loss", 1.216437}, {"learning_rate", 4.5e-5}, {"epoch", 0.21}};
  BOOST_TEST(train::dict_text(line) == "{'loss': 1.2164, 'learning_rate': 4.5e-05, 'epoch': 0.21}");
  BOOST_TEST(train::dict_text({{"loss", 1875963712.25}}) == "{'loss': 1876000000}");
  BOOST_TEST(train::dict_text({{"loss", 1.28413e29}, {"lr", -1.234567e-30}}) ==
             "{'loss': 1.2841e+29, 'lr': -1.2346e-30}");
  BOOST_TEST(train::dict_text({{"loss", 0}, {"norm", 5e-324}, {"big", 1.7976931348623157e308}}) ==
             "{'loss': 0, 'norm': 5e-324, 'big': 1.7976931348623157e+308}");
  BOOST_TEST(parx::json::dump(train::to_json({{"step", 10}, {"loss", 0.1}, {"bad", NAN}})) ==
             R"({"step": 10, "loss": 0.1, "bad": null})");
}

BOOST_AUTO_TEST_CASE(patience_counts_evaluations_without_a_gain_above_the_threshold) {
  train::trainer_state state;
  const std::vector<double> losses{1.0, 0.5, 0.49, 0.6, 0.48, 0.2};
  const std::vector<std::size_t> counters{0, 0, 1, 2, 3, 0};
  const std::vector<bool> best{true, true, true, false, true, true};
  for (std::size_t i = 0; i < losses.size(); ++i) {
    state.global_step = i;
    BOOST_TEST(train::note_metric(state, losses[i], parx::metric_goal::minimize, 0.1) == best[i],
               "evaluation " << i);
    BOOST_TEST(state.evaluations_without_gain == counters[i], "evaluation " << i);
  }
  BOOST_TEST(!train::note_metric(state, NAN, parx::metric_goal::minimize, 0));
  BOOST_TEST(state.best_global_step == 5u);
}

BOOST_AUTO_TEST_CASE(a_state_comes_back_from_its_file_to_the_last_bit) {
  train::trainer_state state{.global_step = 17,
                             .samples_seen = 1ULL << 60,
                             .epoch = 1.0 / 3,
                             .max_steps = 99,
                             .num_samples = 50,
                             .global_batch = 16,
                             .world_size = 4,
                             .seed = std::numeric_limits<std::uint64_t>::max(),
                             .data_order = "sequential"};
  state.best_metric = 0.1 + 0.2;
  state.best_model_checkpoint = "out/\"quoted\"/checkpoint-5";
  state.loss_since_log = {.sum = 1e-300, .count = 3};
  state.loss_of_run = {.sum = std::numeric_limits<double>::quiet_NaN(), .count = 4};
  state.log_history.push_back({{"loss", 2.0 / 3}, {"step", 10}});
  const auto text = parx::json::dump(train::to_json(state), 2);
  const auto back = train::state_from(parx::json::parse(text));
  BOOST_TEST(parx::json::dump(train::to_json(back), 2) == text);
  BOOST_TEST(back.samples_seen == 1ULL << 60);
  BOOST_TEST(back.epoch == 1.0 / 3);
  BOOST_TEST(back.best_metric.value() == 0.1 + 0.2);
  BOOST_TEST((back.log_history == state.log_history));
  BOOST_CHECK_THROW((void)train::state_from(parx::json::parse("{}")), parx::json::error);
}

BOOST_AUTO_TEST_CASE(a_checkpoint_of_a_long_run_is_no_larger_than_can_be_read) {
  train::trainer_state state;
  for (int step = 1; step <= 250'000; ++step) train::add_line(state, {{"step", step}});
  BOOST_TEST(state.log_history.size() <= 20'000u);
  BOOST_TEST(state.log_history.size() >= 10'000u);
  BOOST_TEST(state.log_history.back().at("step") == 250'000);
  const double first = state.log_history.front().at("step");
  BOOST_TEST(state.log_history.back().at("step") - first + 1 ==
             static_cast<double>(state.log_history.size()));
}

BOOST_AUTO_TEST_CASE(a_run_that_goes_on_in_another_order_of_its_data_is_warned) {
  namespace data = parx::data;
  const auto lengths = std::make_shared<const std::vector<std::uint32_t>>(64, 5U);
  const auto state_with = [&](std::size_t batch) {
    train::trainer_state state{.num_samples = 64, .global_batch = 16};
    state.data_order =
        train::data_order_of({.seed = 3, .group_by_length = {.lengths = lengths, .batch = batch}});
    return state;
  };
  BOOST_TEST(train::resumed(state_with(16), state_with(16), "a").data_order ==
             state_with(16).data_order);
  BOOST_TEST(train::differences(state_with(16), state_with(16), "a").empty());
  const auto said = train::differences(state_with(16), state_with(4), "a");
  BOOST_REQUIRE(said.size() == 1u);
  BOOST_TEST(said[0].find("batch 16, pool 50 and seed 3") != std::string::npos, said[0]);
  BOOST_TEST(said[0].find("batch 4, pool 50 and seed 3") != std::string::npos, said[0]);
  // What was saved without an order, or by a sampler that is not parx's, says nothing.
  BOOST_TEST(
      train::differences({.num_samples = 64, .global_batch = 16}, state_with(4), "a").empty());
  const auto changed = train::differences(
      {.num_samples = 64, .global_batch = 48, .world_size = 3, .seed = 7},
      {.num_samples = 64, .global_batch = 32, .world_size = 2, .seed = 8}, "out/checkpoint-5");
  BOOST_REQUIRE(changed.size() == 2u);
  BOOST_TEST(parx_test::mentions(changed[0], "48 samples a step on 3 ranks", "takes 32 on 2",
                                 "gradient_accumulation_steps = 48 would"),
             changed[0]);
  BOOST_TEST(parx_test::mentions(changed[1], "seed 7, this run has 8"), changed[1]);
  // The seed of a sequential order decides nothing.
  BOOST_TEST(train::data_order_of({.order = data::sample_order::sequential, .seed = 1}) ==
             train::data_order_of({.order = data::sample_order::sequential, .seed = 2}));
}

BOOST_AUTO_TEST_CASE(the_samples_of_a_batch_are_counted_by_its_weights_unless_it_counts_itself) {
  const auto weights = parx::tensor<float>::from({1, 1, 0}, {3});  // the third is padding
  struct weighted {
    parx::tensor<float> weights;
  };
  struct counting : weighted {
    [[nodiscard]] float count() const { return 7; }
  };
  BOOST_TEST(train::samples_in(weighted{weights}) == 2);
  BOOST_TEST(train::samples_in(counting{{weights}}) == 7);
  BOOST_TEST(train::samples_in(std::vector<int>(5)) == 5);  // of another loader
}
