// 20 steps of training of models that are cut over 2 ranks, against PyTorch with the whole model.
#include <parx/tensor_parallel/plans.hpp>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <ddp/ranks.hpp>
#include <models/torch_models.hpp>

#include <parx/optim/adamw.hpp>
#include <parx/tensor_parallel/parallelize.hpp>

using parx::nn::between_cuts;

namespace {

template <typename Make>
void require_trains_like_torch(const std::string& name, Make make,
                               const std::vector<between_cuts>& ways) {
  if (!torch_models::numbers()) return;  // it said so
  const std::vector<double>& expected = torch_models::numbers()->at(name + ".loss");
  BOOST_REQUIRE(expected.size() == 20);
  for (const auto between : ways) {
    const auto wrong = on_ranks(2, [&](parx::process_group& group) {
      auto model = make();
      const auto tp = parx::parallelize(model, group, parx::tp::ready_plan(model, between));
      torch_models::set_weights(model);
      parx::optim::adamw<float> optimizer(model.parameters(), {.lr = 1e-3});
      std::string said;
      for (std::size_t step = 0; step < expected.size(); ++step) {
        model.zero_grad();
        const auto loss = torch_models::loss(
            model, step, [&](const auto& logits, const auto& labels, const auto& options) {
              return parx::cross_entropy(logits, labels, options);
            });
        loss.backward();
        optimizer.step();
        const auto found = static_cast<double>(loss.mean());
        if (!(std::abs(found - expected[step]) <= 1e-4 * expected[step]))
          said += fmt::format("step {}: {} for {}; ", step, found, expected[step]);
      }
      return said;
    });
    for (const std::string& each : wrong) BOOST_TEST(each == "", name << ": " << each);
  }
}

const std::vector<between_cuts> both{between_cuts::whole, between_cuts::positions};

}  // namespace

BOOST_AUTO_TEST_CASE(bert_trains_as_in_pytorch) {
  require_trains_like_torch("bert", torch_models::bert, both);
}

BOOST_AUTO_TEST_CASE(gpt_trains_as_in_pytorch) {
  require_trains_like_torch("gpt", torch_models::gpt, both);
}

BOOST_AUTO_TEST_CASE(llama_with_grouped_heads_trains_as_in_pytorch) {
  require_trains_like_torch("llama", torch_models::llama, both);
}

BOOST_AUTO_TEST_CASE(the_encoder_decoder_trains_as_in_pytorch) {
  // Its targets have 7 positions, which 2 ranks cannot share.
  require_trains_like_torch("encoder_decoder", torch_models::encoder_decoder,
                            {between_cuts::whole});
}
