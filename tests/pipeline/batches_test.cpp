// Which ranks of a pipeline need samples, and that the others train as well without any.
#include <parx/pipeline.hpp>

#include <boost/test/unit_test.hpp>

#include <map>
#include <string>
#include <vector>

#include <ddp/ranks.hpp>
#include <pipeline/scale.hpp>

#include <parx/data/dataset.hpp>
#include <parx/data/loader.hpp>
#include <parx/models/bert.hpp>
#include <parx/models/llama.hpp>
#include <parx/optim/sgd.hpp>
#include <parx/pipeline/training_state.hpp>
#include <parx/train.hpp>

using namespace parx;

namespace {

auto three() { return nn::sequential{scale{}, scale{}, scale{}, scale{}, scale{}, scale{}}; }

std::vector<bool> readers(auto make, int ranks, pipeline_options options) {
  std::vector<int> found(static_cast<std::size_t>(ranks));
  run_threads(ranks, [&](process_group& group) {
    auto model = make();
    pipeline pipe{model, group, options};
    found[static_cast<std::size_t>(group.rank())] = pipe.reads_batches() ? 1 : 0;
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
    pipeline pipe{model, group, {.microbatches = 2}};
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

}  // namespace

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
        pipeline pipe{model, group, {.microbatches = 2}};
        (void)pipe.step(group.rank() == without ? samples{} : numbers(4), squares);
      } catch (const error& failed) {
        return failed.what();
      }
      return "nothing";
    });
    const std::string what = without == 0 ? "block" : "the loss";
    for (const std::string& each : said) {
      BOOST_TEST(each.find("the batch of this rank is empty, and ") != std::string::npos, each);
      BOOST_TEST(each.find("rank " + std::to_string(without)) != std::string::npos, each);
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
    pipeline pipe{model, group, {.microbatches = 2}};
    optim::sgd opt{pipe.parameters(), {.lr = 0.01}};
    const counting source;
    const data::loader loader{source, {.batch_size = 4,
                                       .sampler = data::distributed_sampler{10, pipe.data_group()},
                                       .workers = 0,
                                       .fetches = pipe.reads_batches()}};
    const auto loss = [](const variable<float>& found, const data::labelled_batch<float>& b) {
      return nn::mse_loss(found, b.y);
    };
    train::trainer trainer{pipe, opt, loader,
                           [&](auto& p, auto& batch) { return p.step(batch, loss); },
                           {.num_train_epochs = 2, .disable_progress = true}};
    trainer.train();
    BOOST_REQUIRE(trainer.state().global_step == 6);
    return source.fetched.size();
  });
  BOOST_TEST((fetched == std::vector<std::size_t>{20, 0, 20}));
}
