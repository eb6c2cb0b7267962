// shard_spec: which part of a tensor lies here, as a value.
//
// Of each axis of the whole, a part has one interval or several: a fused projection of queries,
// keys and values is cut in each of its three blocks. Of the elements that this leaves, it may have
// one range in row-major order alone: ZeRO cuts a flat buffer wherever that is even. The elements
// of a part lie here in the order of the whole. Cuts compose: each is in the coordinates of the
// part that it cuts. A spec takes a few numbers, however large the tensor is. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <parx/core/check.hpp>
#include <parx/tensor/shape.hpp>
#include <parx/types/chunk.hpp>

namespace parx::inline PARX_ABI {

/// Elements [local, local + length) of a part are elements [global, global + length) of the whole.
struct shard_run {
  std::size_t local = 0, global = 0, length = 0;
};

/// Indices [begin, end) of an axis.
struct axis_interval {
  std::size_t axis = 0, begin = 0, end = 0;
  friend bool operator==(const axis_interval&, const axis_interval&) = default;
};

class shard_spec {
 public:
  /// All of a scalar.
  shard_spec() = default;
  /// All of a tensor of this shape.
  [[nodiscard]] static shard_spec whole(const parx::shape& s) {
    shard_spec all;
    all.global_ = all.box_ = s;
    all.end_ = s.size();
    return all;
  }

  /// Of a tensor of shape `s` what lies in these intervals, as cuts() gives them: of each axis that
  /// is cut all of them, ascending. Throws usage_error for others.
  [[nodiscard]] static shard_spec of_cuts(const parx::shape& s,
                                          std::span<const axis_interval> cuts) {
    shard_spec part = whole(s);
    for (std::size_t i = 0; i < cuts.size();) {
      const std::size_t axis = cuts[i].axis;
      require(i == 0 || cuts[i - 1].axis < axis, "the cuts of {} are not in the order of its axes",
              to_string(s));
      std::vector<axis_interval> taken;
      for (std::size_t after = 0; i < cuts.size() && cuts[i].axis == axis; ++i) {
        require(axis < s.rank() && after <= cuts[i].begin && cuts[i].begin <= cuts[i].end &&
                    cuts[i].end <= s[axis],
                "indices [{}, {}) of axis {} are no cut of {}", cuts[i].begin, cuts[i].end, axis,
                to_string(s));
        taken.push_back(cuts[i]);
        after = cuts[i].end;
      }
      part = part.with(axis, taken);
    }
    return part;
  }

  // A part of this part. They throw usage_error for what lies outside it.

  /// Indices [begin, end) of an axis.
  [[nodiscard]] shard_spec slice(int axis, std::size_t begin, std::size_t end) const {
    const parx::shape here = shape();
    const std::size_t at = resolve_axis(axis, here);
    require(begin <= end && end <= here[at], "slice [{}, {}) of axis {} is outside {}", begin, end,
            axis, text());
    return is_flat_ ? flat(begin, end) : with(at, {{at, begin, end}});
  }
  /// Chunk `index` of `count` of an axis, by the rule of chunk_begin.
  [[nodiscard]] shard_spec chunk(int axis, int index, int count) const {
    require(index >= 0 && index < count, "chunk {} of {} does not exist", index, count);
    const parx::shape here = shape();
    const std::size_t extent = here[resolve_axis(axis, here)];
    return slice(axis, chunk_begin(extent, count, index), chunk_begin(extent, count, index + 1));
  }
  /// That chunk of each of the blocks, which have these extents and lie one behind the other on the
  /// axis: {width, width, width} for queries, keys and values that one matrix makes.
  [[nodiscard]] shard_spec chunk_of_blocks(int axis, std::span<const std::size_t> blocks, int index,
                                           int count) const {
    require(!is_flat_, "{} has no blocks: cut the axes first", text());
    const std::size_t at = resolve_axis(axis, box_);
    require(index >= 0 && index < count, "chunk {} of {} does not exist", index, count);
    std::vector<axis_interval> taken;
    std::size_t first = 0;
    for (const std::size_t extent : blocks) {
      taken.push_back({at, first + chunk_begin(extent, count, index),
                       first + chunk_begin(extent, count, index + 1)});
      first += extent;
    }
    require(first == box_[at], "blocks of {} indices in all on axis {} of {}", first, axis, text());
    return with(at, taken);
  }
  [[nodiscard]] shard_spec chunk_of_blocks(int axis, std::initializer_list<std::size_t> blocks,
                                           int index, int count) const {
    return chunk_of_blocks(axis, std::span(blocks.begin(), blocks.size()), index, count);
  }
  /// Elements [begin, end) in row-major order. What remains has one axis, which slice() and chunk()
  /// can cut further.
  [[nodiscard]] shard_spec flat(std::size_t begin, std::size_t end) const {
    require(begin <= end && end <= size(), "elements [{}, {}) are outside {}", begin, end, text());
    if (box_.rank() == 1) return slice(0, begin, end);
    shard_spec piece = *this;
    piece.is_flat_ = true;
    piece.end_ = begin_ + end;
    piece.begin_ += begin;
    return piece;
  }

  // What lies here.

  [[nodiscard]] const parx::shape& global_shape() const noexcept { return global_; }
  /// The shape of the part itself.
  [[nodiscard]] parx::shape shape() const {
    return is_flat_ ? parx::shape{end_ - begin_} : box_;
  }
  [[nodiscard]] std::size_t size() const noexcept { return end_ - begin_; }
  [[nodiscard]] bool is_whole() const noexcept { return size() == global_.size(); }
  /// Whether it is a range of elements that has no axes of the whole.
  [[nodiscard]] bool is_flat() const noexcept { return is_flat_; }

  /// What lies here of each axis that is cut: in the order of the axes, ascending.
  [[nodiscard]] std::span<const axis_interval> cuts() const noexcept { return intervals_; }
  /// Where the elements of an is_flat() part begin, in the order of those that cuts() leaves.
  [[nodiscard]] std::size_t flat_begin() const noexcept { return begin_; }

  /// The longest run that starts with element `local` of the part, which must exist.
  [[nodiscard]] shard_run run_at(std::size_t local) const noexcept {
    shard_run run = piece_at(local);
    for (std::size_t next; (next = run.local + run.length) < size();) {
      const shard_run more = piece_at(next);
      if (more.global != run.global + run.length) break;
      run.length += more.length;
    }
    return run;
  }
  /// Calls use(shard_run) for the runs of the part in their order, as few as there can be.
  template <typename Use>
  void for_each_run(Use&& use) const {
    for (std::size_t at = 0; at < size();) {
      const shard_run run = run_at(at);
      use(run);
      at += run.length;
    }
  }

  /// "rows 0-63 of [128, 784]", "elements 100-199 of columns 0-9 of [128, 784]", "[128, 784]".
  [[nodiscard]] std::string text() const {
    std::string cuts;
    for (std::size_t i = 0; i < intervals_.size(); ++i) {
      const axis_interval& each = intervals_[i];
      const bool same_axis = i > 0 && intervals_[i - 1].axis == each.axis;
      if (i > 0) cuts += same_axis ? "," : " and ";
      if (!same_axis) cuts += axis_name(each.axis);
      cuts += range_text(each.begin, each.end);
    }
    return fmt::format("{}{}{}[{}]", is_flat_ ? "elements" + range_text(begin_, end_) + " of " : "",
                       cuts, cuts.empty() ? "" : " of ",
                       fmt::join(global_.begin(), global_.end(), ", "));
  }

  /// The same part, cut in the same way up to how the cuts were spelled.
  friend bool operator==(const shard_spec& a, const shard_spec& b) noexcept {
    return a.global_ == b.global_ && a.intervals_ == b.intervals_ && a.is_flat_ == b.is_flat_ &&
           a.begin_ == b.begin_ && a.end_ == b.end_;
  }

 private:
  /// Of axis `at` of this part only the indices in `taken`.
  [[nodiscard]] shard_spec with(std::size_t at, std::span<const axis_interval> taken) const {
    std::vector<axis_interval> kept;
    const auto keep = [&](std::size_t begin, std::size_t end) {
      if (begin >= end) return;
      if (!kept.empty() && kept.back().end == begin) kept.back().end = end;
      else kept.push_back({at, begin, end});
    };
    for (const axis_interval& some : taken) {
      std::size_t first = 0;  // index in this part of the first one of an interval of the whole
      each_interval(at, [&](std::size_t begin, std::size_t end) {
        const std::size_t last = first + (end - begin);
        keep(begin + std::clamp(some.begin, first, last) - first,
             begin + std::clamp(some.end, first, last) - first);
        first = last;
      });
    }
    shard_spec part = *this;
    part.box_[at] = 0;
    for (const axis_interval& each : kept) part.box_[at] += each.end - each.begin;
    if (kept.empty()) kept.push_back({at, 0, 0});
    const bool all = part.box_[at] == global_[at];
    part.intervals_.clear();
    for (const axis_interval& each : intervals_) {
      if (each.axis < at) part.intervals_.push_back(each);
    }
    if (!all) part.intervals_.insert(part.intervals_.end(), kept.begin(), kept.end());
    for (const axis_interval& each : intervals_) {
      if (each.axis > at) part.intervals_.push_back(each);
    }
    part.end_ = part.box_.size();
    return part;
  }
  [[nodiscard]] shard_spec with(std::size_t at, std::initializer_list<axis_interval> taken) const {
    return with(at, std::span(taken.begin(), taken.size()));
  }

  /// use(begin, end) for the intervals of the whole's axis.
  template <typename Use>
  void each_interval(std::size_t axis, Use&& use) const {
    if (box_[axis] == global_[axis]) return use(0, global_[axis]);
    for (const axis_interval& each : intervals_) {
      if (each.axis == axis) use(each.begin, each.end);
    }
  }

  /// From element `local` on to the end of an interval of the last axis that is cut.
  [[nodiscard]] shard_run piece_at(std::size_t local) const noexcept {
    const std::size_t at = begin_ + local, rest = end_ - at;
    if (intervals_.empty()) return {local, at, rest};
    const std::size_t last = intervals_.back().axis;
    std::size_t stride = 1;
    for (std::size_t axis = last + 1; axis < global_.rank(); ++axis) stride *= global_[axis];
    shard_run piece{local, at % stride, 0};
    std::size_t index = at / stride;  // joins those of the axes up to `axis`
    for (std::size_t axis = last + 1; axis-- > 0;) {
      std::size_t i = index % box_[axis];
      index /= box_[axis];
      bool found = false;
      each_interval(axis, [&](std::size_t begin, std::size_t end) {
        if (found) return;
        found = i < end - begin;
        if (!found) {
          i -= end - begin;
          return;
        }
        if (axis == last) piece.length = std::min(rest, (end - begin - i) * stride - piece.global);
        piece.global += (begin + i) * stride;
      });
      stride *= global_[axis];
    }
    return piece;
  }

  [[nodiscard]] std::string axis_name(std::size_t axis) const {
    if (global_.rank() == 1) return "elements";
    if (axis == 0) return "rows";
    if (global_.rank() == 2) return "columns";
    return fmt::format("axis {}:", axis);
  }
  [[nodiscard]] static std::string range_text(std::size_t begin, std::size_t end) {
    if (begin == end) return " none";
    return end - begin == 1 ? fmt::format(" {}", begin) : fmt::format(" {}-{}", begin, end - 1);
  }

  parx::shape global_, box_;         // of the whole; of what the intervals leave of it
  std::vector<axis_interval> intervals_;  // of the axes that are cut: ascending, not adjacent
  std::size_t begin_ = 0, end_ = 1;  // the elements of the box that lie here
  bool is_flat_ = false;
};

/// Calls use(offset in a, offset in b, length) for what two parts of one tensor have in common, in
/// its order: what a rank that has `a` sends to one that shall have `b`. Throws usage_error where
/// they are of different tensors.
template <typename Use>
void for_each_common_run(const shard_spec& a, const shard_spec& b, Use&& use) {
  require(a.global_shape() == b.global_shape(), "{} and {} are not parts of one tensor", a.text(),
          b.text());
  if (a.size() == 0 || b.size() == 0) return;
  shard_run x = a.run_at(0), y = b.run_at(0);
  while (true) {
    const std::size_t x_end = x.global + x.length, y_end = y.global + y.length;
    const std::size_t begin = std::max(x.global, y.global), end = std::min(x_end, y_end);
    if (begin < end)
      use(x.local + (begin - x.global), y.local + (begin - y.global), end - begin);
    const shard_spec& shorter = x_end <= y_end ? a : b;
    shard_run& run = x_end <= y_end ? x : y;
    const std::size_t next = run.local + run.length;
    if (next == shorter.size()) return;
    run = shorter.run_at(next);
  }
}

/// Which chunk of an axis lies here, of activations whose extents vary from call to call.
struct axis_chunk {
  int axis = -1;
  int index = 0;
  int count = 1;
  std::size_t whole = 0;  ///< the extent of the axis in the whole; 0: `count` times the one here

  /// The part that a tensor of shape `here` is. Throws usage_error when the chunk of the whole has
  /// another extent.
  [[nodiscard]] shard_spec of(const parx::shape& here) const {
    if (count == 1) return shard_spec::whole(here);
    parx::shape all = here;
    const std::size_t at = resolve_axis(axis, here);
    all[at] = whole != 0 ? whole : here[at] * static_cast<std::size_t>(count);
    shard_spec part = shard_spec::whole(all).chunk(axis, index, count);
    require(part.shape() == here, "activations of shape {} are not {}", to_string(here),
            part.text());
    return part;
  }
};

}  // namespace parx
