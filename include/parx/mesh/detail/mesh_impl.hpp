// Definitions of mesh.hpp.
#pragma once

#include <algorithm>
#include <numeric>

#include <parx/mesh/mesh.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE mesh<>::mesh(process_group& group, std::vector<mesh_axis> axes, call_site site)
    : layout_(std::move(axes), group.hosts(), site),
      rank_(group.rank()),
      all_(group.subgroup(layout_.line(rank_, every_axis()), {.name = layout_.text()}, site)) {}

PARX_INLINE process_group& mesh<>::operator[](std::string_view name) {
  const std::size_t axis = layout_.axis(name);
  return along(std::span(&axis, 1));
}

PARX_INLINE std::vector<std::size_t> mesh<>::every_axis() const {
  std::vector<std::size_t> axes(layout_.axes().size());
  std::iota(axes.begin(), axes.end(), std::size_t{0});
  return axes;
}

PARX_INLINE process_group& mesh<>::along(std::span<const std::size_t> axes) {
  // The key leaves out axes of size 1, so the same ranks always share one group.
  std::vector<std::size_t> key;
  for (std::size_t axis = 0; axis < layout_.axes().size(); ++axis) {
    const bool varies = std::find(axes.begin(), axes.end(), axis) != axes.end();
    if (varies && layout_.axes()[axis].size > 1) key.push_back(axis);
  }
  auto found = groups_.find(key);
  if (found == groups_.end()) {
    // A subgroup of all_, whose ranks are places. Its identity includes that of all_, so two
    // meshes over the same ranks never mix up their groups, in whatever order they are made.
    std::vector<int> places;
    for (const int rank : layout_.line(rank_, key)) places.push_back(layout_.place(rank));
    const std::span<const std::size_t> named = key.empty() ? axes : key;
    process_group made = all_.subgroup(places, {.name = layout_.line_name(rank_, named)});
    found = groups_.emplace(std::move(key), std::move(made)).first;
  }
  return found->second;
}

}  // namespace parx
