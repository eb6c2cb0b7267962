// generation_ranks: the ranks of one generation, as the coordinator numbers them, and their store.
// Where ranks go on after losses, it knows who has ended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tools/parxrun/nodes/generation.hpp"
#include "tools/parxrun/nodes/kept_store.hpp"

namespace parx::inline PARX_ABI::detail {

class generation_ranks {
 public:
  /// `members` are the agents in the order of their ranks, and how many each has; without `options`
  /// rank 0 keeps the store. Throws errc::io.
  generation_ranks(std::optional<kept_store_options> options,
                   const std::vector<std::pair<agent_number, int>>& members) {
    if (options) store_.emplace(std::move(*options));
    for (const auto& [agent, count] : members) {
      std::vector<int>& ranks = of_[agent];
      for (int i = 0; i < count; ++i) ranks.push_back(world_size_++);
    }
  }

  [[nodiscard]] int world_size() const noexcept { return world_size_; }
  /// Of a member.
  [[nodiscard]] int first_rank(agent_number agent) const { return of_.at(agent).front(); }
  [[nodiscard]] std::uint16_t store_port() const noexcept { return store_ ? store_->port() : 0; }

  /// `rank` has ended, as `how` says. True if those that went on after the last loss have all
  /// ended: a rank that hung or was stopped while they went on without it can only be ended.
  [[nodiscard]] bool leaves_none(int rank, const std::string& how) {
    ended_.insert(rank);
    const auto members = store_->members_after(rank, how);
    return members && std::all_of(members->begin(), members->end(),
                                  [&](int each) { return ended_.contains(each); });
  }
  /// A member is lost, and its ranks have certainly ended. True as above.
  [[nodiscard]] bool lose(agent_number agent, const std::string& why) {
    const auto found = of_.find(agent);
    if (found == of_.end()) return false;
    bool none = false;
    for (const int rank : found->second) none = leaves_none(rank, why);
    store_->tell_lost(found->second, why);
    return none;
  }

 private:
  std::optional<kept_store> store_;
  std::map<agent_number, std::vector<int>> of_;
  int world_size_ = 0;
  std::set<int> ended_;
};

}  // namespace parx::detail
