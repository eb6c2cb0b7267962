#include "tools/parx_slurm/nodes/salloc.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI::slurm {

std::string compress_hostlist(std::vector<std::string> names) {
  struct numbered {
    std::string stem;
    std::int64_t number;
    std::size_t width;  ///< of the number with its leading zeros
    auto operator<=>(const numbered&) const = default;
    [[nodiscard]] bool is_padded() const { return std::to_string(number).size() < width; }
    [[nodiscard]] std::string digits() const {
      const std::string plain = std::to_string(number);
      return std::string(width - plain.size(), '0') + plain;
    }
  };
  std::set<numbered> all;
  std::set<std::string> plain;
  for (const std::string& each : names) {
    const auto end = each.find_last_not_of("0123456789");
    const std::string digits = end == each.npos ? each : each.substr(end + 1);
    if (digits.empty() || digits.size() > 18) {
      plain.insert(each);
    } else {
      all.insert({each.substr(0, each.size() - digits.size()), std::stoll(digits), digits.size()});
    }
  }
  std::map<std::string, std::vector<std::string>> runs;  // by their stems
  for (auto first = all.begin(); first != all.end();) {
    auto last = first;
    for (auto next = std::next(first); next != all.end() && next->stem == first->stem; ++next) {
      const bool as_wide = next->width == last->width || (!last->is_padded() && !next->is_padded());
      if (next->number != last->number + 1 || !as_wide) break;
      last = next;
    }
    runs[first->stem].push_back(first == last ? first->digits()
                                              : first->digits() + "-" + last->digits());
    first = std::next(last);
  }
  std::vector<std::string> lists(plain.begin(), plain.end());
  for (const auto& [stem, parts] : runs) {
    const bool alone = parts.size() == 1 && parts[0].find('-') == std::string::npos;
    lists.push_back(alone ? stem + parts[0] : stem + "[" + joined_text(parts, ",") + "]");
  }
  return joined_text(lists, ",");
}

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
    for (const obstacle why : {obstacle::gpu, obstacle::processor, obstacle::another_kind}) {
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
