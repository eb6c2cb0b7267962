// pipeline_tables: the actions of a step and of an evaluation, by the number of micro-batches.
//
// The schedule makes the table of pipeline_options::microbatches. A smaller batch runs the first
// micro-batches of that table: no schedule has to support every number of them. Tables are proven
// once and kept.
// Threads: one.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/pipeline/action.hpp>
#include <parx/pipeline/options.hpp>
#include <parx/pipeline/validate.hpp>

namespace parx::inline PARX_ABI {

class pipeline_tables {
 public:
  struct both {
    pipeline_table table;
    pipeline_table forwards;  ///< the same without backwards, for evaluate()
  };

  /// Both are borrowed.
  pipeline_tables(const pipeline_options& options, const process_group& group)
      : options_(options), group_(group) {}

  /// The reference stays valid. Throws usage_error for a number that the schedule does not support,
  /// and for an invalid table.
  [[nodiscard]] const both& of(int microbatches) {
    const auto found = by_number_.find(microbatches);
    if (found != by_number_.end()) return found->second;
    require(microbatches > 0, "a step has at least one micro-batch");
    both made;
    if (microbatches < options_.microbatches) {
      made.table = first_microbatches(of(options_.microbatches).table, microbatches);
    } else {
      made.table = whole(microbatches);
    }
    static_cast<void>(validate(made.table));
    // Forwards only depend on forwards, so the table stays valid without the other actions.
    made.forwards = made.table;
    for (auto& actions : made.forwards.ranks) {
      std::erase_if(actions, [](const auto& a) { return a.kind != stage_work::forward; });
    }
    return by_number_.emplace(microbatches, std::move(made)).first->second;
  }

 private:
  [[nodiscard]] pipeline_table whole(int microbatches) const {
    pipeline_table made;
    if (options_.table) {
      require(options_.table->microbatches == microbatches,
              "schedule {} is a table for {} micro-batches, not for {}", options_.table->name,
              options_.table->microbatches, microbatches);
      made = *options_.table;
    } else {
      made = options_.schedule({.ranks = group_.size(), .microbatches = microbatches,
                                .chunks = options_.chunks, .hop = options_.hop});
    }
    require(static_cast<int>(made.ranks.size()) == group_.size(),
            "schedule {} is for {} ranks, and group \"{}\" has {}", made.name, made.ranks.size(),
            group_.name(), group_.size());
    for (const stage_action& a : made.ranks[static_cast<std::size_t>(group_.rank())]) {
      require(a.kind != stage_work::unshard && a.kind != stage_work::reshard,
              "schedule {}: remove {}: stages gather their values by themselves when they are used",
              made.name, to_string(a));
    }
    return made;
  }

  const pipeline_options& options_;
  const process_group& group_;
  std::map<int, both> by_number_;
};

}  // namespace parx
