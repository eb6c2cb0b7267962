// A trainer goes on after kill -9 of any of its ranks, as one that was started there with fewer.
#include <parx/train/trainer.hpp>

#include <boost/test/unit_test.hpp>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <parx/ddp/sync_batch_norm.hpp>
#include <parx/fsdp.hpp>
#include <parx/launch.hpp>
#include <parx/store/tcp_server.hpp>

#include "launch/processes.hpp"
#include "messages.hpp"
#include "runs.hpp"

namespace {

using namespace std::chrono_literals;
using processes::job;
using parx_test::mentions;
namespace train = parx::train;

static_assert(train::regroupable<parx::ddp<runs::classifier>>);

constexpr std::size_t samples = 97, batch_size = 4, epochs = 40;
constexpr double rate = 0.05, momentum = 0.5, first_slope = 0.5;

double x_of(std::size_t i) { return std::sin(1.0 + static_cast<double>(i)); }
double y_of(std::size_t i) { return 3 * x_of(i) + 0.1 * std::cos(static_cast<double>(i)); }

struct batch {
  parx::tensor<double> x, y;
  parx::tensor<float> weights = {};
  [[nodiscard]] std::size_t size() const { return x.extent(0); }
  [[nodiscard]] double count() const {
    double sum = 0;
    for (const float each : weights) sum += static_cast<double>(each);
    return sum;
  }
};
struct dataset {
  [[nodiscard]] std::size_t size() const { return samples; }
  [[nodiscard]] batch fetch(std::span<const std::size_t> indices) const {
    batch made{parx::tensor<double>::empty({indices.size(), 1}),
               parx::tensor<double>::empty({indices.size(), 1})};
    for (std::size_t k = 0; k < indices.size(); ++k) {
      made.x.data()[k] = x_of(indices[k]);
      made.y.data()[k] = y_of(indices[k]);
    }
    return made;
  }
};

/// y = slope x.
struct line : parx::nn::module<line> {
  using value_type = double;
  parx::nn::linear<double> slope{1, 1, {.bias = parx::nn::bias::none}};
  parx::variable<double> forward(const parx::variable<double>& x) { return slope(x); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("slope", slope);
  }
};

struct plan {
  std::vector<int> victims;
  int world = 3;
  std::size_t accumulation = 1;
  bool writes = false;  ///< checkpoints, evaluations, log
  std::string kind = "auto";
  /// The victim kills itself between the evaluation and the checkpoint of this step.
  std::uint64_t dies_evaluated = 0;
};

/// Where training began with so many ranks.
struct beginning {
  std::uint64_t step;
  std::size_t world;
};

/// Least squares by gradient descent with momentum over the samples in their order; throws where
/// the trainer's losses or the slope are others.
void compare_with_textbook(const plan& p, const std::vector<beginning>& begins,
                           const std::vector<double>& losses, double slope) {
  double w = first_slope, velocity = 0;
  std::size_t step = 0;
  for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
    for (std::size_t at = 0; at < samples; ++step) {
      std::size_t world = 0;
      for (const beginning& each : begins) {
        if (each.step <= step) world = each.world;
      }
      const std::size_t end = std::min(samples, at + world * batch_size * p.accumulation);
      double loss = 0, gradient = 0;
      const auto count = static_cast<double>(end - at);
      for (; at < end; ++at) {
        const double miss = w * x_of(at) - y_of(at);
        loss += miss * miss / count;
        gradient += 2 * miss * x_of(at) / count;
      }
      if (step >= losses.size()) throw std::runtime_error("steps are missing");
      // The line of the last step before a loss may lack what the lost rank had counted.
      const bool may_lack = std::any_of(begins.begin() + 1, begins.end(), [&](const auto& each) {
        return each.step == step + 1;
      });
      if (!may_lack && !(std::abs(losses[step] - loss) <= 1e-6)) {
        throw std::runtime_error(fmt::format("step {} of {}: loss {}, not {}", step + 1,
                                             losses.size(), losses[step], loss));
      }
      velocity = momentum * velocity + gradient;
      w -= rate * velocity;
    }
  }
  if (losses.size() != step) throw std::runtime_error("more steps than there are samples for");
  if (!(std::abs(w - slope) <= 1e-9)) throw std::runtime_error("another slope");
}

void train_and_compare(parx::world& world, const plan& p, const std::string& folder, int ready) {
  const dataset source;
  line model;
  model.initialize(1);
  model.slope.weight().value().data()[0] = first_slope;
  parx::ddp ddp{model, world};
  parx::optim::sgd opt{ddp.parameters(), {.lr = rate, .momentum = momentum}};
  using parx::data::distributed_sampler;
  const parx::data::sampler_options in_order{.order = parx::data::sample_order::sequential};
  const parx::data::loader loader{
      source, {.batch_size = batch_size, .sampler = distributed_sampler{samples, world, in_order}}};
  const auto loss = [](auto& m, auto& b) {
    return parx::nn::mse_loss(m(b.x), b.y, {.row_weights = b.weights});
  };
  const auto now_and_then = p.writes ? train::strategy::epoch : train::strategy::no;
  train::trainer trainer{ddp, opt, loader, loss,
                         {.output_dir = p.writes ? folder : "",
                          .num_train_epochs = epochs,
                          .gradient_accumulation_steps = p.accumulation,
                          .lr_schedule = [](std::uint64_t) { return rate; },
                          .max_grad_norm = 0,
                          .logging_steps = 1,
                          .eval_strategy = now_and_then,
                          .save_strategy = now_and_then,
                          .save_total_limit = 1,
                          .on_loss = [&] { return world.shrink(); },
                          .disable_progress = true,
                          .tensorboard = false,
                          .log_to_console = false}};
  const auto mean_x = [](auto&, auto& b) -> train::metrics {
    double sum = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
      sum += b.x.data()[i] * static_cast<double>(b.weights.data()[i]);
    }
    return {{"x", parx::nn::tally{.sum = sum, .count = b.count()}}};
  };
  const parx::data::loader held_out{
      source, {.batch_size = 9, .sampler = distributed_sampler{samples, world}}};
  if (p.writes) trainer.add_evaluation(held_out, mean_x);
  std::vector<beginning> begins;
  trainer.add_callbacks(
      {.on_train_begin =
           [&](const auto& state) { begins.push_back({state.global_step, state.world_size}); },
       .on_step_end =
           [&](const auto& state) {
             if (state.global_step == 5 && ::write(ready, "x", 1) != 1) std::abort();
             std::this_thread::sleep_for(200us);
           }});
  trainer.train();
  const auto left = static_cast<std::size_t>(p.world) - p.victims.size();
  if (begins.back().world != left || world.size() != static_cast<int>(left)) {
    throw std::runtime_error("training did not go on with those that are left");
  }
  std::vector<double> losses;
  for (const train::record& each : trainer.state().log_history) {
    if (const auto value = each.find("loss")) losses.push_back(*value);
  }
  double mean = 0;
  for (std::size_t i = 0; i < samples; ++i) mean += x_of(i) / static_cast<double>(samples);
  if (p.writes && !(std::abs(trainer.evaluate().at("eval_x") - mean) <= 1e-9)) {
    throw std::runtime_error("not every sample was evaluated once");
  }
  compare_with_textbook(p, begins, losses, model.slope.weight().value().data()[0]);
}

/// In ascending order.
std::vector<int> left_of(const plan& p) {
  std::vector<int> left;
  for (int rank = 0; rank < p.world; ++rank) {
    if (std::find(p.victims.begin(), p.victims.end(), rank) == p.victims.end()) {
      left.push_back(rank);
    }
  }
  return left;
}

parx::environment under_an_agent(int rank, const plan& p, std::uint16_t port) {
  parx::environment env{{"RANK", std::to_string(rank)},
                        {"WORLD_SIZE", std::to_string(p.world)},
                        {"LOCAL_RANK", std::to_string(rank)},
                        {"LOCAL_WORLD_SIZE", std::to_string(p.world)},
                        {"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", std::to_string(port)},
                        {"TORCHELASTIC_RUN_ID", "shrink"},
                        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                        {"PARX_RECORDER", "off"}};
  if (p.kind == "tcp") env["PARX_TRANSPORT"] = "tcp";
  return env;
}

/// body(world, descriptor) in p.world processes. The victims are killed one after the other once
/// all have written a byte to the descriptor; the others are to end well. True where they did.
template <typename Body>
bool run_and_kill(const plan& p, std::chrono::microseconds when, Body body) {
  const parx::tcp_store_server server({.address = "127.0.0.1"});
  job all;
  int ready[2];
  BOOST_REQUIRE(::pipe(ready) == 0);
  for (int rank = 0; rank < p.world; ++rank) {
    all.start_program(rank, p.world, [&](parx::init_options options) {
      options.env = under_an_agent(rank, p, server.port());
      return parx::run([&](parx::world& world) { body(world, ready[1]); }, std::move(options));
    });
  }
  ::close(ready[1]);
  char go[8];
  for (ssize_t heard = 0, got = 1; heard < p.world && got > 0; heard += got) {
    got = ::read(ready[0], go, sizeof go);
  }
  for (const int victim : p.victims) {
    std::this_thread::sleep_for(when);
    ::kill(all.pid(static_cast<std::size_t>(victim)), SIGKILL);
  }
  const auto results = all.wait();
  ::close(ready[0]);
  bool well = true;
  for (const int rank : left_of(p)) {
    const auto& each = results[static_cast<std::size_t>(rank)];
    well &= each.exit_code == 0;
    BOOST_TEST(each.exit_code == 0, "rank " << rank << " of " << p.world << ": " << each.text);
  }
  return well;
}

void train_and_kill(const plan& p, std::chrono::microseconds when) {
  const runs::folder out("shrink");
  run_and_kill(p, when, [&](parx::world& world, int ready) {
    train_and_compare(world, p, out.path, ready);
  });
}

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

/// More by hand: PARX_TEST_KILLS=200.
int rounds() {
  const char* wanted = std::getenv("PARX_TEST_KILLS");
  return wanted != nullptr ? std::max(1, std::atoi(wanted) / 12) : 1;
}

std::chrono::microseconds moment(int number) {
  return std::chrono::microseconds(number * 7919 % 40'000);
}

}  // namespace

BOOST_AUTO_TEST_CASE(wrappers_that_cannot_lose_a_rank_are_refused_before_training) {
  const auto refusal = [](auto& wrapper, const auto& loader) {
    parx::optim::sgd opt{wrapper.parameters(), {.lr = rate}};
    const auto loss = [](auto& m, auto& b) { return parx::nn::mse_loss(m(b.x), b.y); };
    try {
      train::trainer(wrapper, opt, loader, loss, {.on_loss = []() -> parx::process_group {
                       throw std::logic_error("unused");
                     }});
    } catch (const parx::usage_error& refused) {
      return std::string(refused.what());
    }
    return std::string("nothing is refused");
  };
  std::string sharded, grouped, own_loader;
  parx::run_threads(2, [&](parx::process_group& group) {
    const dataset source;
    const parx::data::loader loader{
        source,
        {.batch_size = batch_size, .sampler = parx::data::distributed_sampler{samples, group}}};
    line first, second, third;
    parx::fsdp fsdp{first, group};
    const std::string said = refusal(fsdp, loader);
    // A loader of the user's, which nobody else can deal out.
    struct fixed {
      const decltype(loader)& inner;
      auto epoch(std::uint64_t number) const { return inner.epoch(number); }
      auto epoch(parx::data::sample_position from) const { return inner.epoch(from); }
      [[nodiscard]] std::size_t batches() const { return inner.batches(); }
      [[nodiscard]] std::size_t batch_size() const { return inner.batch_size(); }
      [[nodiscard]] const auto& sampler() const { return inner.sampler(); }
    };
    parx::ddp ddp{second, group};
    const std::string other = refusal(ddp, fixed{loader});
    parx::ddp with_groups{third, group, {.reduction_groups = {{"part", group}}}};
    const std::string of_groups = refusal(with_groups, loader);
    if (group.rank() == 0) {
      sharded = said;
      grouped = of_groups;
      own_loader = other;
    }
  });
  BOOST_TEST(mentions(sharded, "an fsdp keeps a shard of the parameters on each rank"), sharded);
  BOOST_TEST(mentions(grouped, "sums some gradients over reduction_groups"), grouped);
  BOOST_TEST(mentions(own_loader, "this loader cannot do: take a data::loader"), own_loader);
}

BOOST_AUTO_TEST_CASE(training_goes_on_without_any_rank_as_if_started_there_with_fewer) {
  for (int round = 0, number = 0; round < rounds(); ++round) {
    for (const bool writes : {false, true}) {
      for (const int victim : {0, 1, 2}) {
        train_and_kill({.victims = {victim}, .writes = writes}, moment(++number));
      }
    }
    train_and_kill({.victims = {1}, .accumulation = 3}, moment(++number));
    train_and_kill({.victims = {0}, .accumulation = 2, .writes = true, .kind = "tcp"},
                   moment(++number));
    train_and_kill({.victims = {1}, .world = 2}, moment(++number));
  }
}

BOOST_AUTO_TEST_CASE(a_second_rank_may_be_lost_while_the_others_gather_and_after_that) {
  for (int round = 0; round < rounds(); ++round) {
    for (const auto when : {1ms, 4ms, 20ms}) {
      train_and_kill({.victims = {2, 0}, .world = 4}, when + round * 333us);
    }
  }
}

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
