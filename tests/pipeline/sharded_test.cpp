// Stages whose optimizer state, gradients or values are cut over the data-parallel ranks end in the
// bits of stages that every rank has whole.

#include <boost/test/unit_test.hpp>

#include <map>
#include <string>
#include <vector>

#include <data/support.hpp>
#include <ddp/ranks.hpp>
#include <pipeline/typed_pipeline.hpp>

#include <parx/checkpoint.hpp>
#include <parx/fsdp/unit_choice.hpp>
#include <parx/mesh.hpp>
#include <parx/models/gpt.hpp>
#include <parx/models/llama.hpp>
#include <parx/nn/loss.hpp>
#include <parx/optim/adamw.hpp>
#include <parx/optim/clip.hpp>
#include <parx/pipeline.hpp>
#include <parx/tensor_parallel/parallelize.hpp>
#include <parx/tensor_parallel/plans.hpp>

using namespace parx;

namespace {

using model_type = models::llama<>;
using layer_type = models::llama_layer<>;
struct tokens {
  tensor<std::int32_t> input_ids;
  tensor<std::int64_t> labels;
};

models::llama_config small() {
  return {.vocab_size = 13, .hidden_size = 8, .intermediate_size = 12, .num_hidden_layers = 4,
          .num_attention_heads = 2, .num_key_value_heads = 2, .max_position_embeddings = 8};
}

tokens some(std::size_t rows, int step, int replica) {
  tokens made{tensor<std::int32_t>::empty({rows, 6}), tensor<std::int64_t>::empty({rows, 6})};
  for (std::size_t i = 0; i < rows * 6; ++i) {
    const int seed = static_cast<int>(i) * 7 + step * 5 + replica * 3;
    made.input_ids.data()[i] = seed % 13;
    made.labels.data()[i] = (seed * seed + 1) % 13;
  }
  return made;
}

struct outcome {
  std::vector<double> losses = {}, norms = {};
  std::map<std::string, std::vector<float>> values = {};  // as one file has them
  std::size_t state = 0;                                  // elements that the optimizer updates
};

struct way {
  int stages = 2, replicas = 2, parts = 1;
  std::optional<fsdp_options> dp{};
  pipeline_schedule schedule = schedules::one_f_one_b;
  int chunks = 1;
  std::optional<pipeline_table> table{};
  bool freezes = false;  ///< the first stage for six steps
  bool within_pairs = false;  ///< the shards are those of two data-parallel ranks
};

std::map<std::string, std::vector<float>> values_in(const std::string& file) {
  std::map<std::string, std::vector<float>> found;
  const safetensors_file stored(file);
  for (const auto& each : stored.tensors()) {
    found[each.name].resize((each.end - each.begin) / sizeof(float));
    stored.read(each, std::as_writable_bytes(std::span(found[each.name])));
  }
  return found;
}

constexpr auto llama = [] { return model_type{small()}; };
/// Its head is the table of its words.
constexpr auto tied_gpt = [] {
  return models::gpt<>{{.vocab_size = 13, .n_positions = 8, .n_embd = 8, .n_layer = 2,
                        .n_head = 2, .embd_pdrop = 0, .attn_pdrop = 0, .resid_pdrop = 0}};
};

/// Ten steps; from a checkpoint in `folder` or one into it, as asked.
template <typename Make = decltype(llama)>
outcome trained(const way& how, const std::string& from = "", const std::string& to = "",
                int first = 0, int last = 10, Make make = llama) {
  const parx_test::scratch_folder scratch;
  const std::string file = scratch.file("model.safetensors");
  const int world_size = how.stages * how.replicas * how.parts;
  const auto ranks = on_ranks(world_size, [&](process_group& world) {
    mesh<"pp", "dp", "tp"> over{world, {how.stages, how.replicas, how.parts}};
    auto model = make();
    const auto in_first_stage = [&](auto apply) {
      model.for_each_parameter([&](const std::string& path, auto& p) {
        if (is_within(path, {"model.embed_tokens", "model.layers.0", "model.layers.1"})) apply(p);
      });
    };
    if (how.freezes) in_first_stage([](auto& p) { p.freeze(); });
    std::optional<fsdp_options> dp = how.dp;
    std::optional<process_group> pair;
    if (how.within_pairs) {
      const int first_of_pair = over["dp"].rank() / 2 * 2;
      pair.emplace(over["dp"].subgroup(std::array{first_of_pair, first_of_pair + 1}));
      dp->shard_within = *pair;
    }
    std::optional<parallelized> cut;
    if (how.parts > 1) cut.emplace(parallelize(model, over["tp"], tp::ready_plan(model)));
    typed_pipeline pipe{model, over["pp"],
                  {.schedule = how.schedule,
                   .microbatches = 2,
                   .chunks = how.chunks,
                   .table = how.table,
                   .data_parallel = &over["dp"],
                   .tensor_parallel = &over["tp"],
                   .model_parallel = &over.flatten({"pp", "tp"}),
                   .job = &over.all(),
                   .seed = 5,
                   .reductions = {.order = reduction_order::serial},
                   .sharding = dp}};
    optim::adamw opt{pipe.parameters(), {.lr = 1e-2F}};
    if (!from.empty()) {
      load(pipe, opt, from);
    }
    outcome found;
    for (int step = first; step < last; ++step) {
      if (how.freezes && step == 6) in_first_stage([](auto& p) { p.unfreeze(); });
      const tokens batch = some(5, step, over["dp"].rank());
      const auto criterion = [](const variable<float>& logits, const tokens& part) {
        return cross_entropy(logits, part.labels);
      };
      const auto loss = pipe.step(batch, criterion);
      found.losses.push_back(loss.sum);
      found.norms.push_back(optim::clip_grad_norm(opt.targets(), 0.5));
      opt.step();
      pipe.zero_grad();
    }
    const auto evaluated = pipe.evaluate(
        some(4, 3, 0), [](const variable<float>& logits, const tokens& part) {
          return cross_entropy(logits, part.labels);
        });
    found.losses.push_back(evaluated.sum);
    for (const auto& each : opt.targets()) found.state += each.size();
    if (!to.empty()) save(pipe, opt, to);
    save(pipe, file);
    if (world.rank() == 0) found.values = values_in(file);
    return found;
  });
  outcome all = ranks[0];
  for (const outcome& each : ranks) BOOST_TEST(each.norms == all.norms);
  for (std::size_t i = 1; i < ranks.size(); ++i) all.state = std::max(all.state, ranks[i].state);
  return all;
}

void expect_same(const outcome& found, const outcome& expected, const std::string& what) {
  BOOST_TEST(found.losses == expected.losses, what << ": losses");
  BOOST_TEST(found.norms == expected.norms, what << ": norms");
  BOOST_TEST((found.values == expected.values), what << ": values");
}

template <typename Layer = layer_type>
fsdp_options in_units(int stage, value_storage values = value_storage::by_hosts) {
  fsdp_options made = zero(stage);
  made.units = by_type<Layer>;
  made.values = values;
  return made;
}

}  // namespace

BOOST_AUTO_TEST_CASE(zero_of_any_stage_ends_in_the_bits_of_whole_stages) {
  const outcome whole = trained({});
  expect_same(trained({.dp = zero(1)}), whole, "zero 1");
  expect_same(trained({.dp = in_units(2)}), whole, "zero 2");
  expect_same(trained({.dp = in_units(3)}), whole, "zero 3");
  expect_same(trained({.dp = in_units(3, value_storage::gathered)}), whole, "zero 3, gathered");
}

BOOST_AUTO_TEST_CASE(a_sharded_stage_that_is_unfrozen_on_the_way_ends_in_those_bits_too) {
  const outcome whole = trained({.freezes = true});
  BOOST_TEST(whole.norms[5] < whole.norms[6]);
  expect_same(trained({.stages = 1, .freezes = true}), whole, "one stage");
  expect_same(trained({.dp = zero(1), .freezes = true}), whole, "zero 1");
  expect_same(trained({.dp = in_units(2), .freezes = true}), whole, "zero 2");
  expect_same(trained({.dp = in_units(3, value_storage::gathered), .freezes = true}), whole,
              "zero 3, gathered");
}

BOOST_AUTO_TEST_CASE(shards_that_several_data_parallel_ranks_have_count_once_and_are_saved_once) {
  const parx_test::scratch_folder scratch;
  const std::string saved = scratch.file("saved");
  const outcome whole = trained({.replicas = 4});
  for (const int stage : {1, 3}) {
    const way pairs{.replicas = 4, .dp = in_units(stage), .within_pairs = true};
    expect_same(trained(pairs), whole, "pairs");
    (void)trained(pairs, "", saved, 0, 6);
    BOOST_TEST((trained({.replicas = 4}, saved, "", 6, 10).values == whole.values));
  }
}

BOOST_AUTO_TEST_CASE(an_optimizer_has_the_state_of_a_part) {
  const outcome whole = trained({}, "", "", 0, 1), cut = trained({.dp = zero(1)}, "", "", 0, 1);
  BOOST_TEST(cut.state <= whole.state / 2 + 64);  // parts begin at multiples of 64 bytes
}

BOOST_AUTO_TEST_CASE(sharded_stages_train_with_other_schedules_too) {
  for (const way& how : {way{.schedule = schedules::gpipe},
                         way{.schedule = schedules::interleaved, .chunks = 2},
                         way{.schedule = schedules::zb1p},
                         way{.schedule = schedules::zbv, .chunks = 2},
                         way{.stages = 1}, way{.replicas = 1}}) {
    way cut = how;
    cut.dp = zero(1);
    expect_same(trained(cut), trained(how), "zero 1");
  }
}

BOOST_AUTO_TEST_CASE(sums_begin_at_the_reduce_grad_of_a_table) {
  const way whole{.table =
                      from_csv("0F0,0F1,0B0,0B1,0REDUCE_GRAD\n1F0,1B0,1F1,1B1,1REDUCE_GRAD\n")};
  const outcome expected = trained(whole);
  for (const int stage : {1, 2, 3}) {
    way cut = whole;
    cut.dp = in_units(stage);
    expect_same(trained(cut), expected, fmt::format("REDUCE_GRAD, zero {}", stage));
  }
}

BOOST_AUTO_TEST_CASE(beside_layers_that_are_cut_as_well) {
  const way whole{.parts = 2};
  const outcome expected = trained(whole);
  for (const int stage : {1, 3}) {
    way cut = whole;
    cut.dp = in_units(stage);
    expect_same(trained(cut), expected, "3D, zero");
  }
  // The norm counts each element once: it is that of layers that are not cut.
  const outcome uncut = trained({});
  for (std::size_t i = 0; i < uncut.norms.size(); ++i) {
    BOOST_TEST(expected.norms[i] == uncut.norms[i], boost::test_tools::tolerance(1e-4));
  }
}

BOOST_AUTO_TEST_CASE(a_checkpoint_of_one_layout_goes_on_in_another) {
  const parx_test::scratch_folder scratch;
  const std::string saved = scratch.file("saved");
  const outcome straight = trained({});
  for (const way& before : {way{.dp = zero(1)}, way{}, way{.dp = in_units(3)},
                            way{.parts = 2, .dp = zero(1)}}) {
    (void)trained(before, "", saved, 0, 6);
    for (const way& after : {way{}, way{.dp = zero(1)}, way{.dp = in_units(3)}}) {
      const outcome rest = trained(after, saved, "", 6, 10);
      if (before.parts == 1) BOOST_TEST((rest.values == straight.values));
    }
    // Of others the sums have another order.
    for (const way& after : {way{.stages = 4, .replicas = 1}, way{.stages = 1, .dp = zero(1)},
                             way{.stages = 1, .parts = 2, .dp = zero(1)}}) {
      (void)trained(after, saved, "", 6, 7);
    }
  }
}

BOOST_AUTO_TEST_CASE(tied_tables_stay_whole_and_the_rest_is_cut) {
  const auto of_gpt = [](const way& how, const std::string& from = "", const std::string& to = "",
                         int first = 0, int last = 10) {
    return trained(how, from, to, first, last, tied_gpt);
  };
  for (const way& how : {way{}, way{.parts = 2},
                         way{.schedule = schedules::zbv, .chunks = 2}}) {
    const outcome whole = of_gpt(how);
    for (const int stage : {1, 2, 3}) {
      if (stage > 1 && how.chunks == 2) continue;  // divided backwards go with zero(1)
      way cut = how;
      cut.dp = in_units<models::gpt_block<>>(stage);  // which a stage may have none of
      expect_same(of_gpt(cut), whole, fmt::format("tied, zero {}", stage));
    }
  }
  const outcome whole = of_gpt({}, "", "", 0, 1), cut = of_gpt({.dp = zero(1)}, "", "", 0, 1);
  constexpr std::size_t table = 13 * 8;
  BOOST_TEST(cut.state <= (whole.state - table) / 2 + table + 64);

  const parx_test::scratch_folder scratch;
  const std::string saved = scratch.file("saved");
  const outcome straight = of_gpt({});
  (void)of_gpt({.dp = zero(1)}, "", saved, 0, 6);
  for (const way& after : {way{}, way{.dp = zero(1)}, way{.dp = zero(3)}}) {
    BOOST_TEST((of_gpt(after, saved, "", 6, 10).values == straight.values));
  }
}

BOOST_AUTO_TEST_CASE(a_divided_backward_is_refused_where_gradients_are_cut) {
  const auto texts = on_ranks(2, [&](process_group& world) -> std::string {
    mesh<"pp", "dp"> over{world, {2, 1}};
    auto model = llama();
    try {
      typed_pipeline pipe{model, over["pp"],
                    {.schedule = schedules::zb1p,
                     .microbatches = 2,
                     .data_parallel = &over["dp"],
                     .job = &over.all(),
                     .sharding = zero(3)}};
    } catch (const usage_error& refused) {
      return refused.what();
    }
    return "nothing";
  });
  BOOST_TEST(texts[0] == texts[1]);
  BOOST_TEST(texts[0].find("take zero=1, or a schedule with whole backwards") !=
             std::string::npos);
}
