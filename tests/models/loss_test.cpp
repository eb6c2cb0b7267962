// A language model that is given labels returns its loss, without the whole logits: it trains to
// the bits of the loss of the logits, alone and with wrappers.
#include <parx/models.hpp>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <comm/jobs.hpp>

#include <parx/autograd.hpp>
#include <parx/ddp.hpp>
#include <parx/fsdp.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>
#include <parx/tensor_parallel.hpp>
#include <parx/tensor_parallel/plans.hpp>

#include "same_bits_by_threads.hpp"

namespace {

using parx::tensor;
namespace models = parx::models;

constexpr std::size_t vocabulary = 96, length = 64;
constexpr int steps = 3;

const parx::cross_entropy_options options{.ignore_index = 5, .label_smoothing = 0.1};

tensor<std::int64_t> tokens(int rank, int step) {
  const auto ids = tensor<std::int64_t>::empty({9, length});  // not a whole number of blocks
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids.data()[i] = static_cast<std::int64_t>(
        (i * i * 31 + static_cast<std::size_t>(rank) * 17 + static_cast<std::size_t>(step) * 7) %
        vocabulary);
  }
  return ids;
}

const auto make_gpt = [] {
  return models::gpt<>({.vocab_size = vocabulary, .n_positions = length, .n_embd = 32,
                        .n_layer = 2, .n_head = 2});  // with dropout
};
template <models::word_embeddings Words>
const auto make_llama = [] {
  return models::llama<>({.vocab_size = vocabulary, .hidden_size = 32, .intermediate_size = 80,
                          .num_hidden_layers = 2, .num_attention_heads = 2,
                          .num_key_value_heads = 1, .max_position_embeddings = length,
                          .embeddings = Words});
};

const auto of_logits = [](auto& net, const auto& ids) {
  return parx::nn::cross_entropy(net(ids), ids, options);
};
const auto of_model = [](auto& net, const auto& ids) { return net(ids, ids, options); };

/// The losses of the steps and the parameters after them.
template <typename Net, typename Optimizer, typename LossOf>
tensor<float> train(Net& net, Optimizer& opt, int rank, LossOf loss_of) {
  std::vector<float> found;
  for (int step = 0; step < steps; ++step) {
    for (int part = 0; part < 2; ++part) {
      const auto loss = loss_of(net, tokens(rank, 2 * step + part));
      if (part == 0) {
        [[maybe_unused]] const auto guard = net.no_sync();
        loss.backward();
      } else {
        loss.backward();
      }
      found.push_back(loss.mean());
    }
    opt.step();
  }
  for (const auto& each : opt.targets()) {
    const auto values = each.owner().value().contiguous();
    found.insert(found.end(), values.begin(), values.end());
  }
  return tensor<float>::from(found, {found.size()});
}

/// The model itself as a wrapper.
template <typename Model>
struct bare {
  Model& model;
  template <typename... Inputs>
  auto operator()(const Inputs&... inputs) {
    return model(inputs...);
  }
  [[nodiscard]] int no_sync() const { return 0; }
};

template <typename Make>
void check(const char* what, Make make) {
  const auto alone = [&](auto loss_of, bool recomputes) {
    auto model = make();
    model.initialize(7);
    if (recomputes) model.gradient_checkpointing_enable();
    parx::optim::adamw opt{model.parameters(), {.lr = 1e-2F}};
    bare<decltype(model)> net{model};
    return train(net, opt, 0, loss_of);
  };
  const auto expected = alone(of_logits, false);
  BOOST_TEST(same_bits(alone(of_model, false), expected), what);
  BOOST_TEST(same_bits(alone(of_model, true), expected), what << ", layers computed again");

  const auto together = [&](auto wrap, auto loss_of) {
    std::vector<tensor<float>> found(2);
    const auto failures =
        jobs::run_collecting(jobs::kind::inproc, 2, [&](parx::process_group& group) {
          auto model = make();
          model.initialize(7);
          wrap(model, group, [&](auto& net, auto& opt) {
            found[static_cast<std::size_t>(group.rank())] = train(net, opt, group.rank(), loss_of);
          });
        });
    for (const std::string& failure : failures) BOOST_TEST(failure == "", what << failure);
    return found;
  };
  const auto compare = [&](const char* wrapper, auto wrap) {
    const auto a = together(wrap, of_logits), b = together(wrap, of_model);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      BOOST_TEST(same_bits(a[rank], b[rank]), what << " by " << wrapper << ", rank " << rank);
    }
  };
  compare("ddp", [](auto& model, auto& group, auto use) {
    parx::ddp ddp{model, group};
    parx::optim::adamw opt{ddp.parameters(), {.lr = 1e-2F}};
    use(ddp, opt);
  });
  compare("fsdp", [](auto& model, auto& group, auto use) {
    parx::fsdp fsdp{model, group, {.units = parx::by_size(1 << 14)}};
    parx::optim::adamw opt{fsdp.parameters(), {.lr = 1e-2F}};
    use(fsdp, opt);
  });
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_gpt_trains_to_the_same_bits) { check("gpt", make_gpt); }
BOOST_AUTO_TEST_CASE(a_llama_trains_to_the_same_bits) {
  check("llama", make_llama<models::word_embeddings::apart>);
  check("tied llama", make_llama<models::word_embeddings::tied>);
}

BOOST_AUTO_TEST_CASE(a_head_that_is_cut_over_ranks_is_refused) {
  const auto failures =
      jobs::run_collecting(jobs::kind::inproc, 2, [&](parx::process_group& group) {
        const auto refuse = [&](auto model, const std::string& name) {
          const auto cut = parx::parallelize(model, group, parx::tp::ready_plan(model));
          model.initialize(7);
          const auto ids = tokens(0, 0);
          std::string said;
          try {
            (void)model(ids, ids);
          } catch (const parx::usage_error& e) {
            said = e.what();
          }
          parx::require(said.find("\"" + name + "\" is cut") != std::string::npos &&
                            said.find("take cross_entropy(logits") != std::string::npos,
                        "said: {}", said);
        };
        refuse(make_gpt(), "transformer.wte.weight");
        refuse(make_llama<models::word_embeddings::apart>(), "lm_head.weight");
      });
  for (const std::string& failure : failures) BOOST_TEST(failure == "", failure);
}
