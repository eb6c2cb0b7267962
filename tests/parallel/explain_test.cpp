// What a layout is said to be on each rank, and the one that the planner chooses.
#include <parx/parallel.hpp>

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

#include <comm/jobs.hpp>
#include <messages.hpp>
#include <parallel/small.hpp>

namespace {

using parx::process_group;

std::vector<std::string> on_ranks(int ranks, const std::string& layout, auto use) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  const auto failures = jobs::run_collecting(jobs::kind::inproc, ranks, [&](process_group& world) {
    auto net = small::llama();
    parx::parallel model{net, world, parx::layout::parse(layout)};
    said[static_cast<std::size_t>(world.rank())] = use(model);
  });
  parx_test::expect_failures(failures, "");
  for (const std::string& each : said) BOOST_TEST(each == said[0]);
  return said;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_layout_explains_each_rank) {
  const auto told = [](auto& model) { return explain(model); };
  const std::string four = on_ranks(4, "pp=2,zero=1,microbatches=4", told)[0];
  BOOST_TEST(parx_test::mentions(four,
                                 "layout \"pp=2,dp=2,zero=1,microbatches=4\" on 4 ranks: "
                                 "2 stages x 2 replicas x 1 piece of each layer",
                                 "4 micro-batches a step", "data::loader{set, model,"),
             four);
  const std::string three = on_ranks(3, "fsdp", told)[0];
  BOOST_TEST(parx_test::mentions(three, "1 stage x 3 replicas"), three);
  // Each rank has a third of the values, and parts begin at multiples of 64 bytes.
  auto net = small::llama();
  const std::string alone = on_ranks(1, "ddp", told)[0];
  BOOST_TEST(parx_test::mentions(alone, std::to_string(net.parameter_count())), alone);
}

BOOST_AUTO_TEST_CASE(auto_takes_what_fits_and_is_fastest) {
  const auto named = [](auto& model) { return to_string(model.layout()); };
  BOOST_TEST(on_ranks(2, "auto", named)[0] != "auto");
  auto net = small::llama();
  const auto shapes = parx::shapes_of(net);
  const auto chosen = [&](std::size_t memory) {
    return parx::automatic_layout(shapes, {.ranks = 4, .hosts = 2, .memory_of_host = memory}, {});
  };
  const std::size_t state = shapes.count() * 16;  // values, gradients and AdamW's moments of a rank
  BOOST_TEST(chosen(std::size_t{1} << 30).pp == 1);
  BOOST_TEST(chosen(2 * state).zero >= 1);  // two ranks a host do not fit with all of it
  BOOST_TEST(parx_test::mentions(parx_test::message_of([&] { (void)chosen(1000); }),
                                 "usage: ", "no layout of this model fits"));
}
