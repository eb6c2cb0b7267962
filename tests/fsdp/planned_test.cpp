// parx::plan's bytes and memory of a step, against what ranks over TCP send and hold.
#include <parx/plan/plan.hpp>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <comm/jobs.hpp>
#include <fsdp/stack.hpp>
#include <launch/processes.hpp>
#include <sanitizers.hpp>

#include <parx/comm/collectives/barrier.hpp>
#include <parx/fsdp.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using parx::tensor;

constexpr std::size_t width = 256;

using layer = stack::layer<width>;
using model = stack::model<layer>;

parx::planned_step planned(int world, int stage, std::size_t layers, std::size_t passes) {
  model m(layers);
  return parx::plan_step(parx::shapes_of(m, {"layers.*"}), {.ranks = world, .hosts = world},
                         {.micro_batches = passes}, {.how = {.zero = stage}});
}

template <typename Wrapper, typename Optimizer>
void step(Wrapper& fsdp, Optimizer& opt, std::size_t passes) {
  const auto pass = [&] {
    const auto x = tensor<float>::ones({2, width});
    parx::nn::mse_loss(fsdp(x), x).backward();
  };
  for (std::size_t i = 1; i < passes; ++i) {
    const auto guard = fsdp.no_sync();
    pass();
  }
  pass();
  opt.step();
}

/// What the third step sends, by rank.
std::vector<double> sent(int world, int stage, std::size_t passes) {
  std::vector<double> found(static_cast<std::size_t>(world));
  const std::string failure = jobs::run(jobs::kind::tcp, world, [&](parx::process_group& group) {
    model m(4);
    parx::fsdp fsdp{m, group,
                    {.stage = stage, .units = parx::by_type<layer>,
                     .order = parx::reduction_order::any}};
    parx::optim::sgd opt{fsdp.parameters(), {.lr = 0.01}};
    const auto all_sent = [&] {
      return static_cast<double>(fsdp.shard_group().bytes_sent() + group.bytes_sent());
    };
    for (int i = 0; i < 2; ++i) step(fsdp, opt, passes);
    const double before = all_sent();
    step(fsdp, opt, passes);
    found[static_cast<std::size_t>(group.rank())] = all_sent() - before;
  });
  BOOST_TEST(failure == "");
  return found;
}

/// Bytes, of a line of /proc/self/status.
double status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stod(line.substr(name.size() + 1)) * 1024;
  }
  throw std::runtime_error("no " + name);
}

/// Two steps, in a process. Throws what it held, unless that is the plan's.
void hold_what_is_planned(parx::world& world, int stage, std::size_t layers, std::size_t passes) {
  model m(layers);
  parx::barrier(world);
  const double before = status("VmRSS");
  parx::fsdp fsdp{m, world, {.stage = stage, .units = parx::by_type<layer>}};
  parx::optim::adamw opt{fsdp.parameters(), {.lr = 0.01F}};
  for (int i = 0; i < 2; ++i) step(fsdp, opt, passes);
  const double held = status("VmHWM") - before;
  const auto of_plan =
      static_cast<double>(planned(world.size(), stage, layers, passes).memory.total());
  const double rest = 8 << 20;  // code that is first run, arenas, batches, the links' buffers
  if (held >= 0.95 * of_plan && held <= 1.03 * of_plan + rest) return;
  throw std::runtime_error(fmt::format("held {:.1f} MB, planned {:.1f}", held / 1e6,
                                       of_plan / 1e6));
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_step_sends_what_is_planned) {
  for (const int world : {2, 4}) {
    for (const int stage : {1, 2, 3}) {
      for (const std::size_t passes : {1U, 3U}) {
        const double expected = planned(world, stage, 4, passes).bytes();
        for (const double bytes : sent(world, stage, passes)) {
          BOOST_TEST(bytes / expected > 1.0);
          BOOST_TEST(bytes / expected < 1.01, "stage " << stage << " on " << world << " ranks, "
                                                       << passes << " passes: " << bytes
                                                       << " bytes for " << expected);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rank_holds_what_is_planned) {
  if (parx_test::sanitized) return;  // which takes memory of its own
  constexpr std::size_t layers = 96;  // of 256 KiB
  for (const int stage : {1, 2, 3}) {
    const std::size_t passes = stage == 2 ? 2 : 1;
    processes::job both;
    for (int rank = 0; rank < 2; ++rank) {
      both.start(rank, 2,
                 [&](parx::world& world) { hold_what_is_planned(world, stage, layers, passes); },
                 {{"PARX_TRANSPORT", "tcp"}});
    }
    for (const auto& each : both.wait()) {
      BOOST_TEST(each.exit_code == 0, "stage " << stage << ": " << each.text);
    }
  }
}
