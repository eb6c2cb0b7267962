// Stages, samples and layers over one mesh: the steps are those of one process.
#include <parx/pipeline/parallelize.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ddp/ranks.hpp>

#include <parx/comm.hpp>
#include <parx/models/gpt.hpp>
#include <parx/models/llama.hpp>
#include <parx/nn/loss.hpp>
#include <parx/optim/clip.hpp>
#include <parx/optim/sgd.hpp>
#include <parx/pipeline/catalog.hpp>
#include <parx/tensor_parallel/plans.hpp>

namespace {

using parx::tensor;
using parx::nn::between_cuts;

constexpr std::size_t words = 37, positions = 6, rows = 8;
constexpr int steps = 4;

struct batch {
  tensor<std::int32_t> input_ids;
  tensor<std::int64_t> labels;
};

/// Of all replicas together; every seventh label counts for nothing.
batch sample(int step) {
  batch made{tensor<std::int32_t>::empty({rows, positions}),
             tensor<std::int64_t>::empty({rows, positions})};
  for (std::size_t i = 0; i < rows * positions; ++i) {
    const std::size_t word = (i * i + 7 * i + 11 * static_cast<std::size_t>(step)) % words;
    made.input_ids.data()[i] = static_cast<std::int32_t>(word);
    made.labels.data()[i] = i % 7 == 3 ? -100 : static_cast<std::int64_t>((3 * word + 1) % words);
  }
  return made;
}
batch part_of(const batch& whole, int index, int count) {
  return parx::split_batch(whole, count)[static_cast<std::size_t>(index)];
}

auto llama() {
  return parx::models::llama<>({.vocab_size = words, .hidden_size = 16, .intermediate_size = 22,
                                .num_hidden_layers = 4, .num_attention_heads = 4,
                                .num_key_value_heads = 2, .max_position_embeddings = 16,
                                .initializer_range = 0.2});
}
auto gpt() {
  return parx::models::gpt<>({.vocab_size = words, .n_positions = 8, .n_embd = 16, .n_layer = 4,
                              .n_head = 4, .embd_pdrop = 0, .attn_pdrop = 0, .resid_pdrop = 0});
}

struct result {
  std::vector<double> losses, norms;
  double evaluated = 0;
  tensor<std::int64_t> likeliest;  // of the evaluation's positions
  std::map<std::string, std::vector<float>> values;
};

/// One process without a wrapper.
template <typename Make>
result alone(Make make) {
  auto model = make();
  model.initialize(7);
  parx::optim::sgd optimizer{model.parameters(), {.lr = 0.1F}};
  result found;
  for (int step = 0; step < steps; ++step) {
    const batch all = sample(step);
    const auto loss = parx::cross_entropy(model(all.input_ids), all.labels);
    loss.backward();
    found.losses.push_back(static_cast<double>(loss.sum.item()) / loss.count);
    double squares = 0;
    model.for_each_parameter([&](const std::string&, auto& p) {
      for (const float each : p.grad().span()) {
        squares += static_cast<double>(each) * static_cast<double>(each);
      }
    });
    found.norms.push_back(std::sqrt(squares));
    optimizer.step();
    optimizer.zero_grad();
  }
  const parx::no_grad guard;
  const batch last = sample(99);
  const auto logits = model(last.input_ids);
  found.likeliest = parx::argmax(logits.value());
  const auto loss = parx::cross_entropy(logits, last.labels);
  found.evaluated = static_cast<double>(loss.sum.item()) / loss.count;
  model.for_each_parameter([&](const std::string& path, auto& p) {
    found.values[path] = {p.value().begin(), p.value().end()};
  });
  return found;
}

struct layout {
  int pp, dp, tp;
  parx::pipeline_schedule schedule = parx::schedules::one_f_one_b;
  between_cuts between = between_cuts::whole;
};

bool is_near(double a, double b) { return std::abs(a - b) <= 1e-5 * (1 + std::abs(b)); }

/// What differs on this rank, "" for nothing.
template <typename Make>
std::string differences(parx::process_group& world, Make make, const layout& how,
                        const result& expected) {
  parx::mesh<"pp", "dp", "tp"> mesh{world, {how.pp, how.dp, how.tp}};
  auto model = make();
  auto parallel = parx::parallelize(
      model, mesh,
      {.tp = parx::tp::ready_plan(model, how.between),
       .pp = {.schedule = how.schedule, .microbatches = 4, .seed = 7}});
  const auto criterion = [](const auto& logits, const batch& b) {
    return parx::nn::cross_entropy(logits, b.labels);
  };
  parx::optim::sgd optimizer{parallel.parameters(), {.lr = 0.1F}};
  std::string wrong;
  const auto expect = [&](const char* what, int step, double found, double wanted) {
    if (is_near(found, wanted)) return;
    wrong += fmt::format("{} {}: {} for {}; ", what, step, found, wanted);
  };
  const auto mean = [&](parx::nn::tally here) {
    std::array<double, 2> total{here.sum, here.count};
    parx::all_reduce(mesh["dp"], total);
    return total[0] / total[1];
  };
  for (int step = 0; step < steps; ++step) {
    const batch mine = part_of(sample(step), mesh.rank("dp"), how.dp);
    const auto at = static_cast<std::size_t>(step);
    expect("loss", step, mean(parallel.step(mine, criterion)), expected.losses[at]);
    expect("norm", step, parx::optim::grad_norm(optimizer.targets()), expected.norms[at]);
    optimizer.step();
    optimizer.zero_grad();
  }
  const batch last = part_of(sample(99), mesh.rank("dp"), how.dp);
  expect("evaluated", 0, mean(parallel.evaluate(last, criterion)), expected.evaluated);
  const batch guessed =
      part_of({sample(99).input_ids, expected.likeliest}, mesh.rank("dp"), how.dp);
  const auto right = parallel.evaluate(guessed, [](const auto& logits, const batch& b) {
    return parx::nn::accuracy(logits, b.labels);
  });
  expect("accuracy", 0, mean(right), 1);
  parallel.module().for_each_parameter([&](const std::string& path, auto& p) {
    const auto& values = expected.values.at(path);
    bool all = true;
    p.spec().for_each_run([&](const parx::shard_run& run) {
      for (std::size_t i = 0; i < run.length; ++i) {
        all = all && is_near(static_cast<double>(p.value().data()[run.local + i]),
                             static_cast<double>(values[run.global + i]));
      }
    });
    if (!all) wrong += path + " differs; ";
  });
  return wrong;
}

template <typename Make>
void expect_one_process(Make make, const std::vector<layout>& layouts) {
  const result expected = alone(make);
  for (const layout& how : layouts) {
    const auto wrong = on_ranks(how.pp * how.dp * how.tp, [&](parx::process_group& world) {
      return differences(world, make, how, expected);
    });
    for (const std::string& each : wrong) {
      BOOST_TEST(each == "", how.pp << " x " << how.dp << " x " << how.tp << ": " << each);
    }
  }
}

/// What all ranks say, or the one that fails alone.
template <typename Make, typename Options>
std::string said_by(int world, Make make, std::vector<parx::mesh_axis> axes, Options options_of) {
  std::vector<std::string> said(static_cast<std::size_t>(world));
  try {
    on_ranks(world, [&](parx::process_group& group) {
      parx::mesh mesh{group, axes};
      auto model = make();
      try {
        auto parallel = parx::parallelize(model, mesh, options_of(model, group.rank()));
        said[static_cast<std::size_t>(group.rank())] = "nothing";
      } catch (const std::exception& wrong) {
        said[static_cast<std::size_t>(group.rank())] = wrong.what();
      }
      return 0;
    });
  } catch (const parx::usage_error& wrong) {
    return wrong.what();
  }
  for (const std::string& each : said) BOOST_TEST(each != "nothing");
  return said.front();
}

}  // namespace

using namespace parx::schedules;

BOOST_AUTO_TEST_CASE(a_llama_takes_the_steps_of_one_process_at_every_layout) {
  expect_one_process(llama, {{1, 1, 1},
                             {2, 1, 2},
                             {2, 1, 2, zb1p},
                             {2, 2, 1},
                             {1, 2, 2},
                             {2, 2, 2},
                             {2, 2, 2, zbv},
                             {2, 2, 2, one_f_one_b, between_cuts::positions},
                             {4, 1, 2, zb1p}});
}

BOOST_AUTO_TEST_CASE(a_gpt_whose_embeddings_are_tied_over_stages_takes_them_too) {
  expect_one_process(gpt, {{2, 1, 2}, {2, 2, 2}, {2, 2, 2, zb1p}});
}

BOOST_AUTO_TEST_CASE(contradicting_axes_are_reported_before_the_first_action) {
  const auto plain = [](auto&, int) { return parx::parallel_options{}; };
  const auto expect = [](const std::string& said, const std::string& part) {
    BOOST_TEST(said.find(part) != std::string::npos, said);
  };
  expect(said_by(8, llama, {{"pp", 8}}, plain),
         "8 stages need as many blocks, and the model has 6");
  expect(said_by(4, llama, {{"pp", 2}, {"tp", 3}}, plain),
         "needs exactly 6 ranks, and its group has 4");
  expect(said_by(2, llama, {{"cp", 2}}, plain), "the mesh has the axis \"cp\"");
  expect(said_by(2, llama, {{"tp", 2}}, plain), ".tp is empty: give tp::ready_plan(model)");
  expect(said_by(2, llama, {{"dp", 2}},
                 [](auto& model, int rank) {
                   return rank == 0 ? parx::parallel_options{}
                                    : parx::parallel_options{.tp = parx::tp::ready_plan(model)};
                 }),
         "have different plans for .tp");
  const auto schedules_of = [](auto&, int rank) {
    return parx::parallel_options{.pp = {.schedule = rank == 3 ? gpipe : one_f_one_b}};
  };
  expect(said_by(4, llama, {{"pp", 2}, {"dp", 2}}, schedules_of),
         "rank 3 of group \"pp=2 x dp=2\" has another schedule");
  const auto cuts_of = [](auto&, int rank) {
    return parx::parallel_options{.pp = {.cut = {0, rank == 1 ? 2U : 3U}}};
  };
  expect(said_by(2, llama, {{"pp", 2}}, cuts_of), "micro-batches or cut than rank 0");
  const auto seeds_of = [](auto& model, int rank) {
    return parx::parallel_options{.tp = parx::tp::ready_plan(model),
                                  .pp = {.seed = rank == 1 ? 7U : 3U}};
  };
  for (const char* const axis : {"pp", "dp", "tp"}) {
    expect(said_by(2, llama, {{axis, 2}}, seeds_of), "has the seed 7 in its pipeline_options");
  }
  const auto initialized = [](auto& model, int rank) {
    model.initialize(rank == 1 ? 7 : 3);
    return parx::parallel_options{};
  };
  expect(said_by(2, llama, {{"pp", 2}}, initialized), "has the seed 7 of its model.initialize()");
}

BOOST_AUTO_TEST_CASE(ranks_of_one_model_that_get_different_samples_are_told) {
  // From the first step on, or after one rank has skipped a batch.
  for (const std::string axis : {"pp", "tp"}) {
    const int equal_steps = axis == "pp" ? 2 : 0;
    const auto told = on_ranks(2, [&](parx::process_group& world) -> std::string {
      parx::mesh mesh{world, {{axis, 2}}};
      auto model = llama();
      auto parallel = parx::parallelize(
          model, mesh, {.tp = parx::tp::ready_plan(model), .pp = {.microbatches = 2}});
      const auto step = [&](int number) {
        parallel.step(sample(number), [](const auto& logits, const batch& b) {
          return parx::nn::cross_entropy(logits, b.labels);
        });
        parallel.zero_grad();
      };
      try {
        for (int same = 0; same < equal_steps; ++same) step(same);
        step(equal_steps + world.rank());
        step(equal_steps + world.rank() + 1);
        return "nothing";
      } catch (const parx::error& wrong) {
        return wrong.what();
      }
    });
    for (const std::string& each : told)
      BOOST_TEST(each.find("got different samples: ") != each.npos, axis << ": " << each);
  }
}
