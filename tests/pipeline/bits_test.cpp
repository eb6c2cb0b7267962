// Every schedule ends in the bits of one rank.

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <pipeline/typed_pipeline.hpp>

#include <parx/comm/threads.hpp>
#include <parx/models/gpt.hpp>
#include <parx/models/llama.hpp>
#include <parx/optim/adamw.hpp>
#include <parx/pipeline/catalog.hpp>

using namespace parx;

namespace {

struct batch {
  tensor<std::int32_t> input_ids;
  tensor<std::int64_t> labels;
};

constexpr std::size_t vocabulary = 17, positions = 5;

/// Text by a formula; some labels are ignored, so that micro-batches have different weights.
batch text(std::size_t rows, std::size_t step) {
  batch made{tensor<std::int32_t>::empty({rows, positions}),
             tensor<std::int64_t>::empty({rows, positions})};
  for (std::size_t i = 0; i < rows * positions; ++i) {
    made.input_ids.data()[i] =
        static_cast<std::int32_t>((7 * i + 3 * (step % 2) + i * i) % vocabulary);
    made.labels.data()[i] =
        i % 4 == 1 ? -100 : static_cast<std::int64_t>((5 * i + step % 2) % vocabulary);
  }
  return made;
}

const auto loss_of = [](const variable<float>& logits, const batch& b) {
  return cross_entropy(logits, b.labels);
};

models::llama_config small_llama() {
  return {.vocab_size = vocabulary, .hidden_size = 8, .intermediate_size = 12,
          .num_hidden_layers = 6, .num_attention_heads = 2, .num_key_value_heads = 1,
          .max_position_embeddings = positions};
}

struct outcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> values;
};

void note(const std::string& path, const parameter<float>& p, outcome& to) {
  const tensor<float>& held = p.value();
  to.values[path].assign(held.begin(), held.end());
}

constexpr std::size_t steps = 10;

/// For the model before it is wrapped, and then before each step.
template <typename Model>
using change = std::function<void(Model&, std::size_t step)>;

/// One rank that adds the same micro-batches up.
template <typename Model>
outcome alone(Model model, std::size_t rows, int microbatches,
              const change<Model>& changed = [](Model&, std::size_t) {}) {
  outcome made;
  changed(model, 0);
  run_threads(1, [&](process_group& world) {
    ddp wrapped{model, world};
    optim::adamw<float> optimizer{wrapped.parameters(), {.lr = 1e-2F}};
    for (std::size_t step = 0; step < steps; ++step) {
      changed(model, step);
      const auto parts = split_rows(text(rows, step), microbatches);
      nn::tally total;
      for (const batch& part : parts) {
        const auto loss = loss_of(wrapped(part.input_ids), part);
        total += {static_cast<double>(loss.sum.item()), loss.count};
        if (&part == &parts.back()) {
          loss.backward({.of = gradient_of::sum});
        } else {
          const auto adding = wrapped.no_sync();
          loss.backward({.of = gradient_of::sum});
        }
      }
      made.losses.push_back(total.mean());
      optimizer.step();
    }
    model.for_each_parameter([&](const std::string& path, auto& p) { note(path, p, made); });
  });
  return made;
}

/// What the ranks of a pipeline end with; of a parameter that several have, the last one's.
template <typename Model>
outcome piped(const auto& make, std::size_t rows, int ranks, const pipeline_options& options,
              const change<Model>& changed = [](Model&, std::size_t) {}) {
  std::vector<outcome> by_rank(static_cast<std::size_t>(ranks));
  run_threads(ranks, [&](process_group& world) {
    Model model = make();
    changed(model, 0);
    typed_pipeline pipe{model, world, options};
    optim::adamw<float> optimizer{pipe.parameters(), {.lr = 1e-2F}};
    outcome& mine = by_rank[static_cast<std::size_t>(world.rank())];
    for (std::size_t step = 0; step < steps; ++step) {
      changed(model, step);
      mine.losses.push_back(pipe.step(text(rows, step), loss_of).mean());
      optimizer.step();
    }
    pipe.module().for_each_parameter(
        [&](const std::string& path, auto& p) { note(path, p, mine); });
  });
  outcome made = by_rank.front();
  for (const outcome& each : by_rank) {
    BOOST_TEST((each.losses == made.losses));
    for (const auto& [path, values] : each.values) made.values[path] = values;
  }
  return made;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_schedule_ends_in_the_bits_of_one_rank_at_2_3_and_4_stages) {
  const auto make = [] { return models::llama<>(small_llama()); };
  const outcome expected = alone(make(), 11, 4);
  BOOST_TEST(expected.losses.back() < 0.95 * expected.losses.front());
  for (const int ranks : {2, 3, 4}) {
    for (const named_schedule& each : pipeline_schedules) {
      if (each.name == "looped_bfs") continue;
      const int chunks = each.name == "interleaved" ? (ranks == 3 ? 1 : 2) : 1;
      const outcome found = piped<models::llama<>>(
          make, 11, ranks,
          {.schedule = each.make, .microbatches = 4, .chunks = chunks, .hop = 0.4});
      BOOST_TEST((found.losses == expected.losses), each.name << " on " << ranks << " ranks");
      BOOST_TEST((found.values == expected.values), each.name << " on " << ranks << " ranks");
    }
  }
}

BOOST_AUTO_TEST_CASE(
    fewer_micro_batches_than_stages_one_micro_batch_and_one_rank_are_no_exception) {
  const auto make = [] { return models::llama<>(small_llama()); };
  for (const int microbatches : {1, 2}) {
    const outcome expected = alone(make(), 3, microbatches);
    for (const named_schedule& each : pipeline_schedules) {
      for (const int ranks : {1, 4}) {
        if (each.name == "looped_bfs" && microbatches > 1) continue;
        const outcome found = piped<models::llama<>>(
            make, 3, ranks, {.schedule = each.make, .microbatches = microbatches});
        BOOST_TEST((found.values == expected.values), each.name << " on " << ranks << " ranks");
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(stages_that_are_frozen_at_first_train_from_when_they_are_unfrozen) {
  const auto make = [] { return models::llama<>(small_llama()); };
  // The first half at first, then the head for two steps.
  const change<models::llama<>> changed = [](models::llama<>& model, std::size_t step) {
    model.for_each_parameter([&](const std::string& path, auto& p) {
      const bool is_upper = is_within(path, {"model.layers.3", "model.layers.4", "model.layers.5",
                                             "model.norm", "lm_head"});
      if (step < 4 && !is_upper) p.freeze();
      else if (step >= 6 && step < 8 && is_upper) p.freeze();
      else p.unfreeze();
    });
  };
  const outcome expected = alone(make(), 11, 4, changed);
  for (const int ranks : {1, 2, 4}) {
    for (const auto schedule : {schedules::one_f_one_b, schedules::zb1p}) {
      const outcome found = piped<models::llama<>>(
          make, 11, ranks, {.schedule = schedule, .microbatches = 4}, changed);
      BOOST_TEST((found.losses == expected.losses), ranks << " ranks");
      BOOST_TEST((found.values == expected.values), ranks << " ranks");
    }
  }
}

BOOST_AUTO_TEST_CASE(a_tied_embedding_is_summed_over_the_first_and_the_last_stage) {
  // (h1 + e1) + (h2 + e2) is not (h1 + h2) + (e1 + e2): equal to rounding, not bit by bit.
  const models::gpt_config config{.vocab_size = vocabulary, .n_positions = positions, .n_embd = 8,
                                  .n_layer = 4, .n_head = 2, .embd_pdrop = 0.1, .attn_pdrop = 0.1,
                                  .resid_pdrop = 0.1};
  const auto make = [&] { return models::gpt<>(config); };
  const outcome expected = alone(make(), 6, 3);
  for (const auto schedule : {schedules::one_f_one_b, schedules::zb1p, schedules::zbv}) {
    const outcome found =
        piped<models::gpt<>>(make, 6, 3, {.schedule = schedule, .microbatches = 3});
    BOOST_TEST(found.values.size() == expected.values.size());
    for (std::size_t step = 0; step < steps; ++step) {
      BOOST_TEST(std::abs(found.losses[step] - expected.losses[step]) < 1e-5);
    }
  }
}
