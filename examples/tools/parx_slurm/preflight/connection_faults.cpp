#include "tools/parx_slurm/preflight/connection_faults.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace parx::inline PARX_ABI::slurm {

std::vector<connection_fault> connection_faults(const std::vector<std::string>& order,
                                                const std::vector<tried_connection>& tried) {
  const auto in = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::vector<tried_connection> failed;
  for (const tried_connection& each : tried) {
    const auto is_same = [&](const auto& one) {
      return one.from == each.from && one.to == each.to;
    };
    if (each.problem.empty() || std::any_of(failed.begin(), failed.end(), is_same)) continue;
    failed.push_back(each);
  }
  const auto reaches_another = [&](const tried_connection& bad) {
    return std::any_of(tried.begin(), tried.end(), [&](const tried_connection& each) {
      return each.problem.empty() && each.from == bad.from && each.to != bad.to;
    });
  };
  const auto is_reached_by_another = [&](const tried_connection& bad) {
    return std::any_of(tried.begin(), tried.end(), [&](const tried_connection& each) {
      return each.problem.empty() && each.to == bad.to && each.from != bad.from;
    });
  };
  std::vector<std::string> at_fault;
  const auto blame = [&](const std::string& node) {
    if (!in(at_fault, node)) at_fault.push_back(node);
  };
  for (const tried_connection& each : failed) {
    const bool connects = reaches_another(each);
    if (connects != is_reached_by_another(each)) blame(connects ? each.to : each.from);
  }
  const auto unexplained = [&] {
    std::vector<tried_connection> rest;
    for (const tried_connection& each : failed) {
      if (!in(at_fault, each.from) && !in(at_fault, each.to)) rest.push_back(each);
    }
    return rest;
  };
  for (;;) {
    const auto rest = unexplained();
    std::string worst;
    std::size_t most = 1;
    for (const std::string& node : order) {
      std::vector<std::string> others;
      for (const tried_connection& each : rest) {
        if (each.from != node && each.to != node) continue;
        const std::string& other = each.from == node ? each.to : each.from;
        if (!in(others, other)) others.push_back(other);
      }
      if (others.size() <= most) continue;
      most = others.size();
      worst = node;
    }
    if (worst.empty()) break;
    blame(worst);
  }
  std::vector<connection_fault> found;
  for (const std::string& node : order) {
    if (!in(at_fault, node)) continue;
    connection_fault fault{.node = node, .other = {}, .failed = {}};
    // Those with innocent nodes tell more.
    for (const bool with_innocent : {true, false}) {
      for (const tried_connection& each : failed) {
        if (each.from != node && each.to != node) continue;
        const std::string& other = each.from == node ? each.to : each.from;
        if (with_innocent != in(at_fault, other)) fault.failed.push_back(each);
      }
      if (!fault.failed.empty()) break;
    }
    found.push_back(std::move(fault));
  }
  for (const tried_connection& each : unexplained()) {
    const auto is_same_pair = [&](const connection_fault& one) {
      return !one.other.empty() && (one.node == each.from || one.node == each.to) &&
             (one.other == each.from || one.other == each.to);
    };
    if (std::any_of(found.begin(), found.end(), is_same_pair)) continue;
    const bool forward = std::find(order.begin(), order.end(), each.from) <
                         std::find(order.begin(), order.end(), each.to);
    found.push_back({forward ? each.to : each.from, forward ? each.from : each.to, {each}});
  }
  return found;
}

}  // namespace parx::slurm
