// A job that is told to end: all ranks stop after the same step, whoever was told, and who resumes
// ends in the bits of a run that was never stopped.
#include <parx/train/trainer.hpp>

#include <boost/test/unit_test.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "launch/processes.hpp"
#include "messages.hpp"
#include "train/runs.hpp"

using namespace runs;
using parx_test::mentions;

namespace {

// 50 samples in batches of 4 on 2 ranks: an epoch is 7 steps; evaluations after every fourth.
setup twenty_steps(const std::string& output_dir) {
  return {.batch_size = 4,
          .dropout = 0.3,
          .options = {.output_dir = output_dir,
                      .max_steps = 20,
                      .logging_steps = 3,
                      .eval_strategy = train::strategy::steps,
                      .eval_steps = 4,
                      .save_steps = 5,
                      .load_best_model_at_end = true,
                      .resume_from_checkpoint = train::resume::latest,
                      .disable_progress = true,
                      .log_to_console = false}};
}

using act = std::function<void(parx::process_group&, std::uint64_t step)>;

// The same run by two processes. `at_step` is called on each rank after each step, `meanwhile` in
// this process.
std::vector<processes::outcome> in_processes(
    const setup& s, const act& at_step,
    const std::function<void(const processes::job&)>& meanwhile = [](const auto&) {}) {
  processes::job all;
  for (int rank = 0; rank < 2; ++rank) {
    all.start(rank, 2, [&](parx::world& group) {
      run(group, s, [&](auto& trainer) {
        trainer.add_callbacks({.on_step_end = [&](const train::trainer_state& state) {
          at_step(group, state.global_step);
        }});
      });
    });
  }
  meanwhile(all);
  return all.wait();
}

std::string last_checkpoint(const std::string& folder) {
  parx::checkpoint_manager found(folder);
  const auto last = found.latest();
  return last ? last->path() : "none";
}

void (*handler_of(int signal))(int) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

volatile sig_atomic_t heard = 0;

}  // namespace

BOOST_AUTO_TEST_CASE(a_signal_to_any_rank_ends_all_and_who_resumes_ends_in_the_same_bits) {
  for (const std::size_t accumulation : {1U, 3U}) {
    const folder whole_place("whole"), place("stopped");
    setup s = twenty_steps(whole_place.path);
    s.options.gradient_accumulation_steps = accumulation;
    s.options.save_steps = 100;
    const auto whole = on_ranks(2, s);

    // Told after step 7, the end of an epoch, it makes one more; the evaluation of step 8 is due.
    s.options.output_dir = place.path;
    const auto ends = in_processes(s, [](auto& group, std::uint64_t step) {
      if (group.rank() == 1 && step == 7) ::raise(SIGTERM);
    });
    for (const auto& each : ends) BOOST_TEST(each.exit_code == parx::stopped_exit_code, each.text);
    const std::string said = fmt::format(
        "stopped by SIGTERM at step 8; checkpoint in {}/checkpoint-8; resume with "
        ".resume_from_checkpoint = resume::latest",
        place.path);
    BOOST_TEST(mentions(ends[0].text, said), ends[0].text);
    BOOST_TEST(ends[1].text == "");
    BOOST_TEST(last_checkpoint(place.path) == place.path + "/checkpoint-8");

    // Another time both are told, at different steps.
    const auto again = in_processes(s, [](auto& group, std::uint64_t step) {
      if (step == (group.rank() == 0 ? 13U : 14U)) ::raise(group.rank() == 0 ? SIGUSR1 : SIGINT);
    });
    for (const auto& each : again) BOOST_TEST(each.exit_code == parx::stopped_exit_code, each.text);
    BOOST_TEST(mentions(again[0].text, "at step 14; "), again[0].text);

    const auto resumed = on_ranks(2, s);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      BOOST_TEST(resumed[rank].parameters == whole[rank].parameters);
      BOOST_TEST(resumed[rank].state.best_global_step == whole[rank].state.best_global_step);
      for (const char* figure : {"eval_loss", "eval_accuracy", "loss", "grad_norm", "epoch"}) {
        BOOST_TEST(curve(resumed[rank].state, figure) == curve(whole[rank].state, figure), figure);
      }
    }
    BOOST_TEST(lines_of(place.path + "/eval.csv").size() ==
               lines_of(whole_place.path + "/eval.csv").size());
  }
}

BOOST_AUTO_TEST_CASE(an_interrupted_evaluation_is_made_after_the_resume) {
  const folder place("evaluation");
  const setup s = twenty_steps(place.path);
  const auto source = points(50);
  const auto figures = [&](parx::process_group& group, std::uint64_t steps, int told_in) {
    classifier model(0);
    model.initialize(3);
    parx::ddp ddp{model, group};
    parx::optim::sgd opt{ddp.parameters(), {.lr = 0.1}};
    const parx::data::distributed_sampler share{50, group};
    const parx::data::loader loader{source, {.batch_size = 4, .sampler = share}};
    train::trainer_options options = s.options;
    options.max_steps = steps;
    train::trainer trainer{
        ddp, opt, loader,
        [](auto& m, auto& batch) { return parx::nn::cross_entropy(m(batch.x), batch.y); }, options};
    int batches = 0;
    trainer.add_evaluation(loader, [&](auto& m, auto& batch) -> train::metrics {
      ++batches;
      if (batches == told_in && group.rank() == 0) ::raise(SIGHUP);
      return {{"loss", parx::nn::cross_entropy(m(batch.x), batch.y)}};
    });
    std::uint64_t evaluated = 0;
    trainer.add_callbacks({.on_evaluate = [&](const auto& state, const auto&) {
      if (evaluated == 0) evaluated = state.global_step;
    }});
    bool stopped = false;
    try {
      trainer.train();
    } catch (const parx::stopped_by_signal& by) {
      stopped = by.signal() == SIGHUP;
    }
    parx::require(stopped == (told_in > 0), "stopped: {}", stopped);
    parx::require(trainer.state().evaluation_is_due == stopped, "wrong state");
    parx::require(evaluated == (stopped ? 0U : 4U), "evaluated first at step {}", evaluated);
    // No rank leaves off alone: the others may need it for their next forward pass.
    parx::require(!stopped || batches == told_in, "{} batches", batches);
    if (stopped) parx::barrier(group);  // the group is as it was
  };
  for (const int told_in : {3, 0}) {
    processes::job all;
    for (int rank = 0; rank < 2; ++rank) {
      all.start(rank, 2, [&](parx::world& group) { figures(group, 6, told_in); });
    }
    for (const auto& each : all.wait()) BOOST_TEST(each.exit_code == 0, each.text);
    BOOST_TEST(last_checkpoint(place.path) ==
               place.path + (told_in > 0 ? "/checkpoint-4" : "/checkpoint-6"));
  }
}

BOOST_AUTO_TEST_CASE(a_second_signal_ends_a_rank_at_once_but_not_the_echo_of_the_first) {
  using namespace std::chrono_literals;
  for (const bool echo : {true, false}) {
    const folder place("second");
    const auto ends = in_processes(twenty_steps(place.path), [&](auto& group, std::uint64_t step) {
      if (group.rank() != 1 || step != 7) return;
      ::raise(SIGTERM);
      if (!echo) std::this_thread::sleep_for(150ms);
      ::raise(SIGTERM);
    });
    BOOST_TEST(ends[1].exit_code == (echo ? 75 : 128 + SIGTERM), ends[1].text);
    BOOST_TEST(last_checkpoint(place.path) ==
               place.path + (echo ? "/checkpoint-8" : "/checkpoint-5"));
  }
}

BOOST_AUTO_TEST_CASE(a_signal_repeated_by_the_launcher_within_a_second_counts_once) {
  using namespace std::chrono_literals;
  enum sender { launcher, somebody };
  for (const auto& each :
       {std::pair{launcher, 400ms}, std::pair{launcher, 1100ms}, std::pair{somebody, 400ms}}) {
    const auto second = each.first;
    const auto wait = each.second;
    const folder place("passed_on");
    int ready[2];
    BOOST_REQUIRE(::pipe(ready) == 0);
    const auto ends = in_processes(
        twenty_steps(place.path),
        [&](auto& group, std::uint64_t step) {
          if (group.rank() != 1 || step != 7) return;
          if (::write(ready[1], "x", 1) != 1) throw std::runtime_error("the test has gone");
          const auto until = std::chrono::steady_clock::now() + wait + 400ms;
          while (std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(5ms);
        },
        [&](const processes::job& all) {
          char go = 0;
          BOOST_REQUIRE(::read(ready[0], &go, 1) == 1);
          // This process has started the rank, as a launcher does.
          ::kill(all.pid(1), SIGTERM);
          std::this_thread::sleep_for(wait);
          if (second == launcher) {
            ::kill(all.pid(1), SIGTERM);
          } else if (const pid_t other = ::fork(); other == 0) {
            ::_exit(::kill(all.pid(1), SIGTERM));
          } else {
            ::waitpid(other, nullptr, 0);
          }
        });
    ::close(ready[0]);
    ::close(ready[1]);
    const bool is_one = second == launcher && wait < 1s;
    BOOST_TEST(ends[1].exit_code == (is_one ? 75 : 128 + SIGTERM), ends[1].text);
  }
}

BOOST_AUTO_TEST_CASE(the_programs_own_signal_handlers_are_left_alone) {
  const folder place("own");
  setup s = twenty_steps(place.path);
  // A handler of its own, and one that is ignored.
  ::signal(SIGUSR1, [](int) { heard = heard + 1; });
  ::signal(SIGHUP, SIG_IGN);
  auto* const own = handler_of(SIGUSR1);
  const auto tell = [](auto& trainer) {
    trainer.add_callbacks({.on_step_end = [](const train::trainer_state& state) {
      if (state.global_step != 3) return;
      ::raise(SIGUSR1);
      ::raise(SIGHUP);
      BOOST_TEST(handler_of(SIGTERM) != SIG_DFL);
    }});
  };
  BOOST_TEST(on_ranks(1, s, tell)[0].state.global_step == 20u);
  BOOST_TEST(heard == 1);
  BOOST_TEST(handler_of(SIGUSR1) == own);
  BOOST_TEST(handler_of(SIGHUP) == SIG_IGN);
  for (const int each : {SIGTERM, SIGINT, SIGUSR2}) BOOST_TEST(handler_of(each) == SIG_DFL);
  ::signal(SIGUSR1, SIG_DFL);
  ::signal(SIGHUP, SIG_DFL);

  // Nothing is caught where nothing would be saved, or where that is not wanted.
  for (const int way : {0, 1, 2}) {
    setup plain = twenty_steps(way == 0 ? "" : place.path);
    plain.options.load_best_model_at_end = false;
    if (way == 0) plain.options.resume_from_checkpoint = train::resume::never;
    if (way == 1) plain.options.save_strategy = train::strategy::no;
    if (way == 2) plain.options.save_on_signal = false;
    plain.options.max_steps = 22;
    on_ranks(1, plain, [](auto& trainer) {
      trainer.add_callbacks({.on_step_end = [](const train::trainer_state&) {
        BOOST_TEST(handler_of(SIGTERM) == SIG_DFL);
      }});
    });
  }
}

BOOST_AUTO_TEST_CASE(a_signal_that_comes_too_late_to_stop_training_has_its_way_afterwards) {
  const folder place("late");
  processes::job all;
  all.start(0, 1, [&](parx::world& group) {
    run(group, twenty_steps(place.path), [](auto& trainer) {
      trainer.add_callbacks(
          {.on_train_end = [](const train::trainer_state&) { ::raise(SIGTERM); }});
    });
  });
  BOOST_TEST(all.wait()[0].exit_code == 128 + SIGTERM);
  BOOST_TEST(last_checkpoint(place.path) == place.path + "/checkpoint-20");
}
