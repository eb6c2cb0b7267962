// kill -9 of a rank while units are gathered: every other rank names it, at once, whatever it waits
// for and wherever the values are.
#include <parx/fsdp.hpp>

#include <boost/test/unit_test.hpp>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <fsdp/stack.hpp>
#include <launch/processes.hpp>
#include <messages.hpp>

#include <parx/autograd.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using parx::tensor;
using parx_test::mentions;
using variable = parx::variable<float>;

constexpr std::size_t width = 512;  // a megabyte a layer: some milliseconds on the wire

struct layer : parx::nn::module<layer> {
  parx::nn::linear<> weights{width, width, {.bias = parx::nn::bias::none}};
  std::function<void()> in_forward = [] {}, in_backward = [] {};

  variable forward(const variable& x) {
    in_forward();  // the layer behind is being gathered ahead
    const variable y = weights(x);
    return parx::differentiable(
        y.value(),
        [this](const tensor<float>& upstream, parx::grad_sink<float> dy) {
          in_backward();  // and here the one before
          dy.add(upstream);
        },
        y);
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("weights", weights);
  }
};
using model = stack::model<layer>;

enum class moment { forward, backward };
constexpr int victim = 1, ranks = 3;

/// Trains until something happens; the victim dies in its third step.
void train(parx::world& world, moment when, parx::value_storage values) {
  model m;
  parx::fsdp fsdp{m, world, {.units = parx::by_type<layer>, .values = values}};
  parx::optim::sgd opt{fsdp.parameters(), {.lr = 0.01}};
  int calls = 0;
  if (world.rank() == victim) {
    auto& hook = when == moment::forward ? m.layers[1].in_forward : m.layers[2].in_backward;
    hook = [&calls] {
      if (++calls == 3) ::kill(::getpid(), SIGKILL);
    };
  }
  const auto x = tensor<float>::ones({1, width});
  for (;;) {
    parx::nn::mse_loss(fsdp(x), x).backward();
    opt.step();
  }
}

void kill_one(moment when, parx::value_storage values, const std::string& transport) {
  processes::job all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.start(rank, ranks, [=](parx::world& world) { train(world, when, values); },
              {{"PARX_TRANSPORT", transport}});
  }
  const auto results = all.wait();
  BOOST_TEST(results[victim].exit_code == 128 + SIGKILL);
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == victim) continue;
    const auto& each = results[static_cast<std::size_t>(rank)];
    BOOST_TEST(each.seconds - results[victim].seconds < 1.0);
    BOOST_TEST(mentions(each.text, "rank 1"), "rank " << rank << ": " << each.text);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_rank_that_is_killed_in_a_gather_is_named_by_all_within_a_second) {
  using parx::value_storage;
  for (const moment when : {moment::forward, moment::backward}) {
    BOOST_TEST_CONTEXT((when == moment::forward ? "in forward" : "in backward")) {
      kill_one(when, value_storage::gathered, "tcp");
      kill_one(when, value_storage::gathered, "auto");
      kill_one(when, value_storage::shared, "auto");
    }
  }
}
