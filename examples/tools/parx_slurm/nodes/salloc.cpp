#include "tools/parx_slurm/nodes/salloc.hpp"

#include <algorithm>

#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI::slurm {

namespace detail {

std::vector<std::string> telling_features(const std::vector<sinfo_node>& usable,
                                          const std::vector<sinfo_node>& unfit) {
  std::vector<std::string> chosen;
  for (const sinfo_node& node : usable) {
    const auto is_chosen = [&](const std::string& each) { return detail::has(chosen, each); };
    if (std::any_of(node.features.begin(), node.features.end(), is_chosen)) continue;
    const auto tells =
        std::find_if(node.features.begin(), node.features.end(), [&](const std::string& each) {
          return std::none_of(unfit.begin(), unfit.end(), [&](const sinfo_node& other) {
            return detail::has(other.features, each);
          });
        });
    if (tells == node.features.end()) return {};
    chosen.push_back(*tells);
  }
  return chosen;
}

}  // namespace detail

std::vector<std::string> salloc_options(const candidate& chosen,
                                        const std::vector<sinfo_node>& nodes,
                                        const node_request& request) {
  const int threads = chosen.usable.empty() ? 1 : chosen.usable.front().threads_per_core;
  std::vector<std::string> words{"-p",
                                 chosen.rules.name,
                                 "-N",
                                 std::to_string(request.nodes),
                                 "--ntasks-per-node=1",
                                 "-c",
                                 std::to_string(request.cores * threads)};
  if (request.time.count() > 0) {
    // Slurm counts in minutes.
    words.insert(words.end(), {"-t", std::to_string((request.time.count() + 59) / 60)});
  }
  if (request.memory_mb > 0) words.push_back(formatted("--mem={}M", request.memory_mb));
  if (!request.account.empty()) words.insert(words.end(), {"-A", request.account});
  std::vector<sinfo_node> unfit;
  std::vector<std::string> names = request.exclude;
  for (const sinfo_node& each : nodes) {
    if (each.partition != chosen.rules.name) continue;
    for (const obstacle why : {obstacle::gpu, obstacle::processor, obstacle::minority_hardware}) {
      const auto found = chosen.others.find(why);
      if (found == chosen.others.end() || !detail::has(found->second, each.name)) continue;
      unfit.push_back(each);
      names.push_back(each.name);
    }
  }
  const auto features =
      unfit.empty() ? std::vector<std::string>() : detail::telling_features(chosen.usable, unfit);
  if (!features.empty()) {
    words.insert(words.end(), {"-C", joined_text(features, "|")});
    names = request.exclude;
  }
  if (!names.empty()) words.push_back("--exclude=" + compress_hostlist(names));
  return words;
}

}  // namespace parx::slurm
