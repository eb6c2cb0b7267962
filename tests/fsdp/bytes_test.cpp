// What a step sends, against the formulas: with N ranks and parameters of P bytes, 2 P (N - 1) / N
// for stages 1 and 2, and 3 P (N - 1) / N for stage 3, whose units are gathered twice; half of that
// as bfloat16; and of gradients in hybrid sharding, whose parts alone leave a shard group.
#include <parx/fsdp.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <comm/jobs.hpp>
#include <fsdp/stack.hpp>

#include <parx/autograd.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using parx::dtype;
using parx::tensor;
constexpr auto sharded = parx::accumulated_gradients::sharded;
constexpr parx::wire_types half{.gather = dtype::bfloat16, .reduce = dtype::bfloat16};

// Each layer's 36864 weights are one flat, which up to 4 ranks cut into equal parts. It is large
// enough that sums in serial order go from every rank to every other.
using layer = stack::layer<192>;
using model = stack::model<layer>;
using recomputed_model = stack::model<parx::nn::checkpointed<layer>>;
constexpr std::size_t all_bytes = 4 * 192 * 192 * sizeof(float);

/// Bytes that a rank has sent in a step.
struct traffic {
  std::size_t values = 0;
  std::size_t gradients = 0;
  std::size_t to_replicas = 0;  ///< of these
};

/// The most that a rank has sent in the last of three steps. Each step has `passes`, all but the
/// last under no_sync. In pairs: the ranks cut the model two by two.
template <typename Model = model>
traffic traffic_of(int world, parx::fsdp_options options, int passes = 1, bool in_pairs = false) {
  std::vector<traffic> sent(static_cast<std::size_t>(world));
  options.units = parx::by_type<layer>;
  const std::string failure = jobs::run(jobs::kind::tcp, world, [&](parx::process_group& group) {
    Model m;
    auto its_options = options;
    const int first = group.rank() / 2 * 2;
    auto pair = in_pairs ? group.subgroup(std::array{first, first + 1})
                         : group.subgroup(std::array{group.rank()});
    if (in_pairs) its_options.shard_within = pair;
    parx::fsdp fsdp{m, group, its_options};
    parx::optim::sgd opt{fsdp.parameters(), {.lr = 0.01}};
    for (int step = 0; step < 3; ++step) {
      const auto before = fsdp.bytes_sent();
      const std::size_t replicas = fsdp.replica_group().bytes_sent();
      const auto pass = [&] {
        const auto x = tensor<float>::full({2, 192}, static_cast<float>(step + 1));
        parx::nn::mse_loss(fsdp(x), x).backward();
      };
      for (int i = 1; i < passes; ++i) {
        const auto guard = fsdp.no_sync();
        pass();
      }
      pass();
      opt.step();
      const auto after = fsdp.bytes_sent();
      sent[static_cast<std::size_t>(group.rank())] = {
          after.values - before.values, after.gradients - before.gradients,
          fsdp.replica_group().bytes_sent() - replicas};
    }
  });
  BOOST_TEST(failure == "");
  traffic most;
  for (const traffic& each : sent) {
    most.values = std::max(most.values, each.values);
    most.gradients = std::max(most.gradients, each.gradients);
    most.to_replicas = std::max(most.to_replicas, each.to_replicas);
  }
  return most;
}

/// Headers are 64 bytes a link and operation; ahead of the gradients travel a few numbers.
void check(std::size_t sent, std::size_t payload, std::size_t operations, int world) {
  BOOST_TEST(sent >= payload);
  BOOST_TEST(sent <= payload + operations * 2 * static_cast<std::size_t>(world) * 128);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_step_sends_what_the_formulas_say) {
  for (const int world : {2, 3, 4}) {
    const auto ranks = static_cast<std::size_t>(world);
    const std::size_t once = all_bytes / ranks * (ranks - 1);
    for (const int stage : {1, 2, 3}) {
      for (const auto order : {parx::reduction_order::any, parx::reduction_order::serial}) {
        const traffic sent = traffic_of(world, {.stage = stage, .order = order});
        check(sent.values, stage == 3 ? 2 * once : once, 8, world);
        check(sent.gradients, once, 5, world);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(bfloat16_halves_the_bytes_of_the_formula) {
  for (const int world : {2, 3}) {
    const auto ranks = static_cast<std::size_t>(world);
    const std::size_t once = all_bytes / ranks * (ranks - 1);
    for (const int stage : {1, 2, 3}) {
      const traffic sent = traffic_of(world, {.stage = stage, .wire = half});
      check(sent.values, (stage == 3 ? 2 * once : once) / 2, 8, world);
      check(sent.gradients, once / 2, 5, world);
    }
  }
}

BOOST_AUTO_TEST_CASE(units_that_are_kept_are_gathered_once_a_step) {
  const traffic sent = traffic_of(2, {.reshard_after_forward = parx::reshard_after_forward::no});
  check(sent.values, all_bytes / 2, 4, 2);
}

BOOST_AUTO_TEST_CASE(units_that_are_recomputed_are_gathered_for_that_and_not_again_for_backward) {
  for (const int world : {2, 3}) {
    const auto ranks = static_cast<std::size_t>(world);
    const std::size_t once = all_bytes / ranks * (ranks - 1);
    for (const int stage : {1, 2, 3}) {
      const traffic sent = traffic_of<recomputed_model>(world, {.stage = stage});
      check(sent.values, stage == 3 ? 2 * once : once, 8, world);
      check(sent.gradients, once, 5, world);
    }
    const traffic kept = traffic_of<recomputed_model>(
        world, {.reshard_after_forward = parx::reshard_after_forward::no});
    check(kept.values, once, 4, world);
  }
}

BOOST_AUTO_TEST_CASE(accumulation_under_no_sync_saves_the_traffic_of_gradients) {
  for (const int stage : {1, 2, 3}) {
    const traffic sent = traffic_of(2, {.stage = stage}, 4);
    check(sent.gradients, all_bytes / 2, 5, 2);
    check(sent.values, (stage == 3 ? 8 : 1) * all_bytes / 2, stage == 3 ? 32 : 4, 2);
  }
}

BOOST_AUTO_TEST_CASE(accumulation_in_parts_sends_the_gradients_of_every_pass) {
  for (const int stage : {2, 3}) {
    check(traffic_of(2, {.stage = stage, .accumulate = sharded}, 4).gradients, 2 * all_bytes, 17,
          2);
  }
}

BOOST_AUTO_TEST_CASE(hybrid_sharding_sends_shards_to_replicas_once_a_step) {
  // Two replicas of two parts.
  for (const int stage : {1, 2, 3}) {
    const traffic any =
        traffic_of(4, {.stage = stage, .order = parx::reduction_order::any}, 2, true);
    check(any.to_replicas, 2 * all_bytes / 2 / 2, 4, 2);
    check(any.gradients, all_bytes / 2 + any.to_replicas, 5, 4);
    // With the bits of a ddp: 3/4 and 1/4. A ddp sends 6/4.
    const traffic serial = traffic_of(4, {.stage = stage}, 2, true);
    check(serial.to_replicas, all_bytes / 4, 4, 2);
    check(serial.gradients, all_bytes * 3 / 4 + serial.to_replicas, 9, 4);
    if (stage == 3) check(serial.values, 4 * all_bytes / 2, 16, 2);
  }
  const traffic in_parts = traffic_of(4, {.accumulate = sharded}, 3, true);
  check(in_parts.to_replicas, all_bytes / 2, 4, 2);
  check(in_parts.gradients, 3 * all_bytes / 2 + in_parts.to_replicas, 13, 4);
  const traffic halves = traffic_of(4, {.wire = half}, 1, true);
  check(halves.to_replicas, all_bytes / 4, 4, 2);
  check(halves.gradients, all_bytes / 4 + halves.to_replicas, 5, 4);
  check(halves.values, 2 * all_bytes / 4, 8, 2);
}
