#include "tools/parx_slurm/nodes/where_text.hpp"

#include <algorithm>
#include <ctime>
#include <map>
#include <set>
#include <utility>

#include "common/shell_text.hpp"
#include "tools/parx_slurm/nodes/salloc.hpp"
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/text_table.hpp>

namespace parx::inline PARX_ABI::slurm {

namespace {

/// "now", "14:30" or "Nov 27 14:30", in local time.
[[nodiscard]] std::string start_text(std::chrono::system_clock::time_point at,
                                     std::chrono::system_clock::time_point now) {
  if (at - now < std::chrono::minutes(1)) return "now";
  const std::time_t time = std::chrono::system_clock::to_time_t(at);
  std::tm parts{};
  ::localtime_r(&time, &parts);
  char text[32];
  const bool soon = at - now < std::chrono::hours(20);
  std::strftime(text, sizeof text, soon ? "%H:%M" : "%b %d %H:%M", &parts);
  return text;
}

/// "2 drained, 6 too few cores", the most frequent first.
[[nodiscard]] std::string others_text(const candidate& each) {
  std::vector<std::pair<std::size_t, obstacle>> counts;
  for (const auto& [why, names] : each.others) counts.emplace_back(names.size(), why);
  std::stable_sort(counts.begin(), counts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> parts;
  for (const auto& [count, why] : counts)
    parts.push_back(formatted("{} {}", count, to_string(why)));
  return joined_text(parts);
}

[[nodiscard]] std::string range_text(int least, int most) {
  return least == most ? std::to_string(least) : formatted("{}-{}", least, most);
}

}  // namespace

std::string where_table(const std::vector<candidate>& ranked, const node_request& request,
                        std::chrono::system_clock::time_point now) {
  const bool prices = std::any_of(ranked.begin(), ranked.end(), [&](const candidate& each) {
    return each.rules.cpu_price != ranked.front().rules.cpu_price;
  });
  std::vector<std::string> headings{"partition", ">usable", ">of", ">cores", "limit", "starts"};
  if (prices) headings.push_back(">CPU price");
  headings.push_back("why not the others");
  text_table table(std::move(headings));
  for (const candidate& each : ranked) {
    std::string start = each.fits_now(request) ? "now" : "-";
    if (each.start.at) start = start_text(*each.start.at, now);
    std::string why = others_text(each);
    const std::string& refusal = each.refusal.empty() ? each.start.refusal : each.refusal;
    if (!refusal.empty()) {
      start = "no";
      why = why.empty() ? refusal : refusal + "; " + why;
    } else if (!each.may_fit(request)) {
      start = "no";
    }
    std::string cores = "-";
    if (!each.usable.empty()) {
      const auto [least, most] = std::minmax_element(
          each.usable.begin(), each.usable.end(),
          [](const auto& a, const auto& b) { return a.idle_cores() < b.idle_cores(); });
      cores = range_text(least->idle_cores(), most->idle_cores());
    }
    const bool best = &each == &ranked.front() && start != "no";
    std::vector<std::string> cells{
        each.rules.name + (best ? "*" : ""), std::to_string(each.usable.size()),
        std::to_string(each.nodes),          cores,
        to_time_limit(each.rules.max_time),  start};
    if (prices) cells.push_back(formatted("{}", each.rules.cpu_price));
    cells.push_back(why);
    table.add(std::move(cells));
  }
  return table.text();
}

namespace {

/// A line for each reason why nodes of these partitions are out for now, as their administrator
/// gives it: "n[1-2] are drained: bad disk". At most eight.
[[nodiscard]] std::string nodes_out(const std::vector<const candidate*>& partitions,
                                    const std::vector<sinfo_node>& nodes) {
  std::map<std::pair<obstacle, std::string>, std::vector<std::string>> names_of;
  for (const candidate* const each : partitions) {
    for (const obstacle why : {obstacle::drained, obstacle::down, obstacle::maintenance}) {
      const auto found = each->others.find(why);
      if (found == each->others.end()) continue;
      for (const sinfo_node& node : nodes) {
        if (node.partition != each->rules.name || !detail::has(found->second, node.name)) continue;
        auto& names = names_of[{why, node.reason}];
        if (!detail::has(names, node.name))
          names.push_back(node.name);  // it may be of several partitions
      }
    }
  }
  std::string text;
  std::size_t lines = 0;
  for (const auto& [key, names] : names_of) {
    if (++lines > detail::most_lines_on_nodes) break;
    const auto& [why, reason] = key;
    text += formatted("\n{} {} {}{}{}", compress_hostlist(names), names.size() == 1 ? "is" : "are",
                      to_string(why), reason.empty() ? "" : ": ", reason);
  }
  return text;
}

/// A line for each node that is too old for the program; at most eight.
[[nodiscard]] std::string nodes_too_old(const candidate& chosen, instruction_level level) {
  const auto found = chosen.others.find(obstacle::processor);
  if (found == chosen.others.end()) return {};
  std::string text;
  std::size_t lines = 0;
  for (const std::string& name : found->second) {
    if (++lines > detail::most_lines_on_nodes) break;
    text += formatted(
        "\n{} has the wrong processor: the program was compiled for {}: compile it without "
        "-march=native (parx: -DPARX_NATIVE=OFF), or on the oldest node",
        name, to_string(level));
  }
  return text;
}

/// It refuses the time alone, and has the nodes.
[[nodiscard]] bool would_do_within_limit(const candidate& each, node_request request) {
  if (request.time <= each.rules.max_time) return false;
  request.time = each.rules.max_time;
  return detail::refusal_of(each.rules, request).empty() &&
         each.usable.size() + each.later >= static_cast<std::size_t>(request.nodes);
}

}  // namespace

where_verdict verdict(const std::vector<candidate>& ranked, const std::vector<sinfo_node>& nodes,
                      const node_request& request) {
  const auto wanted = static_cast<std::size_t>(request.nodes);
  if (!ranked.empty() && ranked.front().may_fit(request) && ranked.front().start.refusal.empty()) {
    const candidate& best = ranked.front();
    std::vector<std::string> words{"salloc"};
    for (std::string& each : salloc_options(best, nodes, request)) words.push_back(std::move(each));
    std::string text = "best: " + shell_text(words);
    if (!best.fits_now(request)) text += "  (waits: the nodes are busy)";
    const bool starts = std::any_of(best.usable.begin(), best.usable.end(),
                                    [](const auto& each) { return each.state.powered_off; });
    if (starts) text += "  (some nodes are switched off and take minutes to start)";
    if (request.level != instruction_level::baseline &&
        std::any_of(best.usable.begin(), best.usable.end(),
                    [](const sinfo_node& each) { return !level_of_features(each.features); })) {
      text += formatted(
          "\nThe features of its nodes do not say whether they have {}: "
          "parx_slurm check looks at the nodes themselves",
          to_string(request.level));
    }
    return {true, text};
  }
  // The partition that takes the job and has most of the nodes, now or later.
  const candidate* nearest = nullptr;
  for (const candidate& each : ranked) {
    if (!each.refusal.empty() || each.usable.size() + each.later == 0) continue;
    if (nearest == nullptr ||
        each.usable.size() + each.later > nearest->usable.size() + nearest->later) {
      nearest = &each;
    }
  }
  std::string text =
      formatted("no partition has {} node{} of {} core{} for this job", wanted,
                wanted == 1 ? "" : "s", request.cores, request.cores == 1 ? "" : "s");
  if (nearest != nullptr) {
    const std::size_t there = nearest->usable.size() + nearest->later;
    if (there < wanted) {
      text += formatted("; nearest: {} has {} of {}: it would do with -N {}", nearest->rules.name,
                        there, wanted, there);
      text += nodes_out({nearest}, nodes);
      text += nodes_too_old(*nearest, request.level);
    } else {
      text += formatted("; nearest: {}, but Slurm says: {}", nearest->rules.name,
                        nearest->start.refusal);
    }
    return {false, text};
  }
  for (const candidate& each : ranked) {
    if (each.refusal.empty()) continue;
    text += formatted("; {}: {}", each.rules.name, each.refusal);
    if (would_do_within_limit(each, request)) {
      text += ": it would do with -t " + to_time_limit(each.rules.max_time);
    }
  }
  // Without nodes of any use, what stands in the way most.
  std::map<obstacle, std::set<std::string>> all;  // a node may be of several partitions
  std::vector<const candidate*> willing;
  for (const candidate& each : ranked) {
    if (!each.refusal.empty()) continue;
    willing.push_back(&each);
    for (const auto& [why, names] : each.others) all[why].insert(names.begin(), names.end());
  }
  const auto most = std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  if (most != all.end()) {
    const std::size_t count = most->second.size();
    text += formatted("; {} node{} not count: {}{}", count, count == 1 ? " does" : "s do",
                      to_string(most->first),
                      most->first == obstacle::gpu ? " (--gpu-nodes counts them)" : "");
    if (most->first == obstacle::too_few_cores) {
      int largest = 0;
      for (const sinfo_node& each : nodes) largest = std::max(largest, each.cores());
      text += formatted(": the largest has {}; ask for fewer a node", largest);
    }
  }
  text += nodes_out(willing, nodes);
  return {false, text};
}

}  // namespace parx::slurm
