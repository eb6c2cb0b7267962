// A GPT under fsdp between its training steps: text token by token, evaluation, and layers that
// are computed again in backward. Compared with the same under a ddp.
#include <parx/fsdp.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <vector>

#include <ddp/ranks.hpp>

#include <parx/autograd.hpp>
#include <parx/ddp.hpp>
#include <parx/models/generate.hpp>
#include <parx/models/gpt.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using parx::tensor;
namespace models = parx::models;
using gpt = models::gpt<>;
using block = models::gpt_block<>;

constexpr models::gpt_config small{
    .vocab_size = 37, .n_positions = 12, .n_embd = 16, .n_layer = 3, .n_head = 2};
const std::vector<std::int64_t> prompt{3, 1, 4, 1, 5};

tensor<std::int64_t> tokens(int rank, int step) {
  auto ids = tensor<std::int64_t>::empty({2, 7});
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids.data()[i] = (static_cast<std::int64_t>(i) * 31 + rank * 17 + step * 7) % 37;
  }
  return ids;
}

struct outcome {
  std::vector<std::int64_t> likely, random;
  std::vector<double> losses;
  std::uint64_t hash = 0;
  friend bool operator==(const outcome&, const outcome&) = default;
};

/// Steps with text and an evaluation between them. write(f) calls f, which writes text.
template <typename Wrapper, typename Write>
outcome train(Wrapper& wrapper, gpt& model, parx::process_group& group, Write write) {
  parx::optim::adamw opt{wrapper.parameters(), {.lr = 1e-2}};
  outcome found;
  for (int step = 0; step < 5; ++step) {
    const auto ids = tokens(group.rank(), step);
    const auto loss = parx::nn::cross_entropy(wrapper(ids), ids);
    loss.backward();
    opt.step();
    found.losses.push_back(loss.mean());
    if (step != 2) continue;
    {
      const parx::no_grad guard;
      const auto other = tokens(0, 9);
      model.eval();
      found.losses.push_back(parx::nn::cross_entropy(wrapper(other), other).mean());
      model.train();
    }
    // Longer than the window, so that it begins anew.
    found.likely = write([&] {
      return models::generate(model, prompt, {.max_new_tokens = 14, .temperature = 0});
    });
    found.random = write([&] {
      return models::generate(model, prompt, {.max_new_tokens = 14, .temperature = 1, .seed = 8});
    });
  }
  found.hash = wrapper.values_hash();
  return found;
}

enum class layers { kept, computed_again };
enum class text { in_one_call, token_by_token };

gpt made(layers how) {
  gpt model{small};
  if (how == layers::computed_again) model.gradient_checkpointing_enable();
  return model;
}

std::vector<outcome> with_fsdp(int world, layers how, const parx::fsdp_options& options,
                               text written = text::in_one_call) {
  return on_ranks(world, [&](parx::process_group& group) {
    gpt model = made(how);
    parx::fsdp fsdp{model, group, options};
    fsdp.initialize(7);
    return train(fsdp, model, group, [&](auto f) {
      return written == text::in_one_call ? fsdp.call(f) : f();
    });
  });
}

}  // namespace

BOOST_AUTO_TEST_CASE(text_and_evaluation_between_steps_are_those_of_a_ddp) {
  for (const layers how : {layers::kept, layers::computed_again}) {
    for (const int world : {1, 2, 3}) {
      const auto expected = on_ranks(world, [&](parx::process_group& group) {
        gpt model = made(how);
        model.initialize(7);
        parx::ddp ddp{model, group, {.order = parx::reduction_order::serial}};
        return train(ddp, model, group, [](auto f) { return f(); });
      });
      BOOST_TEST(expected[0].likely.size() == 14U);
      BOOST_TEST((expected[0].likely != expected[0].random));
      for (const int stage : {1, 2, 3}) {
        const parx::fsdp_options by_hosts{.stage = stage, .units = parx::by_type<block>};
        BOOST_TEST((with_fsdp(world, how, by_hosts) == expected), "stage " << stage);
      }
      parx::fsdp_options gathered{.units = parx::by_type<block>,
                                  .values = parx::value_storage::gathered};
      BOOST_TEST((with_fsdp(world, how, gathered) == expected), "gathered");
      BOOST_TEST((with_fsdp(world, how, gathered, text::token_by_token) == expected));
      gathered.reshard_after_forward = parx::reshard_after_forward::no;
      BOOST_TEST((with_fsdp(world, how, gathered) == expected), "kept");
    }
  }
}
