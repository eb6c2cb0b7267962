// pipeline_tour: draws each pipeline schedule, as predicted and as it runs on this machine.
//
//   pipeline_tour                        # 4 stages, 8 micro-batches
//   pipeline_tour --hop 2 --svg tour.svg # messages take 2 ms
//   pipeline_tour --schedules 1f1b,zb1p --microbatches 6 --svg schedules.svg  # the guide's picture
//
// The ranks are threads and the stages sleep, so one core behaves as four hosts would. A forward
// takes --ms milliseconds, and so does each half of a backward.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "common/options.hpp"
#include "common/pipeline/draw.hpp"
#include "sleeper.hpp"
#include <parx/comm/collectives/barrier.hpp>
#include <parx/comm/threads.hpp>
#include <parx/nn.hpp>
#include <parx/parallel.hpp>
#include <parx/pipeline.hpp>

namespace {

using duration = examples::duration;
using examples::sleeper;

struct samples {
  parx::tensor<float> x;
};

/// The timeline of the second step, in units of a rank's forward.
parx::pipeline_timeline run(const parx::pipeline_table& table, duration unit, duration hop) {
  parx::pipeline_timeline found;
  const auto delay = std::chrono::duration_cast<std::chrono::microseconds>(hop);
  parx::run_threads(4, [&](parx::process_group& world) {
    const auto step_twice = [&](auto net) {
      parx::parallel model{net, world, {.pp = 4, .microbatches = table.microbatches},
                           {.pipeline = {.table = table}}};
      const samples batch{
          parx::tensor<float>::ones({static_cast<std::size_t>(table.microbatches), 1})};
      for (int step = 0; step < 2; ++step) {
        parx::barrier(world);  // so that all clocks start together
        model.forward_backward(batch, [](const auto& y, const auto&) {
          return parx::weighted_loss<float>{sum(y), 1};
        });
        model.zero_grad();
      }
      auto mine = model.stages().timeline();
      if (world.rank() == 0) found = std::move(mine);
    };
    const duration half = unit / 2.0;
    if (table.stages == 4) {
      step_twice(parx::nn::sequential{sleeper(unit, true), sleeper(unit), sleeper(unit),
                                      sleeper(unit)});
    } else {
      step_twice(parx::nn::sequential{sleeper(half, true), sleeper(half), sleeper(half),
                                      sleeper(half), sleeper(half), sleeper(half), sleeper(half),
                                      sleeper(half)});
    }
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
  return examples::exit_code("pipeline_tour", [&] {
    cxxopts::Options options("pipeline_tour", "Pipeline schedules, predicted and as they run\n"
                           "Guide: examples/guide/pipeline.md\n");
    options.add_options()("h,help", "print this")
        ("schedules", "which, with commas; all unless given",
         cxxopts::value<std::vector<std::string>>())
        ("microbatches", "of one step", examples::text("8"))
        ("ms", "milliseconds of a forward", examples::text("10"))
        ("hop", "milliseconds of a message", examples::text("0"))
        ("svg", "a file for the diagrams", examples::text(""));
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") != 0) return fmt::print("{}", options.help()), 0;
    const duration unit(examples::number(given, "ms", 0.1, 1000.0));
    const duration hop(examples::number(given, "hop", 0.0, 1000.0));
    const int microbatches = examples::number(given, "microbatches", 1, 999);
    const auto colour = isatty(STDOUT_FILENO) != 0 ? parx::drawing_colour::ansi
                                                   : parx::drawing_colour::none;
    std::vector<std::string> wanted;
    if (given.count("schedules") != 0) wanted = given["schedules"].as<std::vector<std::string>>();
    std::vector<parx::pipeline_timeline> drawn;
    for (const parx::named_schedule& each : parx::pipeline_schedules) {
      if (!wanted.empty() && std::ranges::find(wanted, each.name) == wanted.end()) continue;
      const int chunks = each.name == "interleaved" || each.name == "looped_bfs" ? 2 : 1;
      const auto table = each.make(
          {.ranks = 4, .microbatches = microbatches, .chunks = chunks, .hop = hop / unit / 3});
      drawn.push_back(simulate(table, parx::pipeline_costs{.hop = hop / unit}.per_stage(table)));
      drawn.push_back(run(table, unit, hop));
      for (std::size_t i = drawn.size() - 2; i < drawn.size(); ++i) {
        fmt::print("{}\n", to_text(drawn[i], {.colour = colour}));
      }
    }
    parx::require(!drawn.empty(), "--schedules {}: there is none of that name",
                  fmt::join(wanted, ","));
    if (const auto file = given["svg"].as<std::string>(); !file.empty()) {
      std::ofstream out(file);
      out << to_svg(drawn);
      parx::require(out.flush().good(), "--svg {}: cannot be written", file);
    }
    return 0;
  });
}
