// mesh: the ranks of a job as a grid with named axes, and this rank's group along each of them.
//
//   parx::mesh<"pp", "dp", "tp"> mesh{world, {2, parx::remaining_ranks, 2}};
//   parx::all_reduce(mesh["dp"], gradients);    // mesh["dq"] does not compile
//   parx::print0(world, "{}", mesh.table());
//
//   parx::mesh mesh{world, {{"dp", 4}, {"tp", 2}}};   // axes chosen at run time, by a flag
//
// The last axis is the innermost: see layout.hpp. Groups are made on first use, without
// communication, and open no connection until an operation needs it. An axis of size 1 is a group
// of this rank alone, whose operations cost nothing. Threads: as a process_group.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/comm/process_group.hpp>
#include <parx/mesh/layout.hpp>

namespace parx::inline PARX_ABI {

/// The name of an axis as a template argument.
template <std::size_t Size>
struct axis_label {
  std::array<char, Size> text{};

  consteval axis_label(const char (&name)[Size]) {  // NOLINT(google-explicit-constructor)
    for (std::size_t i = 0; i < Size; ++i) text[i] = name[i];
  }
  [[nodiscard]] constexpr std::string_view view() const noexcept {
    return {text.data(), Size - 1};
  }
};

/// A mesh. mesh<> is the one whose axes are given at run time.
template <axis_label... Names>
class mesh;

template <>
class mesh<> {
 public:
  /// Local; all ranks of `group` call it with the same axes. The group is borrowed and must outlive
  /// this object. Throws usage_error for sizes that do not match the number of ranks.
  mesh(process_group& group, std::vector<mesh_axis> axes, call_site site = call_site::current());

  /// The group of this rank along an axis: the ranks whose coordinates differ only in that axis.
  /// Throws usage_error, which lists the axes, for an unknown name.
  [[nodiscard]] process_group& operator[](std::string_view name);
  /// One group over several axes, such as data parallel times tensor parallel: flatten({"dp",
  /// "tp"}). Its ranks are ordered as in the mesh, whatever the order of the names.
  [[nodiscard]] process_group& flatten(std::initializer_list<std::string_view> names) {
    return flatten(std::span<const std::string_view>(names.begin(), names.size()));
  }
  [[nodiscard]] process_group& flatten(std::span<const std::string_view> names) {
    std::vector<std::size_t> axes;
    for (const std::string_view name : names) axes.push_back(layout_.axis(name));
    return along(axes);
  }
  /// All ranks, numbered as in the mesh.
  [[nodiscard]] process_group& all() noexcept { return all_; }

  [[nodiscard]] int size(std::string_view name) const {
    return layout_.axes()[layout_.axis(name)].size;
  }
  /// The coordinate of this rank along an axis.
  [[nodiscard]] int rank(std::string_view name) const {
    return layout_.coordinate(rank_, layout_.axis(name));
  }
  [[nodiscard]] const mesh_layout& layout() const noexcept { return layout_; }
  /// One line for each rank: its host and its coordinates.
  [[nodiscard]] std::string table() const { return layout_.table(); }

 private:
  [[nodiscard]] std::vector<std::size_t> every_axis() const;
  [[nodiscard]] process_group& along(std::span<const std::size_t> axes);

  mesh_layout layout_;
  int rank_;
  process_group all_;
  std::map<std::vector<std::size_t>, process_group> groups_;
};

mesh(process_group&, std::vector<mesh_axis>) -> mesh<>;

/// A mesh whose axes are named at compile time: a wrong name does not compile.
template <axis_label... Names>
class mesh : public mesh<> {
 public:
  static constexpr std::size_t axis_count = sizeof...(Names);

  /// The name of one of the axes, checked at compile time.
  class axis_name {
   public:
    consteval axis_name(const char* name) : text_(name) {  // NOLINT(google-explicit-constructor)
      if (!((Names.view() == text_) || ...)) throw "the mesh has no axis of this name";
    }
    [[nodiscard]] constexpr std::string_view text() const noexcept { return text_; }

   private:
    std::string_view text_;
  };

  /// As the run-time form, with the sizes in the order of the names.
  mesh(process_group& group, const std::array<int, axis_count>& sizes,
       call_site site = call_site::current())
      : mesh<>(group, named(sizes), site) {}

  [[nodiscard]] process_group& operator[](axis_name name) {
    return mesh<>::operator[](name.text());
  }
  [[nodiscard]] process_group& flatten(std::initializer_list<axis_name> names) {
    std::vector<std::string_view> texts;
    for (const axis_name& each : names) texts.push_back(each.text());
    return mesh<>::flatten(std::span<const std::string_view>(texts));
  }
  [[nodiscard]] int size(axis_name name) const { return mesh<>::size(name.text()); }
  [[nodiscard]] int rank(axis_name name) const { return mesh<>::rank(name.text()); }

 private:
  [[nodiscard]] static std::vector<mesh_axis> named(const std::array<int, axis_count>& sizes) {
    constexpr std::array<std::string_view, axis_count> names{Names.view()...};
    std::vector<mesh_axis> axes;
    for (std::size_t i = 0; i < axis_count; ++i) axes.push_back({std::string(names[i]), sizes[i]});
    return axes;
  }
};

inline mesh<>::mesh(process_group& group, std::vector<mesh_axis> axes, call_site site)
    : layout_(std::move(axes), group.hosts(), site),
      rank_(group.rank()),
      all_(group.subgroup(layout_.line(rank_, every_axis()), {.name = layout_.text()}, site)) {}

inline process_group& mesh<>::operator[](std::string_view name) {
  const std::size_t axis = layout_.axis(name);
  return along(std::span(&axis, 1));
}

inline std::vector<std::size_t> mesh<>::every_axis() const {
  std::vector<std::size_t> axes(layout_.axes().size());
  std::iota(axes.begin(), axes.end(), std::size_t{0});
  return axes;
}

inline process_group& mesh<>::along(std::span<const std::size_t> axes) {
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
