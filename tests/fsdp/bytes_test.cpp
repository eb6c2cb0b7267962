// What a step sends, against the formulas: with N ranks and parameters of P bytes, 2 P (N - 1) / N
// for stages 1 and 2, and 3 P (N - 1) / N for stage 3, whose units are gathered twice.
#include <parx/fsdp.hpp>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include <comm/jobs.hpp>

#include <parx/autograd.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using parx::tensor;

// Each layer's 4096 weights are one flat, which any number of ranks up to 64 divides evenly.
struct layer : parx::nn::module<layer> {
  parx::nn::linear<> weights{64, 64, {.bias = parx::nn::bias::none}};
  auto forward(const parx::variable<float>& x) { return parx::relu(weights(x)); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("weights", weights);
  }
};
struct model : parx::nn::module<model> {
  using value_type = float;
  std::vector<layer> layers = std::vector<layer>(4);
  auto forward(parx::variable<float> x) {
    for (layer& each : layers) x = each(x);
    return x;
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("layers", layers);
  }
};
constexpr std::size_t unit_bytes = 64 * 64 * sizeof(float);
constexpr std::size_t all_bytes = 4 * unit_bytes;

struct traffic {
  std::size_t gathered = 0;  ///< bytes that this rank has sent for values
  std::size_t reduced = 0;   ///< and for gradients
};

/// Of the last of three steps, on rank 0; each step has `passes`, all but the last under no_sync.
traffic traffic_of(int world, int stage, int passes, parx::after_forward after,
                   parx::reduction_order order = parx::reduction_order::serial) {
  traffic found;
  const std::string failure = jobs::run(jobs::kind::tcp, world, [&](parx::process_group& group) {
    model m;
    parx::fsdp fsdp{
        m, group,
        {.stage = stage, .units = parx::by_type<layer>, .after_forward = after, .order = order}};
    parx::optim::sgd opt{fsdp.parameters(), {.lr = 0.01}};
    for (int step = 0; step < 3; ++step) {
      const std::size_t gathered = fsdp.shard_group().bytes_sent(), reduced = group.bytes_sent();
      const auto pass = [&] {
        const auto x = tensor<float>::full({2, 64}, static_cast<float>(step + 1));
        parx::nn::mse_loss(fsdp(x), x).backward();
      };
      for (int i = 1; i < passes; ++i) {
        const auto guard = fsdp.no_sync();
        pass();
      }
      pass();
      opt.step();
      if (group.rank() != 0) continue;
      found = {fsdp.shard_group().bytes_sent() - gathered, group.bytes_sent() - reduced};
    }
  });
  BOOST_TEST(failure == "");
  return found;
}

/// Headers are 64 bytes a link and operation; ahead of the gradients travel a few numbers.
void check(std::size_t sent, std::size_t payload, std::size_t operations, int world) {
  BOOST_TEST(sent >= payload);
  BOOST_TEST(sent <= payload + operations * 2 * static_cast<std::size_t>(world) * 128);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_step_sends_what_the_formulas_say) {
  using parx::after_forward;
  for (const int world : {2, 3, 4}) {
    const auto ranks = static_cast<std::size_t>(world);
    const std::size_t once = all_bytes / ranks * (ranks - 1);  // 4096 floats: see below
    const std::size_t part = (4096 / 16 + ranks - 1) / ranks * 16 * sizeof(float);
    const std::size_t exact = 4 * part * (ranks - 1);  // with parts that end at cache lines
    BOOST_TEST(exact < once + once / 50);
    for (const int stage : {1, 2, 3}) {
      const traffic sent =
          traffic_of(world, stage, 1, after_forward::release, parx::reduction_order::any);
      check(sent.gathered, stage == 3 ? 2 * exact : exact, 8, world);
      check(sent.reduced, exact, 5, world);
      // Sums in serial order go through the ranks one after the other, whole.
      const traffic serial = traffic_of(world, stage, 1, after_forward::release);
      check(serial.reduced, world == 2 ? exact : all_bytes, 5, world);
    }
  }
}

BOOST_AUTO_TEST_CASE(units_that_are_kept_are_gathered_once_a_step) {
  const traffic sent = traffic_of(2, 3, 1, parx::after_forward::keep);
  check(sent.gathered, all_bytes / 2, 4, 2);
}

BOOST_AUTO_TEST_CASE(accumulation_under_no_sync_saves_the_traffic_of_gradients) {
  using parx::after_forward;
  for (const int stage : {1, 2, 3}) {
    const traffic sent = traffic_of(2, stage, 4, after_forward::release);
    check(sent.reduced, all_bytes / 2, 5, 2);
    check(sent.gathered, (stage == 3 ? 8 : 1) * all_bytes / 2, stage == 3 ? 32 : 4, 2);
  }
}
