// growth: makes one tree from the gradients of all ranks' rows.
//
// The ranks hold different rows, the same tree so far, and each a block of the columns. A step
// takes nodes whose best split is known (depth-wise: those of a level, lossguide: the one that
// gains most), splits their rows locally, sums the histogram of the child with the smaller hessian
// over ranks (one reduce_scatter), subtracts it from the parent's for the sibling, which is exact,
// and searches both children: each rank its own columns, then one all_reduce by a total order finds
// the best of all ranks. Every decision is a function of integers that all ranks share, so the
// trees are equal at any number of ranks and threads, without being sent.
//
// With voting the ranks keep the histograms of their own rows, and sum those of the elected columns
// of both children, which are dealt out over ranks to be searched.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/user_op.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/trees/histogram_exchange.hpp>
#include <parx/trees/options.hpp>
#include <parx/trees/row_lists.hpp>
#include <parx/trees/sampling.hpp>
#include <parx/trees/split.hpp>
#include <parx/trees/tree.hpp>
#include <parx/trees/voting.hpp>

namespace parx::inline PARX_ABI::trees {

/// A leaf of the tree made last.
struct grown_leaf {
  std::int32_t node;
  std::span<const std::uint32_t> rows;  ///< this rank's
};

class tree_grower {
 public:
  /// All are kept by reference. `cuts` and `options` are equal on all ranks.
  tree_grower(process_group& group, const bins& data, std::span<const column_cuts> cuts,
              const booster_options& options)
      : group_(&group),
        data_(&data),
        cuts_(cuts),
        options_(&options),
        election_(group.size() > 1 && votes(options, data.columns())
                      ? std::optional<election>(std::in_place, group, cuts, options)
                      : std::nullopt),
        exchange_(group, data, election_ ? 1 : group.size()),
        lists_(data) {}

  /// Collective. `of_tree` is the tree's stream of draws, see tree_seed(). The leaves have the
  /// values learning_rate * w. Throws parx::error when communication fails.
  [[nodiscard]] tree grow(const fixed_gradients& gradients, std::uint64_t of_tree);

  /// Until the next tree.
  [[nodiscard]] std::span<const grown_leaf> leaves() const noexcept { return leaves_; }

 private:
  /// A node that may be split.
  struct open_node {
    std::int32_t id = 0;
    int depth = 0;
    row_range rows{};
    node_sums sums{};
    /// Of this rank's columns; with voting of all, but of its own rows.
    std::vector<trees::sums> histogram{};
    split_candidate split{};
    std::vector<std::int64_t> right_categories{};  ///< a bit each, for splits by category
  };
  /// The order of the heap of open nodes: whether a is taken after b.
  struct is_later {
    trees::grow_policy policy;

    bool operator()(const open_node& a, const open_node& b) const noexcept {
      if (policy == grow_policy::lossguide && a.split.gain != b.split.gain) {
        return a.split.gain < b.split.gain;
      }
      return a.id > b.id;  // which rises with the depth where levels are split one by one
    }
  };
  static constexpr std::int32_t no_parent = std::numeric_limits<std::int32_t>::max();

  [[nodiscard]] static bool is_listed(std::span<const std::int64_t> words, std::size_t bit) {
    return (static_cast<std::uint64_t>(words[bit / 64]) >> (bit % 64) & 1U) != 0;
  }
  [[nodiscard]] bool may_have_children(const open_node& node) const noexcept {
    return (options_->max_depth == 0 || node.depth < options_->max_depth) &&
           (options_->max_leaves == 0 || leaf_count_ < options_->max_leaves);
  }
  [[nodiscard]] bool is_worth_it(const split_candidate& split) const noexcept {
    constexpr float least_gain = 1e-6F;  // XGBoost's kRtEps
    return split.column >= 0 && split.gain > least_gain &&
           static_cast<double>(split.gain) >= options_->gamma;
  }
  void close(const open_node& node) { leaves_.push_back({node.id, lists_.rows_of(node.rows)}); }

  void settle(std::vector<open_node> fresh);
  [[nodiscard]] std::vector<open_node> take();
  [[nodiscard]] std::vector<open_node> split(std::span<const open_node> parents,
                                             const gain_rule& rule);
  [[nodiscard]] row_split row_split_of(const open_node& node) const;
  void make_histograms(std::vector<open_node>& parents, std::vector<open_node>& children,
                       const fixed_gradients& gradients);
  void search(std::vector<open_node>& nodes, const fixed_gradients& gradients,
              const gain_rule& rule, const column_sampler& sampler);
  void share_categories(std::vector<open_node>& nodes, std::span<const search_task> tasks,
                        const gain_rule& rule);
  std::int32_t add_node(std::int32_t parent, const node_sums& sums, const gain_rule& rule);
  void record_split(const open_node& node, std::int32_t left, const gain_rule& rule);
  void finish_categories();

  process_group* group_;
  const bins* data_;
  std::span<const column_cuts> cuts_;
  const booster_options* options_;
  std::optional<election> election_;  ///< nullopt: no voting
  histogram_exchange exchange_;
  row_lists lists_;

  tree made_;
  std::vector<std::vector<std::int32_t>> categories_;  ///< of each node: those that go right
  std::vector<open_node> open_;                        ///< a heap
  std::vector<grown_leaf> leaves_;
  int leaf_count_ = 1;
};

inline tree tree_grower::grow(const fixed_gradients& gradients, std::uint64_t of_tree) {
  const gain_rule rule(*options_, gradients);
  if (election_) election_->begin(gradients);
  const column_sampler sampler(data_->columns(), options_->colsample_bytree,
                               options_->colsample_bylevel, options_->colsample_bynode, of_tree);
  made_ = {};
  categories_.clear();
  open_.clear();
  leaves_.clear();
  leaf_count_ = 1;
  std::vector<open_node> fresh(1);
  open_node& root = fresh.front();
  root.rows = lists_.reset();
  root.sums.total = gradients.total;
  root.sums.gain = rule.gain(root.sums.total, root.sums.bounds);
  root.id = add_node(no_parent, root.sums, rule);
  const std::array all_rows{lists_.rows_of(root.rows)};
  root.histogram = std::move(exchange_.sum(gradients, all_rows).front());
  search(fresh, gradients, rule, sampler);
  settle(std::move(fresh));
  while (!open_.empty()) {
    std::vector<open_node> parents = take();
    std::vector<open_node> children = split(parents, rule);
    make_histograms(parents, children, gradients);
    search(children, gradients, rule, sampler);
    settle(std::move(children));
  }
  finish_categories();
  return std::move(made_);
}

/// Nodes whose best split is known: those without one are leaves.
inline void tree_grower::settle(std::vector<open_node> fresh) {
  for (open_node& node : fresh) {
    if (!is_worth_it(node.split)) {
      close(node);
      continue;
    }
    open_.push_back(std::move(node));
    std::push_heap(open_.begin(), open_.end(), is_later{options_->grow_policy});
  }
}

/// The nodes of a step. A level is taken in parts, which bounds the memory of their histograms.
inline std::vector<tree_grower::open_node> tree_grower::take() {
  constexpr std::size_t memory = std::size_t{1} << 26;
  const std::size_t bytes = std::max<std::size_t>(data_->cells() * sizeof(sums), 1);
  const std::size_t most = options_->grow_policy == grow_policy::depthwise
                               ? std::clamp<std::size_t>(memory / bytes, 1, 256)
                               : 1;
  std::vector<open_node> taken;
  while (!open_.empty() && taken.size() < most) {
    if (!taken.empty() && open_.front().depth != taken.front().depth) break;
    std::pop_heap(open_.begin(), open_.end(), is_later{options_->grow_policy});
    open_node node = std::move(open_.back());
    open_.pop_back();
    if (options_->max_leaves > 0 && leaf_count_ >= options_->max_leaves) {
      close(node);
      continue;
    }
    ++leaf_count_;
    taken.push_back(std::move(node));
  }
  return taken;
}

/// The children of each of the nodes, left and right, their rows divided.
inline std::vector<tree_grower::open_node> tree_grower::split(std::span<const open_node> parents,
                                                              const gain_rule& rule) {
  std::vector<row_split> row_splits;
  for (const open_node& parent : parents) row_splits.push_back(row_split_of(parent));
  const std::vector<std::size_t> middles = lists_.split(row_splits);
  std::vector<open_node> children;
  for (std::size_t i = 0; i < parents.size(); ++i) {
    const open_node& parent = parents[i];
    open_node left;
    open_node right;
    left.depth = right.depth = parent.depth + 1;
    left.rows = {parent.rows.first, middles[i]};
    right.rows = {middles[i], parent.rows.last};
    left.sums.total = parent.split.left();
    right.sums.total = parent.sums.total - left.sums.total;
    left.sums.bounds = right.sums.bounds = parent.sums.bounds;
    const auto column = static_cast<std::size_t>(parent.split.column);
    const auto& signs = options_->monotone_constraints;
    const int sign = column < signs.size() ? signs[column] : 0;
    if (sign != 0) {  // both sides keep to theirs of the middle, so the leaves below them do, too
      const float middle = (rule.weight(left.sums.total, parent.sums.bounds) +
                            rule.weight(right.sums.total, parent.sums.bounds)) /
                           2;
      (sign > 0 ? left : right).sums.bounds.upper = middle;
      (sign > 0 ? right : left).sums.bounds.lower = middle;
    }
    for (open_node* child : {&left, &right}) {
      child->sums.gain = rule.gain(child->sums.total, child->sums.bounds);
      child->id = add_node(parent.id, child->sums, rule);
    }
    record_split(parent, left.id, rule);
    children.push_back(std::move(left));
    children.push_back(std::move(right));
  }
  return children;
}

/// Which codes of the split's column go left.
inline row_split tree_grower::row_split_of(const open_node& node) const {
  const auto column = static_cast<std::size_t>(node.split.column);
  const column_cuts& cuts = cuts_[column];
  row_split made{node.rows, column,
                 std::vector<std::uint8_t>(static_cast<std::size_t>(cuts.codes()))};
  const auto values = static_cast<std::size_t>(cuts.value_bins());
  for (std::size_t code = 0; code < values; ++code) {
    const bool left = node.split.kind == split_kind::below
                          ? code < static_cast<std::size_t>(node.split.position)
                          : !is_listed(node.right_categories, code);
    made.goes_left[code] = left ? 1 : 0;
  }
  if (cuts.has_missing) made.goes_left[values] = node.split.missing == missing_side::left ? 1 : 0;
  return made;
}

/// Of the children that may be split, which are left in `children`; the others become leaves.
inline void tree_grower::make_histograms(std::vector<open_node>& parents,
                                         std::vector<open_node>& children,
                                         const fixed_gradients& gradients) {
  std::vector<open_node> searched;
  std::vector<std::span<const std::uint32_t>> rows;
  std::vector<std::size_t> pairs;  // of parents
  const auto smaller_of = [](std::span<const open_node> pair) {
    return pair[0].sums.total.h <= pair[1].sums.total.h ? std::size_t{0} : std::size_t{1};
  };
  for (std::size_t pair = 0; pair < parents.size(); ++pair) {
    const auto two = std::span(children).subspan(2 * pair, 2);
    if (!may_have_children(two[0])) {
      for (const open_node& child : two) close(child);
      continue;
    }
    rows.push_back(lists_.rows_of(two[smaller_of(two)].rows));
    pairs.push_back(pair);
    for (open_node& child : two) searched.push_back(std::move(child));
  }
  children = std::move(searched);
  if (pairs.empty()) return;
  std::vector<std::vector<sums>> smaller = exchange_.sum(gradients, rows);
  parallel_for(pairs.size(), 1, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      const auto two = std::span(children).subspan(2 * i, 2);
      const std::size_t small = smaller_of(two);
      std::vector<sums>& whole = parents[pairs[i]].histogram;
      for (std::size_t cell = 0; cell < whole.size(); ++cell) whole[cell] -= smaller[i][cell];
      two[1 - small].histogram = std::move(whole);
      two[small].histogram = std::move(smaller[i]);
    }
  });
}

/// Finds the best split of each node: of this rank's columns, then of all ranks'.
inline void tree_grower::search(std::vector<open_node>& nodes, const fixed_gradients& gradients,
                                const gain_rule& rule, const column_sampler& sampler) {
  if (nodes.empty()) return;
  std::vector<search_task> tasks;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    for (const std::size_t column : sampler.of_node(nodes[node].depth, nodes[node].id)) {
      if (column < exchange_.first_column() || column >= exchange_.end_column()) continue;
      if (cuts_[column].empty) continue;
      tasks.push_back({node, column, exchange_.cells_of(nodes[node].histogram, column)});
    }
  }
  std::vector<node_sums> sums_of_node;
  for (const open_node& node : nodes) sums_of_node.push_back(node.sums);
  if (election_) {
    std::vector<std::span<const std::uint32_t>> rows;
    for (const open_node& node : nodes) rows.push_back(lists_.rows_of(node.rows));
    tasks = election_->hold(sums_of_node, tasks, most_of_sums(*group_, gradients, rows));
  }
  const auto found = best_splits(rule, *options_, cuts_, sums_of_node, tasks);
  std::vector<split_candidate> best(nodes.size());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    split_candidate& of_node = best[tasks[i].node];
    if (is_better(found[i], of_node)) of_node = found[i];
  }
  if (group_->size() > 1) {
    const auto better = [](const split_candidate& a, const split_candidate& b) {
      return is_better(b, a) ? b : a;
    };
    all_reduce(*group_, best, user_op(better, {.order = reduction_order::any}));
  }
  for (std::size_t node = 0; node < nodes.size(); ++node) nodes[node].split = best[node];
  share_categories(nodes, tasks, rule);
}

/// The rank that has the column knows which categories a split of several sends right, and tells
/// the others: a bit each.
inline void tree_grower::share_categories(std::vector<open_node>& nodes,
                                          std::span<const search_task> tasks,
                                          const gain_rule& rule) {
  std::vector<std::int64_t> words;
  bool is_sent = false;
  for (open_node& node : nodes) {
    if (!is_worth_it(node.split) || node.split.kind == split_kind::below) continue;
    const auto column = static_cast<std::size_t>(node.split.column);
    const auto categories = static_cast<std::size_t>(cuts_[column].categories);
    node.right_categories.assign((categories + 63) / 64, 0);
    const auto list = [&node](std::int32_t category) {
      const auto bit = static_cast<std::uint64_t>(1) << (category % 64);
      node.right_categories[static_cast<std::size_t>(category / 64)] |=
          static_cast<std::int64_t>(bit);
    };
    if (node.split.kind == split_kind::one) {
      list(node.split.position);
      continue;
    }
    is_sent = true;
    const auto index = static_cast<std::size_t>(&node - nodes.data());
    if (const search_task* const mine = find_task(tasks, index, column)) {
      const auto sorted = search_of(rule, *options_, cuts_, node.sums, *mine).sorted_categories();
      for (std::int32_t i = 0; i < node.split.position; ++i)
        list(sorted[static_cast<std::size_t>(i)]);
    }
    words.insert(words.end(), node.right_categories.begin(), node.right_categories.end());
  }
  if (!is_sent || group_->size() == 1) return;
  all_reduce(*group_, words, {.op = reduce_op::bor});
  auto next = words.begin();
  for (open_node& node : nodes) {
    if (!is_worth_it(node.split) || node.split.kind != split_kind::several) continue;
    const auto count = static_cast<std::ptrdiff_t>(node.right_categories.size());
    std::copy(next, next + count, node.right_categories.begin());
    next += count;
  }
}

/// As a leaf, which it is until it is split.
inline std::int32_t tree_grower::add_node(std::int32_t parent, const node_sums& sums,
                                          const gain_rule& rule) {
  const float value =
      rule.weight(sums.total, sums.bounds) * static_cast<float>(options_->learning_rate);
  visit_fields(made_, [](std::string_view name, auto& field) {
    if (!name.starts_with("categories")) field.emplace_back();
  });
  made_.left_children.back() = made_.right_children.back() = -1;
  made_.parents.back() = parent;
  made_.split_conditions.back() = made_.base_weights.back() = value;
  made_.sum_hessian.back() = static_cast<float>(rule.hessian(sums.total));
  categories_.emplace_back();
  return static_cast<std::int32_t>(made_.parents.size()) - 1;
}

inline void tree_grower::record_split(const open_node& node, std::int32_t left,
                                      const gain_rule& rule) {
  const auto at = static_cast<std::size_t>(node.id);
  const split_candidate& split = node.split;
  made_.left_children[at] = left;
  made_.right_children[at] = left + 1;
  made_.split_indices[at] = split.column;
  made_.default_left[at] = split.missing == missing_side::left ? 1 : 0;
  made_.base_weights[at] = rule.weight(node.sums.total, node.sums.bounds);
  made_.loss_changes[at] = split.gain;
  const column_cuts& cuts = cuts_[static_cast<std::size_t>(split.column)];
  if (split.kind == split_kind::below) {
    made_.split_conditions[at] = threshold_of(cuts, static_cast<std::size_t>(split.position));
    return;
  }
  made_.split_type[at] = 1;
  made_.split_conditions[at] = std::numeric_limits<float>::quiet_NaN();
  for (std::int32_t category = 0; category < cuts.categories; ++category) {
    if (is_listed(node.right_categories, static_cast<std::size_t>(category))) {
      categories_[at].push_back(category);
    }
  }
}

/// The lists of the nodes that have one, one after the other, as the tree keeps them.
inline void tree_grower::finish_categories() {
  for (std::size_t node = 0; node < categories_.size(); ++node) {
    if (categories_[node].empty()) continue;
    made_.categories_nodes.push_back(static_cast<std::int32_t>(node));
    made_.categories_segments.push_back(static_cast<std::int64_t>(made_.categories.size()));
    made_.categories_sizes.push_back(static_cast<std::int64_t>(categories_[node].size()));
    made_.categories.insert(made_.categories.end(), categories_[node].begin(),
                            categories_[node].end());
  }
}

}  // namespace parx::trees
