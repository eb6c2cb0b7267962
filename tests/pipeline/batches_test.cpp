// Which ranks of a pipeline need samples, and that the others train as well without any.
#include <parx/pipeline.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <ddp/ranks.hpp>
#include <pipeline/scale.hpp>
#include <pipeline/typed_pipeline.hpp>

#include <parx/data/dataset.hpp>
#include <parx/data/loader.hpp>
#include <parx/mesh.hpp>
#include <parx/models/bert.hpp>
#include <parx/models/llama.hpp>
#include <parx/optim/sgd.hpp>
#include <parx/train.hpp>

using namespace parx;

namespace {

auto three() { return nn::sequential{scale{}, scale{}, scale{}, scale{}, scale{}, scale{}}; }

std::vector<bool> readers(auto make, int ranks, pipeline_options options) {
  std::vector<int> found(static_cast<std::size_t>(ranks));
  run_threads(ranks, [&](process_group& group) {
    auto model = make();
    typed_pipeline pipe{model, group, options};
    found[static_cast<std::size_t>(group.rank())] = pipe.needs_input() ? 1 : 0;
  });
  return {found.begin(), found.end()};
}

struct outcome {
  double loss = 0, evaluated = 0;
  std::map<std::string, std::vector<float>> values = {};
  bool operator==(const outcome&) const = default;
};

/// A step of three stages; `gives(rank)` whether the rank gets the samples.
std::vector<outcome> step(auto gives) {
  return on_ranks(3, [&](process_group& group) {
    auto model = three();
    typed_pipeline pipe{model, group, {.microbatches = 2}};
    optim::sgd opt{pipe.parameters(), {.lr = 0.5}};
    const samples batch = gives(group.rank()) ? numbers(5) : samples{};
    outcome found;
    found.loss = pipe.step(batch, squares).sum;
    opt.step();
    found.evaluated = pipe.evaluate(batch, squares).sum;
    pipe.module().for_each_parameter([&](const std::string& path, auto& each) {
      found.values[path] = {each.value().begin(), each.value().end()};
    });
    return found;
  });
}

/// Six layers of scale, trained on batches of some rows: losses and, in the end, all values.
struct training {
  std::vector<double> losses = {};
  std::map<std::string, std::vector<float>> values = {};
};

/// Rows of `numbers`, from one on.
samples rows_from(std::size_t begin, std::size_t rows) {
  const samples all = numbers(begin + rows);
  return {all.x.slice(0, begin, begin + rows), all.y.slice(0, begin, begin + rows)};
}

/// One process on whole batches, without a wrapper.
training alone(const std::vector<std::size_t>& batches) {
  auto model = three();
  model.materialize();
  optim::sgd opt{model.parameters(), {.lr = 1e-4, .momentum = 0.5}};
  training found;
  for (const std::size_t rows : batches) {
    for (const bool trains : {true, false}) {
      const samples all = rows_from(0, rows);
      const auto loss = squares(model(all.x), all);
      found.losses.push_back(static_cast<double>(loss.sum.item()) / loss.count);
      if (trains) loss.backward();
      if (trains) opt.step();
    }
  }
  model.for_each_parameter([&](const std::string& path, auto& each) {
    found.values[path] = {each.value().begin(), each.value().end()};
  });
  return found;
}

/// Replica i of the stages has so many rows of each batch; ranks that read none get none. Of each
/// rank, with the losses of all replicas.
std::vector<training> piped(int stages, const std::vector<std::vector<std::size_t>>& batches,
                            const pipeline_options& options) {
  const int replicas = static_cast<int>(batches[0].size());
  return on_ranks(stages * replicas, [&](process_group& world) {
    mesh<"pp", "dp"> grid{world, {stages, replicas}};
    const auto mine = static_cast<std::size_t>(grid.rank("dp"));
    auto model = three();
    pipeline_options own = options;
    own.data_parallel = &grid["dp"];
    own.job = &grid.all();
    typed_pipeline pipe{model, grid["pp"], own};
    optim::sgd opt{pipe.parameters(), {.lr = 1e-4, .momentum = 0.5}};
    training found;
    for (const auto& rows : batches) {
      std::size_t begin = 0;
      for (std::size_t i = 0; i < mine; ++i) begin += rows[i];
      const samples batch = pipe.needs_input() ? rows_from(begin, rows[mine]) : samples{};
      for (const bool trains : {true, false}) {
        const nn::tally got = trains ? pipe.step(batch, squares) : pipe.evaluate(batch, squares);
        std::array<double, 2> total{got.sum, got.count};
        all_reduce(grid["dp"], total);
        found.losses.push_back(total[0] / total[1]);
        if (trains) opt.step();
      }
    }
    pipe.module().for_each_parameter([&](const std::string& path, auto& each) {
      if (!each.spec().is_whole()) return;
      found.values[path] = {each.value().begin(), each.value().end()};
    });
    return found;
  });
}

void expect_run(const std::vector<training>& ranks, const training& expected) {
  const auto close = [](double a, double b) { return std::abs(a - b) <= 1e-5 * (1 + std::abs(b)); };
  for (const training& each : ranks) {
    BOOST_TEST_REQUIRE(each.losses.size() == expected.losses.size());
    for (std::size_t i = 0; i < each.losses.size(); ++i) {
      BOOST_TEST(close(each.losses[i], expected.losses[i]),
                 "loss " << i << ": " << each.losses[i] << ", not " << expected.losses[i]);
    }
    for (const auto& [path, values] : each.values) {
      const std::vector<float>& wanted = expected.values.at(path);
      BOOST_TEST_REQUIRE(values.size() == wanted.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        BOOST_TEST(close(static_cast<double>(values[i]), static_cast<double>(wanted[i])), path);
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_last_batch_that_is_smaller_trains_in_as_many_parts_as_it_has_rows) {
  const std::vector<std::size_t> rows{6, 2, 1, 6, 5, 3, 7, 1};
  const training expected = alone(rows);
  std::vector<std::vector<std::size_t>> batches;
  for (const std::size_t each : rows) batches.push_back({each});
  for (const named_schedule& each : pipeline_schedules) {
    const std::string name(each.name);
    const bool has_chunks = name == "interleaved" || name == "looped_bfs" || name == "zbv";
    BOOST_TEST_CONTEXT(name) {
      expect_run(piped(3, batches, {.schedule = each.make, .microbatches = 6,
                                    .chunks = has_chunks ? 2 : 1}),
                 expected);
    }
  }
  // A table of one's own, too.
  expect_run(piped(2, {{2}, {1}}, {.microbatches = 2,
                                   .table = from_csv("0F0,0F1,0B1,0B0,0REDUCE_GRAD\n"
                                                     "1F1,1I1,1F0,1B0,1W1\n")}),
             alone({2, 1}));
}

BOOST_AUTO_TEST_CASE(data_parallel_replicas_may_have_different_numbers_of_rows) {
  const training expected = alone({8, 5, 4, 2, 3});
  const std::vector<std::vector<std::size_t>> batches{{4, 4}, {4, 1}, {1, 3}, {2, 0}, {0, 3}};
  for (const auto schedule : {schedules::one_f_one_b, schedules::zb1p}) {
    expect_run(piped(2, batches, {.schedule = schedule, .microbatches = 4}), expected);
    expect_run(piped(3, batches, {.schedule = schedule, .microbatches = 4, .sharding = zero(1)}),
               expected);
  }
  // Each micro-batch gathers values and sums gradients: all replicas then have as many.
  expect_run(piped(2, batches, {.microbatches = 4,
                                .sharding = fsdp_options{
                                    .stage = 3, .units = by_type<scale>,
                                    .values = value_storage::gathered,
                                    .accumulate = accumulated_gradients::sharded}}),
             expected);
  for (const int stage : {2, 3}) {
    BOOST_TEST_CONTEXT("zero " << stage) {
      expect_run(piped(2, batches, {.microbatches = 4, .sharding = zero(stage)}), expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_replica_evaluates_alone_unless_that_gathers_values) {
  const auto losses = on_ranks(4, [](process_group& world) {
    mesh<"pp", "dp"> grid{world, {2, 2}};
    auto model = three();
    typed_pipeline pipe{model, grid["pp"],
                  {.microbatches = 2,
                   .table = from_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"),
                   .data_parallel = &grid["dp"],
                   .job = &grid.all()}};
    const samples batch = numbers(4);
    nn::tally alone;
    if (grid.rank("dp") == 0) alone = pipe.evaluate(batch, squares);
    return std::array{alone.mean(), pipe.step(batch, squares).mean()};
  });
  for (const std::size_t rank : {0U, 2U}) BOOST_TEST(losses[rank][0] == losses[rank][1]);
}

BOOST_AUTO_TEST_CASE(ranks_of_one_model_with_other_numbers_of_rows_are_told_both) {
  const auto said = on_ranks(3, [&](process_group& group) -> std::string {
    auto model = three();
    typed_pipeline pipe{model, group, {.microbatches = 4}};
    try {
      const std::size_t rows = group.rank() == 2 ? 3 : 2;
      (void)pipe.evaluate(pipe.needs_input() ? numbers(rows) : samples{}, squares);
    } catch (const error& failed) {
      return failed.what();
    }
    return "nothing";
  });
  for (const std::string& each : said) {
    BOOST_TEST(each.find("rank 2 of group \"world\" got a batch of 3 rows, and rank 0") !=
                   std::string::npos, each);
  }
}

BOOST_AUTO_TEST_CASE(the_first_and_the_last_stage_need_samples) {
  const std::vector<bool> ends{true, false, false, true};
  const auto small = [] {
    return models::llama<>{{.vocab_size = 11, .hidden_size = 4, .intermediate_size = 4,
                            .num_hidden_layers = 4, .num_attention_heads = 2,
                            .num_key_value_heads = 2, .max_position_embeddings = 8}};
  };
  BOOST_TEST((readers(small, 4, {.microbatches = 2}) == ends));
  // Both ends of a V are on rank 0.
  BOOST_TEST((readers(three, 3, {.schedule = schedules::zbv, .microbatches = 2, .chunks = 2}) ==
              std::vector<bool>{true, false, false}));
  BOOST_TEST((readers(three, 1, {.microbatches = 2}) == std::vector<bool>{true}));
}

BOOST_AUTO_TEST_CASE(a_stage_in_the_middle_ends_in_the_same_bits_without_a_batch) {
  const auto whole = step([](int) { return true; });
  BOOST_TEST((step([](int rank) { return rank != 1; }) == whole));
}

BOOST_AUTO_TEST_CASE(an_empty_batch_where_samples_are_needed_is_told_on_every_rank) {
  for (const int without : {0, 2}) {
    const auto said = on_ranks(3, [&](process_group& group) -> std::string {
      auto model = three();
      try {
        // Here, too: the rank that fails may be in its step while others still meet.
        typed_pipeline pipe{model, group, {.microbatches = 2}};
        (void)pipe.step(group.rank() == without ? samples{} : numbers(4), squares);
      } catch (const std::exception& failed) {
        return failed.what();
      }
      return "nothing";
    });
    for (int rank = 0; rank < 3; ++rank) {
      const std::string& each = said[static_cast<std::size_t>(rank)];
      BOOST_TEST(each.find("the batch of this rank is empty, and ") != std::string::npos, each);
      const bool names_it = each.find("rank " + std::to_string(without)) != std::string::npos;
      BOOST_TEST((names_it || rank == without), each);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_trainers_loader_fetches_nothing_in_the_middle) {
  struct counting {
    using batch_type = data::labelled_batch<float>;
    mutable std::vector<std::size_t> fetched;
    [[nodiscard]] std::size_t size() const { return 10; }
    [[nodiscard]] batch_type fetch(std::span<const std::size_t> indices) const {
      fetched.insert(fetched.end(), indices.begin(), indices.end());
      const samples made = numbers(indices.size());
      return {made.x, made.y, {}};
    }
  };
  const auto fetched = on_ranks(3, [&](process_group& group) {
    auto model = three();
    typed_pipeline pipe{model, group, {.microbatches = 4}};  // the last batch has two rows
    optim::sgd opt{pipe.parameters(), {.lr = 0.01}};
    const counting source;
    const data::loader loader{source, {.batch_size = 4,
                                       .sampler = data::distributed_sampler{10, pipe.data_group()},
                                       .workers = 0,
                                       .fetches = pipe.needs_input()}};
    const auto loss = [](const variable<float>& found, const data::labelled_batch<float>& b) {
      return nn::mse_loss(found, b.y);
    };
    train::trainer trainer{pipe, opt, loader,
                           [&](auto& p, auto& batch) { return p.step(batch, loss); },
                           {.num_train_epochs = 2, .disable_progress = true}};
    trainer.train();
    require(trainer.state().global_step == 6, "{} steps", trainer.state().global_step);
    return source.fetched.size();
  });
  BOOST_TEST((fetched == std::vector<std::size_t>{20, 0, 20}));
}
