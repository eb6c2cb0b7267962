// Definitions of reduction_group.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/reduction/reduction_group.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE reduction_groups::reduction_groups(process_group& own,
                                               std::vector<reduction_group> others,
                                               std::string who)
    : who_(std::move(who)), groups_{{std::string(), &own}} {
  for (reduction_group& each : others) groups_.push_back({std::move(each.name), &each.group});
  std::sort(groups_.begin() + 1, groups_.end(),
            [](const named& a, const named& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < groups_.size(); ++i) {
    require(groups_[i].name != groups_[i - 1].name,
            "{}: there are two reduction groups named \"{}\"; the ddp's own has no name", who_,
            groups_[i].name);
  }
}

PARX_INLINE std::size_t reduction_groups::number_of(const parameter_handle& parameter) const {
  std::string known;
  for (std::size_t i = 0; i < size(); ++i) {
    if (name(i) == parameter.reduction_group()) return i;
    if (i > 0) known += formatted("{}\"{}\"", i > 1 ? ", " : "", name(i));
  }
  throw_usage(
      "{}: the gradient of \"{}\" is to be summed over \"{}\", but the reduction groups "
      "of this ddp are {}. Name that group in ddp_options::reduction_groups",
      who_, parameter.name(), parameter.reduction_group(), known.empty() ? "none" : known);
}

}  // namespace parx
