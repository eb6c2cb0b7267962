// Texts from a model in any layout: every rank gets the tokens that models::generate gives one
// process, also where the text outgrows the model's positions.
#include <parx/parallel.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdint>
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
