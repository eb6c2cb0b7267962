// The trainer in float16: what its loss scale does over ranks, clipping, and a resume; and the
// random numbers of its steps.
#include <parx/train/trainer.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "runs.hpp"
#include <messages.hpp>

#include <parx/fsdp.hpp>
#include <parx/fsdp/training_state.hpp>
#include <parx/mesh.hpp>
#include <parx/optim/sgd.hpp>
#include <parx/pipeline/pipeline.hpp>
#include <parx/pipeline/training_state.hpp>
#include <parx/tensor_parallel/parallelize.hpp>
#include <parx/tensor_parallel/training_state.hpp>

using namespace runs;

namespace {

struct trained {
  std::vector<float> values;  // of this rank's parameters
  train::trainer_state state;
};

template <typename Wrapper>
std::vector<float> values_of(Wrapper& wrapper) {
  std::vector<float> all;
  for (const auto& each : wrapper.parameters()) {
    const auto values = each.value().span();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

/// Trains `wrapper` on 32 points by SGD.
template <typename Wrapper, typename Loss>
trained train_in(Wrapper& wrapper, const train::trainer_options& options, Loss loss) {
  const auto source = points(32);
  parx::optim::sgd opt{wrapper.parameters(), {.lr = 0.1}};
  const parx::data::loader loader{
      source,
      {.batch_size = 8 / static_cast<std::size_t>(wrapper.data_group().size()),
       .sampler = parx::data::distributed_sampler{32, wrapper.data_group(), {.seed = 5}}}};
  train::trainer trainer{wrapper, opt, loader, loss, options};
  trainer.train();
  return {values_of(wrapper), trainer.state()};
}

const auto ordinary = [](auto& m, auto& batch) {
  return parx::nn::cross_entropy(m(batch.x), batch.y);
};

/// One rank under ddp; `loss` gets the wrapper and the batch.
template <typename Loss>
trained alone(train::trainer_options options, Loss loss, double dropout = 0) {
  trained made;
  parx::run_threads(1, [&](parx::process_group& group) {
    classifier model(dropout);
    model.initialize(3);
    parx::ddp ddp{model, group};
    made = train_in(ddp, options, loss);
  });
  return made;
}

train::trainer_options in_float16(std::uint64_t steps) {
  auto options = quiet(steps);
  options.fp16 = true;
  options.lr_scheduler_type = parx::optim::decay::constant;
  return options;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_step_and_rank_drops_other_features) {
  std::array<std::vector<std::vector<float>>, 2> masks;
  const auto train = [&](std::uint64_t steps) {
    parx::run_threads(2, [&](parx::process_group& group) {
      classifier model(0.5);
      model.initialize(3);
      parx::ddp ddp{model, group};
      auto options = quiet(steps);
      options.learning_rate = 0;
      (void)train_in(ddp, options, [&](auto& m, auto& batch) {
        const auto mask =
            m.module().noise(parx::variable<float>(tensor<float>::ones({64}))).value();
        masks[static_cast<std::size_t>(group.rank())].emplace_back(mask.begin(), mask.end());
        return ordinary(m, batch);
      });
    });
  };
  train(6);
  auto all = masks[0];
  all.insert(all.end(), masks[1].begin(), masks[1].end());
  BOOST_TEST(all.size() == 12u);
  std::sort(all.begin(), all.end());
  BOOST_TEST((std::adjacent_find(all.begin(), all.end()) == all.end()));
  const auto first = std::exchange(masks, {});
  train(6);
  BOOST_TEST((masks == first));  // of another run with the same seed
}

BOOST_AUTO_TEST_CASE(float16_with_clipping_takes_the_steps_of_float) {
  auto options = quiet(12);
  options.learning_rate = 0.3;
  options.max_grad_norm = 0.05;  // below every norm here
  const trained expected = alone(options, ordinary);
  for (const double norm : curve(expected.state, "grad_norm")) BOOST_TEST_REQUIRE(norm > 0.05);
  options.fp16 = true;
  const trained found = alone(options, ordinary);
  BOOST_TEST(curve(found.state, "loss_scale").back() == 65536);
  const trained start = alone(
      [] {
        auto none = quiet(1);
        none.learning_rate = 0;
        return none;
      }(),
      ordinary);
  double moved = 0, apart = 0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    moved = std::max<double>(moved, std::abs(expected.values[i] - start.values[i]));
    apart = std::max<double>(apart, std::abs(expected.values[i] - found.values[i]));
  }
  BOOST_TEST(moved > 0.02);
  BOOST_TEST(apart < 0.01 * moved);
  const auto norms = curve(expected.state, "grad_norm"), halves = curve(found.state, "grad_norm");
  for (std::size_t i = 0; i < norms.size(); ++i)  // logged is the true norm, before clipping
    BOOST_TEST(std::abs(halves[i] - norms[i]) < 0.01 * norms[i]);
}

BOOST_AUTO_TEST_CASE(a_run_in_float16_resumes_with_the_scale_that_it_was_saved_with) {
  // Step 1 overflows; then the scale grows after 2000 steps in a row, which the resume interrupts.
  const auto train = [](const std::string& place, std::uint64_t steps) {
    auto options = in_float16(steps);
    options.logging_steps = 1000;
    options.output_dir = place;
    options.save_strategy = train::strategy::steps;
    options.save_steps = 1500;
    options.resume_from_checkpoint = train::resume::latest;
    std::uint64_t pass = 0;
    return alone(options, [=](auto& m, auto& batch) mutable {
      const auto logits = m(batch.x);
      auto loss = parx::nn::cross_entropy(logits, batch.y);
      const bool overflows = !std::filesystem::exists(place + "/checkpoint-1500") && pass++ == 0;
      if (overflows) loss.sum = loss.sum + parx::sum(logits * logits) * 1e4F;
      return loss;
    });
  };
  const folder whole("scale_whole"), cut("scale_cut");
  const trained expected = train(whole.path, 2002);
  BOOST_TEST(curve(expected.state, "loss_scale").front() == 32768);
  BOOST_TEST(curve(expected.state, "loss_scale").back() == 65536);
  (void)train(cut.path, 1500);
  const trained resumed = train(cut.path, 2002);
  BOOST_TEST(resumed.state.global_step == 2002u);
  BOOST_TEST(curve(resumed.state, "loss_scale").back() == 65536);
  BOOST_TEST((resumed.values == expected.values));
}

BOOST_AUTO_TEST_CASE(an_overflow_in_one_ranks_part_of_the_gradients_skips_the_step_on_all) {
  // The term's gradient is Inf once it is scaled, in elements that one rank of two has.
  const auto expect_skipped = [](const std::string& what, auto body) {
    std::array<std::array<trained, 2>, 2> ranks;  // without a step, after one
    parx::run_threads(2, [&](parx::process_group& group) {
      for (const bool overflows : {false, true}) {
        ranks[overflows][static_cast<std::size_t>(group.rank())] = body(group, overflows);
      }
    });
    for (std::size_t rank = 0; rank < 2; ++rank) {
      BOOST_TEST(curve(ranks[1][rank].state, "loss_scale").back() == 32768,
                 what << ", rank " << rank);
      BOOST_TEST((ranks[1][rank].values == ranks[0][rank].values), what << ", rank " << rank);
    }
  };
  const auto options_for = [](bool overflows) {
    auto options = in_float16(1);
    options.max_grad_norm = 0;
    options.logging_steps = 1;
    if (!overflows) options.learning_rate = 0;  // the values that a skipped step leaves
    return options;
  };
  for (const int stage : {1, 3}) {
    expect_skipped("fsdp", [&](parx::process_group& group, bool overflows) {
      classifier model(0);
      model.initialize(3);
      parx::fsdp fsdp{model, group, {.stage = stage}};
      return train_in(fsdp, options_for(overflows), [&](auto& m, auto& batch) {
        auto loss = ordinary(m, batch);
        // The first element of all: rank 0 has it.
        if (overflows) {
          loss.sum = loss.sum + fsdp.call([&] {
            return parx::sum(parx::slice(model.first.weight(), 0, 0, 1)) * 1e37F;
          });
        }
        return loss;
      });
    });
  }
  expect_skipped("tp", [&](parx::process_group& world, bool overflows) {
    parx::mesh<"dp", "tp"> mesh{world, {1, 2}};
    classifier model(0);
    const auto cut = parx::parallelize(model, mesh["tp"],
                                       {{"first", parx::tp::column}, {"second", parx::tp::row}});
    model.initialize(3);
    parx::ddp ddp{model, mesh["dp"]};
    parx::tensor_parallel both{cut, ddp, mesh.all()};
    return train_in(both, options_for(overflows), [&](auto& m, auto& batch) {
      auto loss = ordinary(m, batch);
      if (overflows && world.rank() == 1)
        loss.sum = loss.sum + parx::sum(model.first.weight()) * 1e37F;
      return loss;
    });
  });
}

BOOST_AUTO_TEST_CASE(float16_for_a_pipeline_is_refused_with_what_to_take) {
  std::array<std::string, 2> said;
  parx::run_threads(2, [&](parx::process_group& group) {
    parx::nn::sequential model{parx::nn::linear{2, 16}, parx::nn::relu{}, parx::nn::linear{16, 4}};
    parx::pipeline pipe{model, group, {.microbatches = 2}};
    said[static_cast<std::size_t>(group.rank())] = parx_test::message_of([&] {
      (void)train_in(pipe, in_float16(1), [](auto& m, auto& batch) {
        return m.step(batch, [](auto& logits, auto& part) {
          return parx::nn::cross_entropy(logits, part.y);
        });
      });
    });
  });
  for (const std::string& each : said)
    BOOST_TEST(parx_test::mentions(each, "fp16 scales the loss", "take bf16"), each);
}
