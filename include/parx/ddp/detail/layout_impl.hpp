// Definition of layout.hpp.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/comm/rank_comparison.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/ddp/layout.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE void check_layout(const reduction_groups& groups,
                         const std::vector<std::unique_ptr<parameter_handle>>& parameters,
                         call_site site) {
  std::vector<std::string> layouts(groups.size());
  std::string all;
  for (const auto& each : parameters) {
    const std::string line = layout_of(*each) + '\n';
    layouts[groups.number_of(*each)] += line;
    all += line;
  }
  // All groups at once: if ranks mixed up the groups' names, comparing in order would deadlock.
  std::vector<std::unique_ptr<rank_comparison>> comparisons;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    // The own group shows all parameters: one missing there may have another group's name.
    const std::string& shown = i == 0 ? all : layouts[i];
    comparisons.emplace_back(new rank_comparison(groups[i], layouts[i], shown, site));
  }
  for (const auto& each : comparisons) each->exchange_texts();
  std::optional<difference_of_ranks> found;
  std::size_t where = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    auto different = comparisons[i]->difference();
    if (!different || found) continue;
    found = std::move(different);
    where = i;
  }
  if (!found) return;
  const bool is_cut = std::any_of(parameters.begin(), parameters.end(),
                                  [](const auto& each) { return !each->spec().is_whole(); });
  const std::string text = formatted(
      "ddp at {} on group \"{}\": the model of rank {} differs from that of rank 0. All ranks must "
      "build the same model, in the same order{}:{}",
      site, groups[where].name(), found->rank,
      is_cut ? ", and hold the same parts of it (where layers are cut over one axis of a mesh, a "
               "ddp is that of another)"
             : "",
      found->text);
  // Ranks that share only other groups with this one saw no difference and would wait for it.
  if (groups.size() > 1) groups.abort(text);
  throw_error(errc::mismatch, "{}", text);
}

}  // namespace parx::detail
