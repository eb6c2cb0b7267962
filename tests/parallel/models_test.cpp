// Models of several kinds at several layouts: their inputs come from a batch by themselves, buffers
// are saved and loaded, and dropout draws the same numbers.
#include <parx/parallel.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <comm/jobs.hpp>
#include <data/support.hpp>
#include <messages.hpp>
#include <parx/models/bert.hpp>
#include <parx/models/encoder_decoder.hpp>
#include <parx/nn.hpp>
#include <parx/optim/adamw.hpp>
#include <parx/optim/clip.hpp>

namespace {

using parx::process_group;
using parx::tensor;

struct features {
  tensor<float> x;
  tensor<std::int64_t> y;
};
struct texts {
  tensor<std::int32_t> input_ids;
  tensor<std::uint8_t> attention_mask;
  tensor<std::int32_t> decoder_input_ids;
  tensor<std::int64_t> labels;
};

features samples(int step, int replica) {
  features made{tensor<float>::empty({8, 6}), tensor<std::int64_t>::empty({8})};
  for (std::size_t i = 0; i < 48; ++i) {
    made.x.data()[i] = std::sin(static_cast<float>(i + 1) * 0.7F + static_cast<float>(step) +
                                3 * static_cast<float>(replica));
  }
  for (std::size_t i = 0; i < 8; ++i) made.y.data()[i] = static_cast<std::int64_t>(i % 3);
  return made;
}
texts words(int step, bool labels_are_classes) {
  texts made{tensor<std::int32_t>::empty({4, 6}),
             tensor<std::uint8_t>::full({4, 6}, 1),
             tensor<std::int32_t>::empty({4, 3}),
             {}};
  for (std::size_t i = 0; i < 24; ++i) {
    made.input_ids.data()[i] =
        static_cast<std::int32_t>(i * 3 + static_cast<std::size_t>(step)) % 11;
  }
  for (std::size_t row = 1; row < 4; ++row) made.attention_mask.data()[row * 6 + 5] = 0;
  for (std::size_t i = 0; i < 12; ++i) {
    made.decoder_input_ids.data()[i] = static_cast<std::int32_t>(i * 5 + 1) % 11;
  }
  const std::size_t count = labels_are_classes ? 4 : 12;
  made.labels =
      labels_are_classes ? tensor<std::int64_t>::empty({4}) : tensor<std::int64_t>::empty({4, 3});
  for (std::size_t i = 0; i < count; ++i) made.labels.data()[i] = static_cast<std::int64_t>(i % 3);
  return made;
}

struct outcome {
  std::vector<double> losses{}, norms{};
  std::uint64_t values = 0;
};

/// Three steps of Net at a layout; saves and loads in between.
template <typename Make, typename Batch, typename Criterion>
outcome trained(int ranks, const std::string& layout, Make make, Batch batch, Criterion criterion) {
  outcome found;
  const parx_test::scratch_folder scratch;
  const std::string file = scratch.file("model.safetensors");
  const auto failures = jobs::run_collecting(jobs::kind::inproc, ranks, [&](process_group& world) {
    auto net = make();
    parx::parallel model{net, world, parx::layout::parse(layout)};
    model.initialize(9);
    parx::optim::adamw opt{model.parameters(), {.lr = 1e-2}};
    for (int step = 0; step < 3; ++step) {
      const auto loss = model.forward_backward(batch(step, model.data_group().rank()), criterion);
      const double mean = parx::global_mean(model.data_group(), loss);
      const double norm = parx::optim::clip_grad_norm(opt.targets(), 0.5);
      opt.step();
      if (world.rank() == 0) {
        found.losses.push_back(mean);
        found.norms.push_back(norm);
      }
    }
    if (!model.replicas_equal()) throw std::runtime_error("replicas differ");
    model.broadcast_buffers();
    parx::save(model, file);
    const std::uint64_t values = model.values_hash();
    model.initialize(1);
    parx::load(model, file);
    if (model.values_hash() != values) throw std::runtime_error("loaded other values");
    if (world.rank() == 0) found.values = values;
  });
  parx_test::expect_failures(failures, "");
  return found;
}

void expect_close(const outcome& found, const outcome& expected, const std::string& what) {
  BOOST_REQUIRE(found.losses.size() == expected.losses.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    BOOST_TEST(std::abs(found.losses[i] - expected.losses[i]) < 1e-5, what << ": loss");
    BOOST_TEST(std::abs(found.norms[i] - expected.norms[i]) < 1e-4, what << ": norm");
  }
}

constexpr auto of_classes = [](const auto& logits, const features& part) {
  return parx::nn::cross_entropy(logits, part.y);
};
constexpr auto of_labels = [](const auto& logits, const texts& part) {
  return parx::nn::cross_entropy(logits, part.labels);
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_sequential_with_buffers_and_dropout) {
  const auto make = [] {
    return parx::nn::sequential{parx::nn::linear<>{6, 8}, parx::nn::batch_norm<>{8},
                                parx::nn::relu{}, parx::nn::dropout{0.3}, parx::nn::linear<>{8, 3}};
  };
  const auto at = [&](int ranks, const std::string& layout) {
    return trained(ranks, layout, make, samples, of_classes);
  };
  const outcome two = at(2, "ddp,microbatches=2");
  for (const char* const layout : {"zero=1,microbatches=2", "fsdp,microbatches=2"}) {
    const outcome found = at(2, layout);
    BOOST_TEST(found.losses == two.losses, layout);
    BOOST_TEST(found.norms == two.norms, layout);
    BOOST_TEST(found.values == two.values, layout);
  }
  for (const char* const layout : {"pp=2,microbatches=2", "pp=2,zero=1,microbatches=2"}) {
    const outcome found = at(4, layout);
    BOOST_TEST(found.losses == two.losses, layout);
    BOOST_TEST(found.values == two.values, layout);
  }
}

BOOST_AUTO_TEST_CASE(a_sequential_that_begins_with_an_embedding_takes_the_ids) {
  const auto make = [] {
    return parx::nn::sequential{parx::nn::embedding{11, 4}, parx::nn::flatten{},
                                parx::nn::linear{24, 8}, parx::nn::relu{},
                                parx::nn::linear{8, 3}};
  };
  const auto batch = [](int step, int replica) { return words(step + 7 * replica, true); };
  const auto at = [&](int ranks, const std::string& layout) {
    return trained(ranks, layout, make, batch, of_labels);
  };
  const outcome two = at(2, "ddp,microbatches=2");
  BOOST_TEST(at(2, "fsdp,microbatches=2").values == two.values);
  BOOST_TEST(at(4, "pp=2,microbatches=2").values == two.values);
}

BOOST_AUTO_TEST_CASE(a_classifier_of_texts_takes_ids_and_mask) {
  const auto make = [] {
    return parx::models::bert_classifier<float>{{.vocab_size = 11,
                                                 .hidden_size = 8,
                                                 .num_hidden_layers = 2,
                                                 .num_attention_heads = 2,
                                                 .intermediate_size = 12,
                                                 .max_position_embeddings = 8,
                                                 .num_labels = 3,
                                                 .hidden_dropout_prob = 0,
                                                 .attention_probs_dropout_prob = 0}};
  };
  const auto batch = [](int step, int replica) { return words(step + 7 * replica, true); };
  const auto at = [&](int ranks, const std::string& layout) {
    return trained(ranks, layout, make, batch, of_labels);
  };
  const outcome alone = at(1, "ddp");
  for (const char* const layout : {"tp=2", "tp=2,sp", "pp=2,microbatches=2"}) {
    expect_close(at(2, layout), alone, layout);
  }
  expect_close(at(2, "fsdp"), at(2, "ddp"), "fsdp");
}

BOOST_AUTO_TEST_CASE(an_encoder_decoder_takes_three_tensors) {
  const auto make = [] {
    return parx::models::encoder_decoder<float>{{.vocab_size = 11,
                                                 .d_model = 8,
                                                 .encoder_layers = 1,
                                                 .decoder_layers = 1,
                                                 .attention_heads = 2,
                                                 .ffn_dim = 12,
                                                 .dropout = 0,
                                                 .copying = parx::models::copying::none}};
  };
  const auto batch = [](int step, int replica) { return words(step + 7 * replica, false); };
  const auto at = [&](int ranks, const std::string& layout) {
    return trained(ranks, layout, make, batch, of_labels);
  };
  const outcome alone = at(1, "ddp");
  for (const char* const layout : {"tp=2", "pp=2,microbatches=2"}) {
    expect_close(at(2, layout), alone, layout);
  }
  expect_close(at(2, "zero=2"), at(2, "ddp"), "zero=2");
}
