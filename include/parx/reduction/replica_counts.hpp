// replica_counts: the samples of each virtual replica of a step, and their sum along
// replica_tree.hpp's tree: its bits do not depend on the number of ranks either.
//
//   add(), after each replica of this rank but the last; send() -> receive(), for the last one
//
// Threads: the one that runs backward.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/comm/work.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/reduction/replica_tree.hpp>

namespace parx::inline PARX_ABI {

class replica_counts {
 public:
  /// Plan and group are borrowed. Errors begin with `who`.
  replica_counts(const replica_plan& plan, process_group& group, std::string who, call_site site)
      : plan_(&plan), group_(&group), who_(std::move(who)), site_(site) {}

  /// Whether the running step has no replica of this rank yet.
  [[nodiscard]] bool empty() const noexcept { return own_.empty(); }
  void add(double count) { own_.push_back(count); }
  /// Collective, asynchronous. Throws usage_error unless it is the last replica of this rank.
  void send(double last) {
    add(last);
    const replica_range mine = plan_->own();
    require(static_cast<int>(own_.size()) == mine.size(),
            "{}: {} backward passes have run in this step, but {} of the {} replicas are this "
            "rank's: one pass each, all but the last under no_sync()",
            who_, own_.size(), mine.size(), plan_->replicas());
    all_.assign(static_cast<std::size_t>(plan_->replicas()), 0.0);
    std::copy(own_.begin(), own_.end(), all_.begin() + mine.first);
    own_.clear();
    // Each count at its place: exact, since the other ranks contribute zeros.
    sum_ = async_all_reduce(*group_, all_, {}, site_);
  }
  /// Blocks until all counts are there. Returns their sum, until the next send().
  [[nodiscard]] double receive() {
    sum_.wait();
    return tree_sum(all_);
  }
  /// Forgets the replicas of the running step.
  void drop() noexcept { own_.clear(); }

 private:
  const replica_plan* plan_;
  process_group* group_;
  std::string who_;
  call_site site_;
  std::vector<double> own_;  ///< of the running step
  std::vector<double> all_;  ///< by replica
  work sum_;                 // destroyed, and so waited for, before the memory it writes
};

}  // namespace parx
