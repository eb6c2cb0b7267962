// The text of a layout: what parses, what it prints, and what is refused with which words.
#include <parx/plan/layout.hpp>

#include <boost/test/unit_test.hpp>

#include <climits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <messages.hpp>
#include <parx/core/printable.hpp>
#include <parx/plan.hpp>

namespace {

using parx::layout;

std::string refusal(const std::string& text) {
  return parx_test::message_of([&] { (void)layout::parse(text); });
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_text_is_the_layout_that_prints_it) {
  const std::vector<std::pair<std::string, layout>> all{
      {"ddp", {}},
      {"zero=1", {.zero = 1}},
      {"zero=2", {.zero = 2}},
      {"fsdp", {.zero = 3}},
      {"hybrid", {.zero = 3, .hybrid = true}},
      {"fsdp,gathered", {.zero = 3, .gathered = true}},
      {"auto", {.is_automatic = true}},
      {"dp=4", {.dp = 4}},
      {"microbatches=8", {.microbatches = 8}},
      {"replicas=8", {.replicas = 8}},
      {"pp=2", {.pp = 2}},
      {"pp=2,dp=3,tp=4,sp,zero=1,schedule=zb1p,microbatches=8",
       {.pp = 2, .dp = 3, .tp = 4, .sp = true, .zero = 1, .microbatches = 8, .schedule = "zb1p"}},
      {"pp=2,schedule=interleaved,chunks=2", {.pp = 2, .schedule = "interleaved", .chunks = 2}},
  };
  for (const auto& [text, value] : all) {
    BOOST_TEST((layout::parse(text) == value), text);
    BOOST_TEST(to_string(value) == text);
  }
  BOOST_TEST((layout::parse("zero=3") == layout::parse("fsdp")));
  BOOST_TEST((layout::parse("sp,tp=2,ddp") == layout{.tp = 2, .sp = true}));
}

BOOST_AUTO_TEST_CASE(every_layout_of_these_members_survives_its_text) {
  int count = 0;
  for (const int pp : {1, 2}) {
    for (const int dp : {parx::remaining_ranks, 1, 3}) {
      for (const int tp : {1, 2}) {
        for (const int zero : {0, 1, 2, 3}) {
          for (const int parts : {0, 1, 8}) {
            for (const bool flag : {false, true}) {
              const layout one{.pp = pp,
                               .dp = dp,
                               .tp = tp,
                               .sp = flag && tp > 1,
                               .zero = zero,
                               .hybrid = flag && zero == 3,
                               .gathered = !flag && zero == 3,
                               .microbatches = parts,
                               .schedule = flag && pp > 1 ? "gpipe" : "1f1b"};
              BOOST_TEST((layout::parse(to_string(one)) == one), to_string(one));
              ++count;
            }
          }
        }
      }
    }
  }
  BOOST_TEST(count == 288);
}

BOOST_AUTO_TEST_CASE(an_invalid_layout_is_refused_in_one_sentence) {
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"zero=4", "zero= needs a whole number from 0 to 3"},
      {"zero=", "zero= needs a whole number from 0 to 3"},
      {"pp=0", "pp= needs a whole number from 1"},
      {"tp=two", "tp= needs a whole number from 1 to 1048576, and has \"two\""},
      {"dp=-1", "dp= needs a whole number from 1"},
      {"ddp,zero=2", "\"ddp\" and \"zero\" exclude each other"},
      {"tp=2,tp=2", "\"tp\" is given twice"},
      {"ddp=4", "\"ddp\" takes no value: dp= gives a number"},
      {"sp", "sp cuts between layers that tp= has cut"},
      {"gathered", "gathered goes with fsdp or hybrid"},
      {"zero=2,gathered", "gathered goes with fsdp or hybrid"},
      {"schedule=zb1p", "schedule= is for stages: give pp= as well"},
      {"chunks=2", "chunks= is for stages: give pp= as well"},
      {"pp=2,schedule=zb2", "there is no pipeline schedule \"zb2\": did you mean zbv?"},
      {"zero1", "there is no \"zero1\": did you mean zero=1? Give auto, or ddp, zero=1 to 3"},
      {"FSDP", "there is no \"FSDP\": did you mean fsdp?"},
      {"pp=2,shedule=zb1p", "there is no \"shedule\": did you mean schedule=zb1p?"},
      {"something", "there is no \"something\". Give auto, or ddp"},
      {"tp=2 sp", "after tp= there is \"2 sp\": words are separated by commas"},
      {"pp=2;tp=2", "after pp= there is \"2;tp=2\": words are separated by commas"},
      {"ddp zero=1", "there is \"ddp zero=1\": words are separated by commas alone"},
      {"auto,tp=2", "\"auto\" chooses everything: it stands alone"},
      {"ddp, tp=2", "there is \" tp=2\": words are separated by commas alone"},
      {"", "it is empty, as an unset variable of a script is"},
      {"pp=2,", "no word follows the last comma"},
      {",", "no word follows the last comma"},
      {",pp=2", "there is no word before one of its commas"},
      {"pp=2,,tp=2", "there is no word before one of its commas"},
      {"pp=2,schedule=", "there is no pipeline schedule \"\""},
      {"pp=1048577", "pp= needs a whole number from 1 to 1048576"},
      {"microbatches=2147483648", "microbatches= needs a whole number from 1 to 1048576"},
      {"pp=65536,tp=65536", "the ranks of pp= times dp= times tp= are more than 1048576"},
      {"pp=1024,dp=1024,tp=1024", "the ranks of pp= times dp= times tp= are more than 1048576"},
      {"ddp\r", "layout \"ddp\\x0d\": there is no \"ddp\\x0d\""},
  };
  for (const auto& [text, said] : wrong) {
    BOOST_TEST(parx_test::mentions(refusal(text), "usage: ", said), text << ": " << refusal(text));
  }
}

BOOST_AUTO_TEST_CASE(numbers_that_no_job_has_are_refused_also_where_they_are_no_text) {
  for (const layout& wrong :
       {layout{.pp = INT_MAX}, layout{.tp = INT_MIN}, layout{.dp = -2}, layout{.dp = 0},
        layout{.microbatches = INT_MAX}, layout{.replicas = INT_MAX}, layout{.replicas = -1},
        layout{.pp = 2, .chunks = INT_MAX}, layout{.pp = 1 << 20, .dp = 1 << 20, .tp = 1 << 20},
        layout{.pp = 2, .schedule = "a\nb"}}) {
    const std::string said = parx_test::message_of([&] { parx::validate(wrong); });
    BOOST_TEST(parx_test::mentions(said, "usage: layout \""), said);
    BOOST_TEST(!parx_test::mentions(said, "\n"), said);
  }
}

// Words of the grammar, numbers at the limits, and damage: bytes that are lost, doubled or changed.
BOOST_AUTO_TEST_CASE(any_text_is_refused_with_its_words_or_is_the_layout_that_prints_it) {
  const std::vector<std::string> words{
      "ddp", "zero",     "fsdp",   "hybrid",       "gathered", "pp",   "dp", "tp",
      "sp",  "schedule", "chunks", "microbatches", "replicas", "auto", "",   " tp"};
  const std::vector<std::string> values{"0",
                                        "1",
                                        "2",
                                        "3",
                                        "4",
                                        "64",
                                        "65536",
                                        "1048576",
                                        "1048577",
                                        "2147483647",
                                        "2147483648",
                                        "-1",
                                        "99999999999999999999",
                                        "two",
                                        "1f1b",
                                        "zbv",
                                        "zb1p",
                                        "interleaved",
                                        "",
                                        "+2",
                                        "2 "};
  std::mt19937 random(3);
  const auto any = [&](const auto& of) { return of[random() % of.size()]; };
  std::size_t accepted = 0;
  for (int round = 0; round < 30'000; ++round) {
    std::string text;
    for (std::size_t count = random() % 5; count > 0; --count) {
      text += any(words);
      if (random() % 4 > 0) text += "=" + any(values);
      if (count > 1 || random() % 16 == 0) text += ',';
    }
    if (random() % 4 == 0 && !text.empty()) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0) text.erase(at, 1);
      else text[at] = static_cast<char>(random());
    }
    try {
      const layout made = layout::parse(text);
      BOOST_REQUIRE_MESSAGE(layout::parse(to_string(made)) == made, text);
      BOOST_REQUIRE_GE(made.parts(), made.is_automatic ? 0 : 1);
      ++accepted;
    } catch (const parx::usage_error& refused) {
      const std::string quoted = "layout \"" + parx::printable(text) + "\": ";
      BOOST_REQUIRE_MESSAGE(std::string(refused.what()).starts_with(quoted), refused.what());
    }
  }
  BOOST_TEST(accepted > 500U);
}

BOOST_AUTO_TEST_CASE(every_layout_of_the_planner_is_one_that_a_model_can_be_given) {
  const parx::cluster one_host{.ranks = 8, .hosts = 1}, four{.ranks = 8, .hosts = 4};
  std::size_t count = 0;
  for (const parx::cluster& machine : {one_host, four}) {
    const parx::step_work work{.layers = 4};
    auto all = parx::layouts_of(machine);
    for (const auto& each : parx::mesh_layouts_of(machine, work)) all.push_back(each);
    for (const auto& each : all) BOOST_TEST((layout::parse(to_string(each.how)) == each.how));
    count += all.size();
  }
  BOOST_TEST(count > 16U);
}
