// A border of units may fall anywhere in a model: whatever their size, a model trains to the bits
// of ddp, with and without recomputation, whether values are gathered or shared.
#include <parx/fsdp.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <comm/jobs.hpp>

#include <parx/autograd.hpp>
#include <parx/ddp.hpp>
#include <parx/models.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using parx::tensor;
using variable = parx::variable<float>;
namespace models = parx::models;
namespace nn = parx::nn;

tensor<std::int64_t> tokens(int rank, int step) {
  tensor<std::int64_t> ids = tensor<std::int64_t>::empty({2, 5});
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids.data()[i] = static_cast<std::int64_t>(
        (i * 31 + static_cast<std::size_t>(rank) * 17 + static_cast<std::size_t>(step) * 7) % 24);
  }
  return ids;
}
tensor<float> numbers(int rank, int step, const parx::shape& extents) {
  tensor<float> x = tensor<float>::empty(extents);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x.data()[i] = static_cast<float>((static_cast<int>(i) * 7 + rank * 13 + step * 5) % 11) - 5;
  }
  return x;
}

// Of each model: the loss of a batch.
const auto language_model = [](auto& model, int rank, int step) {
  const auto ids = tokens(rank, step);
  return nn::cross_entropy(model(ids), ids);
};
const auto classifier = [](auto& model, int rank, int step) {
  return nn::cross_entropy(model(tokens(rank, step)), tensor<std::int64_t>::full({2}, rank));
};
const auto translator = [](auto& model, int rank, int step) {
  const auto target = tokens(rank, step + 1);
  const auto mask = tensor<std::uint8_t>::ones({2, 5});
  return nn::cross_entropy(model(tokens(rank, step), mask, target), target);
};
const auto images = [](auto& model, int rank, int step) {
  return nn::cross_entropy(model(numbers(rank, step, {2, 1, 8, 8})),
                           tensor<std::int64_t>::full({2}, rank));
};

// What users write: a module that returns a view of its parameter, a parent that computes with the
// parameters of its layers, in a recomputed part too, and a module whose name begins its
// neighbours'.
struct own_positions : nn::module<own_positions> {
  parx::parameter<float> table{"table", {64, 8}};

  variable forward(const variable& like) { return parx::slice<float>(table, 0, 0, like.extent(1)); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("table", table, nn::init::normal(0, 1));
  }
};
struct own_block : nn::module<own_block> {
  using value_type = float;
  nn::linear<> in{8, 40}, out{40, 8};
  nn::layer_norm<> norm{8};
  nn::dropout drop{0.1};
  bool recomputes = false;

  variable forward(const variable& x) {
    const auto inner = [this](const variable& y) {
      return drop(parx::linear<float>(
          parx::relu(in(y)), out.weight() * in.weight().value().data()[0], out.bias_values()));
    };
    return norm(x + (recomputes ? parx::checkpoint(inner, x) : inner(x)));
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("mlp.in", in);
    visit("mlp", drop);
    visit("mlp.out", out);
    visit("norm", norm);
  }
};
struct own_model : nn::module<own_model> {
  using value_type = float;
  nn::embedding<> words{24, 8, {.use = nn::embedding_use::whole}};
  nn::linear<> tied{8, 24, {.bias = nn::bias::none}};
  own_positions positions;
  std::vector<own_block> blocks{3};

  variable forward(const tensor<std::int64_t>& ids) {
    variable x = words(ids);
    const variable places = positions(x);
    x = x + places;
    for (own_block& each : blocks) x = each(x);
    x = x + places * places;
    return tied(x) + parx::linear<float>(x, words.weight());
  }
  void gradient_checkpointing_enable() {
    for (own_block& each : blocks) each.recomputes = true;
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("words", words);
    visit("positions", positions);
    visit("blocks", blocks);
    visit("tied", tied);
  }
};

struct outcome {
  std::uint64_t hash = 0;
  std::vector<double> losses;
  bool operator==(const outcome&) const = default;
};

/// Both ranks' outcomes of two steps; the wrapper is wrap(model, group).
template <typename Make, typename Loss, typename Wrap>
std::vector<outcome> train(Make make, Loss loss_of, bool recomputes, Wrap wrap,
                           const std::string& what) {
  std::vector<outcome> found(2);
  const auto failures =
      jobs::run_collecting(jobs::kind::inproc, 2, [&](parx::process_group& group) {
        auto model = make();
        if constexpr (requires { model.gradient_checkpointing_enable(); }) {
          if (recomputes) model.gradient_checkpointing_enable();
        }
        model.initialize(7);
        auto wrapper = wrap(model, group);
        parx::optim::adamw opt{wrapper->parameters(), {.lr = 1e-2F}};
        outcome& own = found[static_cast<std::size_t>(group.rank())];
        for (int step = 0; step < 2; ++step) {
          const auto loss = loss_of(*wrapper, group.rank(), step);
          own.losses.push_back(static_cast<double>(loss.mean()));
          loss.backward();
          opt.step();
        }
        own.hash = wrapper->values_hash();
      });
  for (const std::string& failure : failures) BOOST_TEST(failure == "", what << ": " << failure);
  return found;
}

template <typename Make, typename Loss>
void check_every_size(Make make, Loss loss_of) {
  using model_type = decltype(make());
  const std::size_t whole = make().parameter_count() * sizeof(float);
  for (const bool recomputes : {false, true}) {
    const auto expected = train(
        make, loss_of, recomputes,
        [](auto& model, auto& group) {
          return std::make_unique<parx::ddp<model_type>>(
              model, group, parx::ddp_options{.order = parx::reduction_order::serial});
        },
        "ddp");
    for (std::size_t bytes = 1024; bytes <= whole; bytes *= 2) {
      for (const int stage : {1, 2, 3, 4}) {
        const parx::fsdp_options options{
            .stage = std::min(stage, 3),
            .units = parx::by_size(bytes),
            .values = stage == 4 ? parx::value_storage::shared : parx::value_storage::gathered};
        const std::string what = fmt::format("units of {} bytes, stage {}, values {}", bytes,
                                             options.stage, static_cast<int>(options.values));
        const auto found = train(
            make, loss_of, recomputes,
            [&](auto& model, auto& group) {
              return std::make_unique<parx::fsdp<model_type>>(model, group, options);
            },
            what);
        BOOST_TEST((found == expected), what);
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(units_of_any_size_train_a_gpt_to_the_bits_of_ddp) {
  check_every_size(
      [] {
        return models::gpt<>(
            {.vocab_size = 24, .n_positions = 16, .n_embd = 16, .n_layer = 2, .n_head = 2});
      },
      language_model);
}

BOOST_AUTO_TEST_CASE(units_of_any_size_train_a_llama_to_the_bits_of_ddp) {
  check_every_size(
      [] {
        return models::llama<>({.vocab_size = 24,
                                .hidden_size = 16,
                                .intermediate_size = 40,
                                .num_hidden_layers = 2,
                                .num_attention_heads = 2,
                                .num_key_value_heads = 1,
                                .max_position_embeddings = 16});
      },
      language_model);
}

BOOST_AUTO_TEST_CASE(units_of_any_size_train_a_bert_to_the_bits_of_ddp) {
  check_every_size(
      [] {
        return models::bert_classifier<>({.vocab_size = 24,
                                          .hidden_size = 16,
                                          .num_hidden_layers = 2,
                                          .num_attention_heads = 2,
                                          .intermediate_size = 32,
                                          .max_position_embeddings = 16,
                                          .num_labels = 2});
      },
      classifier);
}

BOOST_AUTO_TEST_CASE(units_of_any_size_train_an_encoder_and_decoder_to_the_bits_of_ddp) {
  check_every_size(
      [] {
        return models::encoder_decoder<>({.vocab_size = 24,
                                          .d_model = 16,
                                          .encoder_layers = 1,
                                          .decoder_layers = 2,
                                          .attention_heads = 2,
                                          .ffn_dim = 32,
                                          .max_position_embeddings = 16,
                                          .copying = models::copying::pointer});
      },
      translator);
}

BOOST_AUTO_TEST_CASE(units_of_any_size_train_a_cnn_to_the_bits_of_ddp) {
  check_every_size(
      [] {
        return models::cnn<>({.image_rows = 8,
                              .image_columns = 8,
                              .hidden_channels = 4,
                              .hidden_size = 16,
                              .num_labels = 2});
      },
      images);
}

BOOST_AUTO_TEST_CASE(units_of_any_size_train_a_model_that_reads_its_layers_to_the_bits_of_ddp) {
  check_every_size(
      [] {
        own_model model;
        return model;
      },
      language_model);
}
