// Tensor parallel beside data parallel: a mesh of two axes.
#include <parx/tensor_parallel/plans.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <ddp/ranks.hpp>
#include <messages.hpp>
#include <tensor_parallel/against_dense.hpp>

#include <parx/ddp/ddp.hpp>
#include <parx/fsdp/fsdp.hpp>
#include <parx/mesh.hpp>
#include <parx/nn/sequential.hpp>
#include <parx/optim/clip.hpp>
#include <parx/optim/sgd.hpp>
#include <parx/tensor_parallel/parallelize.hpp>

using namespace parx::models;
using parx::nn::between_cuts;

namespace {

constexpr std::size_t words = 37, steps = 3;

llama<> small() {
  return llama<>({.vocab_size = words, .hidden_size = 16, .intermediate_size = 22,
                  .num_hidden_layers = 2, .num_attention_heads = 4, .num_key_value_heads = 2,
                  .max_position_embeddings = 16, .initializer_range = 0.3});
}

/// Losses, norms before clipping, and the parameters in the end, by path.
struct run {
  std::vector<double> figures;
  std::map<std::string, std::vector<float>> values;
};

/// One process with the samples of both data ranks.
run alone() {
  run r;
  auto model = small();
  model.initialize(7);
  parx::optim::sgd opt{model.parameters(), {.lr = 0.1F}};
  for (std::size_t step = 0; step < steps; ++step) {
    parx::weighted_loss<float> loss{{}, 0};
    for (const std::size_t replica : {0U, 1U}) {
      const auto part = parx::cross_entropy(model(tokens(words, 12, 7 + replica + step)),
                                            tokens(words, 12, 11 + replica));
      if (replica == 0) loss = part;
      else loss = {loss.sum + part.sum, loss.count + part.count};
    }
    loss.backward();
    r.figures.push_back(parx::optim::clip_grad_norm(model.parameters(), 0.5));
    opt.step();
  }
  model.for_each_parameter([&](const std::string& path, auto& p) {
    r.values[path] = {p.value().begin(), p.value().end()};
  });
  return r;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_rank_that_fails_in_forward_is_named_by_those_that_wait_in_other_groups) {
  // Rank 3 fails before its tensor parallel sum. Rank 2 waits for it there, rank 1 in its data
  // parallel group, rank 0 for rank 1 in its tensor parallel group.
  std::vector<std::string> said(4);
  const auto run = [&] {
    on_ranks(4, [&](parx::process_group& world) {
      parx::mesh<"dp", "tp"> mesh{world, {2, 2}};
      std::vector<float> numbers(64);
      if (world.rank() == 3) throw std::runtime_error("no memory in forward");
      try {
        parx::all_reduce(world.rank() == 1 ? mesh["dp"] : mesh["tp"], numbers);
      } catch (const parx::error& failure) {
        said[static_cast<std::size_t>(world.rank())] = failure.what();
        throw;
      }
      return 0;
    });
  };
  const auto start = std::chrono::steady_clock::now();
  BOOST_CHECK_THROW(run(), std::runtime_error);
  BOOST_TEST(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < 10);
  for (const std::size_t rank : {0U, 1U, 2U})
    BOOST_TEST(said[rank].find("no memory in forward") != std::string::npos, said[rank]);
}

BOOST_AUTO_TEST_CASE(ddp_times_tp_takes_the_steps_of_one_process_with_all_samples) {
  const run expected = alone();
  for (const auto between : {between_cuts::whole, between_cuts::positions}) {
    const auto wrong = on_ranks(4, [&](parx::process_group& world) -> std::string {
      parx::mesh<"dp", "tp"> mesh{world, {2, 2}};
      auto model = small();
      const auto tp =
          parx::parallelize(model, mesh["tp"], parx::tp::ready_plan(model, between));
      model.initialize(7);
      parx::ddp ddp{model, mesh["dp"]};
      parx::optim::sgd opt{ddp.parameters(), {.lr = 0.1F}};
      const auto replica = static_cast<std::size_t>(mesh.rank("dp"));
      std::string said;
      for (std::size_t step = 0; step < steps; ++step) {
        parx::cross_entropy(ddp(tokens(words, 12, 7 + replica + step)),
                            tokens(words, 12, 11 + replica))
            .backward();
        const double norm = parx::optim::clip_grad_norm(ddp.parameters(), 0.5);
        if (std::abs(norm - expected.figures[step]) > 1e-4 * expected.figures[step])
          said += fmt::format("norm {} for {}; ", norm, expected.figures[step]);
        opt.step();
      }
      model.for_each_parameter([&](const std::string& path, auto& p) {
        const auto& values = expected.values.at(path);
        p.spec().for_each_run([&](const parx::shard_run& part) {
          for (std::size_t i = 0; i < part.length; ++i) {
            if (std::abs(p.value().data()[part.local + i] - values[part.global + i]) > 1e-5F)
              said = path + " differs; ";
          }
        });
      });
      return said;
    });
    for (const std::string& each : wrong) BOOST_TEST(each == "", each);
  }
}

BOOST_AUTO_TEST_CASE(the_norm_of_layers_that_an_fsdp_cuts_further_is_that_of_one_process) {
  const run expected = alone();
  const auto wrong = on_ranks(4, [&](parx::process_group& world) -> std::string {
    parx::mesh<"dp", "tp"> mesh{world, {2, 2}};
    auto model = small();
    const auto tp = parx::parallelize(model, mesh["tp"], parx::tp::ready_plan(model));
    parx::fsdp fsdp{model, mesh["dp"]};
    fsdp.initialize(7);
    parx::optim::sgd opt{fsdp.parameters(), {.lr = 0.1F}};
    const auto replica = static_cast<std::size_t>(mesh.rank("dp"));
    std::string said;
    for (std::size_t step = 0; step < steps; ++step) {
      parx::cross_entropy(fsdp(tokens(words, 12, 7 + replica + step)),
                          tokens(words, 12, 11 + replica))
          .backward();
      const double norm = parx::optim::clip_grad_norm(fsdp.parameters(), 0.5);
      if (std::abs(norm - expected.figures[step]) > 1e-4 * expected.figures[step])
        said += fmt::format("norm {} for {}; ", norm, expected.figures[step]);
      opt.step();
    }
    return said;
  });
  for (const std::string& each : wrong) BOOST_TEST(each == "", each);
}

BOOST_AUTO_TEST_CASE(ranks_of_one_model_that_get_different_samples_are_told_at_the_first_forward) {
  // Rank 2 of 3 has another value, which is one of thousands; or all have the same but for
  // rounding.
  const auto told = [](float difference) {
    return on_ranks(3, [&](parx::process_group& world) -> std::string {
      parx::nn::sequential model{parx::nn::linear<>(6, 9), parx::nn::linear<>(9, 2)};
      const auto cut =
          parx::parallelize(model, world, {{"0", parx::tp::column}, {"1", parx::tp::row}});
      model.initialize(7);
      auto x = parx::tensor<float>::ones({1000, 6});
      if (world.rank() == 2) x.data()[3003] += difference;
      try {
        (void)model(x);
        return "nothing";
      } catch (const parx::error& wrong) {
        return wrong.what();
      }
    });
  };
  for (const std::string& each : told(1))
    BOOST_TEST(parx_test::mentions(each, "the ranks over which layers are cut at mesh_test.cpp:",
                                   "got different inputs of a cut layer, \"0\"",
                                   "data_group() of the model"),
               each);
  for (const std::string& each : told(1e-3F)) BOOST_TEST(each == "nothing");
}

BOOST_AUTO_TEST_CASE(ranks_of_one_model_with_different_seeds_are_told_at_the_first_forward) {
  const auto told = on_ranks(2, [](parx::process_group& world) -> std::string {
    auto model = small();
    const auto cut =
        parx::parallelize(model, world, parx::tp::ready_plan(model));
    model.initialize(world.rank() == 1 ? std::uint64_t{7} << 40 : 7);
    try {
      (void)model(tokens(words, 12, 7));
      return "nothing";
    } catch (const parx::error& wrong) {
      return wrong.what();
    }
  });
  for (const std::string& each : told)
    BOOST_TEST(parx_test::mentions(each, "from different seeds", "initialize(seed)"), each);
}
