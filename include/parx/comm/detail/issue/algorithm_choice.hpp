// algorithm_choice: the rules, costs and hosts by which a group chooses algorithms. Equal on all
// its ranks.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <parx/comm/options.hpp>
#include <parx/comm/schedule/rules.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

class algorithm_choice {
 public:
  explicit algorithm_choice(const choice_options& given)
      : rules_(given.rules), costs_(given.costs) {}

  [[nodiscard]] bool ready() const noexcept { return found_hosts_ && costs_.has_value(); }

  /// Finds the ranks' hosts. If there is only one, the costs are then known without measuring.
  void find_hosts(links& network) {
    if (found_hosts_) return;
    hosts_ = network.hosts();
    found_hosts_ = true;
    shares_memory_ = network.shares_memory();
    if (!costs_ && first_on_another_host() < 0) {
      costs_ = shares_memory_ ? memory_costs : loopback_costs;
    }
  }
  /// The lowest rank that is not on rank 0's host; -1 if all ranks are.
  [[nodiscard]] int first_on_another_host() const noexcept {
    const auto found =
        std::find_if(hosts_.begin(), hosts_.end(), [](int host) { return host != 0; });
    return found == hosts_.end() ? -1 : static_cast<int>(found - hosts_.begin());
  }
  void set_costs(const link_costs& measured) { costs_ = measured; }

  [[nodiscard]] bool shares_memory() const noexcept { return shares_memory_; }
  /// Bytes of a slice in a staged algorithm; 0 if the ranks do not share memory.
  [[nodiscard]] std::size_t staging_bytes() const noexcept {
    return shares_memory_ ? slice_bytes(static_cast<int>(hosts_.size())) : 0;
  }
  [[nodiscard]] std::span<const int> hosts() const noexcept { return hosts_; }
  [[nodiscard]] const link_costs& costs() const { return costs_.value(); }
  [[nodiscard]] const std::vector<algorithm_rule>& rules() const noexcept {
    static const std::vector<algorithm_rule> none;
    return rules_ != nullptr ? *rules_ : none;
  }

  /// The options of a group made of some of these ranks. Measured costs are passed on only if its
  /// ranks are on several hosts.
  [[nodiscard]] choice_options for_subgroup(std::span<const int> members) const {
    const bool spans = found_hosts_ && std::any_of(members.begin(), members.end(), [&](int rank) {
                         return host_of(rank) != host_of(members.front());
                       });
    const bool measured = first_on_another_host() >= 0;
    return {.rules = rules_, .costs = measured && !spans ? std::nullopt : costs_};
  }

 private:
  [[nodiscard]] int host_of(int rank) const noexcept {
    return hosts_[static_cast<std::size_t>(rank)];
  }

  std::shared_ptr<const std::vector<algorithm_rule>> rules_;
  std::optional<link_costs> costs_;
  std::vector<int> hosts_;
  bool found_hosts_ = false;
  bool shares_memory_ = false;
};

}  // namespace parx::detail
