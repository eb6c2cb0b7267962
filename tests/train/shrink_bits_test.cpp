// A trainer that goes on after kill -9 of a rank ends in the bits of a run that stopped there by
// itself and resumed with fewer ranks.
#include <parx/train/trainer.hpp>

#include <boost/test/unit_test.hpp>

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <parx/ddp/sync_batch_norm.hpp>
#include <parx/launch.hpp>

#include "lossy.hpp"
#include "runs.hpp"

namespace {

using namespace lossy;
using namespace std::chrono_literals;
namespace train = parx::train;

constexpr std::size_t batch_size = 4;

/// No batch of one sample, which batch norm refuses.
constexpr std::size_t points = 98;

/// Whatever a lost rank could leave half done: statistics that all ranks sum, and dropout.
struct noisy_classifier : parx::nn::module<noisy_classifier> {
  explicit noisy_classifier(parx::process_group& group) : norm(16, group) {}
  parx::nn::linear<> first{2, 16};
  parx::sync_batch_norm<> norm;
  parx::nn::dropout noise{0.2};
  parx::nn::linear<> second{16, 4};

  parx::variable<float> forward(const parx::variable<float>& x) {
    return second(noise(parx::relu(norm(first(x)))));
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("first", first);
    visit("norm", norm);
    visit("noise", noise);
    visit("second", second);
  }
};

enum class at_a_loss { fail, go_on };

/// Trains until `last_step`, or to the end for 0, and writes where it began and all bits of the end
/// to a file of the rank in `notes`.
void train_and_note(parx::world& world, const plan& p, const std::string& folder,
                    const std::string& notes, std::uint64_t last_step, at_a_loss then,
                    int ready) {
  const int job_rank = world.rank();
  const auto source = runs::points(points);
  noisy_classifier model(world);
  model.initialize(3);
  parx::ddp ddp{model, world};
  parx::optim::adamw opt{ddp.parameters(), {.lr = 0.02}};
  using parx::data::distributed_sampler;
  const parx::data::loader loader{
      source,
      {.batch_size = batch_size, .sampler = distributed_sampler{points, world, {.seed = 5}}}};
  const auto loss = [](auto& m, auto& b) {
    return parx::nn::cross_entropy(m(b.x), b.y, {.row_weights = b.weights});
  };
  train::trainer_options options{.output_dir = folder,
                                 .num_train_epochs = 25,
                                 .gradient_accumulation_steps = p.accumulation,
                                 .warmup_steps = 20,
                                 .max_grad_norm = 0.5,
                                 .logging_steps = 3,
                                 .eval_strategy = train::strategy::steps,
                                 .eval_steps = 4,
                                 .save_steps = 6,
                                 .save_total_limit = 2,
                                 .early_stopping_patience = 1000,  // counted, never reached
                                 .resume_from_checkpoint = train::resume::latest,
                                 .disable_progress = true,
                                 .tensorboard = false,
                                 .log_to_console = false};
  if (then == at_a_loss::go_on) options.on_loss = [&] { return world.shrink(); };
  train::trainer trainer{ddp, opt, loader, loss, options};
  const parx::data::loader held_out{
      source, {.batch_size = 9, .sampler = distributed_sampler{points, world}}};
  trainer.add_evaluation(held_out, [&](auto& m, auto& b) -> train::metrics {
    return {{"loss", loss(m, b)}};
  });
  std::ofstream note(fmt::format("{}/{}", notes, job_rank), std::ios::binary);
  // Where ranks come together in a step, a wish to stop ends that step already: after that, then.
  const auto stop_after_next = [&](const train::trainer_state& state, bool is_last_chance) {
    if (state.global_step + 1 == last_step && is_last_chance) trainer.request_stop();
  };
  trainer.add_callbacks(
      {.on_train_begin =
           [&](const auto& state) {
             if (then == at_a_loss::go_on) {
               note << state.global_step << ' ' << state.world_size << '\n';
             }
             stop_after_next(state, true);
           },
       .on_step_end =
           [&](const auto& state) {
             if (state.global_step == 5 && ::write(ready, "x", 1) != 1) std::abort();
             stop_after_next(state, state.global_step % 3 != 0);
           },
       .on_log =
           [&](const auto& state, auto&) { stop_after_next(state, state.global_step % 6 != 0); },
       .on_evaluate =
           [&](const auto& state, auto&) {
             const bool dies = then == at_a_loss::go_on && state.global_step == p.dies_evaluated &&
                               job_rank == p.victims.front();
             if (dies) ::kill(::getpid(), SIGKILL);
           },
       .on_save = [&](const auto& state) { stop_after_next(state, true); }});
  trainer.train();
  if (last_step > 0) {
    if (trainer.state().global_step != last_step) throw std::runtime_error("another last step");
    return;
  }
  if (then == at_a_loss::go_on) note << "end\n";
  const auto& state = trainer.state();
  note << state.global_step << ' ' << state.max_steps << ' ' << state.samples_seen << ' '
       << state.evaluations_without_gain << '\n';
  for (const train::record& line : state.log_history) {
    if (line.find("eval_loss")) note << "evaluated at " << line.at("step") << '\n';
    if (const auto norm = line.find("grad_norm")) {
      note << fmt::format("{} {:a} {:a}\n", line.at("step"), *norm, line.at("learning_rate"));
    }
  }
  const auto write = [&](const std::string& name, auto& entry) {
    note << name << '\n';
    for (const auto value : entry.value().span()) note << fmt::format("{:a} ", double(value));
    note << '\n';
  };
  model.for_each_parameter(write);
  model.for_each_buffer(write);
  note << fmt::format("{:a}\n", trainer.evaluate().at("eval_loss"));
}

/// The oracle: runs with as many ranks as were left that stop by themselves where ranks were lost,
/// and resume from the checkpoint.
void train_kill_and_repeat(const plan& p, std::chrono::microseconds when) {
  const runs::folder out("lossy"), repeated("repeated"), notes("notes");
  std::filesystem::create_directory(notes.path);
  const bool well = run_and_kill(p, when, [&](parx::world& world, int ready) {
    train_and_note(world, p, out.path, notes.path, 0, at_a_loss::go_on, ready);
  });
  if (!well) return;
  const std::vector<int> left = left_of(p);
  const auto note_of = [&](int rank) {
    return runs::contents(fmt::format("{}/{}", notes.path, rank));
  };
  const std::string found = note_of(left.front());
  for (const int rank : left) {
    BOOST_TEST(note_of(rank) == found, "rank " << rank << " has ended with other bits");
  }
  const auto end = found.find("end\n");
  BOOST_REQUIRE(end != std::string::npos);
  std::vector<beginning> begins;
  std::istringstream text(found.substr(0, end));
  for (beginning each{}; text >> each.step >> each.world;) begins.push_back(each);
  BOOST_REQUIRE(begins.back().world == left.size());
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const bool is_last = i + 1 == begins.size();
    if (!is_last && begins[i].step == begins[i + 1].step) continue;
    const plan stage{.victims = {},
                     .world = static_cast<int>(begins[i].world),
                     .accumulation = p.accumulation,
                     .kind = p.kind};
    BOOST_REQUIRE(run_and_kill(stage, 0us, [&](parx::world& world, int ready) {
      train_and_note(world, stage, repeated.path, notes.path, is_last ? 0 : begins[i + 1].step,
                     at_a_loss::fail, ready);
    }));
  }
  std::string ranks_and_steps;
  for (const beginning& each : begins) {
    ranks_and_steps += fmt::format(" {} ranks from step {},", each.world, each.step);
  }
  const std::string expected = note_of(0), got = found.substr(end + 4);
  std::istringstream expected_lines(expected), got_lines(got);
  for (std::string a, b; std::getline(expected_lines, a) && std::getline(got_lines, b);) {
    if (a != b) {
      BOOST_TEST(a == b, a << " became " << b << ":" << ranks_and_steps << p.kind);
      break;
    }
  }
  BOOST_TEST(expected.size() == got.size(), ranks_and_steps);
}

}  // namespace

BOOST_AUTO_TEST_CASE(training_ends_in_the_bits_of_a_run_that_stopped_there_and_resumed_with_fewer) {
  for (int round = 0, number = 0; round < rounds(); ++round) {
    const auto next_kind = [&] { return ++number % 2 == 0 ? "auto" : "tcp"; };
    train_kill_and_repeat(
        {.victims = {1}, .world = 2, .accumulation = 2, .kind = next_kind()}, moment(number));
    train_kill_and_repeat({.victims = {(round + 1) % 3}, .kind = next_kind()}, moment(number));
    train_kill_and_repeat(
        {.victims = {3, 0}, .world = 4, .accumulation = 2, .kind = next_kind()}, moment(number));
  }
}

BOOST_AUTO_TEST_CASE(a_step_whose_checkpoint_is_interrupted_is_not_evaluated_again) {
  for (const int victim : {0, 2}) {
    train_kill_and_repeat({.victims = {victim}, .dies_evaluated = 24}, 500ms);
  }
}
