// pipeline_tour: draws each pipeline schedule, as predicted and as it runs on this machine.
//
//   pipeline_tour                        # 4 stages, 8 micro-batches
//   pipeline_tour --hop 2 --svg tour.svg # messages take 2 ms
//
// The ranks are threads and the stages sleep, so one core behaves as four hosts would. A forward
// takes --ms milliseconds, and so does each half of a backward.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "common/options.hpp"
#include <parx/autograd/function.hpp>
#include <parx/comm/collectives/barrier.hpp>
#include <parx/comm/threads.hpp>
#include <parx/nn.hpp>
#include <parx/pipeline.hpp>

namespace {

using duration = std::chrono::duration<double, std::milli>;

/// Sleeps; the time by which a sleep is too long is subtracted from this thread's next one.
void sleep_exactly(duration asked) {
  thread_local duration debt{};
  const auto from = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(asked - debt);
  debt += std::chrono::steady_clock::now() - from - asked;
}

/// A layer that takes its time and computes nothing.
class sleeper : public parx::nn::module<sleeper> {
 public:
  using value_type = float;
  sleeper(duration each, bool is_first)
      : each_(each), is_first_(is_first), weight_("weight", parx::shape{1}) {}

  [[nodiscard]] parx::variable<float> forward(const parx::variable<float>& given) {
    // The first stage needs no input gradient, and would skip its I; a border makes it compute one.
    const auto x = is_first_ ? parx::border<float>(given.value()) : given;
    sleep_exactly(each_);
    return parx::differentiable(
        x.value(),
        [each = each_](const parx::tensor<float>& upstream, parx::grad_sink<float> dx,
                       parx::grad_sink<float> dw) {
          if (dx.needed()) {
            sleep_exactly(each);
            dx.add(upstream);
          }
          if (dw.needed()) {
            sleep_exactly(each);
            dw.add(parx::tensor<float>::ones({1}));
          }
        },
        x, weight_);
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, parx::nn::init::constant(1));
  }

 private:
  duration each_;
  bool is_first_;
  parx::parameter<float> weight_;
};

struct samples {
  parx::tensor<float> x;
};

/// The timeline of the second step, in units of a rank's forward.
parx::pipeline_timeline run(const parx::pipeline_table& table, duration unit, duration hop) {
  parx::pipeline_timeline found;
  const auto delay = std::chrono::duration_cast<std::chrono::microseconds>(hop);
  parx::run_threads(4, [&](parx::process_group& world) {
    const duration part = unit * 4.0 / table.stages;
    const auto next = [&](bool is_first = false) { return sleeper(part, is_first); };
    parx::nn::sequential model{next(true), next(), next(), next(), next(), next(), next(), next()};
    auto blocks = model.blocks();
    blocks.resize(static_cast<std::size_t>(table.stages));
    parx::pipeline pipe{model, blocks, world,
                        {.microbatches = table.microbatches, .table = table}};
    const samples batch{
        parx::tensor<float>::ones({static_cast<std::size_t>(table.microbatches), 1})};
    for (int step = 0; step < 2; ++step) {
      parx::barrier(world);  // so that all clocks start together
      pipe.step(batch, [](const auto& y, const auto&) {
        return parx::weighted_loss<float>{sum(y), 1};
      });
      pipe.zero_grad();
    }
    auto mine = pipe.timeline();
    if (world.rank() == 0) found = std::move(mine);
  }, {.network = {.delay = delay}, .group = {}});
  for (auto& rank : found.ranks) {
    for (auto& span : rank) {
      span.begin *= 1000 / unit.count();
      span.end *= 1000 / unit.count();
    }
  }
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    cxxopts::Options options("pipeline_tour", "Pipeline schedules, predicted and as they run\n");
    options.add_options()("h,help", "print this")
        ("microbatches", "of one step", examples::text("8"))
        ("ms", "milliseconds of a forward", examples::text("10"))
        ("hop", "milliseconds of a message", examples::text("0"))
        ("svg", "a file for the diagrams", examples::text(""));
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") != 0) return fmt::print("{}", options.help()), 0;
    const duration unit(examples::number(given, "ms", 0.1, 1000.0));
    const duration hop(examples::number(given, "hop", 0.0, 1000.0));
    const auto colour = isatty(STDOUT_FILENO) != 0 ? parx::drawing_colour::ansi
                                                   : parx::drawing_colour::none;
    std::vector<parx::pipeline_timeline> drawn;
    for (const parx::named_schedule& each : parx::pipeline_schedules) {
      const int chunks = each.name == "interleaved" || each.name == "looped_bfs" ? 2 : 1;
      const auto table = each.make({.ranks = 4,
                                    .microbatches = examples::number(given, "microbatches", 1, 999),
                                    .chunks = chunks,
                                    .hop = hop / unit / 3});
      drawn.push_back(simulate(table, parx::pipeline_costs{.hop = hop / unit}.per_stage(table)));
      drawn.push_back(run(table, unit, hop));
      for (std::size_t i = drawn.size() - 2; i < drawn.size(); ++i) {
        fmt::print("{}\n", to_text(drawn[i], {.colour = colour}));
      }
    }
    if (const auto file = given["svg"].as<std::string>(); !file.empty()) {
      std::ofstream out(file);
      out << to_svg(drawn);
      parx::require(out.flush().good(), "--svg {}: cannot be written", file);
    }
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}
