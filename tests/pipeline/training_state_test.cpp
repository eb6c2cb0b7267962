// The trainer drives a pipeline as it drives a ddp, and what it saves loads at any other layout.
#include <parx/pipeline/training_state.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <ddp/ranks.hpp>
#include <train/runs.hpp>

#include <parx/mesh.hpp>
#include <parx/nn.hpp>
#include <parx/pipeline/zb1p.hpp>
#include <parx/train/wrapped_model.hpp>

namespace {

namespace train = parx::train;
namespace nn = parx::nn;

auto make_model() {
  return nn::sequential{nn::linear{2, 16}, nn::relu{}, nn::linear{16, 16}, nn::relu{},
                        nn::linear{16, 16}, nn::relu{}, nn::linear{16, 4}};
}
using model_type = decltype(make_model());

static_assert(train::wrapped_model<parx::pipeline<model_type, parx::tensor<float>, float>,
                                   parx::optim::adamw<float>>);

struct outcome {
  std::vector<double> losses, norms, evaluated;
  std::map<std::string, std::vector<float>> values;
};

const auto criterion = [](const parx::variable<float>& y, const auto& batch) {
  return nn::cross_entropy(y, batch.y, {.row_weights = batch.weights});
};

template <typename Wrapper, typename Step, typename Measure>
outcome run(Wrapper& wrapper, Step step, Measure measure, train::trainer_options options) {
  const auto source = runs::points(48);
  parx::optim::adamw optimizer{wrapper.parameters(), {.lr = 0.02}};
  const auto loader_of = [&](std::size_t rows) {
    return parx::data::loader{
        source,
        {.batch_size = rows,
         .sampler = parx::data::distributed_sampler{48, wrapper.data_group(), {.seed = 5}}}};
  };
  const auto loader = loader_of(4);
  train::trainer trainer{wrapper, optimizer, loader, step, options};
  trainer.add_evaluation(loader, measure);
  (void)trainer.train();
  outcome made{runs::curve(trainer.state(), "loss"), runs::curve(trainer.state(), "grad_norm"),
               runs::curve(trainer.state(), "eval_loss"), {}};
  wrapper.module().for_each_parameter([&](const std::string& path, auto& p) {
    made.values[path] = {p.value().begin(), p.value().end()};
  });
  return made;
}

outcome by_ddp(const train::trainer_options& options, int world) {
  return on_ranks(world, [&](parx::process_group& group) {
    model_type model = make_model();
    parx::ddp ddp{model, group};
    return run(
        ddp, [](auto& m, auto& batch) { return criterion(m(batch.x), batch); },
        [](auto& m, auto& batch) {
          const auto loss = criterion(m(batch.x), batch);
          return train::metrics{{"loss", {static_cast<double>(loss.sum.item()), loss.count}}};
        },
        options);
  })[0];
}

outcome by_pipeline(const train::trainer_options& options, int stages, int replicas) {
  const auto ranks = on_ranks(stages * replicas, [&](parx::process_group& world) {
    parx::mesh<"pp", "dp"> mesh{world, {stages, replicas}};
    model_type model = make_model();
    parx::pipeline pipe{model, mesh["pp"],
                        {.schedule = parx::schedules::zb1p, .microbatches = 2,
                         .data_parallel = &mesh["dp"], .job = &mesh.all()}};
    return run(
        pipe, [](auto& p, auto& batch) { return p.step(batch, criterion); },
        [](auto& p, auto& batch) {
          return train::metrics{{"loss", p.evaluate(batch, criterion)}};
        },
        options);
  });
  outcome all = ranks[0];
  for (const outcome& each : ranks) {
    BOOST_TEST(each.norms == all.norms);
    for (const auto& [path, values] : each.values) all.values[path] = values;
  }
  return all;
}

bool close(double a, double b) { return std::abs(a - b) <= 2e-5 * (1 + std::abs(b)); }

void expect_close(const outcome& found, const outcome& expected) {
  BOOST_TEST_REQUIRE(found.losses.size() == expected.losses.size());
  BOOST_TEST_REQUIRE(found.evaluated.size() == expected.evaluated.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    BOOST_TEST(close(found.losses[i], expected.losses[i]), "loss " << i);
    BOOST_TEST(close(found.norms[i], expected.norms[i]), "norm " << i);
  }
  for (std::size_t i = 0; i < expected.evaluated.size(); ++i) {
    BOOST_TEST(close(found.evaluated[i], expected.evaluated[i]), "evaluation " << i);
  }
  BOOST_TEST_REQUIRE(found.values.size() == expected.values.size());
  for (const auto& [path, values] : expected.values) {
    const auto& here = found.values.at(path);
    bool all = here.size() == values.size();
    for (std::size_t i = 0; all && i < values.size(); ++i) {
      all = close(static_cast<double>(here[i]), static_cast<double>(values[i]));
    }
    BOOST_TEST(all, path << " differs");
  }
}

train::trainer_options plain() {
  auto options = runs::quiet(10);
  options.max_grad_norm = 0.5;
  options.gradient_accumulation_steps = 2;
  options.lr_scheduler_type = parx::optim::decay::constant;
  options.eval_strategy = train::strategy::steps;
  options.eval_steps = 5;
  return options;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_trainer_drives_a_pipeline_as_it_drives_a_ddp) {
  const outcome expected = by_ddp(plain(), 1);
  BOOST_TEST(expected.losses.size() == 10);
  BOOST_TEST(expected.evaluated.size() == 2);
  for (const int stages : {1, 2, 3}) expect_close(by_pipeline(plain(), stages, 1), expected);
  expect_close(by_pipeline(plain(), 2, 2), by_ddp(plain(), 2));
}

BOOST_AUTO_TEST_CASE(a_run_is_resumed_with_other_stages_and_by_a_ddp) {
  const auto whole = plain();
  const outcome expected = by_ddp(whole, 1);
  for (const int again : {0, 3}) {  // 0: a ddp
    const runs::folder place("pipeline_resume");
    auto options = whole;
    options.output_dir = place.path;
    options.save_strategy = train::strategy::steps;
    options.save_steps = 4;
    auto shorter = options;
    shorter.max_steps = 4;
    (void)by_pipeline(shorter, 2, 1);
    options.resume_from_checkpoint = train::resume::latest;
    expect_close(again == 0 ? by_ddp(options, 1) : by_pipeline(options, again, 1), expected);
  }
}
