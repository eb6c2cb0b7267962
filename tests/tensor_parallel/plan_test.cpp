#include <parx/tensor_parallel/parallelize.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <ddp/ranks.hpp>
#include <messages.hpp>

#include <parx/nn.hpp>

using namespace parx::tp;

namespace {

/// Attention with grouped heads between its projections.
class block : public parx::nn::module<block> {
 public:
  auto forward(const parx::variable<float>& x) {
    return out_(attention_(query_(x), key_(x), value_(x)));
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("attn.q_proj", query_);
    visit("attn.k_proj", key_);
    visit("attn.v_proj", value_);
    visit("attn", attention_);
    visit("attn.o_proj", out_);
  }

 private:
  parx::nn::linear<> query_{12, 12}, key_{12, 12}, value_{12, 12}, out_{12, 12};
  parx::nn::dot_product_attention attention_{4};
};

/// Ready attention at a path.
struct layer : parx::nn::module<layer> {
  explicit layer(std::string path) : at(std::move(path)) {}
  template <typename Visit>
  void members(Visit& visit) {
    visit(at, attention);
  }
  std::string at;
  parx::nn::multi_head_attention<> attention{12, 4};
};

plan good_plan() {
  return {{"*.q_proj", of_heads(column, 4)},
          {"*.k_proj", of_heads(column, 4)},
          {"*.v_proj", of_heads(column, 4)},
          {"*.o_proj", of_heads(row, 4)},
          {"attn", heads}};
}

/// What each rank says of a plan, "" for nothing.
template <typename Plan>
std::vector<std::string> refusals(int ranks, Plan plan_of_rank) {
  return on_ranks(ranks, [&](parx::process_group& group) -> std::string {
    try {
      block model;
      (void)parx::parallelize(model, group, plan_of_rank(group.rank()));
    } catch (const parx::usage_error& refused) {
      return refused.what();
    }
    return "";
  });
}
void require_refused(int ranks, const plan& lines, const std::string& words) {
  for (const std::string& said : refusals(ranks, [&](int) { return lines; }))
    BOOST_TEST(said.find(words) != std::string::npos, said);
}

plan with(plan lines, std::size_t index, const plan_line& line) {
  lines[index] = line;
  return lines;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_star_stands_for_any_characters) {
  BOOST_TEST(matches("*.q_proj", "model.layers.0.self_attn.q_proj"));
  BOOST_TEST(matches("shared", "shared"));
  BOOST_TEST(matches("*norm*", "model.norm"));
  BOOST_TEST(matches("a*b*c", "aXbXbXc"));
  BOOST_TEST(!matches("*.q_proj", "q_proj"));
  BOOST_TEST(!matches("*.q_proj", "x.q_proj.weight"));
  BOOST_TEST(!matches("a*b*c", "aXbXb"));
}

BOOST_AUTO_TEST_CASE(what_lies_where_is_told_by_a_table) {
  const auto tables = on_ranks(2, [](parx::process_group& group) {
    block model;
    return parx::parallelize(model, group, good_plan()).explained().table();
  });
  const std::string& first = tables[0];
  for (const char* words :
       {"2 ranks", "attn.q_proj", "column, 4 units",
        "weight: rows 0-5 of [12, 12], 288 bytes",
        "backward all-reduce of its input's gradient: 48 bytes", "columns 0-5 of [12, 12]",
        "forward all-reduce of its result: 48 bytes"}) {
    BOOST_TEST(first.find(words) != std::string::npos, words << " is not in " << first);
  }
  BOOST_TEST(tables[1].find("rows 6-11 of [12, 12]") != std::string::npos, tables[1]);
}

BOOST_AUTO_TEST_CASE(lines_that_match_nothing_or_twice_or_contradict_each_other_are_refused) {
  plan twice = good_plan();
  twice.push_back({"*_proj", column});
  require_refused(2, twice, "\"attn.q_proj\" is matched by both \"*.q_proj\" and \"*_proj\"");
  plan nothing = good_plan();
  nothing.push_back({"*.gate_proj", column});
  require_refused(2, nothing, "no layer matches \"*.gate_proj\". The layers and their rules:");
  plan whole_attention = good_plan();
  whole_attention.pop_back();
  require_refused(2, whole_attention,
                  "\"attn\" lies whole, but its queries, keys or values are cut by column");
  require_refused(2, {{"attn", heads}}, "\"attn\" has the rule heads, but none of its queries");
  require_refused(2, with(good_plan(), 0, {"*.q_proj", vocab}),
                  "is a linear layer: it can be cut by columns or by rows");
  require_refused(2, with(good_plan(), 4, {"attn", column}), "attention: it can be cut by heads");
}

BOOST_AUTO_TEST_CASE(wrong_lines_for_multi_head_attention_are_told_the_right_ones) {
  const auto told = [](const plan& lines, const char* path = "layers.0.attention") {
    return parx_test::message_of([&] {
      layer model{path};
      (void)explain(model, lines, {.ranks = 2});
    });
  };
  const std::string good =
      "{\"*.attention\", parx::tp::column}, {\"*.attention.out_proj\", parx::tp::row}";
  BOOST_TEST(told({{"*.attention", column}, {"*.attention.out_proj", row}}) ==
             "nothing was thrown");
  for (const plan& wrong : {plan{{"layers.*.attention", heads}}, plan{{"*.attention", column}},
                            plan{{"*.attention.out_proj", row}}, plan{{"*.core", heads}}}) {
    const std::string said = told(wrong);
    BOOST_TEST(parx_test::mentions(said, "usage: ", "\"layers.0.attention\"", good), said);
  }
  const std::string numbered = told({{"blocks.1", heads}}, "blocks.1");
  BOOST_TEST(parx_test::mentions(numbered, "{\"blocks.1\", ", "{\"blocks.1.out_proj\", "),
             numbered);
  const std::string alone = told({{"attn", heads}}, "attn");
  BOOST_TEST(parx_test::mentions(alone, "{\"attn\", ", "{\"attn.out_proj\", "), alone);
}

BOOST_AUTO_TEST_CASE(a_column_without_a_row_or_a_row_without_a_column_is_named_where_it_fails) {
  const auto told = [](const plan& lines) {
    return on_ranks(2, [&](parx::process_group& group) {
      parx::nn::sequential model{parx::nn::linear{4, 8}, parx::nn::relu{}, parx::nn::linear{8, 6}};
      const auto tp = parx::parallelize(model, group, lines);
      model.initialize(1);
      const parx::variable<float> x(parx::tensor<float>::ones({3, 4}));
      return parx_test::message_of([&] { (void)model(x); });
    });
  };
  for (const std::string& said : told({{"0", column}, {"2", row}}))
    BOOST_TEST(said == "nothing was thrown");
  for (const std::string& said : told({{"0", column}}))
    BOOST_TEST(parx_test::mentions(said, "\"2.weight\"", "because \"0.weight\" is cut by column",
                                   "give this layer parx::tp::row"),
               said);
  for (const std::string& said : told({{"2", row}}))
    BOOST_TEST(parx_test::mentions(said, "\"2.weight\"", "The weight is cut by row",
                                   "give the layer before it parx::tp::column"),
               said);
}

BOOST_AUTO_TEST_CASE(classes_in_units_or_blocks_are_refused) {
  require_refused(2, with(good_plan(), 0, {"*.q_proj", of_heads(head, 4)}),
                  "\"attn.q_proj\": classes are cut one by one, not in units or blocks");
}

BOOST_AUTO_TEST_CASE(sizes_that_cannot_be_cut_are_named_with_those_that_can) {
  require_refused(2, with(good_plan(), 0, {"*.q_proj", of_heads(column, 5)}),
                  "\"attn.q_proj\": 12 outputs are not 5 units of one size");
  require_refused(5, good_plan(),
                  "\"attn.q_proj\" cannot be cut over 5 ranks: it has 4 to deal out, so 4 ranks at "
                  "most");
  parx::nn::layer_cut keys = of_heads(column, 2);
  keys.query_heads = 6;  // 3 heads of queries for each of 2 heads of keys, over 4 ranks: 2, 2, 1, 1
  require_refused(4, with(good_plan(), 1, {"*.k_proj", keys}),
                  "rank 1 would need a part of a group. Take a number of ranks that divides 2 or "
                  "is a multiple of it");
}

BOOST_AUTO_TEST_CASE(plans_that_differ_between_ranks_are_refused_on_all) {
  const auto said = refusals(3, [](int rank) {
    return rank == 1 ? with(good_plan(), 0, {"*.q_proj", column}) : good_plan();
  });
  for (const std::string& each : said) {
    BOOST_TEST(each.find("have different plans or models. Rank 1 differs from rank 0:") !=
                   std::string::npos, each);
    BOOST_TEST(std::count(each.begin(), each.end(), '\n') == 2, each);  // the line of each of them
  }
  const auto other_fault = refusals(2, [](int rank) {
    return rank == 1 ? plan{{"nothing", column}} : good_plan();
  });
  BOOST_TEST(other_fault[0].find("have different plans or models") != std::string::npos);
  BOOST_TEST(other_fault[0].find("+ rank 1:   no layer matches \"nothing\"") != std::string::npos,
             other_fault[0]);
  BOOST_TEST(other_fault[1].find("no layer matches \"nothing\"") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_model_that_has_values_keeps_those_of_its_part) {
  const auto said = on_ranks(2, [](parx::process_group& group) -> std::string {
    block given, filled;
    given.initialize(1);
    const auto cut = parx::parallelize(given, group, good_plan());
    const auto cut_before = parx::parallelize(filled, group, good_plan());
    filled.initialize(1);
    std::vector<std::vector<float>> expected;
    filled.for_each_parameter([&](const std::string&, auto& each) {
      expected.emplace_back(each.value().begin(), each.value().end());
    });
    std::string differs;
    std::size_t next = 0;
    given.for_each_parameter([&](const std::string& path, auto& each) {
      const std::vector<float> here(each.value().begin(), each.value().end());
      if (here != expected.at(next++)) differs += path + " ";
    });
    return differs;
  });
  for (const std::string& each : said) BOOST_TEST(each == "");
}
