// A trainer goes on after kill -9 of any of its ranks, as one that was started there with fewer.
#include <parx/train/trainer.hpp>

#include <boost/test/unit_test.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <parx/checkpoint/writer_claim.hpp>
#include <parx/fsdp.hpp>
#include <parx/launch.hpp>

#include "lossy.hpp"
#include "messages.hpp"
#include "runs.hpp"

namespace {

using namespace lossy;
using namespace std::chrono_literals;
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

/// The names of the claims on an output folder, of which the last ends the others.
std::vector<std::string> claims_on(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& each : std::filesystem::directory_iterator(folder)) {
    const std::string name = each.path().filename().string();
    if (name.starts_with(parx::detail::claim_prefix)) found.push_back(name);
  }
  return found;
}
/// A lost rank 0 may only be stopped: the new one's claim ends its claim. No other loss changes it.
void check_claims(const plan& p, const std::vector<std::vector<std::string>>& by_beginning) {
  const auto &first = by_beginning.front(), &last = by_beginning.back();
  if (first.size() != 1 || last.size() != 1) throw std::runtime_error("there is not one claim");
  const bool is_rank_0_lost = p.victims.front() == 0;
  if ((first != last) != is_rank_0_lost) throw std::runtime_error("the claim of another rank 0");
}

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
  std::vector<std::vector<std::string>> claims;
  trainer.add_callbacks(
      {.on_train_begin =
           [&](const auto& state) {
             begins.push_back({state.global_step, state.world_size});
             if (p.writes) claims.push_back(claims_on(folder));
           },
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
  if (p.writes) check_claims(p, claims);
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

void train_and_kill(const plan& p, std::chrono::microseconds when) {
  const runs::folder out("shrink");
  run_and_kill(p, when, [&](parx::world& world, int ready) {
    train_and_compare(world, p, out.path, ready);
  });
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
