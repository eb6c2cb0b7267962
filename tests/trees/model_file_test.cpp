// Models go through XGBoost's JSON both ways, and its models answer here as they do there.
#include <parx/trees/model_file.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <data/support.hpp>
#include <parx/core/json.hpp>
#include <parx/trees/importance.hpp>
#include <parx/trees/predict.hpp>
#include <parx/trees/shap.hpp>

namespace {

namespace trees = parx::trees;
namespace json = parx::json;

const std::filesystem::path fixtures = std::filesystem::path(__FILE__).parent_path() / "xgboost";

/// A model of XGBoost's, and what it answers for some rows.
struct fixture {
  explicit fixture(const std::string& name)
      : text(parx_test::read_file(fixtures / (name + ".model.json"))),
        cases(json::parse(parx_test::read_file(fixtures / (name + ".cases.json")))),
        model(trees::model_of(text, name)) {
    for (const json::value& row : cases.at("x").elements()) {
      ++rows.rows;
      rows.columns = static_cast<std::int64_t>(row.elements().size());
      for (const json::value& x : row.elements()) {
        rows.values.push_back(x.is_null() ? std::numeric_limits<float>::quiet_NaN()
                                          : x.as<float>());
      }
    }
  }
  /// All numbers of a member, from the outermost array inwards.
  [[nodiscard]] std::vector<double> numbers(const char* member) const {
    std::vector<double> all;
    const auto add = [&all](const auto& self, const json::value& each) -> void {
      if (!each.is_array()) return all.push_back(each.as<double>());
      for (const json::value& inner : each.elements()) self(self, inner);
    };
    add(add, cases.at(member));
    return all;
  }

  std::string text;
  json::value cases;
  trees::forest model;
  trees::table rows;
};

template <typename Number>
void are_close(const std::vector<Number>& found, const std::vector<double>& wanted, double within) {
  BOOST_TEST_REQUIRE(found.size() == wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    BOOST_TEST(std::abs(static_cast<double>(found[i]) - wanted[i]) <= within);
  }
}

/// From `begin` to the last `end` of the text.
std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t first = text.find(begin);
  return text.substr(first, text.rfind(end) - first);
}

constexpr const char* names[] = {"higgs_3", "adult_3", "covertype_2"};

/// The message with which `text` is refused.
std::string refusal(const std::string& text) {
  try {
    (void)trees::model_of(text, "a.json");
  } catch (const parx::error& failure) {
    return failure.what();
  }
  return "not refused";
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  BOOST_TEST_REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), by);
}

}  // namespace

BOOST_AUTO_TEST_CASE(xgboosts_models_predict_what_they_predict_there) {
  for (const char* const name : names) {
    const fixture given(name);
    are_close(trees::predict(given.model, given.rows), given.numbers("predict"), 1e-6);
    are_close(trees::predict_margins(given.model, given.rows), given.numbers("margin"), 1e-6);
    are_close(trees::predict_leaves(given.model, given.rows), given.numbers("leaf"), 0);
    const std::size_t columns = static_cast<std::size_t>(given.rows.columns);
    const auto one = trees::predict(given.model, std::span(given.rows.values).first(columns));
    BOOST_TEST(one.front() == trees::predict(given.model, given.rows).front());
  }
}

BOOST_AUTO_TEST_CASE(shap_values_and_importances_are_xgboosts) {
  for (const char* const name : names) {
    const fixture given(name);
    are_close(trees::shap_values(given.model, given.rows), given.numbers("contribs"), 1e-5);
    using enum trees::importance_type;
    for (const auto& [type, member] :
         {std::pair(weight, "weight"), std::pair(gain, "gain"), std::pair(cover, "cover")}) {
      const auto found = trees::importances(given.model, type);
      std::size_t used = 0;
      for (std::size_t c = 0; c < found.size(); ++c) {
        const json::value* const wanted = given.cases.at(member).find("f" + std::to_string(c));
        const double value = wanted == nullptr ? 0 : wanted->as<double>();
        BOOST_TEST(std::abs(found[c] - value) <= 1e-5 * value);
        used += wanted != nullptr ? 1U : 0U;
      }
      BOOST_TEST(used == given.cases.at(member).members().size());
    }
  }
}

BOOST_AUTO_TEST_CASE(shap_values_are_shapley_values) {
  // By the definition: the mean over all orders of the columns of what adding a column changes.
  const fixture given("adult_3");
  const std::vector<std::int32_t> players{3, 6, 7, 10, 0};
  const auto columns = static_cast<std::size_t>(given.rows.columns);
  const auto expected = [&](unsigned known, std::span<const float> row) {
    const auto below = [&](const auto& self, const trees::tree& of, std::int32_t node) -> double {
      const auto at = static_cast<std::size_t>(node);
      if (of.is_leaf(node)) return static_cast<double>(of.split_conditions[at]);
      for (std::size_t i = 0; i < players.size(); ++i) {
        if (players[i] != of.split_indices[at] || (known >> i & 1U) == 0) continue;
        return self(self, of, of.next(node, row[static_cast<std::size_t>(players[i])]));
      }
      double sum = 0;
      for (const std::int32_t child : {of.left_children[at], of.right_children[at]}) {
        sum += self(self, of, child) *
               static_cast<double>(of.sum_hessian[static_cast<std::size_t>(child)]);
      }
      return sum / static_cast<double>(of.sum_hessian[at]);
    };
    double sum = 0;
    for (const trees::tree& each : given.model.trees) sum += below(below, each, 0);
    return sum;
  };
  const auto values = trees::shap_values(given.model, given.rows);
  const double factorial[] = {1, 1, 2, 6, 24, 120};
  for (std::size_t row = 0; row < static_cast<std::size_t>(given.rows.rows); ++row) {
    const auto x = std::span(given.rows.values).subspan(row * columns, columns);
    for (std::size_t i = 0; i < players.size(); ++i) {
      double value = 0;
      for (unsigned set = 0; set < 32; ++set) {
        if ((set >> i & 1U) != 0) continue;
        const auto size = static_cast<std::size_t>(__builtin_popcount(set));
        value += factorial[size] * factorial[4 - size] / factorial[5] *
                 (expected(set | 1U << i, x) - expected(set, x));
      }
      const auto found = values[row * (columns + 1) + static_cast<std::size_t>(players[i])];
      BOOST_TEST(std::abs(static_cast<double>(found) - value) <= 1e-6);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_model_is_written_as_xgboost_writes_it) {
  for (const char* const name : names) {
    const fixture given(name);
    const std::string text = trees::model_text(given.model);
    for (const char* const begin : {"\"gradient_booster\"", "\"learner_model_param\""}) {
      BOOST_TEST(between(text, begin, "\"version\"") == between(given.text, begin, "\"version\""));
    }
    BOOST_TEST(trees::model_text(trees::model_of(text)) == text);
  }
}

BOOST_AUTO_TEST_CASE(a_model_for_ranking_has_the_parameters_of_each_version_of_xgboost) {
  trees::forest model = fixture("higgs_3").model;
  model.objective = "rank:ndcg";
  model.objective_parameters = {{"lambdarank_pair_method", "topk"}};
  const std::string text = trees::model_text(model);
  const json::value written = json::parse(text).at("learner").at("objective");
  BOOST_TEST(written.at("lambda_rank_param").is_object());  // 1.7 ends without it
  BOOST_TEST(written.at("lambdarank_param").as<std::string>("lambdarank_pair_method") == "topk");
  BOOST_TEST(trees::model_text(trees::model_of(text)) == text);
}

BOOST_AUTO_TEST_CASE(texts_of_categories_and_names_go_through_a_file) {
  fixture given("adult_3");
  given.model.names.assign(14, "a \"column\"");
  given.model.categories.assign(14, {});
  given.model.categories[3] = {"Bachelors", "Master's \\ degree", ""};
  given.model.best_iteration = 1;
  const parx_test::scratch_folder folder;
  trees::save_model(given.model, folder.file("model.json"));
  const trees::forest read = trees::load_model(folder.file("model.json"));
  BOOST_TEST(read.names == given.model.names, boost::test_tools::per_element());
  BOOST_TEST((read.categories == given.model.categories));
  BOOST_TEST((read.kinds == given.model.kinds));
  BOOST_TEST(*read.best_iteration == 1);
  BOOST_TEST(trees::predict_leaves(read, given.rows).size() == 16U);  // two of the three rounds
}

BOOST_AUTO_TEST_CASE(what_is_no_such_model_is_refused_by_name) {
  const std::string text = fixture("higgs_3").text;
  const auto says = [](const std::string& refused, const std::string& part) {
    BOOST_TEST(refused.find(part) != std::string::npos, refused << " does not say " << part);
  };
  says(refusal(""), "no model of trees");
  says(refusal("{}"), "no \"learner\"");
  says(refusal("{L\x00\x00"), "UBJ");
  says(refusal(text.substr(0, text.size() / 2)), "expected");
  says(refusal(replaced(text, "\"gbtree\"", "\"dart\"")), "\"dart\"");
  says(refusal(replaced(text, "binary:logistic", "survival:cox")), "survival:cox");
  says(refusal(replaced(text, "\"base_score\":\"5E-1\",", "")), "base_score");
  says(refusal(replaced(text, "\"tree_info\":[0,0,0]", "\"tree_info\":[0,0]")), "tree_info");
  says(refusal(replaced(text, "\"tree_info\":[0,0,0]", "\"tree_info\":[0,0,1]")), "class 1 of 1");
  says(refusal(replaced(text, "\"left_children\":[1,3", "\"left_children\":[1,99")), "node 1");
  says(refusal(replaced(text, "\"right_children\":[2,4", "\"right_children\":[2,5")), "apart");
  says(refusal(replaced(replaced(text, "\"left_children\":[1,3", "\"left_children\":[1,1"),
                        "\"right_children\":[2,4", "\"right_children\":[2,2")),
       "two paths");
  says(refusal(replaced(text, "\"split_indices\":[", "\"split_indices\":[28,")), "split_indices");
  says(refusal(replaced(text, "\"num_target\":\"1\"", "\"num_target\":\"2\"")), "targets");
  says(refusal(replaced(text, "\"size_leaf_vector\":\"0\"}},", "\"size_leaf_vector\":\"3\"}},")),
       "vectors");
  const std::string classes = fixture("covertype_2").text;
  says(refusal(replaced(classes, "\"num_class\":\"7\"", "\"num_class\":\"0\"")), "num_class is 0");
  BOOST_TEST(refusal(replaced(text, "\"5E-1\"", "\"[5E-1]\"")) == "not refused");
}
