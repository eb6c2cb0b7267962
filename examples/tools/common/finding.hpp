// finding: what would go wrong on a host of a job, as the parts of a sentence. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tools/common/compress_hostlist.hpp"
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::slurm {

struct finding {
  std::string node;           ///< without which the job can go on
  std::string fact;           ///< the first words of its sentence: what is wrong
  std::string remedy = {};    ///< an imperative, or empty
  bool fatal = true;          ///< the job would fail, or hang, on this node
  std::int64_t free_mb = -1;  ///< the amount that stands before `fact` in its sentence; -1: none
  std::string other = {};     ///< not empty: the fault lies between `node` and this one
  bool is_silent = false;     ///< nothing is known of the node
};

/// Of memory or a disk.
[[nodiscard]] inline std::string size_text(std::int64_t mb) {
  return mb < 10'000 ? formatted("{} MB", mb) : formatted("{} GB", mb / 1024);
}

/// The findings as sentences; nodes of which the same is said share one: "n[1-4]: 2 cores for ...".
/// Where they have different amounts, it names the least: "n[1-4]: 60 GB (n2, the least) of ...".
[[nodiscard]] inline std::vector<std::string> sentences_of(const std::vector<finding>& found) {
  std::vector<std::string> sentences;
  std::vector<bool> told(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (told[i]) continue;
    std::vector<std::string> nodes;
    const finding* least = &found[i];
    bool is_one_amount = true;
    for (std::size_t j = i; j < found.size(); ++j) {
      const finding& each = found[j];
      if (std::tie(each.fact, each.remedy, each.fatal, each.other) !=
          std::tie(found[i].fact, found[i].remedy, found[i].fatal, found[i].other)) {
        continue;
      }
      told[j] = true;
      nodes.push_back(each.node);
      is_one_amount &= size_text(each.free_mb) == size_text(least->free_mb);
      if (each.free_mb < least->free_mb) least = &each;
    }
    std::string amount;
    if (least->free_mb >= 0) {
      amount = size_text(least->free_mb) + " ";
      if (!is_one_amount) amount += formatted("({}, the least) ", least->node);
    }
    const std::string where = least->other.empty()
                                  ? compress_hostlist(nodes)
                                  : formatted("between {} and {}", least->other, least->node);
    sentences.push_back(formatted("{} {}: {}{}{}{}", least->fatal ? "!" : "note:", where, amount,
                                  least->fact, least->remedy.empty() ? "" : ". ", least->remedy));
  }
  return sentences;
}

/// The nodes of which nothing is known.
[[nodiscard]] inline std::vector<std::string> silent_nodes(const std::vector<finding>& found) {
  std::vector<std::string> names;
  for (const finding& each : found) {
    if (each.is_silent) names.push_back(each.node);
  }
  return names;
}

/// The nodes without which the job can go on: those of fatal findings.
[[nodiscard]] inline std::vector<std::string> bad_nodes(const std::vector<finding>& found) {
  std::set<std::string> names;
  for (const finding& each : found) {
    if (each.fatal) names.insert(each.node);
  }
  return {names.begin(), names.end()};
}

}  // namespace parx::slurm
