// The trainer drives stages x samples x layers as it drives one process, and what it saves loads at
// any other layout.
#include <parx/pipeline.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ddp/ranks.hpp>
#include <train/runs.hpp>

#include <parx/data/language_model.hpp>
#include <parx/models/llama.hpp>
#include <parx/nn/loss.hpp>
#include <parx/tensor_parallel/plans.hpp>

namespace {

namespace train = parx::train;

constexpr std::size_t words = 29;

parx::data::language_model text() {
  std::vector<parx::data::token_id> ids;
  for (std::size_t i = 0; i < 400; ++i) ids.push_back(static_cast<int>((i * i + 3 * i) % words));
  return parx::data::language_model(parx::data::token_shards::from(ids),
                                    {.context_length = 6, .stride = 4});
}
auto make_model() {
  return parx::models::llama<>({.vocab_size = words, .hidden_size = 16, .intermediate_size = 20,
                                .num_hidden_layers = 4, .num_attention_heads = 4,
                                .num_key_value_heads = 2, .max_position_embeddings = 8});
}

struct outcome {
  std::vector<double> losses, norms, evaluated;
  std::map<std::string, std::vector<float>> values;
};

/// `batch` samples of each data-parallel rank.
template <typename Wrapper, typename Step>
outcome run(Wrapper& wrapper, std::size_t batch, Step step, const train::trainer_options& options) {
  const auto source = text();
  parx::optim::adamw optimizer{wrapper.parameters(), {.lr = 0.01F}};
  const parx::data::loader loader{
      source,
      {.batch_size = batch,
       .sampler = parx::data::distributed_sampler{source.size(), wrapper.data_group(),
                                                  {.seed = 5}}}};
  train::trainer trainer{wrapper, optimizer, loader, step, options};
  trainer.add_evaluation(loader, [&](auto& m, auto& b) -> train::metrics {
    if constexpr (requires { m.evaluate(b, 0); }) {
      return {{"loss", m.evaluate(b, [](auto& logits, auto& part) {
                 return parx::nn::cross_entropy(logits, part.labels);
               })}};
    } else {
      return {{"loss", parx::nn::cross_entropy(m(b.input_ids), b.labels)}};
    }
  });
  (void)trainer.train();
  outcome made{runs::curve(trainer.state(), "loss"), runs::curve(trainer.state(), "grad_norm"),
               runs::curve(trainer.state(), "eval_loss"), {}};
  wrapper.module().for_each_parameter([&](const std::string& path, auto& p) {
    if (p.spec().is_whole()) made.values[path] = {p.value().begin(), p.value().end()};
  });
  return made;
}

constexpr std::size_t global_batch = 8;

/// One process, or copies of it.
outcome by_ddp(int world, const train::trainer_options& options) {
  return on_ranks(world, [&](parx::process_group& group) {
    auto model = make_model();
    model.initialize(3);
    parx::ddp ddp{model, group};
    return run(
        ddp, global_batch / static_cast<std::size_t>(world),
        [](auto& m, auto& b) { return parx::nn::cross_entropy(m(b.input_ids), b.labels); },
        options);
  })[0];
}
outcome by_mesh(int pp, int dp, int tp, const train::trainer_options& options) {
  const auto ranks = on_ranks(pp * dp * tp, [&](parx::process_group& world) {
    parx::mesh<"pp", "dp", "tp"> mesh{world, {pp, dp, tp}};
    auto model = make_model();
    auto parallel = parx::parallelize(
        model, mesh,
        {.tp = parx::tp::ready_plan(model), .pp = {.microbatches = 2, .seed = 3}});
    return run(
        parallel, global_batch / static_cast<std::size_t>(dp),
        [](auto& m, auto& b) {
          return m.step(b, [](auto& logits, auto& part) {
            return parx::nn::cross_entropy(logits, part.labels);
          });
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

bool is_near(double a, double b) { return std::abs(a - b) <= 1e-5 * (1 + std::abs(b)); }

/// Figures one by one, and those parameters that some rank has whole.
void expect_near(const outcome& found, const outcome& expected, const std::string& what) {
  const auto compare = [&](const char* name, const auto& a, const auto& b) {
    BOOST_TEST_REQUIRE(a.size() == b.size(), what << ": " << name);
    for (std::size_t i = 0; i < b.size(); ++i) {
      BOOST_TEST(is_near(a[i], b[i]), what << ": " << name << " " << i << ": " << a[i]);
    }
  };
  compare("loss", found.losses, expected.losses);
  compare("norm", found.norms, expected.norms);
  compare("evaluation", found.evaluated, expected.evaluated);
  BOOST_TEST(!found.values.empty());
  for (const auto& [path, values] : found.values) {
    const auto& wanted = expected.values.at(path);
    bool all = values.size() == wanted.size();
    for (std::size_t i = 0; all && i < values.size(); ++i) {
      // AdamW divides by what may be rounding alone.
      all = std::abs(values[i] - wanted[i]) < 1e-3F;
    }
    BOOST_TEST(all, what << ": " << path << " differs");
  }
}

train::trainer_options plain() {
  auto options = runs::quiet(8);
  options.max_grad_norm = 0.5;
  options.lr_scheduler_type = parx::optim::decay::constant;
  options.eval_strategy = train::strategy::steps;
  options.eval_steps = 4;
  return options;
}

struct layout {
  int pp, dp, tp;  // pp = 0: a ddp of dp ranks
};
outcome run_at(const layout& how, const train::trainer_options& options) {
  return how.pp == 0 ? by_ddp(how.dp, options) : by_mesh(how.pp, how.dp, how.tp, options);
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_trainer_drives_a_mesh_as_it_drives_one_process) {
  const outcome expected = by_ddp(1, plain());
  BOOST_TEST(expected.losses.size() == 8);
  BOOST_TEST(expected.evaluated.size() == 2);
  for (const layout& how : {layout{2, 2, 2}, layout{1, 1, 2}}) {
    expect_near(run_at(how, plain()), expected, fmt::format("{} {} {}", how.pp, how.dp, how.tp));
  }
}

BOOST_AUTO_TEST_CASE(all_ranks_write_one_file_of_the_whole_model) {
  const runs::folder place("parallel_whole");
  std::filesystem::create_directories(place.path);
  const std::string path = place.path + "/model.safetensors";
  on_ranks(8, [&](parx::process_group& world) {
    parx::mesh<"pp", "dp", "tp"> mesh{world, {2, 2, 2}};
    auto model = make_model();
    auto parallel =
        parx::parallelize(model, mesh, {.tp = parx::tp::ready_plan(model), .pp = {.seed = 3}});
    save_gathered(parallel, path);
    return 0;
  });
  auto expected = make_model(), found = make_model();
  expected.initialize(3);
  parx::load_sharded(path, found);
  std::map<std::string, std::vector<float>> values;
  expected.for_each_parameter([&](const std::string& name, auto& p) {
    values[name] = {p.value().begin(), p.value().end()};
  });
  found.for_each_parameter([&](const std::string& name, auto& p) {
    BOOST_TEST((values.at(name) == std::vector<float>(p.value().begin(), p.value().end())), name);
  });
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_at_any_other_layout) {
  const outcome expected = by_ddp(1, plain());
  const layout cube{2, 2, 2};
  const std::pair<layout, layout> turns[] = {{cube, {0, 2, 1}}, {cube, {4, 1, 1}},
                                             {cube, {0, 1, 1}}, {{0, 2, 1}, cube},
                                             {{4, 1, 1}, cube}, {{0, 1, 1}, cube}};
  for (const auto& [first, second] : turns) {
    const runs::folder place("parallel_resume");
    auto options = plain();
    options.output_dir = place.path;
    options.save_strategy = train::strategy::steps;
    options.save_steps = 4;
    auto shorter = options;
    shorter.max_steps = 4;
    (void)run_at(first, shorter);
    options.resume_from_checkpoint = train::resume::latest;
    expect_near(run_at(second, options), expected,
                fmt::format("{} {} {} to {} {} {}", first.pp, first.dp, first.tp, second.pp,
                            second.dp, second.tp));
  }
}
