#include <parx/checkpoint/hook_state.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "runs.hpp"
#include <messages.hpp>
#include <parx/ddp/hook_compress.hpp>
#include <parx/ddp/hook_powersgd.hpp>

using namespace runs;

namespace {

const parx::powersgd_hook powersgd({.start_step = 3, .min_compression_rate = 1});

// 50 samples in batches of 8 a rank: the steps of an epoch have 16, 16, 16 and 2.
setup with_hook(const parx::comm_hook& hook, const folder& place) {
  setup s{.options = quiet(20), .hook = hook};
  s.options.output_dir = place.path;
  s.options.save_steps = 3;
  return s;
}

// Trains until `step` has been made, and is killed then: the checkpoint before it is the last.
void killed_at(std::uint64_t step, int world, const setup& s) {
  const auto run = [&] {
    on_ranks(world, s, [&](auto& trainer) {
      trainer.add_callbacks({.on_step_end = [&](const train::trainer_state& state) {
        if (state.global_step == step) throw std::runtime_error("killed");
      }});
    });
  };
  BOOST_CHECK_THROW(run(), std::runtime_error);
}

setup resumed(setup s) {
  s.options.resume_from_checkpoint = train::resume::latest;
  return s;
}

// What the ranks had left out of their gradients at a checkpoint: one row a rank, times the scale.
std::vector<double> sum_left_out(const std::string& checkpoint) {
  const parx::safetensors_file file(checkpoint + "/gradient_hook.safetensors");
  const parx::stored_tensor* const stored = file.find("bucket.0.left_out");
  BOOST_REQUIRE(stored != nullptr);
  std::vector<float> rows(stored->shape[0] * stored->shape[1]);
  file.read(*stored, std::as_writable_bytes(std::span(rows)));
  std::vector<double> sum(stored->shape[1]);
  for (std::size_t i = 0; i < rows.size(); ++i) sum[i % sum.size()] += static_cast<double>(rows[i]);
  return sum;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_run_with_powersgd_that_resumes_in_mid_epoch_ends_in_the_same_bits) {
  // They go on at 9, and at 12, before which comes the small last step of an epoch.
  for (const std::uint64_t killed : {std::uint64_t{11}, std::uint64_t{14}}) {
    const folder whole_place("hook_whole"), cut_place("hook_cut");
    const auto whole = on_ranks(2, with_hook(powersgd, whole_place));
    const setup cut = with_hook(powersgd, cut_place);
    killed_at(killed, 2, cut);
    const parx_test::captured_log warnings;
    for (const result& each : on_ranks(2, resumed(cut))) {
      BOOST_TEST(each.parameters == whole[0].parameters);
      BOOST_TEST(curve(each.state, "grad_norm") == curve(whole[0].state, "grad_norm"));
    }
    BOOST_TEST(warnings.lines().size() == 0u, warnings.text());
  }
}

// A hook's scale is made of them, and float16 rounds small gradients by the scale.
BOOST_AUTO_TEST_CASE(every_hook_goes_on_with_the_samples_of_the_last_step) {
  const folder place("hook_count");
  killed_at(5, 2, with_hook(parx::fp16_compress_hook{}, place));
  parx::run_threads(2, [&](parx::process_group& group) {
    classifier model(0);
    parx::ddp ddp{model, group, {.hook = parx::fp16_compress_hook{}}};
    parx::load_hook_state(ddp, parx::saved_checkpoint::open(place.path + "/checkpoint-3"));
    const auto memory = ddp.hook_state();
    if (memory.size() != 1 || *static_cast<const double*>(memory[0].values.data) != 16)
      throw std::runtime_error("the samples of the last step are not 16");
  });
}

BOOST_AUTO_TEST_CASE(another_number_of_ranks_shares_out_what_was_left_out) {
  const folder place("hook_worlds");
  killed_at(8, 2, with_hook(powersgd, place));
  const auto before = sum_left_out(place.path + "/checkpoint-6");
  std::vector<std::vector<double>> shares(3);
  parx::run_threads(3, [&](parx::process_group& group) {
    classifier model(0);
    parx::ddp ddp{model, group, {.hook = powersgd}};
    parx::load_hook_state(ddp, parx::saved_checkpoint::open(place.path + "/checkpoint-6"));
    for (const parx::hook_memory& each : ddp.hook_state()) {
      if (each.name != "bucket.0.left_out") continue;
      const auto* const values = static_cast<const float*>(each.values.data);
      shares[static_cast<std::size_t>(group.rank())].assign(values, values + each.values.count);
    }
  });
  double size = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    size += std::abs(before[i]);
    BOOST_TEST(std::abs(shares[0][i] + shares[1][i] + shares[2][i] - before[i]) < 1e-6);
    BOOST_TEST(shares[0][i] == shares[2][i]);
  }
  BOOST_TEST(size > 0.01);  // there was something to keep
}

BOOST_AUTO_TEST_CASE(a_hook_whose_checkpoint_has_nothing_for_it_begins_anew_and_says_so) {
  const folder place("hook_others");
  setup s = with_hook({}, place);
  s.options.max_steps = 5;
  (void)on_ranks(2, s);
  s = resumed(s);
  const auto said_with = [&](const parx::comm_hook& hook) {
    s.hook = hook;
    s.options.max_steps += 5;
    const parx_test::captured_log warnings;
    (void)on_ranks(2, s);
    BOOST_TEST(warnings.lines().size() <= 1u, warnings.text());  // by rank 0 alone
    return warnings.text();
  };
  BOOST_TEST(said_with(parx::fp16_compress_hook{}) == "");  // has nothing to begin anew with
  BOOST_TEST(parx_test::mentions(said_with(powersgd), "checkpoint-10", "another gradient hook"));
  const parx::powersgd_hook wider({.rank = 2, .start_step = 3, .min_compression_rate = 0.5});
  BOOST_TEST(parx_test::mentions(said_with(wider), "other options of it", "starts without state"));
  BOOST_TEST(parx_test::mentions(said_with({}), "this run has none"));
  BOOST_TEST(parx_test::mentions(said_with(powersgd), "without the state of a gradient hook"));
  BOOST_TEST(said_with(powersgd) == "");
}
