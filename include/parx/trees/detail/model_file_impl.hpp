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

[[nodiscard]] inline std::string text_of_element(const std::string& text) {
  return json::quote(text);
}
[[nodiscard]] inline std::string text_of_element(std::floating_point auto number) {
  return float_text(number);
}
[[nodiscard]] inline std::string text_of_element(std::integral auto number) {
  return std::to_string(+number);
}
template <typename Element>
[[nodiscard]] std::string array_text(const std::vector<Element>& elements) {
  std::string text = "[";
  for (const Element& each : elements) {
    if (text.size() > 1) text += ',';
    text += text_of_element(each);
  }
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
  visit_fields(each, [&](std::string_view name, const auto& elements) {
    if (name == "left_children") add_member(text, "id", std::to_string(id));
    add_member(text, name, array_text(elements));
  });
  add_member(text, "tree_param",
             formatted("{{\"num_deleted\":\"0\",\"num_feature\":\"{}\",\"num_nodes\":\"{}\","
                       "\"size_leaf_vector\":\"0\"}}",
                       columns, each.nodes()));
  return text += '}';
}

inline constexpr std::string_view pairs_of_1_7 = "lambda_rank_param";

[[nodiscard]] inline std::string objective_text(const forest& model) {
  std::string text = "{";
  add_member(text, "name", json::quote(model.objective));
  // XGBoost 1.7 asks for this one, later versions for that of parameters_name().
  if (model.objective.starts_with("rank:")) add_member(text, pairs_of_1_7, "{}");
  const std::string_view name = objective_of(model).parameters_name();
  if (!name.empty()) {
    std::string parameters = "{";
    for (const auto& [key, value] : model.objective_parameters) {
      add_member(parameters, key, json::quote(value));
    }
    if (name == "reg_loss_param" && model.objective_parameters.empty()) {
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
  if (!model.categories.empty()) {
    add_member(text, categories_attribute, json::quote(words_text(model.categories)));
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
      if (key == "feature_names") read_array(model_.names);
      else if (key == "feature_types") read_array(types_);
      else if (key == "gradient_booster") read_booster();
      else if (key == "objective") read_objective();
      else if (key == "attributes" || key == "learner_model_param") read_texts();
      else in_.skip();
    });
  }

  /// An object of texts; those with a meaning have names of their own.
  void read_texts() {
    in_.object([&](const std::string& key) {
      const std::string value = in_.string();
      if (key == "base_score") read_base_score(value);
      if (key == "best_iteration") model_.best_iteration = number<std::int64_t>(value, key);
      if (key == "num_class") model_.num_class = number<int>(value, key);
      if (key == "num_feature") model_.num_feature = number<std::int64_t>(value, key);
      if (key == "num_parallel_tree") {
        model_.num_parallel_tree = std::max(number<int>(value, key), 1);
      }
      if (key == "num_target" && number<int>(value, key) > 1) {
        refuse(formatted("it predicts {} targets at once", value));
      }
      if (key == categories_attribute) model_.categories = words_of(value);
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
      } else if (key.ends_with("_param") && key != pairs_of_1_7) {
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
          if (member == "tree_info") read_array(model_.tree_info);
          else if (member == "gbtree_model_param") read_texts();
          else if (member == "trees") in_.array([&] { read_tree(); });
          else in_.skip();
        });
      } else {
        in_.skip();
      }
    });
  }

  void read_tree() {
    tree& made = model_.trees.emplace_back();
    in_.object([&](const std::string& key) {
      bool known = key == "tree_param";
      if (known) read_tree_parameters();
      visit_fields(made, [&](std::string_view name, auto& elements) {
        if (name != key) return;
        known = true;
        read_array(elements);
      });
      if (!known) in_.skip();
    });
  }
  void read_tree_parameters() {
    in_.object([&](const std::string& key) {
      const std::string value = in_.string();
      if (key == "size_leaf_vector" && number<int>(value, key) > 1) {
        refuse(formatted("its leaves are vectors of {} values", value));
      }
    });
  }

  /// What needs all members.
  void finish() {
    if (model_.objective.empty()) refuse("it does not name its objective");
    (void)objective_of(model_);  // refuses unknown ones
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
    const auto wrong = [&, this](const std::string& what) {
      refuse(formatted("tree {}: {}", id, what));
    };
    const std::size_t nodes = each.nodes();
    if (nodes == 0) wrong("it has no nodes");
    if (each.split_type.empty()) each.split_type.assign(nodes, 0);  // files before 1.3 have none
    visit_fields(each, [&](std::string_view name, const auto& field) {
      if (field.size() == nodes || name.starts_with("categories")) return;
      wrong(formatted("{} has {} entries for {} nodes", name, field.size(), nodes));
    });
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

  template <typename Number>
  [[nodiscard]] Number number(std::string_view text, std::string_view what) const {
    const auto value = parx::detail::parse_number<Number>(text);
    if (!value) refuse(formatted("{} is \"{}\"", what, printable(text)));
    return *value;
  }
  void read_array(std::vector<std::string>& into) {
    in_.array([&] { into.push_back(in_.string()); });
  }
  template <typename Number>
  void read_array(std::vector<Number>& into) {
    using limits = std::numeric_limits<float>;
    constexpr bool whole = std::integral<Number>;
    const auto word = [&](const char* text, auto value) {
      const bool found = in_.word(text);
      if (found) into.push_back(static_cast<Number>(value));
      return found;
    };
    in_.array([&] {
      if constexpr (whole) {
        if (word("true", 1) || word("false", 0)) return;
      } else {
        if (word("NaN", limits::quiet_NaN()) || word("Infinity", limits::infinity())) return;
        if (word("-Infinity", -limits::infinity())) return;
      }
      const std::string_view text = in_.number_text();
      const auto value = parx::detail::parse_number<Number>(text);
      if (!value)
        in_.fail(formatted("a {} in place of {}", whole ? "whole number" : "float", text));
      into.push_back(*value);
    });
  }

  json::reader in_;
  const std::string& path_;
  forest model_;
  std::vector<std::string> types_;
  bool has_base_score_ = false;
};

}  // namespace detail

PARX_INLINE std::string words_text(const std::vector<std::vector<std::string>>& words) {
  std::string text = "[";
  for (const auto& each : words) text += (text.size() > 1 ? "," : "") + detail::array_text(each);
  return text += ']';
}

PARX_INLINE std::vector<std::vector<std::string>> words_of(std::string_view text) {
  std::vector<std::vector<std::string>> words;
  json::reader in(text);
  in.array([&] {
    auto& each = words.emplace_back();
    in.array([&] { each.push_back(in.string()); });
  });
  in.end();
  return words;
}

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
