// Definitions of model_file.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/checkpoint/atomic_file.hpp>
#include <parx/core/error.hpp>
#include <parx/core/json.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/printable.hpp>
#include <parx/data/formats/lines.hpp>
#include <parx/trees/model_file.hpp>
#include <parx/trees/objectives.hpp>

namespace parx::inline PARX_ABI::trees {

namespace detail {

/// In XGBoost's form, -1.5E-3: always with an exponent, or its reader takes 1 for an integer.
[[nodiscard]] inline std::string float_text(std::floating_point auto number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  std::array<char, 32> digits{};
  const auto made =
      std::to_chars(digits.begin(), digits.end(), number, std::chars_format::scientific);
  const std::string_view text(digits.data(), static_cast<std::size_t>(made.ptr - digits.data()));
  const std::size_t e = text.find('e');
  std::string_view exponent = text.substr(e + 2);
  while (exponent.size() > 1 && exponent.front() == '0') exponent.remove_prefix(1);
  return formatted("{}E{}{}", text.substr(0, e), text[e + 1] == '-' ? "-" : "", exponent);
}

template <typename Number>
[[nodiscard]] std::string array_text(const std::vector<Number>& numbers) {
  std::string text = "[";
  for (const Number number : numbers) {
    if (text.size() > 1) text += ',';
    if constexpr (std::floating_point<Number>) text += float_text(number);
    else text += std::to_string(+number);
  }
  return text += ']';
}
[[nodiscard]] inline std::string array_text(const std::vector<std::string>& texts) {
  std::string text = "[";
  for (const std::string& each : texts) text += (text.size() > 1 ? "," : "") + json::quote(each);
  return text += ']';
}

/// `"name":value`, after a comma where something precedes.
inline void add_member(std::string& object, std::string_view name, std::string_view value) {
  if (!object.ends_with('{')) object += ',';
  object += formatted("\"{}\":", name);
  object += value;
}

/// Members in the order of their names, as XGBoost writes them.
[[nodiscard]] inline std::string tree_text(const tree& each, std::size_t id, std::int64_t columns) {
  std::string text = "{";
  const auto add = [&text](std::string_view name, const auto& numbers) {
    add_member(text, name, array_text(numbers));
  };
  add("base_weights", each.base_weights);
  add("categories", each.categories);
  add("categories_nodes", each.categories_nodes);
  add("categories_segments", each.categories_segments);
  add("categories_sizes", each.categories_sizes);
  add("default_left", each.default_left);
  add_member(text, "id", std::to_string(id));
  add("left_children", each.left_children);
  add("loss_changes", each.loss_changes);
  add("parents", each.parents);
  add("right_children", each.right_children);
  add("split_conditions", each.split_conditions);
  add("split_indices", each.split_indices);
  add("split_type", each.split_type);
  add("sum_hessian", each.sum_hessian);
  add_member(text, "tree_param",
             formatted("{{\"num_deleted\":\"0\",\"num_feature\":\"{}\",\"num_nodes\":\"{}\","
                       "\"size_leaf_vector\":\"0\"}}",
                       columns, each.nodes()));
  return text += '}';
}

/// What XGBoost calls the parameters of an objective in its file; nullptr for none.
[[nodiscard]] inline const char* parameters_name(std::string_view objective) {
  if (objective.starts_with("multi:")) return "softmax_multiclass_param";
  if (objective == "count:poisson") return "poisson_regression_param";
  if (objective == "reg:quantileerror") return "quantile_loss_param";
  if (objective.starts_with("rank:")) return "lambdarank_param";
  return objective == "reg:absoluteerror" ? nullptr : "reg_loss_param";
}

[[nodiscard]] inline std::string objective_text(const forest& model) {
  std::string text = "{";
  add_member(text, "name", json::quote(model.objective));
  if (const char* const name = parameters_name(model.objective)) {
    std::string parameters = "{";
    for (const auto& [key, value] : model.objective_parameters) {
      add_member(parameters, key, json::quote(value));
    }
    if (std::string_view(name) == "reg_loss_param" && model.objective_parameters.empty()) {
      add_member(parameters, "scale_pos_weight", "\"1\"");
    }
    add_member(text, name, parameters + "}");
  }
  return text += '}';
}

/// Attributes are texts by name; XGBoost hands on those that it does not know.
inline constexpr std::string_view categories_attribute = "parx_categories";

[[nodiscard]] inline std::string attributes_text(const forest& model) {
  std::string text = "{";
  if (model.best_iteration) {
    add_member(text, "best_iteration", formatted("\"{}\"", *model.best_iteration));
  }
  std::string categories = "[";
  for (const auto& texts : model.categories) {
    categories += (categories.size() > 1 ? "," : "") + array_text(texts);
  }
  if (!model.categories.empty()) {
    add_member(text, categories_attribute, json::quote(categories + "]"));
  }
  return text += '}';
}

/// Reads a model; one call a level of its objects.
class model_reader {
 public:
  model_reader(std::string_view text, const std::string& path) : in_(text), path_(path) {}

  [[nodiscard]] forest read() {
    bool found = false;
    in_.object([&](const std::string& key) {
      if (key != "learner") return in_.skip();
      found = true;
      read_learner();
    });
    in_.end();
    if (!found) refuse("it has no \"learner\"; a model of XGBoost has one");
    finish();
    return std::move(model_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw_error(errc::bad_data, "\"{}\" is no model of trees that parx can read: {}", path_, why);
  }

  void read_learner() {
    in_.object([&](const std::string& key) {
      if (key == "attributes") read_attributes();
      else if (key == "feature_names") model_.names = texts();
      else if (key == "feature_types") types_ = texts();
      else if (key == "gradient_booster") read_booster();
      else if (key == "learner_model_param") read_parameters();
      else if (key == "objective") read_objective();
      else in_.skip();
    });
  }

  void read_attributes() {
    in_.object([&](const std::string& key) {
      const std::string value = in_.string();
      if (key == "best_iteration") {
        model_.best_iteration = number<std::int64_t>(value, "best_iteration");
      } else if (key == categories_attribute) {
        json::reader inner(value);
        inner.array([&] {
          auto& texts_of_column = model_.categories.emplace_back();
          inner.array([&] { texts_of_column.push_back(inner.string()); });
        });
        inner.end();
      }
    });
  }

  void read_parameters() {
    in_.object([&](const std::string& key) {
      const std::string value = in_.string();
      if (key == "base_score") read_base_score(value);
      if (key == "num_class") model_.num_class = number<int>(value, "num_class");
      if (key == "num_feature") model_.num_feature = number<std::int64_t>(value, "num_feature");
      if (key == "num_target" && number<int>(value, "num_target") > 1) {
        refuse(formatted("it predicts {} targets at once", value));
      }
    });
  }

  /// "5E-1", or, from version 3.1 on, "[5E-1]".
  void read_base_score(std::string_view value) {
    if (value.starts_with('[') && value.ends_with(']')) value = value.substr(1, value.size() - 2);
    if (value.find(',') != std::string_view::npos) refuse("it has a base_score for each class");
    model_.base_score = number<double>(value, "base_score");
    has_base_score_ = true;
  }

  void read_objective() {
    in_.object([&](const std::string& key) {
      if (key == "name") {
        model_.objective = in_.string();
      } else if (key.ends_with("_param")) {
        in_.object([&](std::string name) {
          model_.objective_parameters.emplace_back(std::move(name), in_.string());
        });
      } else {
        in_.skip();
      }
    });
  }

  void read_booster() {
    in_.object([&](const std::string& key) {
      if (key == "name") {
        const std::string name = in_.string();
        if (name != "gbtree") {
          refuse(formatted("its booster is \"{}\", not \"gbtree\"", printable(name)));
        }
      } else if (key == "model") {
        in_.object([&](const std::string& member) {
          if (member == "tree_info") model_.tree_info = integers<std::int32_t>();
          else if (member == "gbtree_model_param") read_booster_parameters();
          else if (member == "trees") in_.array([&] { read_tree(); });
          else in_.skip();
        });
      } else {
        in_.skip();
      }
    });
  }

  void read_booster_parameters() {
    in_.object([&](const std::string& key) {
      const std::string value = in_.string();
      if (key == "num_parallel_tree") {
        model_.num_parallel_tree = std::max(number<int>(value, "num_parallel_tree"), 1);
      }
    });
  }

  void read_tree() {
    tree& each = model_.trees.emplace_back();
    in_.object([&](const std::string& key) {
      if (key == "base_weights") each.base_weights = floats();
      else if (key == "categories") each.categories = integers<std::int32_t>();
      else if (key == "categories_nodes") each.categories_nodes = integers<std::int32_t>();
      else if (key == "categories_segments") each.categories_segments = integers<std::int64_t>();
      else if (key == "categories_sizes") each.categories_sizes = integers<std::int64_t>();
      else if (key == "default_left") each.default_left = integers<std::uint8_t>();
      else if (key == "left_children") each.left_children = integers<std::int32_t>();
      else if (key == "loss_changes") each.loss_changes = floats();
      else if (key == "parents") each.parents = integers<std::int32_t>();
      else if (key == "right_children") each.right_children = integers<std::int32_t>();
      else if (key == "split_conditions") each.split_conditions = floats();
      else if (key == "split_indices") each.split_indices = integers<std::int32_t>();
      else if (key == "split_type") each.split_type = integers<std::uint8_t>();
      else if (key == "sum_hessian") each.sum_hessian = floats();
      else if (key == "tree_param") read_tree_parameters();
      else in_.skip();
    });
  }
  void read_tree_parameters() {
    in_.object([&](const std::string& key) {
      const std::string value = in_.string();
      if (key == "size_leaf_vector" && number<int>(value, "size_leaf_vector") > 1) {
        refuse(formatted("its leaves are vectors of {} values", value));
      }
    });
  }

  /// What needs all members.
  void finish() {
    if (model_.objective.empty()) refuse("it does not name its objective");
    (void)objective_of(model_.objective, model_.objective_parameters);  // refuses unknown ones
    if (!has_base_score_) refuse("learner_model_param lacks base_score");
    if (model_.num_feature < 0) refuse("num_feature is below 0");
    if (model_.tree_info.size() != model_.trees.size()) {
      refuse(formatted("tree_info has {} entries for {} trees", model_.tree_info.size(),
                       model_.trees.size()));
    }
    for (std::size_t i = 0; i < model_.trees.size(); ++i) {
      const auto output = static_cast<std::size_t>(model_.tree_info[i]);
      if (output >= model_.outputs()) {
        refuse(formatted("tree {} is of class {} of {}", i, model_.tree_info[i], model_.outputs()));
      }
      check_tree(model_.trees[i], i);
    }
    const auto columns = static_cast<std::size_t>(model_.num_feature);
    const auto fits = [&](std::size_t size, const char* what) {
      if (size != 0 && size != columns)
        refuse(formatted("{} {} for {} columns", size, what, columns));
    };
    fits(model_.names.size(), "feature_names");
    fits(types_.size(), "feature_types");
    fits(model_.categories.size(), "lists of categories");
    for (const std::string& type : types_) {
      model_.kinds.push_back(type == "c" ? column_kind::categorical : column_kind::numeric);
    }
  }

  /// That leaf_of() ends, and stays within the arrays.
  void check_tree(tree& each, std::size_t id) const {
    const auto wrong = [&](const std::string& what) { refuse(formatted("tree {}: {}", id, what)); };
    const std::size_t nodes = each.nodes();
    if (nodes == 0) wrong("it has no nodes");
    if (each.split_type.empty()) each.split_type.assign(nodes, 0);  // files before 1.3 have none
    const auto fits = [&](std::size_t size, const char* what) {
      if (size != nodes) wrong(formatted("{} has {} entries for {} nodes", what, size, nodes));
    };
    fits(each.right_children.size(), "right_children");
    fits(each.parents.size(), "parents");
    fits(each.split_indices.size(), "split_indices");
    fits(each.split_conditions.size(), "split_conditions");
    fits(each.default_left.size(), "default_left");
    fits(each.split_type.size(), "split_type");
    fits(each.base_weights.size(), "base_weights");
    fits(each.loss_changes.size(), "loss_changes");
    fits(each.sum_hessian.size(), "sum_hessian");
    check_categories(each, wrong);
    std::vector<std::int32_t> ahead{0};
    std::vector<std::uint8_t> seen(nodes, 0);
    while (!ahead.empty()) {
      const std::int32_t node = ahead.back();
      const auto at = static_cast<std::size_t>(node);
      ahead.pop_back();
      if (seen[at]++ != 0) wrong(formatted("two paths lead to node {}", node));
      if (each.is_leaf(node)) continue;
      const std::int32_t left = each.left_children[at], right = each.right_children[at];
      if (static_cast<std::size_t>(left) >= nodes || static_cast<std::size_t>(right) >= nodes) {
        wrong(formatted("the children of node {} are {} and {}, of {} nodes", node, left, right,
                        nodes));
      }
      if (right != left + 1) wrong(formatted("the children of node {} are apart", node));
      const std::int32_t column = each.split_indices[at];
      if (column < 0 || column >= model_.num_feature) {
        wrong(formatted("node {} splits column {} of {}", node, column, model_.num_feature));
      }
      if (each.split_type[at] == 0 && std::isnan(each.split_conditions[at])) {
        wrong(formatted("node {} has neither a condition nor categories", node));
      }
      ahead.insert(ahead.end(), {right, left});
    }
  }
  template <typename Wrong>
  static void check_categories(const tree& each, const Wrong& wrong) {
    const std::size_t count = each.categories_nodes.size();
    if (each.categories_segments.size() != count || each.categories_sizes.size() != count) {
      wrong("categories_nodes, _segments and _sizes differ in length");
    }
    if (!std::is_sorted(each.categories_nodes.begin(), each.categories_nodes.end())) {
      wrong("categories_nodes do not ascend");
    }
    const auto all = static_cast<std::int64_t>(each.categories.size());
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t first = each.categories_segments[i], size = each.categories_sizes[i];
      if (first < 0 || size < 0 || first > all || size > all - first) {
        wrong(formatted("the categories of node {} are outside of the list",
                        each.categories_nodes[i]));
      }
      if (!std::is_sorted(each.categories.begin() + first,
                          each.categories.begin() + first + size)) {
        wrong(formatted("the categories of node {} do not ascend", each.categories_nodes[i]));
      }
    }
  }

  [[nodiscard]] std::vector<std::string> texts() {
    std::vector<std::string> all;
    in_.array([&] { all.push_back(in_.string()); });
    return all;
  }
  template <typename Number>
  [[nodiscard]] Number number(std::string_view text, const char* what) const {
    const auto value = parx::detail::parse_number<Number>(text);
    if (!value) refuse(formatted("{} is \"{}\"", what, printable(text)));
    return *value;
  }
  template <typename Integer>
  [[nodiscard]] std::vector<Integer> integers() {
    std::vector<Integer> all;
    in_.array([&] {
      if (in_.word("true")) return all.push_back(1);
      if (in_.word("false")) return all.push_back(0);
      const std::string_view text = in_.number_text();
      const auto value = parx::detail::parse_number<Integer>(text);
      if (!value) in_.fail(formatted("a whole number in place of {}", text));
      all.push_back(*value);
    });
    return all;
  }
  [[nodiscard]] std::vector<float> floats() {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    std::vector<float> all;
    in_.array([&] {
      if (in_.word("NaN")) return all.push_back(std::numeric_limits<float>::quiet_NaN());
      if (in_.word("Infinity")) return all.push_back(infinity);
      if (in_.word("-Infinity")) return all.push_back(-infinity);
      const std::string_view text = in_.number_text();
      const auto value = parx::detail::parse_number<float>(text);
      if (!value) in_.fail(formatted("a float in place of {}", text));
      all.push_back(*value);
    });
    return all;
  }

  json::reader in_;
  const std::string& path_;
  forest model_;
  std::vector<std::string> types_;
  bool has_base_score_ = false;
};

}  // namespace detail

PARX_INLINE std::string model_text(const forest& model) {
  const std::int64_t columns = model.num_feature;
  std::vector<std::string> types;
  const auto is_set = [](column_kind kind) { return kind == column_kind::categorical; };
  if (std::any_of(model.kinds.begin(), model.kinds.end(), is_set)) {
    for (const column_kind kind : model.kinds) types.emplace_back(is_set(kind) ? "c" : "q");
  }
  std::string text = "{\"learner\":{";
  detail::add_member(text, "attributes", detail::attributes_text(model));
  detail::add_member(text, "feature_names", detail::array_text(model.names));
  detail::add_member(text, "feature_types", detail::array_text(types));
  detail::add_member(
      text, "gradient_booster",
      formatted("{{\"model\":{{\"gbtree_model_param\":{{\"num_parallel_tree\":\"{}\","
                "\"num_trees\":\"{}\",\"size_leaf_vector\":\"0\"}},\"tree_info\":",
                model.num_parallel_tree, model.trees.size()));
  text += detail::array_text(model.tree_info) + ",\"trees\":[";
  for (std::size_t i = 0; i < model.trees.size(); ++i) {
    if (i > 0) text += ',';
    text += detail::tree_text(model.trees[i], i, columns);
  }
  text += "]},\"name\":\"gbtree\"}";
  detail::add_member(text, "learner_model_param",
                     formatted("{{\"base_score\":\"{}\",\"boost_from_average\":\"1\","
                               "\"num_class\":\"{}\",\"num_feature\":\"{}\",\"num_target\":\"1\"}}",
                               detail::float_text(model.base_score), model.num_class, columns));
  detail::add_member(text, "objective", detail::objective_text(model));
  return text += "},\"version\":[1,7,4]}";
}

PARX_INLINE forest model_of(std::string_view text, const std::string& path) {
  if (text.size() > 1 && text[0] == '{' && text[1] == 'L') {
    throw_error(
        errc::bad_data,
        "\"{}\" is a model of XGBoost in its binary form (UBJ). Save it as JSON there: give "
        "the file a name that ends in .json.",
        path);
  }
  try {
    return detail::model_reader(text, path).read();
  } catch (const json::error& failure) {
    throw_error(errc::bad_data, "\"{}\" is no model of trees that parx can read: {}", path,
                failure.what());
  }
}

PARX_INLINE void save_model(const forest& model, const std::string& path) {
  parx::detail::write_atomically(path, model_text(model));
}

PARX_INLINE forest load_model(const std::string& path) {
  return model_of(data::read_text(path), path);
}

}  // namespace parx::trees
