// Results that later stages take besides the one before them: skip connections, and the encoder's
// result in every stage of a decoder.
#include <parx/pipeline.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <ddp/ranks.hpp>
#include <pipeline/typed_pipeline.hpp>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/threads.hpp>
#include <parx/mesh.hpp>
#include <parx/models/encoder_decoder.hpp>
#include <parx/nn.hpp>
#include <parx/optim/sgd.hpp>

using namespace parx;

namespace {

using values_by_path = std::map<std::string, std::vector<float>>;

template <typename Module>
values_by_path values_of(Module& from) {
  values_by_path found;
  from.for_each_parameter([&](const std::string& path, auto& p) {
    if (p.has_values()) found[path] = {p.value().begin(), p.value().end()};
  });
  return found;
}

struct samples {
  tensor<float> x, y;
};
samples points(std::size_t rows) {
  samples made{tensor<float>::empty({rows, 3}), tensor<float>::empty({rows, 3})};
  for (std::size_t i = 0; i < rows * 3; ++i) {
    made.x.data()[i] = std::sin(static_cast<float>(i));
    made.y.data()[i] = std::cos(static_cast<float>(3 * i));
  }
  return made;
}
const auto squares = [](const variable<float>& found, const samples& b) {
  return nn::mse_loss(found, b.y);
};

using layer = nn::linear<float>;
using six_layers = nn::sequential<layer, layer, layer, layer, layer, layer>;
six_layers six() {
  six_layers made{layer{3, 3}, layer{3, 3}, layer{3, 3}, layer{3, 3}, layer{3, 3}, layer{3, 3}};
  made.initialize(5);
  return made;
}

/// A U: the layers 3, 4, 5 add the results of the layers 2, 1, 0; layer 5 that of layer 1 too.
nn::model_blocks<tensor<float>> u_of(six_layers& model) {
  auto blocks = model.blocks();
  const std::vector<std::vector<std::string>> takes{{}, {}, {}, {"2"}, {"1"}, {"0", "1"}};
  for (std::size_t b = 3; b < blocks.size(); ++b) {
    blocks[b].takes = takes[b];
    blocks[b].forward = [inner = blocks[b].forward, count = takes[b].size()](const auto& x,
                                                                             const auto& in) {
      variable<float> y = x;
      for (std::size_t i = 0; i < count; ++i) y = y + x.taken(i);
      return inner(y, in);
    };
  }
  return blocks;
}
variable<float> u_by_hand(six_layers& model, const tensor<float>& in) {
  const auto a = model.get<0>()(variable<float>(in));
  const auto b = model.get<1>()(a);
  const auto c = model.get<2>()(b);
  const auto d = model.get<3>()(c + c);
  const auto e = model.get<4>()(d + b);
  return model.get<5>()(e + a + b);
}

template <typename Step>
values_by_path trained(six_layers& model, auto& targets, Step step) {
  optim::sgd optimizer{targets, {.lr = 0.1}};
  for (int i = 0; i < 3; ++i) {
    step();
    optimizer.step();
    optimizer.zero_grad();
  }
  return values_of(model);
}

/// Of the library's own pair batch, what the model and the loss look at.
struct pairs {
  tensor<std::int32_t> input_ids;
  tensor<std::uint8_t> attention_mask;
  tensor<std::int32_t> decoder_input_ids;
  tensor<std::int64_t> labels;
};
constexpr std::size_t words = 17, source = 6, target = 5;

pairs texts(std::size_t rows, std::size_t step) {
  pairs made{tensor<std::int32_t>::empty({rows, source}),
             tensor<std::uint8_t>::empty({rows, source}),
             tensor<std::int32_t>::empty({rows, target}),
             tensor<std::int64_t>::empty({rows, target})};
  for (std::size_t i = 0; i < rows * source; ++i) {
    made.input_ids.data()[i] = static_cast<std::int32_t>((i * i + 3 * i + step) % words);
    made.attention_mask.data()[i] = i % source < 3 + i / source % 4 ? 1 : 0;
  }
  for (std::size_t i = 0; i < rows * target; ++i) {
    const std::size_t word = (5 * i * i + i + step) % words;
    made.decoder_input_ids.data()[i] = static_cast<std::int32_t>(word);
    made.labels.data()[i] = i % 6 == 5 ? -100 : static_cast<std::int64_t>((2 * word + 1) % words);
  }
  return made;
}
const auto text_loss = [](const variable<float>& logits, const pairs& b) {
  return nn::cross_entropy(logits, b.labels);
};
models::encoder_decoder<float> summarizer(models::copying copying) {
  models::encoder_decoder<float> made{{.vocab_size = words, .d_model = 8, .encoder_layers = 2,
                                       .decoder_layers = 3, .attention_heads = 2, .ffn_dim = 12,
                                       .max_position_embeddings = 8, .dropout = 0.2,
                                       .copying = copying}};
  return made;
}

struct result {
  std::vector<double> losses;
  double evaluated = 0;
  values_by_path values;
};

result alone(models::copying copying, int microbatches) {
  auto model = summarizer(copying);
  optim::sgd optimizer{model.parameters(), {.lr = 0.2}};
  result found;
  const auto forward = [&](const pairs& b) {
    return text_loss(model(b.input_ids, b.attention_mask, b.decoder_input_ids), b);
  };
  for (std::size_t step = 0; step < 3; ++step) {
    nn::tally total;
    for (const pairs& part : split_rows(texts(6, step), microbatches)) {
      const auto loss = forward(part);
      loss.backward({.of = gradient_of::sum});
      total += {static_cast<double>(loss.sum.item()), loss.count};
    }
    found.losses.push_back(total.mean());
    model.for_each_parameter([&](const std::string&, auto& p) {
      for (float& each : p.grad().span()) each *= static_cast<float>(1 / total.count);
    });
    optimizer.step();
    optimizer.zero_grad();
  }
  model.eval();
  const no_grad guard;
  const auto loss = forward(texts(4, 9));
  found.evaluated = static_cast<double>(loss.sum.item()) / loss.count;
  found.values = values_of(model);
  return found;
}

std::vector<result> piped(models::copying copying, int ranks, const pipeline_options& options) {
  return on_ranks(ranks, [&](process_group& world) {
    auto model = summarizer(copying);
    typed_pipeline pipe{model, model.blocks<pairs>(), world, options};
    optim::sgd optimizer{pipe.parameters(), {.lr = 0.2}};
    result found;
    for (std::size_t step = 0; step < 3; ++step) {
      found.losses.push_back(pipe.step(texts(6, step), text_loss).mean());
      optimizer.step();
      optimizer.zero_grad();
    }
    model.eval();
    found.evaluated = pipe.evaluate(texts(4, 9), text_loss).mean();
    found.values = values_of(pipe.module());
    return found;
  });
}

bool close(double a, double b) { return std::abs(a - b) <= 2e-6 * (1 + std::abs(b)); }

void expect_close(const std::vector<result>& ranks, const result& expected) {
  for (const result& each : ranks) {
    BOOST_TEST(close(each.evaluated, expected.evaluated));
    for (std::size_t i = 0; i < expected.losses.size(); ++i) {
      BOOST_TEST(close(each.losses[i], expected.losses[i]),
                 "step " << i << ": " << each.losses[i] << ", not " << expected.losses[i]);
    }
    for (const auto& [path, values] : each.values) {
      const std::vector<float>& wanted = expected.values.at(path);
      BOOST_TEST_REQUIRE(values.size() == wanted.size());
      bool all = true;
      for (std::size_t i = 0; i < values.size(); ++i) {
        all = all && close(static_cast<double>(values[i]), static_cast<double>(wanted[i]));
      }
      BOOST_TEST(all, path << " differs");
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_u_of_skip_connections_ends_in_the_bits_of_one_rank_wherever_it_is_cut) {
  const samples all = points(6);
  six_layers whole = six();
  whole.materialize();
  auto targets = whole.parameters();
  const values_by_path expected = trained(whole, targets, [&] {
    for (const samples& part : split_rows(all, 3)) {
      squares(u_by_hand(whole, part.x), part).backward({.of = gradient_of::sum});
    }
    whole.for_each_parameter([](const std::string&, auto& p) {
      for (float& each : p.grad().span()) each *= 1.0F / 18;
    });
  });
  struct row {
    pipeline_schedule schedule;
    std::vector<std::size_t> cut;
    int chunks = 1;
  };
  for (const row& each : {row{schedules::one_f_one_b, {0, 3}}, row{schedules::gpipe, {0, 1, 5}},
                          row{schedules::zb1p, {0, 2, 3}}, row{schedules::zb1p, {0, 4, 5}},
                          row{schedules::zbv, {0, 1, 2, 3, 4, 5}, 2}}) {
    const int ranks = static_cast<int>(each.cut.size()) / each.chunks;
    const auto by_rank = on_ranks(ranks, [&](process_group& world) {
      six_layers model = six();
      typed_pipeline pipe{model, u_of(model), world,
                    {.schedule = each.schedule, .microbatches = 3, .chunks = each.chunks,
                     .cut = each.cut}};
      auto own = pipe.parameters();
      static_cast<void>(trained(model, own, [&] { pipe.step(all, squares); }));
      return values_of(pipe.module());
    });
    for (const values_by_path& rank : by_rank) {
      for (const auto& [path, values] : rank) {
        BOOST_TEST((values == expected.at(path)), path << ", " << ranks << " ranks");
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(an_encoder_and_its_decoder_train_as_on_one_rank_wherever_they_are_cut) {
  for (const auto copying : {models::copying::none, models::copying::pointer}) {
    const result expected = alone(copying, 3);
    // The blocks: 0 embeddings, 1 2 encoder, 3 embeddings, 4 5 6 decoder, 7 logits.
    for (const std::vector<std::size_t>& cut :
         {std::vector<std::size_t>{0, 3}, {0, 2, 5}, {0, 1, 4, 7}}) {
      for (const auto schedule : {schedules::one_f_one_b, schedules::zb1p}) {
        BOOST_TEST_CONTEXT("cut at " << cut[1] << ", " << cut.size() << " stages") {
          expect_close(piped(copying, static_cast<int>(cut.size()),
                             {.schedule = schedule, .microbatches = 3, .cut = cut}),
                       expected);
        }
      }
    }
  }
}

namespace {

// What blocks of a step do not use, by replica and micro-batch: 0 nothing; 1 all that comes from
// the layers 0 to 2; 2 what comes right before layer 4; 3 the skip connections into layer 5.
constexpr int absences[][2][3] = {
    {{0, 0, 0}, {0, 0, 0}}, {{1, 0, 0}, {0, 0, 0}}, {{0, 0, 1}, {1, 1, 1}}, {{1, 1, 1}, {1, 1, 1}},
    {{2, 2, 2}, {1, 0, 2}}, {{0, 3, 0}, {0, 1, 0}}, {{0, 0, 0}, {0, 0, 0}}};
constexpr std::size_t absence_steps = std::size(absences);

/// Six rows of each replica; the first number of a micro-batch says what is absent.
samples with_absences(std::size_t step, std::size_t replica) {
  samples made = points(12);
  made = {made.x.slice(0, 6 * replica, 6 * replica + 6).clone(),
          made.y.slice(0, 6 * replica, 6 * replica + 6)};
  for (std::size_t part = 0; part < 3; ++part) {
    made.x.data()[6 * part] = static_cast<float>(absences[step][replica][part]);
  }
  return made;
}

/// The U, whose layers detach what their micro-batch says.
nn::model_blocks<tensor<float>> forgetful(six_layers& model) {
  auto blocks = model.blocks();
  const std::vector<std::vector<std::string>> takes{{}, {}, {}, {"2"}, {"1"}, {"0", "1"}};
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    blocks[b].takes = takes[b];
    blocks[b].reads_input = true;
    blocks[b].forward = [b, inner = blocks[b].forward, count = takes[b].size()](
                            const auto& x, const tensor<float>& in) {
      const int absent = static_cast<int>(in.data()[0]);
      variable<float> y = x;
      if ((absent == 1 && b == 3) || (absent == 2 && b == 4)) y = y.detach();
      for (std::size_t i = 0; i < count; ++i) {
        const bool uses = absent != 1 && (absent != 3 || b != 5);
        y = y + (uses ? x.taken(i) : x.taken(i).detach());
      }
      return inner(y, in);
    };
  }
  return blocks;
}

const optim::sgd_options with_memory{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.05};

/// One process on the micro-batches of all replicas: the graph is one.
result one_process(std::size_t replicas) {
  six_layers model = six();
  model.materialize();
  const auto blocks = forgetful(model);
  optim::sgd optimizer{model.parameters(), with_memory};
  result found;
  for (std::size_t step = 0; step < absence_steps; ++step) {
    nn::tally total;
    for (std::size_t replica = 0; replica < replicas; ++replica) {
      for (const samples& part : split_rows(with_absences(step, replica), 3)) {
        std::map<std::string, variable<float>> results;
        variable<float> x;
        for (const auto& block : blocks) {
          std::vector<variable<float>> taken;
          for (const std::string& name : block.takes) taken.push_back(results.at(name));
          x = results[block.name] = block.forward({x, taken}, part.x);
        }
        const auto loss = squares(x, part);
        loss.backward({.of = gradient_of::sum});
        total += loss;
      }
    }
    found.losses.push_back(total.mean());
    model.for_each_parameter([&](const std::string&, auto& p) {
      if (!p.has_grad()) return;
      for (float& each : p.grad().span()) each *= static_cast<float>(1 / total.count);
    });
    optimizer.step();
  }
  found.values = values_of(model);
  return found;
}

std::vector<result> of_stages(int stages, int replicas, const pipeline_options& options) {
  return on_ranks(stages * replicas, [&](process_group& world) {
    mesh<"pp", "dp"> grid{world, {stages, replicas}};
    six_layers model = six();
    pipeline_options own = options;
    own.microbatches = 3;
    own.data_parallel = &grid["dp"];
    own.job = &grid.all();
    typed_pipeline pipe{model, forgetful(model), grid["pp"], own};
    optim::sgd optimizer{pipe.parameters(), with_memory};
    result found;
    for (std::size_t step = 0; step < absence_steps; ++step) {
      const nn::tally got =
          pipe.step(with_absences(step, static_cast<std::size_t>(grid.rank("dp"))), squares);
      std::array<double, 2> total{got.sum, got.count};
      all_reduce(grid["dp"], total);
      found.losses.push_back(total[0] / total[1]);
      optimizer.step();
    }
    pipe.module().for_each_parameter([&](const std::string& path, auto& p) {
      if (p.spec().is_whole()) found.values[path] = {p.value().begin(), p.value().end()};
    });
    found.evaluated = 0;
    return found;
  });
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_absent_gradient_stays_absent_over_the_borders_of_stages) {
  const result expected = one_process(1);
  for (const named_schedule& each : pipeline_schedules) {
    const std::string name(each.name);
    const bool has_chunks = name == "interleaved" || name == "looped_bfs" || name == "zbv";
    BOOST_TEST_CONTEXT(name) {
      if (has_chunks) {
        expect_close(of_stages(3, 1, {.schedule = each.make, .chunks = 2}), expected);
      } else {
        expect_close(of_stages(2, 1, {.schedule = each.make}), expected);
        expect_close(of_stages(4, 1, {.schedule = each.make, .cut = {0, 1, 3, 4}}), expected);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_gradient_that_only_some_replicas_have_is_the_mean_over_all) {
  const result expected = one_process(2);
  for (const auto schedule : {schedules::one_f_one_b, schedules::zb1p}) {
    expect_close(of_stages(2, 2, {.schedule = schedule}), expected);
  }
  expect_close(of_stages(3, 2, {.schedule = schedules::zbv, .chunks = 2}), expected);
  for (const int stage : {1, 2, 3}) {
    BOOST_TEST_CONTEXT("zero " << stage) {
      expect_close(of_stages(2, 2, {.sharding = zero(stage)}), expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_block_that_takes_what_does_not_come_before_it_is_named) {
  six_layers model = six();
  auto blocks = model.blocks();
  blocks[2].takes = {"4"};
  BOOST_CHECK_EXCEPTION(stage_routes(blocks, {0, 3}), usage_error, [](const usage_error& said) {
    return std::string(said.what()).find("block \"2\" takes the result of \"4\"") !=
           std::string::npos;
  });
}
