// What a user does wrong with a parallel model ends at once, on all ranks, in one sentence.
#include <parx/parallel.hpp>

#include <boost/test/unit_test.hpp>

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <comm/jobs.hpp>
#include <messages.hpp>
#include <parallel/small.hpp>
#include <parx/core/log.hpp>
#include <parx/nn.hpp>
#include <parx/optim/adamw.hpp>
#include <parx/optim/clip.hpp>

namespace {

using parx::process_group;

/// A model without blocks().
class plain : public parx::nn::module<plain> {
 public:
  parx::variable<float> forward(const parx::variable<float>& x) { return out_(in_(x)); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("in", in_);
    visit("out", out_);
  }

 private:
  parx::nn::linear<> in_{4, 8}, out_{8, 2};
};

/// Uses one layer in each of its blocks, as ALBERT does, with dropout behind it.
class repeated : public parx::nn::module<repeated> {
 public:
  explicit repeated(double dropped) : dropout_(dropped) {}

  parx::variable<float> forward(const parx::variable<float>& x) { return step(step(x)); }
  parx::nn::model_blocks<parx::variable<float>> blocks() {
    const auto run = [this](const parx::variable<float>& x, const parx::variable<float>&) {
      return step(x);
    };
    return {{"first", {"layer", "dropout"}, run, {}, false},
            {"second", {"layer", "dropout"}, run, {}, false}};
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("layer", layer_);
    visit("dropout", dropout_);
  }

 private:
  parx::variable<float> step(const parx::variable<float>& x) { return dropout_(layer_(x)); }

  parx::nn::linear<> layer_{4, 4};
  parx::nn::dropout dropout_;
};

std::vector<std::string> failures_of(int ranks, const std::function<void(process_group&)>& body) {
  return jobs::run_collecting(jobs::kind::inproc, ranks, body);
}
void expect_all(const std::vector<std::string>& failures, const std::string& said) {
  for (const std::string& each : failures) {
    BOOST_TEST(each.find(said) != std::string::npos, "\"" << each << "\" has no \"" << said << '"');
  }
}
template <typename Make>
std::vector<std::string> failures_at(int ranks, const std::string& layout, Make make) {
  return failures_of(ranks, [&](process_group& world) {
    auto net = make();
    parx::parallel model{net, world, parx::layout::parse(layout)};
  });
}
constexpr auto llama = [] { return small::llama(); };

}  // namespace

BOOST_AUTO_TEST_CASE(a_layout_that_the_ranks_do_not_give) {
  expect_all(failures_at(3, "tp=2", llama),
             "pp=1 times tp=2 needs a multiple of 2 ranks, and the job has 3");
  expect_all(failures_at(4, "pp=2,dp=3", llama), "it has 6 ranks, and the job has 4");
}

BOOST_AUTO_TEST_CASE(a_layout_that_the_model_cannot_have) {
  expect_all(failures_at(2, "pp=2", [] { return plain(); }),
             "this model has no blocks() to make stages of");
  expect_all(failures_at(2, "tp=2", [] { return plain(); }),
             "give parallel_choices::tp, a plan of patterns over the names of its members");
  expect_all(failures_at(8, "pp=8", llama), "6 blocks make at most 6 stages");
  expect_all(failures_at(3, "tp=3", llama), "it has 2 to deal out, so 2 ranks at most");
  expect_all(failures_at(2, "pp=2,schedule=zb1p,zero=2", llama),
             "take zero=1, or a schedule with whole backwards");
}

BOOST_AUTO_TEST_CASE(stages_of_a_rank_that_share_a_table_beside_virtual_replicas) {
  const auto tied = [] { return small::tied_gpt(); };
  for (const char* const layout :
       {"pp=2,schedule=zbv,replicas=4", "pp=2,replicas=2,schedule=zbv"}) {
    expect_all(failures_at(2, layout, tied),
               "is in two of rank 0: take a schedule with one stage a rank, such as 1f1b");
  }
}

BOOST_AUTO_TEST_CASE(a_dropout_that_stages_share) {
  const auto dropping = [] { return repeated(0.1); };
  const std::string said = "\"dropout\" draws random numbers, and is in stages 0 and 1";
  for (const char* const layout : {"pp=2", "pp=2,replicas=2"}) {
    expect_all(failures_at(2, layout, dropping), said);
  }
  // Two blocks in one stage, or a probability of 0.
  parx_test::expect_failures(failures_at(2, "ddp", dropping), "");
  parx_test::expect_failures(failures_at(2, "pp=2", [] { return repeated(0); }), "");
}

BOOST_AUTO_TEST_CASE(hybrid_on_hosts_of_2_and_1_ranks) {
  const auto hybrid = [](process_group& world) {
    auto net = small::llama();
    parx::parallel model{net, world, parx::layout::parse("hybrid")};
  };
  expect_all(jobs::run_collecting(jobs::kind::hybrid, 3, hybrid),
             "hybrid shards the model over the ranks of each host that have other samples, and "
             "their numbers differ from host to host");
  const auto automatic = [](process_group& world) {
    auto net = small::llama();
    parx::parallel model{net, world, parx::layout::parse("auto")};
  };
  expect_all(jobs::run_collecting(jobs::kind::hybrid, 3, automatic), "");
}

BOOST_AUTO_TEST_CASE(a_copy_of_another_configuration) {
  const auto copy_to = [](process_group& world, std::size_t layers, std::size_t width) {
    auto net = small::llama();
    parx::parallel model{net, world, {.zero = 1}};
    parx::models::llama<> copy{{.vocab_size = small::words,
                                .hidden_size = 8,
                                .intermediate_size = width,
                                .num_hidden_layers = layers,
                                .num_attention_heads = 2,
                                .num_key_value_heads = 2,
                                .max_position_embeddings = 16}};
    model.copy_values_to(copy);
  };
  expect_all(failures_of(2, [&](process_group& world) { copy_to(world, 5, 12); }),
             "on rank 0 the copy has 9 parameters that the model has not, such as "
             "\"model.layers.4.");
  expect_all(failures_of(2, [&](process_group& world) { copy_to(world, 3, 12); }),
             "on rank 0 the copy has no parameter \"model.layers.3.");
  expect_all(failures_of(2, [&](process_group& world) { copy_to(world, 4, 10); }),
             "on rank 0 the copy's \"model.layers.0.mlp.");
  expect_all(
      failures_of(2, [&](process_group& world) { copy_to(world, world.rank() == 0 ? 4 : 5, 12); }),
      "on rank 1 the copy has 9 parameters");
}

BOOST_AUTO_TEST_CASE(auto_of_a_model_that_cannot_be_cut_divides_its_samples_and_state_alone) {
  const auto failures = failures_of(4, [](process_group& world) {
    plain net;
    parx::parallel model{net, world, parx::layout::parse("auto")};
    const parx::layout& chosen = model.layout();
    parx::require(chosen.pp == 1 && chosen.tp == 1 && chosen.dp == 4, "auto became {}",
                  to_string(chosen));
  });
  parx_test::expect_failures(failures, "");
  // Also where only stages or cut layers would fit, and where those would be the fastest.
  auto net = small::llama();
  const auto shapes = parx::shapes_of(net);
  for (std::size_t bytes = 4096; bytes < (std::size_t{1} << 24); bytes *= 2) {
    const std::string said = parx_test::message_of([&] {
      const parx::layout chosen =
          parx::automatic_layout(shapes, {.ranks = 8, .hosts = 2, .memory_of_host = bytes}, {}, {});
      parx::require(chosen.pp == 1 && chosen.tp == 1, "it became {}", to_string(chosen));
    });
    const bool fits = said == "nothing was thrown";
    BOOST_TEST((fits || said.find("no layout of this model fits") != std::string::npos), said);
  }
}

BOOST_AUTO_TEST_CASE(sequence_parallelism_beside_a_plan_that_says_it_itself) {
  expect_all(
      failures_of(2,
                  [](process_group& world) {
                    auto net = small::llama();
                    parx::parallel model{
                        net, world, {.tp = 2, .sp = true}, {.tp = parx::tp::ready_plan(net)}};
                  }),
      "sp chooses among the plans that parx knows");
}

BOOST_AUTO_TEST_CASE(ranks_with_different_layouts) {
  expect_all(failures_of(3,
                         [](process_group& world) {
                           auto net = small::llama();
                           parx::parallel model{
                               net, world, parx::layout::parse(world.rank() == 2 ? "fsdp" : "ddp")};
                         }),
             "rank 2 was given the layout \"fsdp\", rank 0 \"ddp\": give all ranks the same");
}

BOOST_AUTO_TEST_CASE(ranks_with_different_seeds_or_plans) {
  for (const char* const layout : {"ddp", "fsdp", "pp=2", "tp=2", "pp=2,tp=2"}) {
    expect_all(failures_of(4,
                           [&](process_group& world) {
                             auto net = small::llama();
                             parx::parallel model{net, world, parx::layout::parse(layout)};
                             model.initialize(world.rank() < 2 ? 5 : 6);
                           }),
               "rank 2 was given the seed \"6\", rank 0 \"5\": give all ranks the same");
  }
  // The ranks of an axis agree, and those of another stage or replica have another plan.
  for (const char* const layout : {"pp=2,tp=2", "tp=2"}) {
    expect_all(
        failures_of(4,
                    [&](process_group& world) {
                      auto net = small::llama();
                      auto plan = parx::tp::ready_plan(net);
                      if (world.rank() > 1) plan.pop_back();
                      parx::parallel model{net, world, parx::layout::parse(layout), {.tp = plan}};
                    }),
        "differs from rank 0:");
  }
}

BOOST_AUTO_TEST_CASE(a_call_of_a_model_that_is_in_stages) {
  expect_all(failures_of(2,
                         [](process_group& world) {
                           auto net = small::llama();
                           parx::parallel model{net, world, {.pp = 2}};
                           (void)model(small::some(0, 0, 1).input_ids);
                         }),
             "with pp=2 no rank has all layers: use forward_backward");
}

BOOST_AUTO_TEST_CASE(a_batch_that_does_not_fit_the_layers_is_told_with_the_line_of_the_step) {
  struct rows { parx::tensor<float> x, y; };
  expect_all(failures_of(2,
                         [](process_group& world) {
                           plain net;
                           parx::parallel model{net, world};
                           const rows batch{parx::tensor<float>::ones({2, 5}),
                                            parx::tensor<float>::ones({2, 2})};
                           model.forward_backward(batch, [](const auto& y, const rows& part) {
                             return parx::nn::mse_loss(y, part.y);
                           });
                         }),
             "forward_backward at misuse_test.cpp:");
}

BOOST_AUTO_TEST_CASE(ranks_of_one_replica_that_read_different_samples) {
  // From the first step on, or after one rank has skipped a batch.
  for (const int equal_steps : {0, 2}) {
    for (const char* const layout : {"tp=2", "pp=2"}) {
      const auto train = [&](process_group& world) {
        auto net = small::llama();
        parx::parallel model{net, world, parx::layout::parse(layout)};
        for (int step = 0; step < equal_steps + 2; ++step) {
          const int skipped = step < equal_steps ? 0 : world.rank();
          (void)model.forward_backward(small::some(step + skipped, 0, 1), small::criterion);
          model.zero_grad();
        }
      };
      // Of cut classes the loss says it first: "have different labels".
      expect_all(failures_of(2, train), equal_steps == 0 ? "got different samples" : " different ");
    }
  }
}

BOOST_AUTO_TEST_CASE(ranks_of_one_replica_that_read_different_labels) {
  struct rows {
    parx::tensor<float> x, y;
  };
  for (const bool is_undefined : {false, true}) {
    const auto all = failures_of(2, [&](process_group& world) {
      parx::nn::sequential net{parx::nn::linear{4, 4}, parx::nn::relu{}, parx::nn::linear{4, 2}};
      parx::parallel model{net, world, {.pp = 2}};
      rows batch{parx::tensor<float>::ones({2, 4}), parx::tensor<float>::zeros({2, 2})};
      if (world.rank() == 0) {
        batch.y = is_undefined ? parx::tensor<float>() : parx::tensor<float>::ones({2, 2});
      }
      model.forward_backward(
          batch, [](const auto& y, const rows& part) { return parx::nn::mse_loss(y, part.y); });
    });
    if (is_undefined)
      BOOST_TEST(all == std::vector<std::string>(2), boost::test_tools::per_element());
    else expect_all(all, "1 of 2 members of their batches differ");
  }
}

BOOST_AUTO_TEST_CASE(a_loss_that_counts_nothing_and_a_step_within_no_grad) {
  for (const char* const layout : {"ddp", "pp=2"}) {
    const auto with = [&](bool counts, bool records) {
      return failures_of(2, [&](process_group& world) {
        auto net = small::llama();
        parx::parallel model{net, world, parx::layout::parse(layout)};
        std::optional<parx::no_grad> none;
        if (!records) none.emplace();
        model.forward_backward(small::some(0, 0, 1), [&](const auto& logits, const auto& batch) {
          auto loss = small::criterion(logits, batch);
          if (!counts) loss.count = 0;
          return loss;
        });
      });
    };
    expect_all(with(false, true), "has a count of 0, so nothing is learned");
    expect_all(with(true, false), "within a no_grad scope");
  }
}

BOOST_AUTO_TEST_CASE(clipping_twice_in_a_step) {
  for (const char* const layout : {"ddp", "fsdp", "zero=1", "tp=2", "pp=2", "pp=2,zero=1"}) {
    expect_all(failures_of(2,
                           [&](process_group& world) {
                             auto net = small::llama();
                             parx::parallel model{net, world, parx::layout::parse(layout)};
                             parx::optim::adamw opt{model.parameters(), {.lr = 1e-2}};
                             for (int step = 0; step < 2; ++step) {
                               (void)model.forward_backward(small::some(step, 0, 1),
                                                            small::criterion);
                               parx::optim::clip_grad_norm(opt.targets(), 0.1);
                               if (step == 0) opt.step();
                             }
                             parx::optim::clip_grad_norm(opt.targets(), 0.1);
                           }),
               "was clipped at misuse_test.cpp:");
  }
}

BOOST_AUTO_TEST_CASE(a_prompt_without_tokens_and_a_model_without_text) {
  expect_all(failures_of(1,
                         [](process_group& world) {
                           auto net = small::llama();
                           parx::parallel model{net, world};
                           (void)parx::generate(model, std::vector<std::int64_t>());
                         }),
             "generate needs a prompt of at least one token");
}

BOOST_AUTO_TEST_CASE(a_loss_that_is_no_number_is_told_of_once_with_its_line) {
  std::vector<std::string> lines;
  parx::logger::instance().set_sink(
      [&](parx::log_level, std::string_view line) { lines.emplace_back(line); });
  const auto failures = failures_of(2, [](process_group& world) {
    auto net = small::llama();
    parx::parallel model{net, world, {}};
    for (int step = 0; step < 3; ++step) {
      const float factor = step == 0 ? 1.0F : std::numeric_limits<float>::quiet_NaN();
      const auto scaled = [factor](const auto& logits, const auto& part) {
        return factor * parx::nn::cross_entropy(logits, part.labels);
      };
      (void)model.forward_backward(small::some(step, world.rank(), 2), scaled);
      model.zero_grad();
    }
  });
  parx::logger::instance().set_sink({});
  parx_test::expect_failures(failures, "");
  BOOST_TEST_REQUIRE(lines.size() == 1U);
  for (const char* const said : {"misuse_test.cpp:", "of call 2 is nan", "clip_grad_norm"}) {
    BOOST_TEST(lines[0].find(said) != std::string::npos, lines[0]);
  }
}
