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
              call_site site = call_site::current())
      : axes_(std::move(axes)), hosts_(hosts.begin(), hosts.end()), rank_at_(hosts.size()),
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

  [[nodiscard]] int size() const noexcept { return static_cast<int>(rank_at_.size()); }
  [[nodiscard]] const std::vector<mesh_axis>& axes() const noexcept { return axes_; }
  /// The index of an axis. Throws usage_error, which lists the axes, for an unknown name.
  [[nodiscard]] std::size_t axis(std::string_view name) const {
    const auto found = std::find_if(axes_.begin(), axes_.end(),
                                    [&](const mesh_axis& each) { return each.name == name; });
    require(found != axes_.end(), "the mesh has no axis \"{}\": its axes are {}", name, text());
    return static_cast<std::size_t>(found - axes_.begin());
  }

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
  [[nodiscard]] std::vector<int> line(int rank, std::span<const std::size_t> along) const {
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
  /// Whether some line along `axis` has ranks on different hosts.
  [[nodiscard]] bool crosses_hosts(std::size_t axis) const {
    for (int rank = 0; rank < size(); ++rank) {
      if (coordinate(rank, axis) != 0) continue;
      for (const int other : line(rank, std::span(&axis, 1))) {
        if (host_of(other) != host_of(rank)) return true;
      }
    }
    return false;
  }

  /// "dp at pp=1, tp=0": a line's name, for errors and traces. Other axes of size 1 are left out.
  [[nodiscard]] std::string line_name(int rank, std::span<const std::size_t> along) const {
    std::string name, where;
    for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
      if (std::find(along.begin(), along.end(), axis) != along.end()) {
        name += formatted("{}{}", name.empty() ? "" : "+", axes_[axis].name);
      } else if (axes_[axis].size > 1) {
        where += formatted("{}{}={}", where.empty() ? "" : ", ", axes_[axis].name,
                           coordinate(rank, axis));
      }
    }
    return where.empty() ? name : formatted("{} at {}", name, where);
  }
  /// "pp=2 x dp=2 x tp=2".
  [[nodiscard]] std::string text() const {
    std::string all;
    for (const mesh_axis& each : axes_) {
      const std::string size =
          each.size == remaining_ranks ? "the rest" : std::to_string(each.size);
      all += formatted("{}{}={}", all.empty() ? "" : " x ", each.name, size);
    }
    return all;
  }
  /// A table with one line for each rank: its host and its coordinates.
  [[nodiscard]] std::string table() const {
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

 private:
  [[nodiscard]] int host_of(int rank) const noexcept {
    return hosts_[static_cast<std::size_t>(rank)];
  }
  /// By rank: the first rank of its host.
  [[nodiscard]] std::vector<int> first_ranks() const {
    std::vector<int> first(hosts_.size());
    for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
      first[rank] = static_cast<int>(std::find(hosts_.begin(), hosts_.end(), hosts_[rank]) -
                                     hosts_.begin());
    }
    return first;
  }
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
  void check_names(call_site site) const {
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
