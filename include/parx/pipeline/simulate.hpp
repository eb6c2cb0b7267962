// simulate: a pipeline table under a virtual clock.
//
// Each rank runs its actions in order. F(s, i) needs F(s-1, i), B and I of (s, i) need F(s, i) and
// B or I of (s+1, i), W(s, i) needs I(s, i). A message arrives `hop` after its result was computed;
// links have unlimited bandwidth. A link holds, in each direction, up to `link_messages` messages
// that the receiver has not begun to use; the sender of one more waits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <parx/core/formatted.hpp>
#include <parx/pipeline/action.hpp>

namespace parx::inline PARX_ABI {

/// The times of one action of a stage, in any unit.
struct pipeline_costs {
  double f = 1;    ///< forward
  double b = 2;    ///< whole backward
  double i = 1;    ///< the half of backward for inputs
  double w = 1;    ///< the half of backward for weights
  double hop = 0;  ///< a message from stage to stage

  [[nodiscard]] constexpr double of(stage_work kind) const noexcept {
    switch (kind) {
      case stage_work::forward: return f;
      case stage_work::backward: return b;
      case stage_work::backward_inputs: return i;
      case stage_work::backward_weights: return w;
      default: return 0;  // reductions and gathers run in the background
    }
  }

  /// Divides costs of all stages of a rank by the number of its stages in `table`.
  [[nodiscard]] pipeline_costs per_stage(const pipeline_table& table) const noexcept {
    const double part = static_cast<double>(table.ranks.size()) / table.stages;
    return {f * part, b * part, i * part, w * part, hop};
  }
};

/// When an action runs, in the unit of the costs.
struct action_span {
  stage_action action;
  double begin = 0;
  double end = 0;
};

/// When each action of a schedule runs.
struct pipeline_timeline {
  std::string name;
  int stages = 0;
  std::vector<std::vector<action_span>> ranks;  ///< by rank, in order

  [[nodiscard]] double makespan() const {
    double last = 0;
    for (const auto& each : ranks) {
      for (const action_span& span : each) last = std::max(last, span.end);
    }
    return last;
  }
  /// The fraction of the makespan in which a rank is idle, on average.
  [[nodiscard]] double bubble() const {
    double busy = 0;
    for (const auto& each : ranks) {
      for (const action_span& span : each) busy += span.end - span.begin;
    }
    const double whole = makespan() * static_cast<double>(ranks.size());
    return whole > 0 ? 1 - busy / whole : 0;
  }
};

/// Any number of messages may be under way between two stages.
inline constexpr int unbounded_messages = std::numeric_limits<int>::max();

namespace detail {

class virtual_pipeline {
 public:
  virtual_pipeline(const pipeline_table& table, const pipeline_costs& costs, int link_messages)
      : table_(table), costs_(costs), capacity_(link_messages), owner_(table.owners()) {
    const auto cells = static_cast<std::size_t>(table.stages * table.microbatches);
    forwards_.resize(cells, never);
    inputs_.resize(cells, never);
    ranks_.resize(table.ranks.size());
    links_.resize(2 * ranks_.size() * ranks_.size());
  }

  [[nodiscard]] pipeline_timeline run() {
    pipeline_timeline found{.name = table_.name, .stages = table_.stages, .ranks = {}};
    found.ranks.resize(ranks_.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        while (advance(r, found.ranks[r])) moved = true;
      }
    }
    return found;
  }
  /// After run().
  [[nodiscard]] bool has_ended() const {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].next < table_.ranks[r].size()) return false;
    }
    return true;
  }
  [[noreturn]] void throw_deadlock() const {
    std::string waits;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].next == table_.ranks[r].size()) continue;
      waits += formatted("{}rank {} {} {}", waits.empty() ? "" : ", ", r,
                         ranks_[r].sends ? "cannot send the result of" : "waits to run",
                         to_string(table_.ranks[r][ranks_[r].next]));
    }
    throw_usage("schedule {}: deadlock{}: {} (rule: deadlock)", table_.name,
                capacity_ == unbounded_messages
                    ? std::string()
                    : formatted(" with {} messages on a link", capacity_),
                waits);
  }

 private:
  static constexpr double never = -1;
  struct link {
    std::size_t sent = 0;
    std::vector<double> begun;  // when the receiver began to use each message
  };
  struct rank_state {
    std::size_t next = 0;
    double free = 0;     // when the rank can start its next action
    bool sends = false;  // the action is computed, but its message waits for room on the link
  };

  [[nodiscard]] std::size_t cell(int stage, int microbatch) const noexcept {
    return static_cast<std::size_t>(stage * table_.microbatches + microbatch);
  }
  [[nodiscard]] bool apart(int a, int b) const {
    return owner_[static_cast<std::size_t>(a)] != owner_[static_cast<std::size_t>(b)];
  }
  /// The stages that the action receives from (source) and sends to (target); -1 for none.
  [[nodiscard]] int source(const stage_action& a) const noexcept {
    if (a.kind == stage_work::forward) return a.stage - 1;
    return makes_input_gradient(a.kind) && a.stage + 1 < table_.stages ? a.stage + 1 : -1;
  }
  [[nodiscard]] int target(const stage_action& a) const noexcept {
    if (makes_input_gradient(a.kind)) return a.stage - 1;
    return a.kind == stage_work::forward && a.stage + 1 < table_.stages ? a.stage + 1 : -1;
  }
  /// The link of a message from stage `from` to stage `to`: one for each pair of ranks and
  /// direction.
  [[nodiscard]] link& link_of(int from, int to) {
    const auto a = static_cast<std::size_t>(owner_[static_cast<std::size_t>(from)]);
    const auto b = static_cast<std::size_t>(owner_[static_cast<std::size_t>(to)]);
    return links_[((to > from ? ranks_.size() : 0) + a) * ranks_.size() + b];
  }

  /// When all that the action needs has arrived; `never` if that is not known yet.
  [[nodiscard]] double ready(const stage_action& a) const {
    if (!is_compute(a.kind)) return 0;
    double at = 0;
    if (const int from = source(a); from >= 0) {
      const auto& made = a.kind == stage_work::forward ? forwards_ : inputs_;
      at = made[cell(from, a.microbatch)];
      if (at == never) return never;
      if (apart(from, a.stage)) at += costs_.hop;
    }
    if (a.kind == stage_work::forward) return at;
    const auto& before = a.kind == stage_work::backward_weights ? inputs_ : forwards_;
    const double own = before[cell(a.stage, a.microbatch)];
    return own == never ? never : std::max(at, own);
  }

  bool advance(std::size_t r, std::vector<action_span>& spans) {
    rank_state& rank = ranks_[r];
    if (rank.next == table_.ranks[r].size()) return false;
    const stage_action& a = table_.ranks[r][rank.next];
    if (!rank.sends) {
      const double at = ready(a);
      if (at == never) return false;
      const double begin = std::max(at, rank.free);
      rank.free = begin + costs_.of(a.kind);
      spans.push_back({a, begin, rank.free});
      if (const int from = source(a); from >= 0 && apart(from, a.stage)) {
        link_of(from, a.stage).begun.push_back(begin);
      }
      rank.sends = true;
    }
    const int to = target(a);
    if (to >= 0 && apart(a.stage, to)) {
      link& used = link_of(a.stage, to);
      if (used.sent >= used.begun.size() + static_cast<std::size_t>(capacity_)) return false;
      if (used.sent >= static_cast<std::size_t>(capacity_)) {
        const double room = used.begun[used.sent - static_cast<std::size_t>(capacity_)];
        rank.free = std::max(rank.free, room);
      }
      ++used.sent;
    }
    if (a.kind == stage_work::forward) forwards_[cell(a.stage, a.microbatch)] = rank.free;
    if (makes_input_gradient(a.kind)) inputs_[cell(a.stage, a.microbatch)] = rank.free;
    rank.sends = false;
    ++rank.next;
    return true;
  }

  const pipeline_table& table_;
  const pipeline_costs costs_;
  const int capacity_;
  const std::vector<int> owner_;
  std::vector<double> forwards_, inputs_;  // by cell: when F, and B or I, ended
  std::vector<rank_state> ranks_;
  std::vector<link> links_;
};

}  // namespace detail

/// `table` must be valid (validate.hpp), except that it may deadlock: then this throws usage_error
/// that says which rank waits where.
[[nodiscard]] inline pipeline_timeline simulate(const pipeline_table& table,
                                                const pipeline_costs& costs = {},
                                                int link_messages = unbounded_messages) {
  require(link_messages > 0, "a link holds at least 1 message, not {}", link_messages);
  detail::virtual_pipeline clock(table, costs, link_messages);
  pipeline_timeline found = clock.run();
  if (!clock.has_ended()) clock.throw_deadlock();
  return found;
}

}  // namespace parx
