// Texts from a model in any layout: every rank gets the tokens that models::generate gives one
// process, also where the text outgrows the model's positions.
#include <parx/parallel.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <comm/jobs.hpp>
#include <messages.hpp>
#include <parallel/small.hpp>

BOOST_AUTO_TEST_CASE(every_rank_generates_the_text_that_one_process_does) {
  const std::vector<std::vector<std::int64_t>> prompts{{3, 1, 4}, {1}, {5, 9, 2, 6, 5, 3, 5, 8, 9}};
  for (const parx::models::sampling_options& options :
       {parx::models::sampling_options{.max_new_tokens = 40},
        {.max_new_tokens = 40, .temperature = 1.5, .top_k = 8, .seed = 7},
        {.max_new_tokens = 40, .temperature = 2, .seed = 1, .end_token = 2}}) {
    std::vector<std::vector<std::int64_t>> expected;
    auto whole = small::llama();
    whole.initialize(6);
    for (const auto& each : prompts) {
      expected.push_back(parx::models::generate(whole, each, options));
    }
    for (const auto& [ranks, layout] : {std::pair{1, "ddp"},
                                        {2, "fsdp"},
                                        {2, "tp=2"},
                                        {2, "tp=2,sp"},
                                        {3, "pp=3"},
                                        {2, "pp=2,schedule=interleaved,chunks=2"},
                                        {8, "pp=2,dp=2,tp=2,zero=3"}}) {
      const auto generates = [&, &layout = layout](parx::process_group& world) {
        auto net = small::llama();
        parx::parallel model{net, world, parx::layout::parse(layout)};
        model.initialize(6);
        if (parx::generate(model, prompts, options) != expected) {
          throw std::runtime_error(std::string(layout) + ": another text");
        }
      };
      const auto failures = jobs::run_collecting(jobs::kind::inproc, ranks, generates);
      parx_test::expect_failures(failures, "");
    }
  }
}

BOOST_AUTO_TEST_CASE(ranks_with_other_arguments_are_told_which_differ_and_where) {
  const std::vector<std::int64_t> prompt{3, 1, 4}, longer{3, 1, 4, 1}, other{3, 1, 5};
  struct call {
    const std::vector<std::int64_t>& prompt;
    parx::models::sampling_options options;
    std::vector<std::string> said;  // of rank 0 and of rank 1
  };
  const std::vector<call> wrong{
      {longer, {.max_new_tokens = 5}, {"a prompt of 3 tokens: 3, 1, 4", "4 tokens: 3, 1, 4, 1"}},
      {other, {.max_new_tokens = 5}, {"a prompt of 3 tokens: 3, 1, 4", "tokens: 3, 1, 5"}},
      {prompt, {.max_new_tokens = 6}, {"rank 0: max_new_tokens 5", "rank 1: max_new_tokens 6"}},
      {prompt, {.max_new_tokens = 5, .end_token = 2}, {"0: end_token -1", "1: end_token 2"}},
      {prompt, {.max_new_tokens = 5, .temperature = 1, .seed = 4}, {"0: seed 0", "1: seed 4"}}};
  for (const std::string layout : {"pp=2", "tp=2", "fsdp,gathered", "fsdp", "zero=1"}) {
    for (const call& each : wrong) {
      const auto failures =
          jobs::run_collecting(jobs::kind::inproc, 2, [&](parx::process_group& world) {
            auto net = small::llama();
            parx::parallel model{net, world, parx::layout::parse(layout)};
            model.initialize(6);
            if (world.rank() == 0) (void)parx::generate(model, prompt, {.max_new_tokens = 5});
            else (void)parx::generate(model, each.prompt, each.options);
          });
      for (const std::string& part : each.said) parx_test::expect_failures(failures, part);
      parx_test::expect_failures(failures, "generate at generate_test.cpp:");
    }
  }
  // Each rank of a ddp generates a text of its own.
  const auto alone = jobs::run_collecting(jobs::kind::inproc, 2, [&](parx::process_group& world) {
    auto net = small::llama();
    parx::parallel model{net, world, parx::layout::parse("ddp")};
    const auto& own = world.rank() == 0 ? prompt : longer;
    const auto length = static_cast<std::size_t>(3 + world.rank());
    const auto text = parx::generate(model, own, {.max_new_tokens = length});
    if (text.size() != length) throw std::runtime_error("another length");
  });
  parx_test::expect_failures(alone, "");
}

BOOST_AUTO_TEST_CASE(ranks_of_a_cut_model_with_other_options_are_told_before_one_waits) {
  const auto failures = jobs::run_collecting(jobs::kind::inproc, 2, [](parx::process_group& world) {
    auto net = small::llama();
    const parx::parallelized cut = parx::parallelize(net, world, parx::tp::ready_plan(net));
    net.initialize(6);
    const std::vector<std::int64_t> prompt{3, 1, 4};
    const auto tokens = static_cast<std::size_t>(3 + world.rank());
    (void)parx::models::generate(net, prompt, {.max_new_tokens = tokens});
  });
  parx_test::expect_failures(failures, "same prompt, options and seed");
}

BOOST_AUTO_TEST_CASE(the_outputs_of_a_batch_are_whole_on_every_rank_in_every_layout) {
  auto whole = small::llama();
  whole.initialize(6);
  whole.eval();
  for (const auto& [ranks, layout] : {std::pair{1, "ddp"},
                                      {2, "ddp,microbatches=2"},
                                      {2, "fsdp"},
                                      {2, "tp=2"},
                                      {2, "pp=2,microbatches=3"},
                                      {2, "pp=2,schedule=zb1p"},
                                      {4, "pp=2,tp=2"},
                                      {4, "pp=2,zero=3,microbatches=2"}}) {
    const auto failures = jobs::run_collecting(
        jobs::kind::inproc, ranks, [&, &layout = layout](parx::process_group& world) {
          auto net = small::llama();
          parx::parallel model{net, world, parx::layout::parse(layout)};
          model.initialize(6);
          model.module().eval();
          const int replica = model.data_group().rank(), replicas = model.data_group().size();
          const auto batch = small::some(0, replica, replicas);
          const auto made = model.outputs(batch);
          (void)model.evaluate(batch, [&](const auto& logits, const auto&) {
            parx::require(!logits.requires_grad(), "{}: an evaluation records a graph", layout);
            return parx::nn::tally{};
          });
          const auto wanted = whole(batch.input_ids).value();
          parx::require(made.shape() == wanted.shape(), "{}: a shape of {}", layout,
                        parx::to_string(made.shape()));
          for (std::size_t i = 0; i < made.size(); ++i) {
            const float off = std::abs(made.data()[i] - wanted.data()[i]);
            parx::require(off < 1e-5F, "{}: output {} is off by {}", layout, i, off);
          }
        });
    parx_test::expect_failures(failures, "");
  }
}
