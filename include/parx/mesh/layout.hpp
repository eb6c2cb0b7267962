// mesh_layout: the coordinates of each rank in a grid of named axes. Pure.
//
// The grid is filled host by host, also under srun's cyclic distribution of ranks. The last axis is
// the innermost: ranks along it are neighbours. So the axis that communicates most (tensor
// parallelism), put last, stays inside a host if the hosts' sizes permit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

/// The size of an axis that takes all ranks that the other axes leave. Only one axis may have it.
inline constexpr int remaining_ranks = -1;

/// An axis of a mesh, by name; remaining_ranks: what the other axes leave.
struct mesh_axis {
  std::string name;
  int size = remaining_ranks;
};

class mesh_layout {
 public:
  /// `hosts` is the host of each rank, in any numbering: its size is the number of ranks.
  /// Throws usage_error if the product of the sizes is not that number, for sizes below 1, and for
  /// names that are empty or given twice; it says where the mesh is made.
  mesh_layout(std::vector<mesh_axis> axes, std::span<const int> hosts,
              call_site site = call_site::current());

  [[nodiscard]] int size() const noexcept { return static_cast<int>(rank_at_.size()); }
  [[nodiscard]] const std::vector<mesh_axis>& axes() const noexcept { return axes_; }
  /// The index of an axis. Throws usage_error, which lists the axes, for an unknown name.
  [[nodiscard]] std::size_t axis(std::string_view name) const;

  /// The number of `rank` if ranks are counted host by host: its row-major index in the grid.
  [[nodiscard]] int place(int rank) const noexcept {
    return place_of_[static_cast<std::size_t>(rank)];
  }
  /// The coordinate of `rank` along `axis`.
  [[nodiscard]] int coordinate(int rank, std::size_t axis) const {
    return place(rank) / stride(axis) % axes_[axis].size;
  }
  /// The ranks whose coordinates differ from those of `rank` only in these axes, itself included,
  /// in the order of the grid: the last of the mesh's axes varies fastest.
  [[nodiscard]] std::vector<int> line(int rank, std::span<const std::size_t> along) const;
  /// Whether some line along `axis` has ranks on different hosts.
  [[nodiscard]] bool crosses_hosts(std::size_t axis) const;

  /// "dp at pp=1, tp=0": a line's name, for errors and traces. Other axes of size 1 are left out.
  [[nodiscard]] std::string line_name(int rank, std::span<const std::size_t> along) const;
  /// "pp=2 x dp=2 x tp=2".
  [[nodiscard]] std::string text() const;
  /// A table with one line for each rank: its host and its coordinates.
  [[nodiscard]] std::string table() const;

 private:
  [[nodiscard]] int host_of(int rank) const noexcept {
    return hosts_[static_cast<std::size_t>(rank)];
  }
  /// By rank: the first rank of its host.
  [[nodiscard]] std::vector<int> first_ranks() const;
  /// The distance between the places of neighbours along `axis`.
  [[nodiscard]] int stride(std::size_t axis) const noexcept {
    int product = 1;
    for (std::size_t inner = axis + 1; inner < axes_.size(); ++inner) product *= axes_[inner].size;
    return product;
  }
  template <typename... Args>
  static void require_at(call_site site, bool holds, counted_text<sizeof...(Args)> text,
                         const Args&... args) {
    if (holds) return;
    throw_usage("mesh at {}: {}", site, formatted(text, args...));
  }
  void check_names(call_site site) const;
  void fill_remaining(call_site site) {
    long long product = 1;
    mesh_axis* open = nullptr;
    for (mesh_axis& each : axes_) {
      if (each.size != remaining_ranks) {
        product = std::min(product * each.size, 1LL << 31);  // more than any group has
        continue;
      }
      require_at(site, open == nullptr,
                 "only one axis of a mesh can take the remaining ranks: \"{}\" and \"{}\" both do",
                 open != nullptr ? open->name : "", each.name);
      open = &each;
    }
    if (open != nullptr && size() % product == 0) {
      open->size = size() / static_cast<int>(product);
      return;
    }
    require_at(site, open == nullptr && product == size(),
               "the mesh {} needs {} {} ranks, and its group has {}", text(),
               open != nullptr ? "a multiple of" : "exactly", product, size());
  }

  std::vector<mesh_axis> axes_;
  std::vector<int> hosts_;
  std::vector<int> rank_at_;   ///< by place: the grid in row-major order
  std::vector<int> place_of_;  ///< by rank
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/mesh/detail/layout_impl.hpp>
#endif
