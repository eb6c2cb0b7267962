// Language models through the stages: PyTorch's curves, recomputed activations.

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ddp/ranks.hpp>
#include <models/torch_models.hpp>
#include <pipeline/typed_pipeline.hpp>

#include <parx/nn/loss.hpp>
#include <parx/optim/adamw.hpp>
#include <parx/pipeline/catalog.hpp>

using namespace parx;

namespace {

struct text_batch {
  tensor<std::int64_t> input_ids, labels;
};
text_batch texts(std::size_t step) {
  const auto ids = torch_models::tokens(step, 3, 13, 50);
  return {ids.slice(1, 0, 12), ids.slice(1, 1, 13)};
}
const auto loss_of = [](const variable<float>& logits, const text_batch& b) {
  return nn::cross_entropy(logits, b.labels);
};

enum class saved_activations { kept, recomputed };

struct outcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> values;
  int peak = 0;
};

template <typename Make>
std::vector<outcome> trained(Make make, int ranks, const char* schedule, std::size_t steps,
                             saved_activations how = saved_activations::kept) {
  return on_ranks(ranks, [&](process_group& world) {
    auto model = make();
    if (how == saved_activations::recomputed) model.gradient_checkpointing_enable();
    torch_models::set_weights(model);
    typed_pipeline pipe{model, model.template blocks<std::int64_t>(), world,
                  {.schedule = schedule_named(schedule), .microbatches = 3}};
    optim::adamw<float> optimizer{pipe.parameters(), {.lr = 1e-3F}};
    outcome found;
    for (std::size_t step = 0; step < steps; ++step) {
      found.losses.push_back(pipe.step(texts(step), loss_of).mean());
      optimizer.step();
      optimizer.zero_grad();
    }
    pipe.module().for_each_parameter([&](const std::string& path, auto& p) {
      found.values[path] = {p.value().begin(), p.value().end()};
    });
    return found;
  });
}

template <typename Make>
void expect_torchs_curve(const std::string& name, Make make) {
  if (!torch_models::numbers()) return;
  const std::vector<double>& expected = torch_models::numbers()->at(name + ".loss");
  for (const auto& [ranks, schedule] :
       {std::pair{2, "1f1b"}, {3, "zb1p"}, {4, "gpipe"}, {2, "zbv"}}) {
    for (const outcome& rank : trained(make, ranks, schedule, expected.size())) {
      for (std::size_t step = 0; step < expected.size(); ++step) {
        BOOST_TEST(std::abs(rank.losses[step] - expected[step]) <= 1e-4 * expected[step],
                   name << " by " << schedule << ", step " << step << ": " << rank.losses[step]
                        << " and torch's " << expected[step]);
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_gpt_and_a_llama_in_stages_train_as_in_pytorch) {
  expect_torchs_curve("gpt", torch_models::gpt);
  expect_torchs_curve("llama", torch_models::llama);
}

BOOST_AUTO_TEST_CASE(stages_that_compute_their_activations_again_end_in_the_same_bits) {
  // Also where backward is divided: the layers run again in I, and W takes from that run.
  for (const auto& [ranks, schedule] :
       {std::pair{2, "1f1b"}, {3, "zb1p"}, {2, "zbv"}, {4, "gpipe"}}) {
    const auto kept = trained(torch_models::gpt, ranks, schedule, 3);
    const auto again = trained(torch_models::gpt, ranks, schedule, 3,
                               saved_activations::recomputed);
    for (std::size_t rank = 0; rank < kept.size(); ++rank) {
      BOOST_TEST((kept[rank].losses == again[rank].losses), schedule);
      BOOST_TEST((kept[rank].values == again[rank].values), schedule);
    }
  }
}
