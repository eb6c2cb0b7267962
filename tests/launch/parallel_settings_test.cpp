// What the examples' --parallel may say, and what is said of anything else.
#include "../../examples/parallel_settings.hpp"

#include <boost/test/unit_test.hpp>

#include <string>

#include <parx/plan/plan.hpp>

namespace {

using examples::parse_parallel;

void refuses(const std::string& said, const std::string& expected) {
  BOOST_CHECK_EXCEPTION((void)parse_parallel(said), parx::usage_error, [&](const auto& wrong) {
    const std::string text = wrong.what();
    BOOST_TEST(text.find(expected) != std::string::npos, said << ": " << text);
    return true;
  });
}

}  // namespace

BOOST_AUTO_TEST_CASE(one_word_says_what_the_data_parallel_ranks_cut) {
  const struct {
    const char* word;
    int stage;
    bool within_hosts;
  } ways[] = {{"ddp", 0, false}, {"zero1", 1, false}, {"zero2", 2, false}, {"fsdp", 3, false},
              {"hybrid", 3, true}};
  for (const auto& [word, stage, within_hosts] : ways) {
    const auto s = parse_parallel(word);
    BOOST_TEST(s.wrapper == word);
    BOOST_TEST(s.stage == stage);
    BOOST_TEST(s.within_hosts == within_hosts);
    BOOST_TEST(s.pp == 1);
    BOOST_TEST(s.dp == parx::remaining_ranks);
    BOOST_TEST(s.tp == 1);
  }
}

BOOST_AUTO_TEST_CASE(axes_are_named_with_their_ranks) {
  const auto stages = parse_parallel("pp=4,schedule=zb1p");
  BOOST_TEST(stages.pp == 4);
  BOOST_TEST(stages.dp == parx::remaining_ranks);
  BOOST_TEST(stages.wrapper == "ddp");
  BOOST_TEST(stages.microbatches == 8);
  BOOST_TEST((stages.schedule == parx::schedules::zb1p));

  const auto all = parse_parallel("tp=2,pp=2,zero1=3,chunks=2,microbatches=4,schedule=interleaved");
  BOOST_TEST(all.pp == 2);
  BOOST_TEST(all.dp == 3);
  BOOST_TEST(all.tp == 2);
  BOOST_TEST(all.stage == 1);
  BOOST_TEST(all.microbatches == 4);
  BOOST_TEST(all.chunks == 2);

  BOOST_TEST(parse_parallel("fsdp=4,tp=2").dp == 4);
  BOOST_TEST(parse_parallel("fsdp,dp=4").dp == 4);
  BOOST_TEST(parse_parallel("dp=2").stage == 0);
  BOOST_TEST(!parse_parallel("tp=2").by_positions);
  BOOST_TEST(parse_parallel("sp,tp=2").by_positions);
  BOOST_TEST(parse_parallel("fsdp=4,gathered").gathered);
  BOOST_TEST(!parse_parallel("fsdp").gathered);
}

BOOST_AUTO_TEST_CASE(every_layout_that_a_plan_lists_is_taken_and_is_that_layout) {
  parx::model_shapes model;
  for (const char* layer : {"a", "b", "c", "d"}) {
    model.units.emplace_back(layer);
    model.parameters.push_back({.path = std::string(layer) + ".weight",
                                .extents = {64, 64},
                                .unit = model.units.size() - 1});
  }
  const parx::step_work work{.forward_flops = 1, .layers = 4, .boundary_bytes = 64};
  std::size_t tried = 0;
  for (const parx::cluster& machine :
       {parx::cluster{.ranks = 1}, parx::cluster{.ranks = 8}, parx::cluster{.ranks = 8, .hosts = 4},
        parx::cluster{.ranks = 4, .hosts = 4}, parx::cluster{.ranks = 2, .shares_memory = false}}) {
    for (const parx::planned_step& each : parx::plan(model, machine, work).steps) {
      const auto s = parse_parallel(each.layout.name);
      BOOST_TEST(s.pp == each.layout.pp, each.layout.name);
      BOOST_TEST(s.tp == each.layout.tp, each.layout.name);
      BOOST_TEST(s.stage == each.layout.stage, each.layout.name);
      BOOST_TEST(s.within_hosts == (each.layout.replicas > 1), each.layout.name);
      if (s.gathered) BOOST_TEST(!each.layout.host_pages, each.layout.name);
      ++tried;
    }
  }
  BOOST_TEST(tried > 20u);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_meant_is_refused_by_name) {
  refuses("", "there is no \"\". Give ddp, zero1");
  refuses("fsdp,", "there is no \"\"");
  refuses("zero4", "there is no \"zero4\"");
  refuses("fspd", "there is no \"fspd\": did you mean fsdp? Give ddp, zero1");
  refuses("zero2,gathered", "gathered has no number and goes with fsdp or hybrid");
  refuses("fsdp,gathered=2", "gathered has no number");
  refuses("ddp,fsdp", "ddp and fsdp exclude each other");
  refuses("pp=2,pp=2", "pp is given 2 times");
  refuses("fsdp=2,dp=2", "fsdp=2 and dp= are the same number of ranks");
  for (const char* const size : {"pp", "pp=", "pp=0", "pp=-1", "pp=two", "pp=2x", "fsdp=0"}) {
    refuses(size, "give a whole number from 1");
  }
  refuses("schedule=zb1p", "schedule= is for a pipeline: give pp= as well");
  refuses("sp", "sp has no number and goes with tp=");
  refuses("tp=2,sp=2", "sp has no number and goes with tp=");
  refuses("tp=2,microbatches=4", "microbatches= is for a pipeline");
  refuses("pp=2,schedule=fast", "there is no pipeline schedule \"fast\", but gpipe, 1f1b");
}
