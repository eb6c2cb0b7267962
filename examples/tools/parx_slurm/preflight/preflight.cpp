#include "tools/parx_slurm/preflight/preflight.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "tools/common/container.hpp"
#include "tools/parx_slurm/nodes/salloc.hpp"
#include "tools/parx_slurm/preflight/preflight_network.hpp"
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI::slurm {

namespace {

/// The value that most nodes have; the first of several that are as frequent.
[[nodiscard]] std::string most_frequent(const std::vector<std::string>& values) {
  std::map<std::string, std::size_t> counts;
  for (const std::string& each : values) ++counts[each];
  std::string best;
  for (const std::string& each : values) {
    if (best.empty() || counts[each] > counts[best]) best = each;
  }
  return best;
}

/// What stands between a node and a container on it.
void check_container(const host_facts& node, std::vector<finding>& found) {
  const auto fault = [&](std::string fact, std::string_view remedy) {
    found.push_back({node.node, std::move(fact), std::string(remedy), true});
  };
  if (!node.image_problem.empty()) {
    fault(formatted("the image {} cannot be read: {}", node.image, node.image_problem),
          "Put it where all nodes see it, or give it to --stage as well");
    return;
  }
  if (!node.container_problem.empty()) {
    fault(node.container_problem,
          "Load Apptainer's module in the job; apptainer exec IMAGE true on the node tries it");
    return;
  }
  for (const std::string& each : node.container_lacks) {
    fault(formatted("inside the image there is no {}", each),
          each == parxrun_of_image
              ? "Build the image from cmake/recipes/parx.def, or with parx-tools"
          : each == variables_of_job
              ? "Unset APPTAINER_CLEANENV: the ranks find each other by these"
              : "It must be in the image, or on a path that the site lets --bind show there");
  }
}

/// The faults of one node by itself.
void check_node(const host_facts& node, const host_needs& needs, std::vector<finding>& found) {
  const auto fault = [&](std::string fact, std::string remedy, bool fatal = true) {
    found.push_back({node.node, std::move(fact), std::move(remedy), fatal});
  };
  check_container(node, found);
  for (const path_fact& each : node.needs) {
    if (each.problem.empty()) continue;
    if (each.is_argument) {
      fault(
          formatted("{}, an argument of the program, cannot be read: {}", each.path, each.problem),
          "Where all ranks read it, let --stage copy it there", false);
    } else {
      const bool is_to_be_made =
          !needs.cache.empty() && (each.path + "/").starts_with(needs.cache + "/");
      fault(formatted("{} cannot be read: {}", each.path, each.problem),
            is_to_be_made
                ? "Make it, where all nodes see it, by parx_slurm prepare -- PROGRAM ARGUMENTS"
                : "Copy it there, or put it on a file system that all nodes see");
    }
  }
  for (const import_fact& each : node.imports) {
    if (each.problem.empty()) continue;
    fault(formatted("Python cannot import {}: {}", each.module, each.problem),
          "Install it where all nodes see it, and set PYTHONPATH in the job");
  }
  add_findings(node, needs, found);
  // A job that was asked for as long as it takes has begun some time ago.
  const std::int64_t begun_s = 60 + needs.time_s / 20;
  if (needs.time_s > 0 && node.time_left_s >= 0 && node.time_left_s + begun_s < needs.time_s) {
    fault(formatted("{} are left of the job, {} are needed",
                    to_time_limit(std::chrono::seconds(node.time_left_s)),
                    to_time_limit(std::chrono::seconds(needs.time_s))),
          "Ask for a longer --time");
  }
  const bool took_part = node.exchanged || needs.nodes == 1;
  if (took_part && !node.complete) {
    fault("what it was to try, imports or the container, had no end in time",
          "Is a file system slow there, or an interpreter stuck? Leave it out, or try again");
  }
}

/// A path that is empty on this node alone is often a mount point without its file system.
void check_empty(const host_facts& node, const std::vector<host_facts>& facts,
                 std::vector<finding>& found) {
  for (const path_fact& each : node.needs) {
    if (!each.problem.empty() || each.size != 0) continue;
    const auto has_more = [&](const path_fact& other) {
      return other.path == each.path && other.size != 0;
    };
    for (const host_facts& other : facts) {
      if (std::none_of(other.needs.begin(), other.needs.end(), has_more)) continue;
      found.push_back({node.node, formatted("{} is empty, but not on {}", each.path, other.node),
                       "Is its file system mounted there? If not, tell the site, and leave the "
                       "node out by --exclude",
                       false});
      break;
    }
  }
}

}  // namespace

std::string usual_hash(const std::vector<host_facts>& facts, std::string host_facts::*hash) {
  std::vector<std::string> hashes;
  for (const host_facts& each : facts) {
    if (!(each.*hash).empty()) hashes.push_back(each.*hash);
  }
  return most_frequent(hashes);
}

std::vector<finding> preflight(const std::vector<std::string>& expected,
                               const std::vector<host_facts>& facts, const host_needs& needs) {
  std::vector<finding> found;
  const auto facts_of = [&](const std::string& node) {
    const auto at = std::find_if(facts.begin(), facts.end(),
                                 [&](const host_facts& each) { return each.node == node; });
    return at == facts.end() ? nullptr : &*at;
  };
  const std::string usual = usual_hash(facts);
  const std::string usual_image = usual_hash(facts, &host_facts::image_hash);
  for (const std::string& name : expected) {
    const host_facts* const node = facts_of(name);
    if (node == nullptr) {
      found.push_back(
          {.node = name,
           .fact = "it did not answer",
           .remedy = "Leave it out, and tell the site: its slurmd is stopped or cut off",
           .is_silent = true});
      continue;
    }
    check_node(*node, needs, found);
    check_empty(*node, facts, found);
    const auto compare = [&](const std::string& path, const std::string& hash,
                             const std::string& of_most) {
      if (hash.empty() || hash == of_most) return;
      found.push_back(
          {name,
           formatted("its {} is another one than on most nodes ({} and {})", path, hash, of_most),
           "It is an old copy: copy it again"});
    };
    compare(node->program, node->program_hash, usual);
    compare(node->image, node->image_hash, usual_image);
  }
  std::vector<const host_facts*> nodes;
  for (const std::string& name : expected) {
    if (const host_facts* const node = facts_of(name)) nodes.push_back(node);
  }
  if (expected.size() > 1 && facts_of(expected.front()) != nullptr) {
    detail::check_network(nodes, nodes.size() < expected.size(), found);
  }
  return found;
}

std::string node_line(const host_facts& node, const std::vector<finding>& found) {
  const auto faults = std::count_if(found.begin(), found.end(), [&](const finding& each) {
    return each.fatal && (each.node == node.node || each.other == node.node);
  });
  std::string text = node.node + "  ";
  text += faults == 0 ? "ok" : formatted("{} fault{}", faults, faults == 1 ? "" : "s");
  if (!node.program_hash.empty()) text += "  program " + node.program_hash.substr(0, 8);
  if (!node.image_hash.empty()) text += "  image " + node.image_hash.substr(0, 8);
  std::size_t needed = 0, there = 0;
  for (const path_fact& each : node.needs) {
    needed += each.is_argument ? 0U : 1U;
    there += each.is_argument || !each.problem.empty() ? 0U : 1U;
  }
  if (needed > 0) {
    text += formatted("  {} of {} needed path{}", there, needed, needed == 1 ? "" : "s");
  }
  text +=
      formatted("  {} core{} {}  memory {}  /dev/shm {}", node.cores, node.cores == 1 ? "" : "s",
                node.processor, size_text(node.memory_mb), size_text(node.shm_mb));
  if (node.exchanged && node.round_trip_s > 0) {
    text += formatted("  clock {:+.3f} s, {:.1f} ms there and back", node.clock_ahead_s,
                      node.round_trip_s * 1e3);
  }
  return text;
}

}  // namespace parx::slurm
