#include <parx/train/trainer.hpp>

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "runs.hpp"
#include <messages.hpp>

#include <parx/ddp/raw.hpp>

using namespace runs;

BOOST_AUTO_TEST_CASE(the_trainer_does_what_a_loop_by_hand_does) {
  // The oracle: one process, whole global batches, PyTorch's order of calls.
  const auto source = points(50);
  classifier model(0);
  model.initialize(3);
  parx::optim::adamw opt{model.parameters(), {.lr = 0.02}};
  const parx::data::loader loader{
      source,
      {.batch_size = 24, .sampler = parx::data::distributed_sampler{50, 0, 1, {.seed = 5}}}};
  std::vector<double> losses, norms;
  for (std::uint64_t epoch = 0; losses.size() < 10; ++epoch) {
    for (auto& batch : loader.epoch(epoch)) {
      if (losses.size() == 10) break;
      const auto step = static_cast<double>(losses.size());
      opt.options().lr = 0.03 * (step < 2 ? (step + 1) / 2 : 1 - (step - 2) / 8);
      const auto loss =
          parx::nn::cross_entropy(model(batch.x), batch.y, {.row_weights = batch.weights});
      loss.backward();
      norms.push_back(parx::optim::clip_grad_norm(model.parameters(), 0.5));
      opt.step();
      losses.push_back(static_cast<double>(loss.mean()));
    }
  }
  for (const int world : {1, 2, 3, 4}) {
    for (const std::size_t accumulation : {1U, 2U}) {
      setup s{.batch_size = 24 / static_cast<std::size_t>(world) / accumulation,
              .options = quiet(10)};
      s.options.gradient_accumulation_steps = accumulation;
      s.options.learning_rate = 0.03;
      s.options.warmup_ratio = 0.2;
      s.options.max_grad_norm = 0.5;
      const auto results = on_ranks(world, s);
      const auto& first = results.front().parameters;
      for (const result& each : results) {
        const auto found = curve(each.state, "loss"), found_norms = curve(each.state, "grad_norm");
        BOOST_REQUIRE(found.size() == losses.size());
        for (std::size_t i = 0; i < losses.size(); ++i) {
          BOOST_TEST(std::abs(found[i] - losses[i]) < 1e-5, "world " << world << ", step " << i);
          BOOST_TEST(std::abs(found_norms[i] - norms[i]) < 1e-4,
                     "world " << world << ", step " << i);
        }
        BOOST_TEST(each.state.epoch == 3 + 24 / 50.0);
        BOOST_TEST((each.parameters == first));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_run_that_resumes_in_the_middle_of_an_epoch_ends_in_the_same_bits) {
  for (const int world : {1, 2}) {
    // 50 samples in batches of 8 a rank, two batches a step: epochs end in the middle of steps.
    setup s{.dropout = 0.3, .options = quiet(20)};
    s.options.gradient_accumulation_steps = 2;
    s.options.logging_steps = 3;
    s.options.warmup_steps = 4;
    const folder whole_folder(fmt::format("whole{}", world)),
        cut_folder(fmt::format("cut{}", world));
    s.options.output_dir = whole_folder.path;
    s.options.save_steps = 5;
    const auto whole = on_ranks(world, s);

    s.options.output_dir = cut_folder.path;
    const auto killed = [&] {
      on_ranks(world, s, [](auto& trainer) {
        trainer.add_callbacks({.on_step_end = [](const train::trainer_state& state) {
          if (state.global_step == 13) throw std::runtime_error("killed");
        }});
      });
    };
    BOOST_CHECK_THROW(killed(), std::runtime_error);
    s.options.resume_from_checkpoint = train::resume::latest;
    std::set<std::uint64_t> first_steps;
    const auto resumed = on_ranks(world, s, [&](auto& trainer) {
      trainer.add_callbacks({.on_train_begin = [&](const train::trainer_state& state) {
        if (world == 1) first_steps.insert(state.global_step);
      }});
    });
    if (world == 1) BOOST_TEST((first_steps == std::set<std::uint64_t>{10}));
    for (const result& each : resumed) {
      BOOST_TEST(each.parameters == whole[0].parameters, "world " << world);
      BOOST_TEST(each.state.global_step == 20u);
      BOOST_TEST(each.state.epoch == whole[0].state.epoch);
      BOOST_TEST(curve(each.state, "loss") == curve(whole[0].state, "loss"));
      BOOST_TEST(curve(each.state, "grad_norm") == curve(whole[0].state, "grad_norm"));
      BOOST_TEST(curve(each.state, "train_loss") == curve(whole[0].state, "train_loss"));
    }
    // The files tell the same story, each step once.
    const auto whole_lines = lines_of(whole_folder.path + "/train.csv"),
               lines = lines_of(cut_folder.path + "/train.csv");
    BOOST_REQUIRE(lines.size() == whole_lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      BOOST_TEST(lines[i].substr(0, lines[i].find(',')) ==
                 whole_lines[i].substr(0, whole_lines[i].find(',')));
    }
    // Their clock goes on, too: it does not begin again with the resumed run.
    double before = 0;
    for (std::size_t i = 1; i < lines.size(); ++i) {
      const double seconds = std::stod(lines[i].substr(lines[i].find(',') + 1));
      BOOST_TEST(seconds > before, "line " << i << ": " << seconds << " after " << before);
      before = seconds;
    }
  }
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_with_another_number_of_ranks_over_the_same_global_batches) {
  const folder place("worlds");
  setup s{.batch_size = 4, .options = quiet(12)};
  s.options.learning_rate = 0.02;
  const auto whole = on_ranks(4, s);
  s.options.output_dir = place.path;
  s.options.save_steps = 5;
  const auto stop = [&] {
    on_ranks(4, s, [](auto& trainer) {
      trainer.add_callbacks({.on_step_end = [](const train::trainer_state& state) {
        if (state.global_step == 6) throw std::runtime_error("killed");
      }});
    });
  };
  BOOST_CHECK_THROW(stop(), std::runtime_error);
  s.options.resume_from_checkpoint = train::resume::latest;
  s.batch_size = 8;
  const auto resumed = on_ranks(2, s);
  const auto expected = curve(whole[0].state, "loss"), found = curve(resumed[0].state, "loss");
  BOOST_REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    BOOST_TEST(std::abs(found[i] - expected[i]) < 1e-5);
  BOOST_TEST((resumed[0].parameters == resumed[1].parameters));
}

BOOST_AUTO_TEST_CASE(a_run_that_goes_on_with_other_batches_ends_with_its_epochs) {
  const folder place("batches");
  setup s{.samples = 48, .batch_size = 4, .options = quiet(0)};
  s.options.max_steps = 0;
  s.options.num_train_epochs = 1;
  s.options.output_dir = place.path;
  s.options.save_strategy = train::strategy::epoch;
  (void)on_ranks(1, s);
  s.options.num_train_epochs = 3;
  s.options.resume_from_checkpoint = train::resume::latest;
  s.batch_size = 16;
  const parx_test::captured_log warnings;
  const auto resumed = on_ranks(3, s);
  BOOST_TEST(resumed[0].state.epoch == 3);
  BOOST_TEST(resumed[0].state.global_step == 12u + 2);
  BOOST_TEST(warnings.lines().size() == 1u);  // by rank 0 alone
}

BOOST_AUTO_TEST_CASE(early_stopping_and_the_best_model_are_the_same_on_all_ranks) {
  const folder place("best");
  setup s{.options = quiet(60)};
  s.options.output_dir = place.path;
  s.options.learning_rate = 0.5;  // so high that the loss does not only fall
  s.options.max_grad_norm = 0;
  s.options.eval_strategy = train::strategy::steps;
  s.options.eval_steps = 2;
  s.options.save_steps = 50;
  s.options.save_total_limit = 1;
  s.options.early_stopping_patience = 3;
  s.options.load_best_model_at_end = true;
  s.options.metric_for_best_model = "accuracy";
  const auto results = on_ranks(3, s);
  const auto accuracies = curve(results[0].state, "eval_accuracy");
  const auto best = std::max_element(accuracies.begin(), accuracies.end());
  BOOST_TEST(results[0].state.global_step < 60u);
  BOOST_TEST((accuracies.end() - best) == 4);
  BOOST_TEST(results[0].state.best_metric.value_or(0) == *best);
  BOOST_TEST(results[0].state.best_global_step ==
             static_cast<std::uint64_t>(2 * (best - accuracies.begin()) + 2));
  for (const result& each : results) {
    BOOST_TEST(each.state.global_step == results[0].state.global_step);
    BOOST_TEST(each.parameters == results[0].parameters);
  }
  // The model at the end is the best one: it has that accuracy on the same points.
  const auto saved = parx::saved_checkpoint::open(results[0].state.best_model_checkpoint);
  classifier model(0);
  model.initialize(0);
  saved.load("model", model);
  std::vector<float> values;
  model.for_each_parameter([&](const std::string&, auto& p) {
    values.insert(values.end(), p.value().data(), p.value().data() + p.value().size());
  });
  BOOST_TEST(values == results[0].parameters);
  std::size_t kept = 0;
  for (const auto& entry : std::filesystem::directory_iterator(place.path)) {
    kept += entry.path().filename().string().starts_with("checkpoint-") ? 1U : 0U;
  }
  BOOST_TEST(kept <= 2u);  // the best one and the last one
}

BOOST_AUTO_TEST_CASE(an_evaluation_counts_every_sample_once_on_any_number_of_ranks) {
  std::vector<double> losses;
  for (const int world : {1, 3, 4}) {
    setup s{.options = quiet(1)};
    s.options.eval_strategy = train::strategy::epoch;
    s.options.max_steps = 7;
    s.batch_size = 100;  // one step an epoch, over all samples
    s.options.learning_rate = 0;
    const auto results = on_ranks(world, s);
    losses.push_back(curve(results[0].state, "eval_loss").front());
    BOOST_TEST(curve(results[0].state, "eval_loss").size() == 7u);
    BOOST_TEST(curve(results[0].state, "loss").front() == losses.back(),
               boost::test_tools::tolerance(1e-6));
  }
  BOOST_TEST(losses[1] == losses[0], boost::test_tools::tolerance(1e-6));
  BOOST_TEST(losses[2] == losses[0], boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(a_loss_that_is_not_a_number_stops_all_ranks_and_names_rank_and_step) {
  std::vector<std::string> texts(2);
  const auto source = points(40);
  const auto train_it = [&] {
    parx::run_threads(2, [&](parx::process_group& group) {
      classifier model(0);
      parx::ddp ddp{model, group};
      parx::optim::sgd opt{ddp.parameters()};
      const parx::data::loader loader{
          source, {.batch_size = 4, .sampler = parx::data::distributed_sampler{40, group}}};
      int calls = 0;
      train::trainer trainer{ddp, opt, loader,
                             [&](auto& m, auto& batch) {
                               auto loss = parx::nn::cross_entropy(m(batch.x), batch.y);
                               if (group.rank() == 1 && ++calls == 3) {
                                 loss.sum = loss.sum * std::numeric_limits<float>::quiet_NaN();
                               }
                               return loss;
                             },
                             quiet(10)};
      try {
        trainer.train();
      } catch (const parx::error& stopped) {
        texts[static_cast<std::size_t>(group.rank())] = stopped.what();
        throw;
      }
    });
  };
  BOOST_CHECK_THROW(train_it(), parx::error);
  for (const std::string& text : texts) {
    BOOST_TEST(text.find("the loss of rank 1 is nan in step 3") != std::string::npos, text);
  }
}

BOOST_AUTO_TEST_CASE(detect_anomaly_names_the_module_that_made_the_first_nan) {
  setup s{.options = quiet(5)};
  s.options.detect_anomaly = true;
  const auto train_it = [&] {
    parx::run_threads(2, [&](parx::process_group& group) {
      classifier model(0);
      model.initialize(0);
      parx::ddp ddp{model, group};
      parx::optim::sgd opt{ddp.parameters()};
      const auto source = points(40);
      const parx::data::loader loader{
          source, {.batch_size = 4, .sampler = parx::data::distributed_sampler{40, group}}};
      train::trainer trainer{
          ddp, opt, loader,
          [](auto& m, auto& batch) { return parx::nn::cross_entropy(m(batch.x), batch.y); },
          s.options};
      trainer.add_callbacks({.on_step_end = [&](const train::trainer_state& state) {
        if (state.global_step == 2 && group.rank() == 1) {
          model.for_each_parameter([](const std::string& name, auto& p) {
            if (name.starts_with("second")) {
              for (float& value : p.value().span()) value = 3e38F;
            }
          });
        }
      }});
      trainer.train();
    });
  };
  BOOST_CHECK_EXCEPTION(train_it(), std::exception, [](const std::exception& found) {
    const std::string text = found.what();
    return text.find("step 3, rank 1") != std::string::npos &&
           text.find("second") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(one_rank_may_ask_all_to_stop) {
  setup s{.options = quiet(100)};
  s.options.logging_steps = 5;
  std::vector<result> results(3);
  parx::run_threads(3, [&](parx::process_group& group) {
    results[static_cast<std::size_t>(group.rank())] = run(group, s, [&](auto& trainer) {
      trainer.add_callbacks({.on_step_end = [&](const train::trainer_state& state) {
        if (group.rank() == 2 && state.global_step == 6) trainer.request_stop();
      }});
    });
  });
  for (const result& each : results) BOOST_TEST(each.state.global_step == 7u);
}

BOOST_AUTO_TEST_CASE(half_precision_trains_and_resumes_with_its_loss_scale) {
  for (const bool fp16 : {false, true}) {
    const folder place(fp16 ? "fp16" : "bf16");
    setup s{.options = quiet(8)};
    s.options.bf16 = !fp16;
    s.options.fp16 = fp16;
    s.options.learning_rate = 0.02;
    const auto exact = on_ranks(2, {.options = [&] {
                                  auto plain = s.options;
                                  plain.bf16 = plain.fp16 = false;
                                  return plain;
                                }()});
    s.options.output_dir = place.path;
    s.options.save_steps = 4;
    const auto whole = on_ranks(2, s);
    const double error =
        std::abs(curve(whole[0].state, "loss").back() - curve(exact[0].state, "loss").back());
    BOOST_TEST(error > 0);  // it really rounds
    BOOST_TEST(error < 0.02);
    std::filesystem::remove_all(place.path + "/checkpoint-8");
    s.options.resume_from_checkpoint = train::resume::latest;
    const auto resumed = on_ranks(2, s);
    BOOST_TEST(resumed[1].parameters == whole[0].parameters);
    BOOST_TEST(curve(whole[0].state, "loss_scale").size() == (fp16 ? 8U : 0U));
  }
}

BOOST_AUTO_TEST_CASE(gradient_checkpointing_reaches_a_model_that_has_it_and_no_other) {
  struct switchable : classifier {
    using classifier::classifier;
    bool recomputes = false;
    void gradient_checkpointing_enable() { recomputes = true; }
  };
  const auto train_it = [](auto model, bool wanted) {
    parx::run_threads(1, [&](parx::process_group& group) {
      const auto source = points(8);
      parx::ddp ddp{model, group};
      parx::optim::sgd opt{ddp.parameters()};
      const parx::data::loader loader{source, {.batch_size = 8}};
      auto options = quiet(1);
      options.gradient_checkpointing = wanted;
      train::trainer trainer{
          ddp, opt, loader,
          [](auto& m, auto& batch) { return parx::nn::cross_entropy(m(batch.x), batch.y); },
          options};
      trainer.train();
    });
    if constexpr (requires { model.recomputes; }) return model.recomputes;
    else return false;
  };
  BOOST_TEST(train_it(switchable(0.1), true));
  BOOST_TEST(!train_it(switchable(0.1), false));
  BOOST_CHECK_EXCEPTION(train_it(classifier(0.1), true), parx::usage_error, [](const auto& error) {
    return std::string(error.what()).find("nn::checkpointed") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(explain_does_the_arithmetic_before_the_run) {
  setup s{.samples = 1000, .options = quiet(1)};
  s.options.gradient_accumulation_steps = 2;
  s.options.num_train_epochs = 3;
  s.options.max_steps = 0;
  s.options.logging_steps = 10;
  std::string text;
  parx::run_threads(4, [&](parx::process_group& group) {
    auto own = s;
    own.options.max_steps = 0;
    (void)run(group, own, [&](auto& trainer) {
      const std::string said = trainer.explain();
      if (group.rank() == 0) text = said;
      trainer.add_callbacks(
          {.on_step_end = [&](const train::trainer_state&) { trainer.request_stop(); }});
    });
  });
  // 2 x 16 + 16 + 16 x 4 + 4 = 116 values; AdamW keeps two more of each.
  for (const char* expected :
       {"4 on one host", "8 samples a rank x 2 accumulated x 4 ranks = 64 samples a step",
        "16 an epoch of 1,000 samples, 48 in all, 3 epochs", "116 in 4 tensors",
        "0.9 KiB optimizer", "all_reduce of", "predicted", "every 10 steps", "no output_dir"}) {
    BOOST_TEST(text.find(expected) != std::string::npos, expected << " is not in\n" << text);
  }
}

BOOST_AUTO_TEST_CASE(hand_written_gradients_train_as_well) {
  // y = 3 x, one weight, squared error: the gradient of the sum is 2 (w x - 3 x) x.
  const std::size_t count = 32;
  auto x = tensor<float>::empty({count});
  auto none = tensor<std::int64_t>::zeros({count});
  parx::random_stream(1, "x").uniform(x, -1.0F, 1.0F);
  const parx::data::tensor_dataset source(x, none);
  std::vector<float> weights(2);
  parx::run_threads(2, [&](parx::process_group& group) {
    std::vector<float> w(1, 0);
    parx::raw_module<float> raw;
    raw.add("w", w);
    parx::ddp ddp{raw, group};
    parx::optim::sgd opt{std::vector<parx::optim::target<float>>{{"w", w, raw.grad(0)}},
                         {.lr = 0.5}};
    const parx::data::loader loader{
        source, {.batch_size = 4, .sampler = parx::data::distributed_sampler{count, group}}};
    train::trainer trainer{ddp, opt, loader,
                           [&](auto&, auto& batch) {
                             parx::nn::tally loss;
                             float gradient = 0;
                             for (std::size_t i = 0; i < batch.x.size(); ++i) {
                               const float error = (w[0] - 3) * batch.x.data()[i];
                               loss += {.sum = static_cast<double>(error * error), .count = 1};
                               gradient += 2 * error * batch.x.data()[i];
                             }
                             auto pass = raw.begin_backward(loss.count);
                             raw.grad(0)[0] = gradient;
                             pass.ready(0);
                             pass.end();
                             return loss;
                           },
                           quiet(40)};
    trainer.train();
    weights[static_cast<std::size_t>(group.rank())] = w[0];
  });
  BOOST_TEST(weights[0] == weights[1]);
  BOOST_TEST(std::abs(weights[0] - 3) < 0.05);
}

BOOST_AUTO_TEST_CASE(options_that_cannot_be_meant_are_refused) {
  const auto refuses = [](train::trainer_options options, const std::string& word) {
    try {
      train::validate(options);
    } catch (const parx::usage_error& refused) {
      return std::string(refused.what()).find(word) != std::string::npos;
    }
    return false;
  };
  BOOST_TEST(refuses({.num_train_epochs = 0}, "num_train_epochs"));
  BOOST_TEST(refuses({.gradient_accumulation_steps = 0}, "gradient_accumulation_steps"));
  BOOST_TEST(refuses({.early_stopping_patience = 2}, "eval_strategy"));
  BOOST_TEST(refuses({.load_best_model_at_end = true}, "load_best_model_at_end"));
  BOOST_TEST(refuses({.warmup_ratio = 2}, "warmup_ratio"));
  BOOST_TEST(refuses({.resume_from_checkpoint = train::resume::latest}, "output_dir"));
}
