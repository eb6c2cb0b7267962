// The trainer in float16: what its loss scale does over ranks, clipping, and a resume; and the
// random numbers of its steps.
#include <parx/train/trainer.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "runs.hpp"
#include <messages.hpp>

#include <parx/fsdp.hpp>
#include <parx/mesh.hpp>
#include <parx/optim/sgd.hpp>
#include <parx/parallel.hpp>

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

const auto in_a_pipeline = [](auto& pipe, auto& batch) {
  return pipe.forward_backward(batch, [](auto& logits, auto& part) {
    return parx::nn::cross_entropy(logits, part.y);
  });
};

using batch_type = decltype(points(1).fetch({}));
/// One type for all, so that one trainer is compiled.
using loss_function =
    std::function<parx::weighted_loss<float>(parx::ddp<classifier>&, batch_type&)>;

/// Under ddp; what each rank has.
std::vector<trained> under_ddp(int world, const train::trainer_options& options,
                               const loss_function& loss, double dropout = 0) {
  std::vector<trained> made(static_cast<std::size_t>(world));
  parx::run_threads(world, [&](parx::process_group& group) {
    classifier model(dropout);
    model.initialize(3);
    parx::ddp ddp{model, group};
    made[static_cast<std::size_t>(group.rank())] = train_in(ddp, options, loss);
  });
  return made;
}
trained alone(const train::trainer_options& options, const loss_function& loss) {
  return under_ddp(1, options, loss)[0];
}

train::trainer_options in_float16(std::uint64_t steps) {
  auto options = quiet(steps);
  options.fp16 = true;
  options.lr_scheduler_type = parx::optim::decay::constant;
  return options;
}

/// In float16, with what `add` makes of the logits added to the loss.
template <typename Add>
train::trainer_state in_float16_with(train::trainer_options options, Add add) {
  options.fp16 = true;
  return alone(options,
               [=](auto& m, auto& batch) {
                 const auto logits = m(batch.x);
                 auto loss = parx::nn::cross_entropy(logits, batch.y);
                 loss.sum = loss.sum + add(logits);
                 return loss;
               })
      .state;
}

/// Its gradient is NaN at any scale, though its value is 0.
parx::variable<float> bad_in_backward(const parx::variable<float>& logits) {
  return parx::sum(logits * 0.0F * 1e30F * 1e30F);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_step_and_rank_drops_other_features_by_the_seed_of_the_run) {
  using masks = std::vector<std::vector<float>>;
  const auto masks_of = [](std::uint64_t seed) {
    std::array<masks, 2> found;
    auto options = quiet(6);
    options.learning_rate = 0;
    options.seed = seed;
    (void)under_ddp(
        2, options,
        [&](auto& m, auto& batch) {
          const auto mask =
              m.module().noise(parx::variable<float>(tensor<float>::ones({64}))).value();
          found[static_cast<std::size_t>(m.group().rank())].emplace_back(mask.begin(), mask.end());
          return ordinary(m, batch);
        },
        0.5);
    found[0].insert(found[0].end(), found[1].begin(), found[1].end());
    return found[0];
  };
  const masks first = masks_of(1), other = masks_of(2);
  BOOST_TEST((masks_of(1) == first));
  masks all = first;
  all.insert(all.end(), other.begin(), other.end());
  std::sort(all.begin(), all.end());
  BOOST_TEST(all.size() == 24u);
  BOOST_TEST((std::adjacent_find(all.begin(), all.end()) == all.end()));
}

BOOST_AUTO_TEST_CASE(float16_with_clipping_takes_the_steps_of_float) {
  constexpr double lr = 0.3, limit = 0.05;  // below every norm here
  auto options = quiet(12);
  options.lr_scheduler_type = parx::optim::decay::constant;
  options.max_grad_norm = limit;
  options.learning_rate = 0;
  const trained start = alone(options, ordinary);
  options.learning_rate = lr;
  const trained expected = alone(options, ordinary);
  options.fp16 = true;
  const trained found = alone(options, ordinary);
  BOOST_TEST(curve(found.state, "loss_scale").back() == 65536);
  const auto distance = [](const trained& a, const trained& b) {
    double squares = 0;
    for (std::size_t i = 0; i < a.values.size(); ++i)
      squares += std::pow(static_cast<double>(a.values[i] - b.values[i]), 2);
    return std::sqrt(squares);
  };
  // Every step is as long as the limit allows, so all of them together go no further.
  BOOST_TEST(distance(expected, start) <= 12 * lr * limit * 1.001);
  BOOST_TEST(distance(expected, start) > 6 * lr * limit);
  BOOST_TEST(distance(found, expected) < 0.01 * distance(expected, start));
  BOOST_TEST(distance(found, expected) > 0);  // the products are rounded
  const auto norms = curve(expected.state, "grad_norm"), halves = curve(found.state, "grad_norm");
  for (std::size_t i = 0; i < norms.size(); ++i) {
    BOOST_TEST(norms[i] > limit);  // logged is the norm before clipping, without the scale
    BOOST_TEST(std::abs(halves[i] - norms[i]) < 0.01 * norms[i]);
  }
}

BOOST_AUTO_TEST_CASE(a_run_in_float16_resumes_with_the_scale_that_it_was_saved_with) {
  // Step 1 overflows; then the scale grows after 2000 steps in a row, which the resume interrupts.
  const auto train = [](const std::string& place, std::uint64_t steps, bool overflows) {
    auto options = in_float16(steps);
    options.logging_steps = 500;
    options.output_dir = place;
    options.save_strategy = train::strategy::steps;
    options.save_steps = 1500;
    options.resume_from_checkpoint = train::resume::latest;
    return alone(options, [=](auto& m, auto& batch) mutable {
      const auto logits = m(batch.x);
      auto loss = parx::nn::cross_entropy(logits, batch.y);
      if (std::exchange(overflows, false)) loss.sum = loss.sum + parx::sum(logits * logits) * 1e4F;
      return loss;
    });
  };
  const folder whole("scale_whole"), cut("scale_cut");
  const trained expected = train(whole.path, 2002, true);
  const auto scales = curve(expected.state, "loss_scale");
  BOOST_TEST((scales == std::vector<double>{32768, 32768, 32768, 32768, 65536}));
  (void)train(cut.path, 1500, true);
  const trained resumed = train(cut.path, 2002, false);
  BOOST_TEST(curve(resumed.state, "loss_scale") == scales, boost::test_tools::per_element());
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
    classifier net(0);
    parx::parallel model{
        net, world, {.tp = 2}, {.tp = {{"first", parx::tp::column}, {"second", parx::tp::row}}}};
    model.initialize(3);
    return train_in(model, options_for(overflows), [&](auto& m, auto& batch) {
      return m.forward_backward(batch, [&](auto& logits, auto& part) {
        auto loss = parx::nn::cross_entropy(logits, part.y);
        if (overflows && world.rank() == 1)
          loss.sum = loss.sum + parx::sum(net.first.weight()) * 1e37F;
        return loss;
      });
    });
  });
  expect_skipped("pp", [&](parx::process_group& group, bool overflows) {
    parx::nn::sequential model{parx::nn::linear{2, 16}, parx::nn::relu{}, parx::nn::linear{16, 4}};
    model.initialize(3);
    parx::parallel pipe{model, group, {.pp = 2, .microbatches = 2}};
    return train_in(pipe, options_for(overflows), [&](auto& p, auto& batch) {
      return p.forward_backward(batch, [&](auto& logits, auto& part) {  // in the last stage
        auto loss = parx::nn::cross_entropy(logits, part.y);
        if (overflows) loss.sum = loss.sum + parx::sum(model.template get<2>().weight()) * 1e37F;
        return loss;
      });
    });
  });
}

BOOST_AUTO_TEST_CASE(a_pipeline_in_float16_takes_the_steps_of_one_process) {
  auto options = in_float16(12);
  options.logging_steps = 1;
  const auto make = [] {
    parx::nn::sequential model{parx::nn::linear{2, 16}, parx::nn::relu{}, parx::nn::linear{16, 4}};
    model.initialize(3);
    return model;
  };
  trained alone;
  std::array<trained, 2> stages;
  parx::run_threads(1, [&](parx::process_group& group) {
    auto model = make();
    parx::ddp ddp{model, group};
    alone = train_in(ddp, options, ordinary);
  });
  parx::run_threads(2, [&](parx::process_group& group) {
    auto model = make();
    parx::parallel pipe{model, group, {.pp = 2, .microbatches = 2}};
    stages[static_cast<std::size_t>(group.rank())] = train_in(pipe, options, in_a_pipeline);
  });
  for (const trained& each : stages) {
    BOOST_TEST(curve(each.state, "loss_scale") == curve(alone.state, "loss_scale"),
               boost::test_tools::per_element());
    BOOST_TEST(curve(each.state, "loss") == curve(alone.state, "loss"),
               boost::test_tools::tolerance(1e-3) << boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(float16_is_refused_where_a_loss_function_runs_backward_itself) {
  std::string said;
  parx::run_threads(1, [&](parx::process_group& group) {
    classifier model(0);
    model.initialize(3);
    parx::ddp ddp{model, group};
    said = parx_test::message_of([&] {
      (void)train_in(ddp, in_float16(1), [](auto& m, auto& batch) {
        const auto loss = ordinary(m, batch);
        loss.backward();
        return parx::nn::tally{loss.mean() * loss.count, loss.count};
      });
    });
  });
  BOOST_TEST(parx_test::mentions(said, "fp16 scales the loss", "take bf16"), said);
}

BOOST_AUTO_TEST_CASE(a_loss_scale_that_falls_and_falls_stops_training) {
  const auto text =
      parx_test::message_of([&] { (void)in_float16_with(quiet(100), bad_in_backward); });
  BOOST_TEST(parx_test::mentions(text, "the loss scale has fallen to", "in step 30 "), text);
}

BOOST_AUTO_TEST_CASE(gradients_that_overflow_by_the_loss_scale_are_no_anomaly) {
  auto options = quiet(20);
  options.detect_anomaly = true;
  const auto state = in_float16_with(
      options, [](const auto& logits) { return parx::sum(logits * logits) * 1e3F; });
  const auto scales = curve(state, "loss_scale");
  BOOST_REQUIRE(scales.size() == 20u);
  BOOST_TEST(scales.front() == 32768);  // the first step overflowed and was left out
  BOOST_TEST(scales.back() > 1);
}

BOOST_AUTO_TEST_CASE(an_overflow_at_every_loss_scale_is_reported_when_the_scale_is_one) {
  auto options = quiet(100);
  options.detect_anomaly = true;
  const auto text = parx_test::message_of([&] { (void)in_float16_with(options, bad_in_backward); });
  // From 65536 = 2^16 down to 1.
  BOOST_TEST(parx_test::mentions(text, "Inf or NaN out of finite numbers", "step 17, rank 0"),
             text);
}

BOOST_AUTO_TEST_CASE(a_non_finite_forward_pass_is_an_anomaly_at_any_loss_scale) {
  auto options = quiet(5);
  options.detect_anomaly = true;
  const auto text = parx_test::message_of([&] {
    (void)in_float16_with(options,
                          [](const auto& logits) { return parx::sum(logits * 1e38F * 1e38F); });
  });
  BOOST_TEST(parx_test::mentions(text, "Inf or NaN out of finite numbers", "step 1, rank 0"), text);
}
