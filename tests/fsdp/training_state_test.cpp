#include <parx/fsdp/sharding.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <ddp/ranks.hpp>
#include <train/runs.hpp>

#include <parx/checkpoint/save.hpp>
#include <parx/fsdp.hpp>
#include <parx/train/wrapped_model.hpp>

namespace {

namespace train = parx::train;
using runs::classifier;

static_assert(train::wrapped_model<parx::fsdp<classifier>, parx::optim::adamw<float>>);

// What a run by the trainer ends with: the curve of the loss, the norms, and the values.
struct outcome {
  std::vector<double> losses, norms;
  std::uint64_t hash = 0;
  friend bool operator==(const outcome&, const outcome&) = default;
};

template <typename Wrapper>
outcome train_with(Wrapper& wrapper, const train::trainer_options& options) {
  const auto source = runs::points(50);
  parx::optim::adamw opt{wrapper.parameters(), {.lr = 0.02}};
  const parx::data::loader loader{
      source, {.batch_size = 4,
               .sampler = parx::data::distributed_sampler{50, wrapper.data_group(), {.seed = 5}}}};
  train::trainer trainer{wrapper, opt, loader,
                         [](auto& m, auto& batch) {
                           return parx::nn::cross_entropy(m(batch.x), batch.y,
                                                          {.row_weights = batch.weights});
                         },
                         options};
  (void)trainer.train();
  return {runs::curve(trainer.state(), "loss"), runs::curve(trainer.state(), "grad_norm"),
          wrapper.values_hash()};
}

std::vector<outcome> trained(int world, int stage, const train::trainer_options& options) {
  return on_ranks(world, [&](parx::process_group& group) {
    classifier model(0.1);
    model.initialize(3);
    if (stage == 0) {
      parx::ddp ddp{model, group, {.order = parx::reduction_order::serial}};
      return train_with(ddp, options);
    }
    parx::fsdp fsdp{model, group, {.stage = stage, .units = parx::by_type<parx::nn::linear<>>}};
    return train_with(fsdp, options);
  });
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_trainer_drives_an_fsdp_to_the_bits_of_a_ddp) {
  auto options = runs::quiet(12);
  options.gradient_accumulation_steps = 2;
  options.max_grad_norm = 0.5;
  const auto expected = trained(2, 0, options);
  BOOST_TEST(expected[0].losses.size() == 12);
  for (const int stage : {1, 2, 3}) BOOST_TEST((trained(2, stage, options) == expected));
}

BOOST_AUTO_TEST_CASE(a_run_is_resumed_in_another_stage_to_the_same_bits) {
  auto whole = runs::quiet(10);
  whole.lr_scheduler_type = parx::optim::decay::constant;  // linear would depend on the last step
  const auto expected = trained(2, 0, whole);
  for (const int first : {0, 1, 3}) {
    const runs::folder place("fsdp_resume");
    auto options = whole;
    options.output_dir = place.path;
    options.save_strategy = train::strategy::steps;
    options.save_steps = 4;
    auto shorter = options;
    shorter.max_steps = 4;
    (void)trained(2, first, shorter);
    options.resume_from_checkpoint = train::resume::latest;
    BOOST_TEST((trained(2, first == 3 ? 1 : 3, options) == expected), "from stage " << first);
  }
}

BOOST_AUTO_TEST_CASE(a_state_of_four_ranks_loads_at_three_and_under_a_ddp) {
  const runs::folder place("fsdp_save");
  const auto wrap = [&](int world, auto use) {
    return on_ranks(world, [&](parx::process_group& group) {
      classifier model(0);
      model.initialize(3 + static_cast<std::uint64_t>(world));
      parx::fsdp fsdp{model, group, {.units = parx::by_type<parx::nn::linear<>>}};
      use(fsdp);
      return fsdp.values_hash();
    });
  };
  const auto saved = wrap(4, [&](auto& fsdp) {
    parx::save(fsdp, place.path + "/parts");
    parx::save(fsdp, place.path + "/whole.safetensors");
  });
  for (const std::string name : {"/parts", "/whole.safetensors"}) {
    const auto loaded = wrap(3, [&](auto& fsdp) { parx::load(fsdp, place.path + name); });
    BOOST_TEST(loaded == std::vector<std::uint64_t>(3, saved[0]), boost::test_tools::per_element());
    const auto by_ddp = on_ranks(1, [&](parx::process_group& group) {
      classifier model(0);
      parx::ddp ddp(model, group);
      parx::load(ddp, place.path + name);
      return ddp.values_hash();
    });
    BOOST_TEST(by_ddp[0] == saved[0]);
  }
}
