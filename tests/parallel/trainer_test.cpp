// The trainer drives a model of any layout by one program: figures are those of one process, a run
// goes on at another layout, and a request or failure of one rank reaches all.
#include <parx/parallel.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddp/ranks.hpp>
#include <parallel/small.hpp>
#include <train/runs.hpp>

#include <parx/data/language_model.hpp>
#include <parx/optim/adamw.hpp>
#include <parx/train.hpp>

namespace {

namespace train = parx::train;

constexpr std::size_t step_samples = 8;

parx::data::language_model text() {
  std::vector<parx::data::token_id> ids;
  for (std::size_t i = 0; i < 200; ++i) {
    ids.push_back(static_cast<parx::data::token_id>((i * i + 3 * i) % small::words));
  }
  return parx::data::language_model(parx::data::token_shards::from(ids),
                                    {.context_length = small::positions, .stride = 4});
}
/// At four ranks the heads of keys are whole, at two they are cut.
auto make_model() {
  return parx::models::llama<>({.vocab_size = small::words,
                                .hidden_size = 16,
                                .intermediate_size = 20,
                                .num_hidden_layers = 4,
                                .num_attention_heads = 4,
                                .num_key_value_heads = 2,
                                .max_position_embeddings = 8});
}

train::trainer_options options_for(std::uint64_t steps) {
  auto options = runs::quiet(steps);
  options.learning_rate = 0.01;
  options.lr_scheduler_type = parx::optim::decay::constant;
  options.max_grad_norm = 0.5;
  options.eval_strategy = train::strategy::steps;
  options.eval_steps = 3;
  return options;
}

struct outcome {
  std::vector<double> losses, norms, evaluated;
  std::uint64_t values = 0, steps = 0;
  /// By the figures a second: samples of each step, of all steps, and of each evaluation.
  std::vector<double> samples;
};
/// What a rank of the job does after step 3.
struct event {
  enum { stop, fail } what = stop;
  int rank = -1;
};
struct way {
  std::string layout;
  int ranks;
};

outcome trained_here(parx::process_group& world, const std::string& layout,
                     const train::trainer_options& options, const event& own = {}) {
  auto net = make_model();
  parx::parallel model{net, world, parx::layout::parse(layout)};
  model.initialize(3);
  parx::optim::adamw opt{model.parameters(), {.weight_decay = 0.1}};
  const auto source = text();
  const parx::data::loader loader{
      source, model,
      {.batch_size = step_samples / static_cast<std::size_t>(model.data_parts()) /
                     options.gradient_accumulation_steps,
       .samples = {.seed = 5}}};
  const parx::data::loader held_out{
      source, model,
      {.batch_size = 6, .samples = {.order = parx::data::sample_order::sequential}}};
  const auto criterion = [](auto& logits, auto& part) {
    return parx::nn::cross_entropy(logits, part.labels);
  };
  train::trainer trainer{model, opt, loader,
                         [&](auto& m, auto& batch) { return m.forward_backward(batch, criterion); },
                         options};
  trainer.add_evaluation(held_out, [&](auto& m, auto& batch) -> train::metrics {
    return {{"loss", m.evaluate(batch, criterion)}};
  });
  trainer.add_callbacks({.on_step_end = [&](const train::trainer_state& state) {
    if (world.rank() != own.rank || state.global_step != 3) return;
    if (own.what == event::fail) throw std::runtime_error("no memory for step 4");
    trainer.request_stop();
  }});
  (void)trainer.train();
  const auto& state = trainer.state();
  std::vector<double> samples;
  const auto count = [&](const char* rate, const char* time, double unit) {
    const auto rates = runs::curve(state, rate), times = runs::curve(state, time);
    for (std::size_t i = 0; i < std::min(rates.size(), times.size()); ++i) {
      samples.push_back(rates[i] * times[i] * unit);
    }
  };
  count("samples_per_second", "step_ms", 1e-3);
  count("train_samples_per_second", "train_runtime", 1);
  count("eval_samples_per_second", "eval_runtime", 1);
  return {runs::curve(state, "loss"),
          runs::curve(state, "grad_norm"),
          runs::curve(state, "eval_loss"),
          model.values_hash(),
          state.global_step,
          std::move(samples)};
}
std::vector<outcome> trained(const way& how, const train::trainer_options& options,
                             const event& own = {}) {
  return on_ranks(how.ranks, [&](parx::process_group& world) {
    return trained_here(world, how.layout, options, own);
  });
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected,
                 const std::string& what) {
  BOOST_TEST(found.size() == expected.size(), what);
  for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    BOOST_TEST(std::abs(found[i] - expected[i]) <= 1e-5 * (1 + std::abs(expected[i])),
               what << " " << i << ": " << found[i] << " for " << expected[i]);
  }
}
void expect_curves(const std::vector<outcome>& found, const outcome& expected,
                   const std::string& what) {
  for (const outcome& each : found) {
    expect_near(each.losses, expected.losses, what + ": loss");
    expect_near(each.norms, expected.norms, what + ": norm");
    expect_near(each.evaluated, expected.evaluated, what + ": evaluation");
    BOOST_TEST(each.values == found[0].values, what << ": all ranks have the same model");
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(with_virtual_replicas_a_run_has_the_same_bits_at_any_number_of_ranks) {
  const auto options = options_for(8);
  const outcome alone = trained({"replicas=4", 1}, options)[0];
  for (const int ranks : {2, 3, 4}) {
    for (const outcome& each : trained({"replicas=4", ranks}, options)) {
      BOOST_TEST(each.values == alone.values, ranks << " ranks: values");
      BOOST_TEST(each.norms == alone.norms, ranks << " ranks: norms");
    }
  }
}

BOOST_AUTO_TEST_CASE(the_curves_are_those_of_one_process_at_every_layout) {
  const auto options = options_for(6);
  const outcome expected = trained({"ddp", 1}, options)[0];
  BOOST_TEST(expected.losses.size() == 6);
  BOOST_TEST(expected.evaluated.size() == 2);
  BOOST_TEST(expected.samples.size() == 9);
  BOOST_TEST(expected.samples.front() == step_samples, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(expected.losses.back() < expected.losses.front());
  for (const way& how :
       {way{"ddp", 2}, way{"tp=2", 2}, way{"tp=4", 4}, way{"tp=2", 4}, way{"tp=2", 8},
        way{"tp=2,sp", 4}, way{"tp=2,zero=3", 4}, way{"tp=2,sp,zero=2", 4}, way{"tp=4,zero=3", 8},
        way{"tp=2,zero=1", 8}, way{"pp=4", 4}, way{"pp=2,tp=2", 8},
        way{"pp=2,tp=2,schedule=zbv,chunks=2", 8}}) {
    const auto found = trained(how, options);
    expect_curves(found, expected, how.layout);
    for (const outcome& each : found) {
      expect_near(each.samples, expected.samples, how.layout + ": samples by the figures a second");
    }
  }
}

BOOST_AUTO_TEST_CASE(shards_and_stages_end_in_the_bits_of_a_ddp_when_the_trainer_accumulates) {
  auto options = options_for(4);
  options.gradient_accumulation_steps = 2;
  const auto compare = [&](const way& how, const outcome& expected) {
    for (const outcome& each : trained(how, options)) {
      BOOST_TEST(each.values == expected.values, how.layout);
      BOOST_TEST((each.losses == expected.losses && each.norms == expected.norms), how.layout);
    }
  };
  const outcome of_pieces = trained({"tp=2", 4}, options)[0];
  for (const char* const layout : {"tp=2,zero=1", "tp=2,zero=2", "tp=2,zero=3"}) {
    compare({layout, 4}, of_pieces);
  }
  const outcome whole = trained({"ddp,microbatches=2", 2}, options)[0];
  compare({"pp=2,microbatches=2", 4}, whole);
  compare({"pp=2,zero=2,microbatches=2", 4}, whole);
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_at_any_other_layout) {
  const auto options = options_for(6);
  const outcome expected = trained({"ddp", 1}, options)[0];
  const way cube{"pp=2,tp=2", 8};
  const std::vector<std::pair<way, way>> changes{{{"tp=2", 2}, {"ddp", 2}},
                                                 {{"ddp", 2}, {"tp=2", 2}},
                                                 {{"tp=4", 4}, {"tp=2,zero=3", 4}},
                                                 {{"tp=2,zero=3", 4}, {"ddp", 1}},
                                                 {cube, {"ddp", 2}},
                                                 {cube, {"pp=4", 4}},
                                                 {{"fsdp", 2}, cube},
                                                 {{"pp=4", 4}, cube},
                                                 {{"ddp", 1}, cube}};
  for (const auto& [first, second] : changes) {
    const runs::folder place("parallel_resume");
    auto saving = options;
    saving.output_dir = place.path;
    saving.save_strategy = train::strategy::steps;
    saving.save_steps = 3;
    auto shorter = saving;
    shorter.max_steps = 3;
    (void)trained(first, shorter);
    saving.resume_from_checkpoint = train::resume::latest;
    expect_curves(trained(second, saving), expected, first.layout + " to " + second.layout);
  }
}

BOOST_AUTO_TEST_CASE(a_wish_of_any_rank_stops_all_after_the_same_step) {
  // Without lines and evaluations, in which all ranks tell each other.
  auto options = options_for(50);
  options.logging_steps = 0;
  options.eval_strategy = train::strategy::no;
  for (const char* const layout : {"ddp", "tp=2", "tp=2,zero=3", "pp=2", "pp=2,tp=2"}) {
    for (const outcome& each : trained({layout, 4}, options, {event::stop, 3})) {
      BOOST_TEST(each.steps == 4, layout);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_fails_is_named_by_all_whatever_group_they_wait_in) {
  for (const char* const layout : {"tp=2", "tp=2,zero=3", "pp=2"}) {
    std::vector<std::string> said(4);
    const auto run = [&] {
      on_ranks(4, [&](parx::process_group& world) {
        try {
          (void)trained_here(world, layout, options_for(50), {event::fail, 3});
        } catch (const parx::error& failure) {
          said[static_cast<std::size_t>(world.rank())] = failure.what();
          throw;
        }
        return 0;
      });
    };
    BOOST_CHECK_THROW(run(), std::runtime_error);
    for (const std::size_t rank : {0U, 1U, 2U})
      BOOST_TEST(said[rank].find("no memory for step 4") != std::string::npos, said[rank]);
  }
}
