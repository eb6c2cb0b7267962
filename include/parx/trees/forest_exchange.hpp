// forest_exchange: makes all ranks hold the model of those that have most rounds.
//
// All ranks of a job have equal models as far as they got, so a rank with fewer rounds (a failure
// met it earlier, or it has just joined) takes the model of the lowest rank with most, as the text
// of its file, which keeps all bits. A round that lacks the trees of some outputs does not count.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/object.hpp>
#include <parx/core/formatted.hpp>
#include <parx/trees/model_file.hpp>
#include <parx/trees/table.hpp>
#include <parx/trees/tree.hpp>

namespace parx::inline PARX_ABI::trees {

namespace detail {

/// Collective. The lowest rank that says so; the number of ranks where none does.
[[nodiscard]] inline int first_rank(process_group& group, bool is_one) {
  std::array<std::int32_t, 1> first{is_one ? group.rank() : group.size()};
  all_reduce(group, first, {.op = reduce_op::min});
  return first[0];
}

/// Collective. The words of the lowest rank that has some, by column.
[[nodiscard]] inline std::vector<std::vector<std::string>> shared_words(
    process_group& group, const std::vector<std::vector<std::string>>& words) {
  const int root = first_rank(group, !words.empty());
  if (root == group.size()) return {};
  std::string text = words_text(words);
  broadcast_object(group, text, {.root = root});
  return words_of(text);
}

}  // namespace detail

/// Collective. A rank without rows may not know the columns' names and categories: it takes those
/// of the first rank that has names, and of the first that has categories.
inline void share_words(process_group& group, const table& rows, forest& model) {
  std::vector<std::vector<std::string>> names;
  if (!rows.names.empty()) names.push_back(rows.names);
  names = detail::shared_words(group, names);
  model.names = names.empty() ? std::vector<std::string>{} : names.front();
  model.categories = detail::shared_words(group, rows.categories);
}

/// Collective: one broadcast, where the ranks have unequally many rounds.
inline void agree_on_forest(process_group& group, forest& model) {
  model.trees.resize(model.rounds() * model.trees_a_round());
  model.tree_info.resize(model.trees.size());
  const auto held = static_cast<std::int64_t>(model.rounds());
  std::array<std::int64_t, 2> most{held, -held};
  all_reduce(group, most, {.op = reduce_op::max});
  if (most[0] == -most[1]) return;
  const int root = detail::first_rank(group, held == most[0]);
  std::string text = group.rank() == root ? model_text(model) : "";
  broadcast_object(group, text,
                   {.root = root, .max_bytes = std::numeric_limits<std::size_t>::max() / 4});
  if (held < most[0]) model = model_of(text, formatted("the model of rank {}", root));
}

}  // namespace parx::trees
