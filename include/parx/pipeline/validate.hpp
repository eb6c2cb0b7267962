// validate: proves that a pipeline table trains a model, before the first action runs.
//
// The rules, by the names that errors use:
//   place     every stage is on exactly one rank, every rank has a stage, and every action's stage
//             and micro-batch exist
//   once      each micro-batch runs in each stage one F, and one B or one I and W
//   order     on the rank of a stage: F before B or I, I before W
//   whole     one REDUCE_GRAD, after the last B or W of its stage; UNSHARD and RESHARD alternate
//   deadlock  all ranks finish, with at most proof.link_messages messages on a link
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/pipeline/action.hpp>
#include <parx/pipeline/simulate.hpp>

namespace parx::inline PARX_ABI {

/// Properties of a valid table.
struct pipeline_proof {
  std::vector<int> in_flight;  ///< by rank: most micro-batches after their F but before B or I
  std::vector<int> kept;       ///< by rank: most after their F but before B or W; they take memory
  /// The number of messages that a link between two ranks must be able to hold in each direction,
  /// until the receiver uses them.
  int link_messages = 1;
};

namespace detail {

class table_check {
 public:
  explicit table_check(const pipeline_table& table) : table_(table) {
    require(table.stages > 0 && table.microbatches > 0 && !table.ranks.empty(),
            "schedule {}: {} stages, {} micro-batches, {} ranks: at least 1 of each", table.name,
            table.stages, table.microbatches, table.ranks.size());
    std::size_t actions = 0;
    for (std::size_t rank = 0; rank < table.ranks.size(); ++rank) {
      require(!table.ranks[rank].empty(), "schedule {}: rank {} has no action (rule: place)",
              table.name, rank);
      actions += table.ranks[rank].size();
    }
    // Checked before allocating: a damaged file may claim any size.
    const std::size_t cells =
        static_cast<std::size_t>(table.stages) * static_cast<std::size_t>(table.microbatches);
    require(cells <= actions,
            "schedule {}: {} stages with {} micro-batches have at least {} forwards, and there are "
            "{} actions (rule: once)",
            table.name, table.stages, table.microbatches, cells, actions);
    owner_ = table.owners();
    for (auto& each : done_) each.resize(cells, false);
    stages_.resize(static_cast<std::size_t>(table.stages));
  }

  [[nodiscard]] pipeline_proof run() {
    pipeline_proof proof;
    for (rank_ = 0; rank_ < table_.ranks.size(); ++rank_) {
      int open = 0, kept = 0, most_open = 0, most_kept = 0;
      const auto& actions = table_.ranks[rank_];
      for (at_ = 0; at_ < actions.size(); ++at_) {
        take(actions[at_]);
        const stage_work kind = actions[at_].kind;
        open += kind == stage_work::forward ? 1 : 0;
        kept += kind == stage_work::forward ? 1 : 0;
        most_open = std::max(most_open, open);
        most_kept = std::max(most_kept, kept);
        open -= makes_input_gradient(kind) ? 1 : 0;
        kept -= makes_weight_gradient(kind) ? 1 : 0;
      }
      proof.in_flight.push_back(most_open);
      proof.kept.push_back(most_kept);
    }
    for (int stage = 0; stage < table_.stages; ++stage) expect_all_of(stage);
    return proof;
  }

 private:
  struct stage_state {
    bool reduced = false, sharded = false, gathered = false;
  };

  template <typename... Args>
  void rule(bool kept, std::string_view name, counted_text<sizeof...(Args)> why,
            const Args&... args) const {
    if (kept) return;
    throw_usage("schedule {}: rank {}, action {}, {}: {} (rule: {})", table_.name, rank_, at_,
                to_string(table_.ranks[rank_][at_]), formatted(why, args...),
                name);
  }
  [[nodiscard]] auto mark(stage_work kind, const stage_action& a) {
    return done_[static_cast<std::size_t>(kind)].begin() + a.stage * table_.microbatches +
           a.microbatch;
  }
  [[nodiscard]] bool has(stage_work kind, const stage_action& a) { return *mark(kind, a); }

  void take(const stage_action& a) {
    rule(a.stage >= 0 && a.stage < table_.stages, "place", "there are {} stages", table_.stages);
    const int owner = owner_[static_cast<std::size_t>(a.stage)];
    rule(owner == static_cast<int>(rank_), "place", "stage {} is on rank {} too", a.stage, owner);
    stage_state& stage = stages_[static_cast<std::size_t>(a.stage)];
    if (!is_compute(a.kind)) return take_whole(a, stage);
    rule(a.microbatch >= 0 && a.microbatch < table_.microbatches, "place",
         "there are {} micro-batches", table_.microbatches);
    rule(!has(a.kind, a), "once", "the table has it twice");
    rule(a.kind == stage_work::forward || has(stage_work::forward, a), "order",
         "its forward has to run before");
    switch (a.kind) {
      case stage_work::backward:
        rule(!has(stage_work::backward_inputs, a), "once", "the table has its backward in halves");
        break;
      case stage_work::backward_inputs:
        rule(!has(stage_work::backward, a), "once", "the table has its whole backward");
        break;
      case stage_work::backward_weights:
        rule(has(stage_work::backward_inputs, a), "order", "its I has to run before");
        break;
      default: break;
    }
    rule(!stage.sharded || stage.gathered, "whole", "its stage is resharded");
    rule(!stage.reduced || a.kind == stage_work::forward, "whole",
         "its stage's REDUCE_GRAD comes before");
    *mark(a.kind, a) = true;
  }

  void take_whole(const stage_action& a, stage_state& stage) const {
    switch (a.kind) {
      case stage_work::unshard:
        rule(!stage.gathered, "whole", "its stage is unsharded already");
        stage.sharded = stage.gathered = true;
        break;
      case stage_work::reshard:
        rule(stage.gathered, "whole", "its stage is not unsharded");
        stage.gathered = false;
        break;
      default:
        rule(!stage.reduced, "once", "the table has it twice");
        stage.reduced = true;
    }
  }

  void expect_all_of(int stage) {
    for (int i = 0; i < table_.microbatches; ++i) {
      const stage_action forward{stage_work::forward, stage, i};
      const bool backward = has(stage_work::backward, forward) ||
                            has(stage_work::backward_weights, forward);
      const char* const missing = !has(stage_work::forward, forward) ? "F"
                                  : backward                         ? nullptr
                                  : has(stage_work::backward_inputs, forward) ? "W"
                                                                              : "B";
      require(missing == nullptr, "schedule {}: {}{}{} is missing (rule: once)", table_.name, stage,
              missing == nullptr ? "" : missing, i);
    }
  }

  const pipeline_table& table_;
  std::vector<int> owner_;
  std::vector<bool> done_[4];
  std::vector<stage_state> stages_;
  std::size_t rank_ = 0, at_ = 0;
};

}  // namespace detail

/// Throws usage_error that names the rule, the rank and the action.
inline pipeline_proof validate(const pipeline_table& table) {
  pipeline_proof proof = detail::table_check(table).run();
  static_cast<void>(simulate(table));
  const auto runs_with = [&](int messages) {
    detail::virtual_pipeline clock(table, {}, messages);
    static_cast<void>(clock.run());
    return clock.has_ended();
  };
  while (!runs_with(proof.link_messages)) ++proof.link_messages;
  return proof;
}

/// Whether a table can train virtual replicas (reduction/replica_tree.hpp), which its micro-batches
/// then are: their gradients are added up as they come. Throws usage_error unless each stage makes
/// the gradients of its parameters in the order of the micro-batches, and its sums begin with the
/// last of them.
inline void require_replica_order(const pipeline_table& table) {
  std::vector<int> last(static_cast<std::size_t>(table.stages), -1);
  for (const auto& actions : table.ranks) {
    for (const stage_action& a : actions) {
      require(a.kind != stage_work::reduce_gradients,
              "schedule {}: remove {}: with virtual replicas sums begin behind a stage's last "
              "backward",
              table.name, to_string(a));
      if (!makes_weight_gradient(a.kind)) continue;
      int& before = last[static_cast<std::size_t>(a.stage)];
      require(before < a.microbatch,
              "schedule {}: {} comes after micro-batch {}: gradients of virtual replicas are added "
              "up in their order",
              table.name, to_string(a), before);
      before = a.microbatch;
    }
  }
}

}  // namespace parx
