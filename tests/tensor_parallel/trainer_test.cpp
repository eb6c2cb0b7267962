// The trainer drives models whose layers are cut, in a ddp or an fsdp of the ranks beside: its
// figures are those of one process, and its checkpoints load at any layout.
#include <parx/tensor_parallel.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <data/support.hpp>
#include <ddp/ranks.hpp>

#include <parx/data.hpp>
#include <parx/ddp.hpp>
#include <parx/fsdp.hpp>
#include <parx/mesh.hpp>
#include <parx/optim/adamw.hpp>
#include <parx/train.hpp>

namespace {

namespace train = parx::train;
using parx::nn::between_cuts;

constexpr std::size_t words = 37, positions = 8, samples = 48, step_samples = 8;

struct text_batch {
  parx::tensor<std::int64_t> input_ids, labels;
  parx::tensor<float> weights;
  [[nodiscard]] std::size_t size() const { return input_ids.shape()[0]; }
};
/// Text i: every word is the one before times 5 plus i.
struct texts {
  [[nodiscard]] std::size_t size() const { return samples; }
  [[nodiscard]] text_batch fetch(std::span<const std::size_t> rows) const {
    const parx::shape all{rows.size(), positions};
    text_batch made{parx::tensor<std::int64_t>::empty(all), parx::tensor<std::int64_t>::empty(all),
                    {}};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::size_t word = rows[i] % words;
      for (std::size_t at = 0; at < positions; ++at) {
        made.input_ids.data()[i * positions + at] = static_cast<std::int64_t>(word);
        word = (5 * word + rows[i] + 1) % words;
        made.labels.data()[i * positions + at] = static_cast<std::int64_t>(word);
      }
    }
    return made;
  }
};

/// The head of keys and values serves two heads of queries; the output is tied to the embedding.
parx::models::llama<> small() {
  return parx::models::llama<>({.vocab_size = words, .hidden_size = 32, .intermediate_size = 44,
                                .num_hidden_layers = 2, .num_attention_heads = 4,
                                .num_key_value_heads = 2, .max_position_embeddings = positions,
                                .initializer_range = 0.2});
}

/// How many ranks share the samples and the layers. Stage 0 is a ddp.
struct layout {
  int dp = 1, tp = 1, stage = 0;
  between_cuts between = between_cuts::whole;

  [[nodiscard]] int ranks() const { return dp * tp; }
  friend std::ostream& operator<<(std::ostream& out, const layout& l) {
    return out << "stage " << l.stage << " of " << l.dp << " x " << l.tp;
  }
};

struct outcome {
  std::vector<double> losses, norms, evaluated;
  std::uint64_t hash = 0;
  std::uint64_t steps = 0;
};

train::trainer_options quiet(std::uint64_t steps) {
  return {.max_steps = steps,
          .learning_rate = 0.01,
          .lr_scheduler_type = parx::optim::decay::constant,
          .max_grad_norm = 0.5,
          .logging_steps = 1,
          .eval_strategy = train::strategy::steps,
          .eval_steps = 3,
          .disable_progress = true,
          .log_to_console = false};
}

std::vector<double> curve(const train::trainer_state& state, const char* name) {
  std::vector<double> values;
  for (const train::record& line : state.log_history) {
    if (const auto value = line.find(name)) values.push_back(*value);
  }
  return values;
}

const auto next_token = [](auto& m, auto& batch) {
  return parx::cross_entropy(m(batch.input_ids), batch.labels);
};

/// What a rank of the job does after step 3.
struct event {
  enum { stop, fail } what = stop;
  int rank = -1;
};

template <typename Wrapper>
outcome train_with(Wrapper& wrapper, const train::trainer_options& options, const event& own) {
  const texts source;
  const auto ranks = static_cast<std::size_t>(wrapper.data_group().size());
  parx::optim::adamw opt{wrapper.parameters(), {.weight_decay = 0.1}};
  using parx::data::distributed_sampler;
  const parx::data::loader loader{
      source,
      {.batch_size = step_samples / ranks / options.gradient_accumulation_steps,
       .sampler = distributed_sampler{samples, wrapper.data_group(), {.seed = 5}}}};
  const parx::data::loader held_out{
      source, {.batch_size = 6, .sampler = distributed_sampler{samples, wrapper.data_group()}}};
  train::trainer trainer{wrapper, opt, loader, next_token, options};
  trainer.add_evaluation(held_out, [&](auto& m, auto& batch) -> train::metrics {
    return {{"loss", next_token(m, batch)}};
  });
  trainer.add_callbacks({.on_step_end = [&](const train::trainer_state& state) {
    if (wrapper.job_group().rank() != own.rank || state.global_step != 3) return;
    if (own.what == event::fail) throw std::runtime_error("no memory for step 4");
    trainer.request_stop();
  }});
  (void)trainer.train();
  const auto& state = trainer.state();
  return {curve(state, "loss"), curve(state, "grad_norm"), curve(state, "eval_loss"),
          wrapper.values_hash(), state.global_step};
}

outcome trained_here(parx::process_group& world, const layout& how,
                     const train::trainer_options& options, const event& own) {
  auto model = small();
  if (how.tp == 1 && how.stage == 0) {
    model.initialize(7);
    parx::ddp ddp{model, world};
    return train_with(ddp, options, own);
  }
  parx::mesh<"dp", "tp"> mesh{world, {how.dp, how.tp}};
  const auto cut =
      parx::parallelize(model, mesh["tp"], parx::tp::ready_plan(model, how.between));
  const auto run = [&](auto& inner) {
    parx::tensor_parallel parallel{cut, inner, mesh.all()};
    return train_with(parallel, options, own);
  };
  if (how.stage == 0) {
    model.initialize(7);
    parx::ddp ddp{model, mesh["dp"], {.order = parx::reduction_order::serial}};
    static_assert(train::wrapped_model<parx::tensor_parallel<parx::ddp<parx::models::llama<>>>,
                                       parx::optim::adamw<float>>);
    return run(ddp);
  }
  parx::fsdp fsdp{model, mesh["dp"],
                  {.stage = how.stage, .units = parx::by_type<parx::models::llama_layer<>>}};
  fsdp.initialize(7);
  return run(fsdp);
}

std::vector<outcome> trained(const layout& how, const train::trainer_options& options,
                             const event& own = {}) {
  return on_ranks(how.ranks(), [&](parx::process_group& world) {
    return trained_here(world, how, options, own);
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
void expect_curves(const std::vector<outcome>& found, const outcome& expected, const layout& how) {
  for (const outcome& each : found) {
    const std::string at = fmt::format("stage {} of {} x {}, ", how.stage, how.dp, how.tp);
    expect_near(each.losses, expected.losses, at + "loss");
    expect_near(each.norms, expected.norms, at + "norm");
    expect_near(each.evaluated, expected.evaluated, at + "evaluation");
    BOOST_TEST(each.hash == found[0].hash, at << "all ranks have the same model");
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_curves_are_those_of_one_process_at_every_mesh) {
  const auto options = quiet(6);
  const outcome expected = trained({}, options)[0];
  BOOST_TEST(expected.losses.size() == 6);
  BOOST_TEST(expected.evaluated.size() == 2);
  BOOST_TEST(expected.losses.back() < expected.losses.front());
  for (const layout& how : {layout{1, 2}, layout{1, 4}, layout{2, 2}, layout{4, 2},
                            layout{2, 2, 0, between_cuts::positions}, layout{2, 2, 3},
                            layout{2, 2, 2, between_cuts::positions}, layout{2, 4, 3},
                            layout{4, 2, 1}}) {
    expect_curves(trained(how, options), expected, how);
  }
}

BOOST_AUTO_TEST_CASE(an_fsdp_of_parts_ends_in_the_bits_of_a_ddp_of_them) {
  auto options = quiet(4);
  options.gradient_accumulation_steps = 2;
  const auto expected = trained({2, 2}, options);
  for (const int stage : {1, 2, 3}) {
    const auto found = trained({2, 2, stage}, options);
    for (const outcome& each : found) {
      BOOST_TEST(each.hash == expected[0].hash, "stage " << stage);
      BOOST_TEST((each.losses == expected[0].losses && each.norms == expected[0].norms));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_at_any_other_layout) {
  const auto options = quiet(6);
  const outcome expected = trained({}, options)[0];
  const std::vector<std::pair<layout, layout>> changes{
      {{1, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 4}, {2, 2, 3}}, {{2, 2, 3}, {1, 1}}};
  for (const auto& [first, second] : changes) {
    const parx_test::scratch_folder place;
    auto saving = options;
    saving.output_dir = place.file("run");
    saving.save_strategy = train::strategy::steps;
    saving.save_steps = 3;
    auto shorter = saving;
    shorter.max_steps = 3;
    (void)trained(first, shorter);
    saving.resume_from_checkpoint = train::resume::latest;
    expect_curves(trained(second, saving), expected, second);
  }
}

BOOST_AUTO_TEST_CASE(a_state_of_four_tensor_parallel_ranks_loads_at_one_two_and_three_of_fsdp) {
  const parx_test::scratch_folder place;
  const auto each = [&](const layout& how, auto use) {
    const auto hashes = on_ranks(how.ranks(), [&](parx::process_group& world) {
      parx::mesh<"dp", "tp"> mesh{world, {how.dp, how.tp}};
      auto model = small();
      const auto cut = parx::parallelize(model, mesh["tp"], parx::tp::ready_plan(model));
      parx::fsdp fsdp{model, mesh["dp"],
                      {.stage = 3, .units = parx::by_type<parx::models::llama_layer<>>}};
      fsdp.initialize(static_cast<std::uint64_t>(how.ranks()));
      parx::tensor_parallel parallel{cut, fsdp, mesh.all()};
      use(parallel);
      return parallel.values_hash();
    });
    BOOST_TEST(std::equal(hashes.begin() + 1, hashes.end(), hashes.begin()));
    return hashes[0];
  };
  auto whole = small();
  whole.initialize(4);
  const auto expected = on_ranks(1, [&](parx::process_group& group) {
    return parx::ddp(whole, group).values_hash();
  })[0];
  const auto saved = each({1, 4}, [&](auto& parallel) {
    save(parallel, place.file("parts"));
    save_gathered(parallel, place.file("whole.safetensors"));
  });
  BOOST_TEST(saved == expected);
  for (const char* const name : {"parts", "whole.safetensors"}) {
    for (const layout& how : {layout{1, 1}, layout{1, 2}, layout{3, 1}, layout{3, 2}}) {
      const auto loaded = each(how, [&](auto& parallel) { load(parallel, place.file(name)); });
      BOOST_TEST(loaded == saved, name << " at " << how);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_wish_of_any_rank_stops_all_after_the_same_step) {
  // Without lines and evaluations, in which all ranks tell each other.
  auto options = quiet(50);
  options.logging_steps = 0;
  options.eval_strategy = train::strategy::no;
  for (const int stage : {0, 3}) {
    for (const outcome& each : trained({2, 2, stage}, options, {event::stop, 3})) {
      BOOST_TEST(each.steps == 4);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_fails_is_named_by_all_whatever_group_they_wait_in) {
  for (const int stage : {0, 3}) {
    std::vector<std::string> said(4);
    const auto run = [&] {
      on_ranks(4, [&](parx::process_group& world) {
        try {
          (void)trained_here(world, {2, 2, stage}, quiet(50), {event::fail, 3});
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

BOOST_AUTO_TEST_CASE(ranks_that_do_not_fit_are_told) {
  const auto said = on_ranks(4, [](parx::process_group& world) -> std::string {
    parx::mesh<"dp", "tp"> mesh{world, {2, 2}};
    auto model = small();
    const auto cut = parx::parallelize(model, mesh["tp"], parx::tp::ready_plan(model));
    model.initialize(7);
    parx::ddp ddp{model, mesh["dp"]};
    try {
      parx::tensor_parallel parallel{cut, ddp, mesh["tp"]};
      return "nothing";
    } catch (const parx::usage_error& wrong) {
      return wrong.what();
    }
  });
  for (const std::string& each : said) {
    BOOST_TEST(each.find("over 2 ranks and samples dealt out to 2, which are not the 2 ranks of") !=
                   std::string::npos,
               each);
  }
}
