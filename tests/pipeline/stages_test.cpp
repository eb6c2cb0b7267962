// A tied GPT over stages and data-parallel ranks: gradients, norms and dropout are one rank's.

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ddp/ranks.hpp>
#include <pipeline/typed_pipeline.hpp>

#include <parx/comm.hpp>
#include <parx/mesh.hpp>
#include <parx/models/gpt.hpp>
#include <parx/nn/loss.hpp>
#include <parx/optim/clip.hpp>
#include <parx/optim/sgd.hpp>
#include <parx/pipeline/catalog.hpp>

namespace {

using parx::tensor;
using model_type = parx::models::gpt<>;

constexpr std::size_t words = 19, positions = 5;
constexpr int steps = 4;
constexpr double rate = 0.2;
constexpr double clipped_to = 0.5;  // below some of the norms

struct batch {
  tensor<std::int32_t> input_ids;
  tensor<std::int64_t> labels;
};

batch sample(int step, int replica, std::size_t rows) {
  batch made{tensor<std::int32_t>::empty({rows, positions}),
             tensor<std::int64_t>::empty({rows, positions})};
  for (std::size_t i = 0; i < rows * positions; ++i) {
    const auto shift = static_cast<std::size_t>(11 * step + 5 * replica);
    const std::size_t word = (i * i + 7 * i + shift) % words;
    made.input_ids.data()[i] = static_cast<std::int32_t>(word);
    made.labels.data()[i] = i % 7 == 3 ? -100 : static_cast<std::int64_t>((3 * word + 1) % words);
  }
  return made;
}

parx::models::gpt_config config(double dropout) {
  return {.vocab_size = words, .n_positions = 8, .n_embd = 8, .n_layer = 4, .n_head = 2,
          .embd_pdrop = dropout, .attn_pdrop = dropout, .resid_pdrop = dropout};
}

const auto loss_of = [](const parx::variable<float>& logits, const batch& part) {
  return parx::nn::cross_entropy(logits, part.labels);
};

struct result {
  std::map<std::string, std::vector<float>> values = {};
  std::vector<double> losses = {}, norms = {};
  double evaluated = 0;
};

template <typename Module>
void note_values(Module& from, result& to) {
  from.for_each_parameter([&](const std::string& path, auto& p) {
    to.values[path] = {p.value().begin(), p.value().end()};
  });
}

/// One rank, on the micro-batches of all replicas, without a wrapper.
result alone(int replicas, double dropout, int microbatches) {
  model_type model{config(dropout)};
  parx::optim::sgd optimizer{model.parameters(), {.lr = rate}};
  result found;
  for (int step = 0; step < steps; ++step) {
    double sum = 0, count = 0;
    for (int replica = 0; replica < replicas; ++replica) {
      for (const batch& part : parx::split_rows(sample(step, replica, 4), microbatches)) {
        const auto loss = loss_of(model(part.input_ids), part);
        loss.backward({.of = parx::gradient_of::sum});
        if (replica == 0) found.losses.resize(static_cast<std::size_t>(step) + 1);
        sum += static_cast<double>(loss.sum.item());
        count += loss.count;
      }
    }
    found.losses.back() = sum / count;
    double squares = 0;
    model.for_each_parameter([&](const std::string&, auto& p) {
      for (float& each : p.grad().span()) {
        each *= static_cast<float>(1 / count);
        squares += static_cast<double>(each) * static_cast<double>(each);
      }
    });
    found.norms.push_back(std::sqrt(squares));
    parx::optim::scale_grad(optimizer.targets(), found.norms.back(), clipped_to);
    optimizer.step();
    optimizer.zero_grad();
  }
  model.eval();
  const parx::no_grad guard;
  const batch last = sample(99, 0, 4);
  const auto loss = loss_of(model(last.input_ids), last);
  found.evaluated = static_cast<double>(loss.sum.item()) / loss.count;
  note_values(model, found);
  return found;
}

/// pp x dp ranks; losses are those of all replicas.
std::vector<result> piped(int stages, int replicas, double dropout,
                          parx::pipeline_options options) {
  return on_ranks(stages * replicas, [&](parx::process_group& world) {
    parx::mesh<"pp", "dp"> mesh{world, {stages, replicas}};
    model_type model{config(dropout)};
    parx::pipeline_options own = options;
    own.data_parallel = &mesh["dp"];
    own.job = &mesh.all();
    typed_pipeline pipe{model, mesh["pp"], own};
    parx::optim::sgd optimizer{pipe.parameters(), {.lr = rate}};
    result found;
    for (int step = 0; step < steps; ++step) {
      const auto loss = pipe.step(sample(step, mesh.rank("dp"), 4), loss_of);
      std::array<double, 2> total{loss.sum, loss.count};
      parx::all_reduce(mesh["dp"], total);
      found.losses.push_back(total[0] / total[1]);
      found.norms.push_back(parx::optim::clip_grad_norm(optimizer.targets(), clipped_to));
      optimizer.step();
      optimizer.zero_grad();
    }
    model.eval();
    found.evaluated = pipe.evaluate(sample(99, 0, 4), loss_of).mean();
    note_values(pipe.module(), found);
    return found;
  });
}

void expect_close(const std::vector<result>& ranks, const result& expected) {
  const auto close = [](double a, double b) { return std::abs(a - b) <= 1e-6 * (1 + std::abs(b)); };
  for (const result& each : ranks) {
    BOOST_TEST(close(each.evaluated, expected.evaluated));
    for (std::size_t i = 0; i < steps; ++i) {
      BOOST_TEST(close(each.losses[i], expected.losses[i]));
      BOOST_TEST(close(each.norms[i], expected.norms[i]),
                 each.norms[i] << " is not " << expected.norms[i]);
    }
    for (const auto& [path, values] : each.values) {
      const std::vector<float>& wanted = expected.values.at(path);
      BOOST_TEST_REQUIRE(values.size() == wanted.size());
      bool all = true;
      for (std::size_t i = 0; i < values.size(); ++i) {
        all = all && close(static_cast<double>(values[i]), static_cast<double>(wanted[i]));
      }
      BOOST_TEST(all, path << " differs");
    }
    for (const result& other : ranks) {
      for (const auto& [path, values] : each.values) {
        const auto found = other.values.find(path);
        if (found == other.values.end()) continue;
        BOOST_TEST((found->second == values), path << " is not the same on the ranks that have it");
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(tied_embeddings_train_as_on_one_rank_wherever_first_and_last_stage_are) {
  const result expected = alone(1, 0, 4);
  BOOST_TEST(expected.norms.front() > 0.01);
  for (const auto& [name, chunks] : {std::pair{"1f1b", 1}, {"zb1p", 1}, {"interleaved", 2},
                                     {"zbv", 2}}) {  // zbv: first and last stage on rank 0
    BOOST_TEST_CONTEXT(name) {
      expect_close(piped(3, 1, 0,
                         {.schedule = parx::schedule_named(name), .microbatches = 4,
                          .chunks = chunks}),
                   expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(stages_times_data_parallel_ranks_train_as_one_rank_on_all_samples) {
  const result expected = alone(2, 0, 2);
  for (const auto& [name, chunks] : {std::pair{"1f1b", 1}, {"zb1p", 1}, {"zbv", 2}}) {
    BOOST_TEST_CONTEXT(name) {
      expect_close(piped(2, 2, 0,
                         {.schedule = parx::schedule_named(name), .microbatches = 2,
                          .chunks = chunks}),
                   expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(after_a_pipeline_its_model_with_tied_tables_is_wrapped_again) {
  const result expected = alone(1, 0, 2);
  const auto found = on_ranks(2, [&](parx::process_group& world) {
    model_type model{config(0)};
    { const typed_pipeline trial{model, world, {.microbatches = 2}}; }
    model.reseed(static_cast<std::uint64_t>(world.rank()));  // as a trainer does for each replica
    { const typed_pipeline trial{model, world, {.schedule = parx::schedules::zbv}}; }
    {
      model.initialize(0);
      parx::ddp ddp{model, world};
      const batch mine = parx::split_rows(sample(0, 0, 4), 2)[
          static_cast<std::size_t>(world.rank())];
      loss_of(ddp(mine.input_ids), mine).backward();
      return parx::optim::grad_norm(parx::optim::targets_of(ddp.parameters()));
    }
  });
  for (const double each : found) {
    BOOST_TEST(each == expected.norms.front(), boost::test_tools::tolerance(1e-6));
  }
}

BOOST_AUTO_TEST_CASE(dropout_does_not_depend_on_the_cut) {
  const result expected = alone(1, 0.3, 4);
  expect_close(piped(2, 1, 0.3, {.microbatches = 4}), expected);
  expect_close(piped(3, 1, 0.3, {.schedule = parx::schedules::zb1p, .microbatches = 4}), expected);
}

BOOST_AUTO_TEST_CASE(data_parallel_replicas_of_stages_draw_different_dropout_masks) {
  const auto losses = on_ranks(4, [](parx::process_group& world) {
    parx::mesh<"pp", "dp"> mesh{world, {2, 2}};
    model_type model{config(0.3)};
    typed_pipeline pipe{model, mesh["pp"],
                        {.microbatches = 2, .data_parallel = &mesh["dp"], .job = &mesh.all()}};
    return pipe.step(sample(0, 0, 4), loss_of).sum;  // the same samples
  });
  BOOST_TEST(losses[0] != losses[1]);
  BOOST_TEST(losses[0] == losses[2]);  // the other stage of the same replica
}

BOOST_AUTO_TEST_CASE(a_tied_table_that_some_stages_do_not_use_in_a_step_trains_as_on_one_rank) {
  // In step 1 the second layer of one replica ignores its input, in step 3 of both: then the table
  // is the last stage's alone, and positions and the first layer have no gradient.
  const auto stops_in = [](int step, int replica) {
    return step == 3 || (step == 1 && replica == 1);
  };
  const auto blocks_of = [](model_type& model, const bool& stops) {
    auto blocks = model.blocks();
    blocks[2].forward = [inner = blocks[2].forward, &stops](const auto& x, const auto& in) {
      const parx::variable<float> y = x;
      return inner(stops ? y.detach() : y, in);
    };
    return blocks;
  };
  const parx::optim::sgd_options settings{.lr = rate, .momentum = 0.9, .weight_decay = 0.1};
  bool stops = false;
  model_type whole{config(0)};
  parx::optim::sgd alone_opt{whole.parameters(), settings};
  const auto blocks = blocks_of(whole, stops);
  result expected{.norms = std::vector<double>(steps)};
  for (int step = 0; step < steps; ++step) {
    parx::nn::tally total;
    for (const int replica : {0, 1}) {
      stops = stops_in(step, replica);
      const batch part = sample(step, replica, 4);
      parx::variable<float> x;
      for (const auto& block : blocks) x = block.forward({x, {}}, part.input_ids);
      const auto loss = loss_of(x, part);
      loss.backward({.of = parx::gradient_of::sum});
      total += loss;
    }
    expected.losses.push_back(total.mean());
    for (const auto& each : whole.parameters()) {
      if (!each.has_grad()) continue;
      for (float& value : each.grad().span()) value *= static_cast<float>(1 / total.count);
    }
    alone_opt.step();
  }
  note_values(whole, expected);
  for (const bool is_sharded : {false, true}) {
    const auto found = on_ranks(4, [&](parx::process_group& world) {
      parx::mesh<"pp", "dp"> mesh{world, {2, 2}};
      model_type model{config(0)};
      bool stops_here = false;
      parx::pipeline_options own{.microbatches = 2, .data_parallel = &mesh["dp"],
                                 .job = &mesh.all()};
      if (is_sharded) own.sharding = parx::zero(1);
      typed_pipeline pipe{model, blocks_of(model, stops_here), mesh["pp"], own};
      parx::optim::sgd optimizer{pipe.parameters(), settings};
      result here{.norms = std::vector<double>(steps)};
      for (int step = 0; step < steps; ++step) {
        stops_here = stops_in(step, mesh.rank("dp"));
        const auto loss = pipe.step(sample(step, mesh.rank("dp"), 4), loss_of);
        std::array<double, 2> total{loss.sum, loss.count};
        parx::all_reduce(mesh["dp"], total);
        here.losses.push_back(total[0] / total[1]);
        optimizer.step();
      }
      pipe.module().for_each_parameter([&](const std::string& path, auto& p) {
        if (p.spec().is_whole()) here.values[path] = {p.value().begin(), p.value().end()};
      });
      return here;
    });
    BOOST_TEST_CONTEXT(is_sharded) expect_close(found, expected);
  }
}
