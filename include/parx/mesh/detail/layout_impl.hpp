// Definitions of layout.hpp.
#pragma once

#include <parx/mesh/layout.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE mesh_layout::mesh_layout(std::vector<mesh_axis> axes, std::span<const int> hosts,
                                     call_site site)
    : axes_(std::move(axes)),
      hosts_(hosts.begin(), hosts.end()),
      rank_at_(hosts.size()),
      place_of_(hosts.size()) {
  check_names(site);
  fill_remaining(site);
  std::iota(rank_at_.begin(), rank_at_.end(), 0);
  const std::vector<int> first = first_ranks();
  std::stable_sort(rank_at_.begin(), rank_at_.end(), [&](int a, int b) {
    return first[static_cast<std::size_t>(a)] < first[static_cast<std::size_t>(b)];
  });
  for (std::size_t place = 0; place < rank_at_.size(); ++place) {
    place_of_[static_cast<std::size_t>(rank_at_[place])] = static_cast<int>(place);
  }
}

PARX_INLINE std::size_t mesh_layout::axis(std::string_view name) const {
  const auto found = std::find_if(axes_.begin(), axes_.end(),
                                  [&](const mesh_axis& each) { return each.name == name; });
  require(found != axes_.end(), "the mesh has no axis \"{}\": its axes are {}", name, text());
  return static_cast<std::size_t>(found - axes_.begin());
}

PARX_INLINE std::vector<int> mesh_layout::line(int rank, std::span<const std::size_t> along) const {
  std::vector<int> found;
  for (const int other : rank_at_) {
    bool in_line = true;
    for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
      const bool varies = std::find(along.begin(), along.end(), axis) != along.end();
      in_line &= varies || coordinate(other, axis) == coordinate(rank, axis);
    }
    if (in_line) found.push_back(other);
  }
  return found;
}

PARX_INLINE bool mesh_layout::crosses_hosts(std::size_t axis) const {
  for (int rank = 0; rank < size(); ++rank) {
    if (coordinate(rank, axis) != 0) continue;
    for (const int other : line(rank, std::span(&axis, 1))) {
      if (host_of(other) != host_of(rank)) return true;
    }
  }
  return false;
}

PARX_INLINE std::string mesh_layout::line_name(int rank, std::span<const std::size_t> along) const {
  std::string name, where;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    if (std::find(along.begin(), along.end(), axis) != along.end()) {
      name += formatted("{}{}", name.empty() ? "" : "+", axes_[axis].name);
    } else if (axes_[axis].size > 1) {
      where +=
          formatted("{}{}={}", where.empty() ? "" : ", ", axes_[axis].name, coordinate(rank, axis));
    }
  }
  return where.empty() ? name : formatted("{} at {}", name, where);
}

PARX_INLINE std::string mesh_layout::text() const {
  std::string all;
  for (const mesh_axis& each : axes_) {
    const std::string size = each.size == remaining_ranks ? "the rest" : std::to_string(each.size);
    all += formatted("{}{}={}", all.empty() ? "" : " x ", each.name, size);
  }
  return all;
}

PARX_INLINE std::string mesh_layout::table() const {
  std::string lines = formatted("{} over {} ranks\nrank  host", text(), size());
  const auto width = [&](std::size_t axis) {
    return std::max<std::size_t>(axes_[axis].name.size(), 3);
  };
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    lines += formatted("  {:>{}}", axes_[axis].name, width(axis));
  }
  for (const int rank : rank_at_) {
    lines += formatted("\n{:>4}  {:>4}", rank, host_of(rank));
    for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
      lines += formatted("  {:>{}}", coordinate(rank, axis), width(axis));
    }
  }
  return lines + "\n";
}

PARX_INLINE std::vector<int> mesh_layout::first_ranks() const {
  std::vector<int> first(hosts_.size());
  for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
    first[rank] =
        static_cast<int>(std::find(hosts_.begin(), hosts_.end(), hosts_[rank]) - hosts_.begin());
  }
  return first;
}

PARX_INLINE void mesh_layout::check_names(call_site site) const {
  require_at(site, !axes_.empty(), "a mesh needs an axis: {{\"dp\", parx::remaining_ranks}}");
  for (auto each = axes_.begin(); each != axes_.end(); ++each) {
    require_at(site, !each->name.empty(), "every axis of a mesh needs a name");
    require_at(site,
               std::none_of(axes_.begin(), each,
                            [&](const mesh_axis& other) { return other.name == each->name; }),
               "the mesh has the axis \"{}\" twice", each->name);
    require_at(site, each->size >= 1 || each->size == remaining_ranks,
               "axis \"{}\" of the mesh has the size {}: give at least 1, or "
               "parx::remaining_ranks",
               each->name, each->size);
  }
}

}  // namespace parx
