#include "tools/parx_slurm/preflight/preflight_network.hpp"

#include <algorithm>
#include <utility>

#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::slurm::detail {

namespace {

/// The connections of nodes that took part to the end or could not reach the first one.
std::vector<tried_connection> connections_of(const host_facts& first,
                                             const std::vector<const host_facts*>& nodes) {
  std::vector<tried_connection> tried;
  for (const host_facts* each : nodes) {
    if (each == &first) continue;
    tried.push_back({each->node, first.node, each->to_first_problem});
    if (each->exchanged) tried.push_back({first.node, each->node, each->from_first_problem});
  }
  for (const host_facts* each : nodes) {
    const bool next_counts = std::any_of(nodes.begin(), nodes.end(), [&](const host_facts* other) {
      return other->node == each->next;
    });
    if (each->exchanged && next_counts) {
      tried.push_back({each->node, each->next, each->to_next_problem});
    }
  }
  return tried;
}

}  // namespace

std::vector<std::string> facts_of(const connection_fault& fault, const std::string& first) {
  if (!fault.other.empty()) {
    const tried_connection& one = fault.failed.front();
    return {formatted("{} cannot connect to {}: {}", one.from, one.to, one.problem)};
  }
  std::vector<std::string> facts;
  for (const bool outwards : {true, false}) {
    std::vector<const tried_connection*> all;
    for (const tried_connection& each : fault.failed) {
      if ((each.from == fault.node) == outwards) all.push_back(&each);
    }
    if (all.empty()) continue;
    const std::string& problem = all.front()->problem;
    std::string peer = outwards ? all.front()->to : all.front()->from;
    const bool is_first = peer == first;
    if (is_first) peer = "the first node, " + peer;
    if (all.size() > 1) peer += formatted(" and {} more", all.size() - 1);
    else if (is_first && !outwards) peer += ",";
    facts.push_back(outwards ? formatted("it cannot connect to {}: {}", peer, problem)
                             : formatted("{} cannot connect to it: {}", peer, problem));
  }
  return facts;
}

void check_network(const std::vector<const host_facts*>& nodes, bool any_is_silent,
                   std::vector<finding>& found) {
  const auto fault = [&](const std::string& node, std::string fact, std::string_view remedy) {
    found.push_back({node, std::move(fact), std::string(remedy)});
  };
  const host_facts& first = *nodes.front();
  if (!first.to_first_problem.empty()) {
    return fault(first.node,
                 formatted("the others have nobody to meet: {}", first.to_first_problem),
                 "Try again: the next check takes another port");
  }
  if (!first.exchanged) {
    // A node that has gone may have ended the step on all nodes.
    if (!any_is_silent) {
      fault(first.node, "it fell silent while the other nodes met there", try_without);
    }
    return;
  }
  std::vector<std::string> order;
  std::vector<const host_facts*> there;
  for (const host_facts* each : nodes) {
    if (each->exchanged || !each->to_first_problem.empty()) {
      there.push_back(each);
      order.push_back(each->node);
    } else {
      fault(each->node, "it did not answer the first node in time", try_without);
    }
  }
  for (const connection_fault& each : connection_faults(order, connections_of(first, there))) {
    for (std::string& fact : facts_of(each, first.node)) {
      fault(each.node, std::move(fact),
            "A firewall, or another network: PARX_SOCKET_IFNAME chooses the interface, MASTER_PORT "
            "the port");
      found.back().other = each.other;
    }
  }
  for (const host_facts* each : there) {
    if (each->exchanged) add_clock(each->node, each->clock_ahead_s, first.node, found);
  }
}

}  // namespace parx::slurm::detail
