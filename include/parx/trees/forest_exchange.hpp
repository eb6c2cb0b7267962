// forest_exchange: makes all ranks hold the model of those that have most rounds.
//
// All ranks of a job have equal models as far as they got, so a rank with fewer rounds (a failure
// met it earlier, or it has just joined) takes the model of the lowest rank with most. A round that
// lacks the trees of some outputs does not count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/object.hpp>
#include <parx/trees/table.hpp>
#include <parx/trees/tree.hpp>

namespace parx::inline PARX_ABI::trees {

namespace detail {

/// visit(vector) for each field of a tree.
template <typename Tree, typename Visit>
void visit_fields(Tree& each, const Visit& visit) {
  visit(each.left_children);
  visit(each.right_children);
  visit(each.parents);
  visit(each.split_indices);
  visit(each.split_conditions);
  visit(each.default_left);
  visit(each.base_weights);
  visit(each.loss_changes);
  visit(each.sum_hessian);
  visit(each.split_type);
  visit(each.categories);
  visit(each.categories_nodes);
  visit(each.categories_segments);
  visit(each.categories_sizes);
}

}  // namespace detail

/// Collective. The root's texts, which have no line breaks, on all ranks.
inline void broadcast_texts(process_group& group, std::vector<std::string>& texts, int root) {
  std::string lines;
  for (const std::string& text : texts) lines += text + '\n';
  broadcast_object(group, lines, {.root = root});
  texts.clear();
  for (std::size_t at = 0; at < lines.size(); at = lines.find('\n', at) + 1) {
    texts.push_back(lines.substr(at, lines.find('\n', at) - at));
  }
}

/// Collective. The root's texts by column, on all ranks.
inline void broadcast_categories(process_group& group,
                                 std::vector<std::vector<std::string>>& categories, int root) {
  std::vector<std::string> all;
  std::vector<std::uint64_t> sizes;
  for (const auto& texts : categories) {
    sizes.push_back(texts.size());
    all.insert(all.end(), texts.begin(), texts.end());
  }
  broadcast_object(group, sizes, {.root = root});
  broadcast_texts(group, all, root);
  categories.clear();
  auto next = all.begin();
  for (const std::uint64_t size : sizes) {
    const auto last = next + static_cast<std::ptrdiff_t>(size);
    categories.emplace_back(next, last);
    next = last;
  }
}

/// Collective. A rank without rows may not know the columns' names and categories: it takes those
/// of the first rank that has names, and of the first that has categories.
inline void share_words(process_group& group, const table& rows, forest& model) {
  const auto mine = [&](bool known) { return std::int64_t{known ? group.rank() : group.size()}; };
  std::array<std::int64_t, 2> first{mine(!rows.names.empty()), mine(!rows.categories.empty())};
  all_reduce(group, first, {.op = reduce_op::min});
  model.names = rows.names;
  model.categories = rows.categories;
  if (first[0] < group.size()) broadcast_texts(group, model.names, static_cast<int>(first[0]));
  if (first[1] < group.size()) {
    broadcast_categories(group, model.categories, static_cast<int>(first[1]));
  }
}

/// Collective.
inline void agree_on_forest(process_group& group, forest& model) {
  model.trees.resize(model.rounds() * model.outputs());
  model.tree_info.resize(model.trees.size());
  const auto held = static_cast<std::int64_t>(model.rounds());
  std::array<std::int64_t, 2> most{held, -held};
  all_reduce(group, most, {.op = reduce_op::max});
  if (most[0] == -most[1]) return;
  std::array<std::int64_t, 1> first{held == most[0] ? group.rank() : group.size()};
  all_reduce(group, first, {.op = reduce_op::min});
  const int root = static_cast<int>(first[0]);
  const auto take = [&](auto& field) { broadcast_object(group, field, {.root = root}); };
  take(model.num_class);
  take(model.num_feature);
  take(model.base_score);
  take(model.objective);
  take(model.tree_info);
  take(model.kinds);
  broadcast_texts(group, model.names, root);
  broadcast_categories(group, model.categories, root);
  std::vector<std::string> parameters;
  for (const auto& [name, value] : model.objective_parameters) {
    parameters.insert(parameters.end(), {name, value});
  }
  broadcast_texts(group, parameters, root);
  model.objective_parameters.clear();
  for (std::size_t i = 0; i < parameters.size(); i += 2) {
    model.objective_parameters.emplace_back(parameters[i], parameters[i + 1]);
  }
  model.trees.resize(model.tree_info.size());
  for (tree& each : model.trees) detail::visit_fields(each, take);
}

}  // namespace parx::trees
