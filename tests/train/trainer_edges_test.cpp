// What a run does where something is unusual: metrics that tie, gradients that are not numbers, a
// model in evaluation mode, an optimizer of a part of it.
#include <parx/train/trainer.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <parx/core/descriptor.hpp>

#include "runs.hpp"
#include <messages.hpp>

using namespace runs;
using parx_test::mentions;

namespace {

// What `act` writes to the console, bar included.
template <typename Act>
std::string said_during(const std::string& path, Act act) {
  std::fflush(stdout);
  const parx::descriptor out(::dup(STDOUT_FILENO)), err(::dup(STDERR_FILENO));
  const parx::descriptor file(::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600));
  ::dup2(file.get(), STDOUT_FILENO);
  ::dup2(file.get(), STDERR_FILENO);
  act();
  std::fflush(stdout);
  ::dup2(out.get(), STDOUT_FILENO);
  ::dup2(err.get(), STDERR_FILENO);
  std::ifstream text(path);
  return {std::istreambuf_iterator<char>(text), {}};
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_first_model_wins_among_equal_metrics) {
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
    BOOST_TEST(each.state.data_order == "shuffled with seed 5");
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
      parx::error, [](const auto& found) { return mentions(found.what(), "checkpoint-2"); });
  BOOST_TEST(steps == 0);
}

BOOST_AUTO_TEST_CASE(a_gradient_that_is_not_a_number_is_neither_stepped_nor_saved) {
  // The loss is as before: 0 is added to it, with a gradient of 1e30 x 1e30 x 0.
  for (const double max_grad_norm : {1.0, 0.0}) {
    const folder place("gradients");
    std::vector<std::string> texts(2);
    std::array<bool, 2> finite{};
    const auto train_it = [&] {
      parx::run_threads(2, [&](parx::process_group& group) {
        const auto rank = static_cast<std::size_t>(group.rank());
        const auto source = points(40);
        classifier model(0);
        model.initialize(3);
        parx::ddp ddp{model, group};
        parx::optim::sgd opt{ddp.parameters(), {.lr = 0.1}};
        const parx::data::loader loader{
            source, {.batch_size = 4, .sampler = parx::data::distributed_sampler{40, group}}};
        auto options = quiet(6);
        options.output_dir = place.path;
        options.max_grad_norm = max_grad_norm;
        options.save_steps = 1;
        options.save_total_limit = 1;
        options.logging_steps = 100;
        int calls = 0;
        train::trainer trainer{ddp, opt, loader,
                               [&](auto& m, auto& batch) {
                                 const auto logits = m(batch.x);
                                 auto loss = parx::nn::cross_entropy(logits, batch.y);
                                 if (group.rank() == 1 && ++calls == 3) {
                                   loss.sum =
                                       loss.sum + parx::sum(logits * 0.0F * 1e30F * 1e30F);
                                 }
                                 return loss;
                               },
                               options};
        try {
          trainer.train();
        } catch (const parx::error& stopped) {
          texts[rank] = stopped.what();
          finite[rank] = true;
          model.for_each_parameter([&](const std::string&, auto& p) {
            for (const float value : p.value().span()) {
              if (!std::isfinite(value)) finite[rank] = false;
            }
          });
          throw;
        }
      });
    };
    BOOST_CHECK_THROW(train_it(), parx::error);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      BOOST_TEST(texts[rank].find("the norm of the gradients is nan in step 3") !=
                     std::string::npos,
                 texts[rank]);
      BOOST_TEST(finite[rank]);
    }
    BOOST_TEST(std::filesystem::exists(place.path + "/checkpoint-2/manifest.json"));
    BOOST_TEST(!std::filesystem::exists(place.path + "/checkpoint-3"));
  }
}

BOOST_AUTO_TEST_CASE(training_trains_and_an_evaluation_leaves_every_module_in_its_mode) {
  parx::run_threads(1, [&](parx::process_group& group) {
    const auto source = points(32);
    classifier model(0.5);
    model.initialize(3);
    parx::ddp ddp{model, group};
    parx::optim::sgd opt{ddp.parameters(), {.lr = 0.1}};
    const parx::data::loader loader{
        source, {.batch_size = 8, .sampler = parx::data::distributed_sampler{32, group}}};
    std::vector<bool> seen;
    train::trainer trainer{ddp, opt, loader,
                           [&](auto& m, auto& batch) {
                             seen.push_back(model.noise.is_training());
                             return parx::nn::cross_entropy(m(batch.x), batch.y);
                           },
                           quiet(3)};
    trainer.add_evaluation(loader, [&](auto& m, auto& batch) -> train::metrics {
      BOOST_TEST(!model.noise.is_training());
      return {{"loss", parx::nn::cross_entropy(m(batch.x), batch.y)}};
    });
    model.eval();
    (void)trainer.evaluate();
    BOOST_TEST(!model.noise.is_training());
    trainer.train();
    BOOST_TEST((seen == std::vector<bool>{true, true, true}));
    BOOST_TEST(model.is_training());
    model.first.eval();  // a layer that is held still stays so
    (void)trainer.evaluate();
    BOOST_TEST(model.is_training());
    BOOST_TEST(model.noise.is_training());
    BOOST_TEST(!model.first.is_training());
  });
}

namespace {

struct normalised : parx::nn::module<normalised> {
  parx::nn::linear<> first{2, 16};
  parx::nn::batch_norm<> norm{16};
  parx::nn::linear<> second{16, 4};

  parx::variable<float> forward(const parx::variable<float>& x) {
    return second(parx::relu(norm(first(x))));
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("first", first);
    visit("norm", norm);
    visit("second", second);
  }
};

struct statistics {
  std::vector<float> values;  ///< of the buffers, after training
  std::vector<double> eval_losses;
};
/// On two ranks.
std::array<statistics, 2> train_normalised(const train::trainer_options& options) {
  std::array<statistics, 2> found;
  const auto source = points(40);
  parx::run_threads(2, [&](parx::process_group& group) {
    normalised model;
    model.initialize(3);
    parx::ddp ddp{model, group};
    parx::optim::sgd opt{ddp.parameters(), {.lr = 0.1}};
    const parx::data::loader loader{
        source, {.batch_size = 5, .sampler = parx::data::distributed_sampler{40, group}}};
    train::trainer trainer{
        ddp, opt, loader,
        [](auto& m, auto& batch) { return parx::nn::cross_entropy(m(batch.x), batch.y); }, options};
    trainer.add_evaluation(loader, [](auto& m, auto& batch) -> train::metrics {
      return {{"loss", parx::nn::cross_entropy(m(batch.x), batch.y)}};
    });
    trainer.train();
    statistics& mine = found[static_cast<std::size_t>(group.rank())];
    mine.eval_losses = curve(trainer.state(), "eval_loss");
    model.for_each_buffer([&](const std::string&, auto& buffer) {
      for (const auto value : buffer.value()) mine.values.push_back(static_cast<float>(value));
    });
  });
  return found;
}

}  // namespace

// A batch norm that is not synchronised tracks the samples of its own rank.
BOOST_AUTO_TEST_CASE(ranks_evaluate_and_end_with_one_model_and_a_resumed_run_alike) {
  const folder place("statistics");
  train::trainer_options options = quiet(8);
  options.output_dir = place.path;
  options.eval_strategy = train::strategy::steps;
  options.eval_steps = 2;
  options.save_steps = 3;
  const auto whole = train_normalised(options);
  BOOST_TEST(whole[0].eval_losses.size() == 4u);
  BOOST_TEST((whole[0].values == whole[1].values));
  for (const int later : {6, 8}) {
    std::filesystem::remove_all(fmt::format("{}/checkpoint-{}", place.path, later));
  }
  options.resume_from_checkpoint = train::resume::latest;
  const auto resumed = train_normalised(options);
  for (const statistics& each : resumed) {
    BOOST_TEST((each.values == whole[0].values));
    BOOST_TEST((each.eval_losses == whole[0].eval_losses));
  }
}

BOOST_AUTO_TEST_CASE(an_optimizer_of_a_part_of_the_model_trains_that_part) {
  const auto source = points(32);
  std::array<bool, 2> right{};  // by rank: Boost.Test is for one thread
  parx::run_threads(2, [&](parx::process_group& group) {
    classifier model(0);
    model.initialize(3);
    parx::ddp ddp{model, group};
    parx::optim::sgd opt{model.second.parameters(), {.lr = 0.1}};
    const parx::data::loader loader{
        source, {.batch_size = 4, .sampler = parx::data::distributed_sampler{32, group}}};
    train::trainer trainer{
        ddp, opt, loader,
        [](auto& m, auto& batch) { return parx::nn::cross_entropy(m(batch.x), batch.y); },
        quiet(5)};
    const float first = model.first.weight().value().data()[0];
    const float second = model.second.weight().value().data()[0];
    trainer.train();
    right[static_cast<std::size_t>(group.rank())] =
        trainer.state().global_step == 5 && model.first.weight().value().data()[0] == first &&
        model.second.weight().value().data()[0] != second;
  });
  BOOST_TEST(right[0]);
  BOOST_TEST(right[1]);
}

BOOST_AUTO_TEST_CASE(the_last_micro_batches_of_an_epoch_make_a_step_of_their_own) {
  // 50 samples are 7 batches of 8 at most: steps of 2, 2, 2 and 1.
  setup s{.options = quiet(0)};
  s.options.max_steps = 0;
  s.options.num_train_epochs = 2;
  s.options.gradient_accumulation_steps = 2;
  const auto run = on_ranks(1, s)[0];
  BOOST_TEST(run.state.global_step == 8u);
  BOOST_TEST(run.state.epoch == 2.0);
  std::vector<double> epochs;
  for (const double each : curve(run.state, "epoch")) epochs.push_back(each);
  BOOST_TEST_REQUIRE(epochs.size() >= 8u);
  BOOST_TEST(epochs[3] == 1.0);
  BOOST_TEST(epochs[4] == 1.32);  // 16 of 50 samples
}

BOOST_AUTO_TEST_CASE(groups_with_rates_of_their_own_keep_them_in_proportion) {
  const auto source = points(32);
  parx::run_threads(1, [&](parx::process_group& group) {
    classifier model(0);
    model.initialize(3);
    parx::ddp ddp{model, group};
    parx::optim::adamw opt{{{model.first.parameters(), {.lr = 1e-5}},
                            {model.second.parameters(), {.lr = 1e-2}}}};
    const parx::data::loader loader{
        source, {.batch_size = 8, .sampler = parx::data::distributed_sampler{32, group}}};
    const auto loss = [](auto& m, auto& batch) {
      return parx::nn::cross_entropy(m(batch.x), batch.y);
    };
    auto options = quiet(4);
    options.learning_rate = 1e-3;
    BOOST_CHECK_EXCEPTION((train::trainer{ddp, opt, loader, loss, options}), parx::usage_error,
                          [](const auto& found) { return mentions(found.what(), "1e-05, 0.01"); });
    options.learning_rate.reset();
    train::trainer trainer{ddp, opt, loader, loss, options};
    std::vector<double> body, head;
    trainer.add_callbacks({.on_step_end = [&](const auto&) {
      body.push_back(opt.options(0).lr);
      head.push_back(opt.options(1).lr);
    }});
    trainer.train();
    for (std::size_t step = 0; step < 4; ++step) {  // linear to 0
      const double part = 1 - static_cast<double>(step) / 4;
      BOOST_TEST(body[step] == 1e-5 * part, boost::test_tools::tolerance(1e-12));
      BOOST_TEST(head[step] == 1e-2 * part, boost::test_tools::tolerance(1e-12));
    }
    BOOST_TEST(curve(trainer.state(), "learning_rate").front() == 1e-2);
  });
}

BOOST_AUTO_TEST_CASE(when_on_save_is_called_the_checkpoint_is_on_the_disk) {
  const folder place("on_save");
  setup s{.options = quiet(12)};
  s.options.output_dir = place.path;
  s.options.save_steps = 1;
  std::atomic<int> whole{0};
  parx::run_threads(2, [&](parx::process_group& group) {
    run(group, s, [&](auto& trainer) {
      if (group.rank() == 0) return;  // one rank is enough for all to wait
      trainer.add_callbacks({.on_save = [&](const train::trainer_state& state) {
        const auto path = fmt::format("{}/checkpoint-{}", place.path, state.global_step);
        whole += parx::saved_checkpoint::open(path).step() == state.global_step ? 1 : 0;
      }});
    });
  });
  BOOST_TEST(whole == 12);
}

BOOST_AUTO_TEST_CASE(options_that_compare_evaluations_need_an_evaluation) {
  const folder place("none_added");
  parx::run_threads(1, [&](parx::process_group& group) {
    const auto source = points(16);
    classifier model(0);
    parx::ddp ddp{model, group};
    parx::optim::sgd opt{ddp.parameters()};
    const parx::data::loader loader{
        source, {.batch_size = 8, .sampler = parx::data::distributed_sampler{16, group}}};
    auto options = quiet(2);
    options.eval_strategy = train::strategy::steps;
    options.output_dir = place.path;
    const auto refuses = [&] {
      train::trainer trainer{
          ddp, opt, loader,
          [](auto& m, auto& batch) { return parx::nn::cross_entropy(m(batch.x), batch.y); },
          options};
      BOOST_CHECK_EXCEPTION(trainer.train(), parx::usage_error, [](const auto& found) {
        return mentions(found.what(), "add_evaluation");
      });
    };
    options.early_stopping_patience = 2;
    refuses();
    options.early_stopping_patience = 0;
    options.load_best_model_at_end = true;
    refuses();
  });
}

BOOST_AUTO_TEST_CASE(an_evaluation_of_nothing_is_refused) {
  const auto source = points(16), two = points(2);
  std::array<int, 3> refused{};  // by rank
  parx::run_threads(3, [&](parx::process_group& group) {
    classifier model(0);
    model.initialize(3);
    parx::ddp ddp{model, group};
    parx::optim::sgd opt{ddp.parameters()};
    using parx::data::distributed_sampler;
    const parx::data::loader loader{
        source, {.batch_size = 2, .sampler = distributed_sampler{16, group}}};
    const auto loss = [](auto& m, auto& batch) {
      return parx::nn::cross_entropy(m(batch.x), batch.y, {.row_weights = batch.weights});
    };
    auto options = quiet(2);
    options.eval_strategy = train::strategy::epoch;
    train::trainer trainer{ddp, opt, loader, loss, options};
    const auto refuses = [&](const auto& make, const std::string& words) {
      try {
        const auto nothing = make();
        trainer.add_evaluation(nothing, [&](auto& m, auto& batch) -> train::metrics {
          return {{"loss", loss(m, batch)}};
        });
      } catch (const parx::usage_error& found) {
        refused[static_cast<std::size_t>(group.rank())] += mentions(found.what(), words) ? 1 : 0;
      }
    };
    refuses(
        [&] {
          return parx::data::loader{two,
                                    {.sampler = distributed_sampler{2, group},
                                     .last_batch = parx::data::last_batch::drop}};
        },
        "leaves no batch: this rank has 1 samples, and a batch 32");
    refuses(
        [&] {
          return parx::data::loader{two,
                                    {.sampler = distributed_sampler{
                                         2, group, {.remainder = parx::data::remainder::drop}}}};
        },
        "2 samples for 3 ranks");
  });
  BOOST_TEST((refused == std::array{2, 2, 2}));
}

BOOST_AUTO_TEST_CASE(a_run_beyond_its_last_step_says_so_and_trains_nothing) {
  const folder place("beyond");
  setup s{.options = quiet(4)};
  s.options.output_dir = place.path;
  const auto before = on_ranks(1, s);
  s.options.resume_from_checkpoint = train::resume::latest;
  s.options.max_steps = 2;
  s.options.log_to_console = true;
  s.options.disable_progress = false;  // whose bar would say 4/2
  std::vector<result> after;
  const std::string said = said_during(place.path + "/said", [&] { after = on_ranks(1, s); });
  BOOST_TEST(after[0].parameters == before[0].parameters, boost::test_tools::per_element());
  BOOST_TEST(said.find("Nothing is left to train: the run is at step 4 of 2") != said.npos, said);
  BOOST_TEST(said.find("4/2") == said.npos, said);
  BOOST_TEST(said.find("train metrics") == said.npos, said);
}

BOOST_AUTO_TEST_CASE(a_resume_that_finds_no_checkpoint_says_that_it_starts_anew) {
  const folder place("misspelt");
  setup s{.options = quiet(1)};
  s.options.output_dir = place.path;
  s.options.resume_from_checkpoint = train::resume::latest;
  s.options.log_to_console = true;
  const std::string text = fmt::format("No checkpoint in \"{}\" to resume from", place.path);
  const auto said = [&] { return said_during(place.path + "-said", [&] { on_ranks(1, s); }); };
  BOOST_TEST(mentions(said(), text));
  BOOST_TEST(!mentions(said(), text));
  std::filesystem::remove(place.path + "-said");
}

BOOST_AUTO_TEST_CASE(an_average_of_the_weights_resumes_in_the_same_bits) {
  const folder place("ema");
  const auto source = points(50);
  const auto average_after = [&](std::uint64_t steps, train::resume from) {
    std::vector<float> values;
    parx::run_threads(1, [&](parx::process_group& group) {
      classifier model(0);
      model.initialize(3);
      parx::ddp ddp{model, group};
      parx::optim::adamw opt{ddp.parameters(), {.lr = 0.02}};
      parx::optim::ema average{model.parameters(), {.decay = 0.9}};
      const parx::data::loader loader{
          source, {.batch_size = 8, .sampler = parx::data::distributed_sampler{50, group}}};
      auto options = quiet(8);
      options.output_dir = place.path;
      options.save_steps = 3;
      options.resume_from_checkpoint = from;
      train::trainer trainer{
          ddp, opt, loader,
          [](auto& m, auto& batch) { return parx::nn::cross_entropy(m(batch.x), batch.y); },
          options};
      trainer.add_state("ema", average);
      trainer.add_callbacks({.on_step_end = [&](const train::trainer_state& state) {
        average.update();
        if (state.global_step == steps) trainer.request_stop();
      }});
      trainer.train();
      const auto swapped = average.swap();
      for (const auto& each : model.parameters()) {
        values.insert(values.end(), each.value().begin(), each.value().end());
      }
    });
    return values;
  };
  const auto whole = average_after(8, train::resume::never);
  (void)average_after(4, train::resume::overwrite);
  BOOST_TEST(average_after(8, train::resume::latest) == whole);
}
