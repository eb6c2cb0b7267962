// The trainer drives a pipeline as it drives a ddp, and what it saves loads at any other layout.

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <ddp/ranks.hpp>
#include <pipeline/typed_pipeline.hpp>
#include <train/runs.hpp>

#include <parx/amp.hpp>
#include <parx/checkpoint/save.hpp>
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

static_assert(train::wrapped_model<typed_pipeline<model_type, parx::tensor<float>, float>,
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
  // The same program on a rank whose stage has no parameters.
  const parx::optim::adamw_options settings{.lr = 0.02};
  parx::optim::adamw optimizer{parx::optim::decay_groups(wrapper.parameters(), settings)};
  const auto loader_of = [&](std::size_t rows) {
    return parx::data::loader{
        source,
        {.batch_size = rows,
         .sampler = parx::data::distributed_sampler{48, wrapper.data_group(), {.seed = 5}}}};
  };
  const auto loader = loader_of(4);
  train::trainer trainer{wrapper, optimizer, loader, step, options};
  trainer.add_evaluation(loader, measure);
  parx::optim::ema average{wrapper.parameters(), {.decay = 0.9}};
  trainer.add_callbacks({.on_step_end = [&](const auto&) { average.update(); }});
  trainer.add_state("ema", average);
  (void)trainer.train();
  outcome made{runs::curve(trainer.state(), "loss"), runs::curve(trainer.state(), "grad_norm"),
               runs::curve(trainer.state(), "eval_loss"), {}};
  wrapper.module().for_each_parameter([&](const std::string& path, auto& p) {
    made.values[path] = {p.value().begin(), p.value().end()};
  });
  average.for_each_state([&](const std::string& name, auto& state) {
    if constexpr (requires { state.data(); }) made.values[name] = {state.begin(), state.end()};
    else made.values[name] = {static_cast<float>(state)};
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

outcome by_pipeline(const train::trainer_options& options, int stages, int replicas,
                    const std::vector<std::size_t>& cut = {}) {
  const auto ranks = on_ranks(stages * replicas, [&](parx::process_group& world) {
    parx::mesh<"pp", "dp"> mesh{world, {stages, replicas}};
    model_type model = make_model();
    typed_pipeline pipe{model, mesh["pp"],
                        {.schedule = parx::schedules::zb1p, .microbatches = 2,
                         .cut = cut, .data_parallel = &mesh["dp"], .job = &mesh.all()}};
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

BOOST_AUTO_TEST_CASE(a_stage_without_parameters_trains_and_saves_by_the_same_program) {
  const std::vector<std::size_t> cut{0, 1, 2};  // the second stage is an activation
  const outcome expected = by_ddp(plain(), 1);
  expect_close(by_pipeline(plain(), 3, 1, cut), expected);
  expect_close(by_pipeline(plain(), 3, 2, cut), by_ddp(plain(), 2));
  const runs::folder place("pipeline_empty_stage");
  auto options = plain();
  options.output_dir = place.path;
  options.save_strategy = train::strategy::steps;
  options.save_steps = 4;
  auto shorter = options;
  shorter.max_steps = 4;
  (void)by_pipeline(shorter, 3, 1, cut);
  options.resume_from_checkpoint = train::resume::latest;
  expect_close(by_pipeline(options, 3, 1, cut), expected);
}

BOOST_AUTO_TEST_CASE(an_optimizer_of_a_share_without_parameters_has_its_options_groups_and_state) {
  const auto found = on_ranks(3, [](parx::process_group& group) -> std::string {
    model_type model = make_model();
    typed_pipeline pipe{model, group, {.microbatches = 1, .cut = {0, 1, 2}}};
    const auto all = pipe.parameters();
    if (all.empty() != (group.rank() == 1)) return "not the parameters of the stage";
    for (const auto& each : all) {
      each.assume_grad();
      each.grad().fill(2);
    }
    const double elements = static_cast<double>(pipe.module().parameter_count());
    bool is_right = parx::optim::clip_grad_norm(all, 1e6) == std::sqrt(4 * elements);
    parx::optim::sgd opt{all, {.lr = 0.5}};
    parx::optim::adamw grouped{parx::optim::decay_groups(all, parx::optim::adamw_options{})};
    opt.set_lr(0.25);
    grouped.options(1).lr = 0.125;
    parx::amp::grad_scaler scaler;
    scaler.unscale_(opt);
    is_right =
        is_right && parx::optim::grad_norm(opt.targets()) == 2 / 65536.0 * std::sqrt(elements);
    is_right = is_right && parx::optim::grad_norm(grouped.targets()) > 0;
    is_right = is_right && scaler.step(opt) && scaler.step(grouped);
    scaler.update();
    opt.zero_grad();
    parx::optim::ema<float> average{all};
    average.update();
    is_right = is_right && opt.options().lr == 0.25 && grouped.group_count() == 2;
    if (group.rank() == 1) {
      std::size_t state = 0;
      opt.for_each_state([&](const std::string&, auto&) { ++state; });
      is_right = is_right && state == 0 && opt.targets().empty();
    }
    return is_right ? "" : "wrong";
  });
  for (const std::string& each : found) BOOST_TEST(each == "");
}

BOOST_AUTO_TEST_CASE(a_flag_raised_at_a_stage_that_sums_nothing_reaches_the_whole_job) {
  // Rank 2 has an activation (or a frozen layer) of the first replica.
  for (const bool is_frozen : {false, true}) {
    const auto seen = on_ranks(6, [&](parx::process_group& world) {
      parx::mesh<"pp", "dp"> mesh{world, {3, 2}};
      model_type model = make_model();
      const auto freeze = [](const std::string& path, auto& p) {
        if (path.starts_with("2.")) p.freeze();
      };
      if (is_frozen) model.for_each_parameter(freeze);
      const std::vector<std::size_t> cut =
          is_frozen ? std::vector<std::size_t>{0, 1, 4} : std::vector<std::size_t>{0, 1, 2};
      typed_pipeline pipe{model, mesh["pp"],
                          {.microbatches = 2, .cut = cut, .data_parallel = &mesh["dp"],
                           .job = &mesh.all()}};
      const auto source = runs::points(4);
      const auto loss = [](const parx::variable<float>& y, const auto& b) {
        return nn::cross_entropy(y, b.y);
      };
      const std::vector<std::size_t> rows{0, 1, 2, 3};
      std::vector<bool> raised;
      for (const bool raises : {false, true, false}) {
        if (raises && world.rank() == 2) pipe.raise_flag();
        pipe.step(source.fetch(rows), loss);
        raised.push_back(pipe.flag_raised());
        pipe.zero_grad();
      }
      return raised;
    });
    for (const auto& each : seen) BOOST_TEST((each == std::vector{false, true, false}));
  }
}

BOOST_AUTO_TEST_CASE(buffers_of_stages_and_an_average_of_all_are_in_one_file_each) {
  const auto make = [] {
    return nn::sequential{nn::linear{2, 6}, nn::batch_norm<>{6}, nn::relu{},
                          nn::linear{6, 6}, nn::batch_norm<>{6}, nn::relu{},
                          nn::linear{6, 4}};
  };
  const runs::folder place("pipeline_buffers");
  std::filesystem::create_directories(place.path);
  const std::string folder = place.path + "/saved";
  const auto source = runs::points(8);
  const std::vector<std::size_t> rows{0, 1, 2, 3};
  const auto kept = on_ranks(4, [&](parx::process_group& world) {
    parx::mesh<"pp", "dp"> mesh{world, {2, 2}};
    auto model = make();
    typed_pipeline pipe{
        model, mesh["pp"], {.microbatches = 1, .data_parallel = &mesh["dp"], .job = &mesh.all()}};
    parx::optim::adamw opt{pipe.parameters(), {.lr = 0.02}};
    parx::optim::ema average{pipe.parameters(), {.decay = 0.9}};
    pipe.step(source.fetch(rows), criterion);
    opt.step();
    average.update();
    pipe.broadcast_buffers();
    parx::checkpoint_parts parts;
    add_training_state(pipe, opt, parts);
    add_part(pipe, "ema", average, parts);
    parx::save(world, parts, folder);
    std::map<std::string, std::vector<float>> all;
    pipe.module().for_each_buffer([&](const std::string& path, auto& buffer) {
      const auto& value = buffer.value();
      all[path] = {value.begin(), value.end()};
    });
    average.for_each_state([&](const std::string& name, auto& state) {
      if constexpr (requires { state.data(); }) all[name] = {state.begin(), state.end()};
    });
    return all;
  });
  auto alone = make();
  parx::optim::ema average{alone.parameters(), {.decay = 0.9}};
  const auto saved = parx::saved_checkpoint::open(folder);
  saved.load("model", alone);
  saved.load("ema", average);
  std::map<std::string, std::vector<float>> found;
  alone.for_each_buffer([&](const std::string& path, auto& buffer) {
    const auto& value = buffer.value();
    found[path] = {value.begin(), value.end()};
  });
  average.for_each_state([&](const std::string& name, auto& state) {
    if constexpr (requires { state.data(); }) found[name] = {state.begin(), state.end()};
    else BOOST_TEST(state == 1U);
  });
  std::map<std::string, std::vector<float>> expected;
  for (const auto& rank : kept) expected.insert(rank.begin(), rank.end());
  BOOST_TEST(expected.size() == 6 + 10);
  BOOST_TEST((found == expected));
}

BOOST_AUTO_TEST_CASE(a_file_of_a_deeper_model_is_refused_by_a_pipeline_as_by_the_model_alone) {
  const runs::folder place("pipeline_deeper");
  std::filesystem::create_directories(place.path);
  const std::string deeper = place.path + "/deeper.safetensors", own = place.path + "/own";
  nn::sequential more{nn::linear{2, 16}, nn::relu{},         nn::linear{16, 16}, nn::relu{},
                      nn::linear{16, 16}, nn::relu{},        nn::linear{16, 4},  nn::relu{},
                      nn::linear{4, 4}};
  parx::save_state(more, deeper);
  const auto said = on_ranks(2, [&](parx::process_group& group) -> std::string {
    model_type model = make_model();
    typed_pipeline pipe{model, group, {.microbatches = 2}};
    parx::save(pipe, own);
    parx::load(pipe, own);  // has the parameters of the other stage, too
    try {
      parx::load(pipe, deeper);
    } catch (const parx::error& refused) {
      return refused.what();
    }
    return "nothing";
  });
  for (const std::string& each : said) {
    BOOST_TEST(each.find("unknown to the model: 8.bias, 8.weight") != std::string::npos, each);
  }
  model_type alone = make_model();
  BOOST_CHECK_THROW(parx::load_state(alone, deeper), parx::error);
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
