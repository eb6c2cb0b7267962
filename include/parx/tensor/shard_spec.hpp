// shard_spec: which part of a tensor this rank holds, as a value.
//
// A part has one or several intervals of each axis of the whole: a fused projection of queries,
// keys and values is cut in each of its three blocks. Of the elements in these intervals it may
// have only a range in row-major order: ZeRO cuts a flat buffer evenly, across rows. A part stores
// its elements in the order of the whole. Cuts compose: each is in the coordinates of the part that
// it cuts. A spec takes a few numbers, however large the tensor is. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

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
  [[nodiscard]] static shard_spec whole(const parx::shape& s);

  /// The part of a tensor of shape `s` in these intervals, given as by cuts(): ordered by axis, and
  /// ascending and disjoint within each. Throws usage_error for others.
  [[nodiscard]] static shard_spec of_cuts(const parx::shape& s,
                                          std::span<const axis_interval> cuts);

  // A part of this part. Throws usage_error where it would reach beyond this part.

  /// Indices [begin, end) of an axis.
  [[nodiscard]] shard_spec slice(int axis, std::size_t begin, std::size_t end) const;
  /// Chunk `index` of `count` of an axis, by the rule of chunk_begin.
  [[nodiscard]] shard_spec chunk(int axis, int index, int count) const;
  /// Chunk `index` of `count` of each block; the blocks have these extents and follow each other on
  /// the axis: {width, width, width} for the queries, keys and values of a fused projection.
  [[nodiscard]] shard_spec chunk_of_blocks(int axis, std::span<const std::size_t> blocks, int index,
                                           int count) const;
  [[nodiscard]] shard_spec chunk_of_blocks(int axis, std::initializer_list<std::size_t> blocks,
                                           int index, int count) const {
    return chunk_of_blocks(axis, std::span(blocks.begin(), blocks.size()), index, count);
  }
  /// Elements [begin, end) in row-major order. The result has one axis, which slice() and chunk()
  /// can cut further.
  [[nodiscard]] shard_spec flat(std::size_t begin, std::size_t end) const;

  // Properties.

  [[nodiscard]] const parx::shape& global_shape() const noexcept { return global_; }
  /// The shape of the part itself.
  [[nodiscard]] parx::shape shape() const {
    return is_flat_ ? parx::shape{end_ - begin_} : box_;
  }
  [[nodiscard]] std::size_t size() const noexcept { return end_ - begin_; }
  [[nodiscard]] bool is_whole() const noexcept { return size() == global_.size(); }
  /// Whether it was cut by flat(): a range of elements, without the axes of the whole.
  [[nodiscard]] bool is_flat() const noexcept { return is_flat_; }

  /// The intervals of each axis that is cut: in the order of the axes, ascending.
  [[nodiscard]] std::span<const axis_interval> cuts() const noexcept { return intervals_; }
  /// The first element of an is_flat() part, counted among the elements in cuts().
  [[nodiscard]] std::size_t flat_begin() const noexcept { return begin_; }

  /// The longest run that starts with element `local` of the part, which must exist.
  [[nodiscard]] shard_run run_at(std::size_t local) const noexcept;
  /// Calls use(shard_run) for the runs of the part, in order; each is as long as possible.
  template <typename Use>
  void for_each_run(Use&& use) const {
    for (std::size_t at = 0; at < size();) {
      const shard_run run = run_at(at);
      use(run);
      at += run.length;
    }
  }

  /// "rows 0-63 of [128, 784]", "elements 100-199 of columns 0-9 of [128, 784]", "[128, 784]".
  [[nodiscard]] std::string text() const;

  /// The same elements with the same axes, by whatever sequence of cuts.
  friend bool operator==(const shard_spec& a, const shard_spec& b) noexcept {
    return a.global_ == b.global_ && a.intervals_ == b.intervals_ && a.is_flat_ == b.is_flat_ &&
           a.begin_ == b.begin_ && a.end_ == b.end_;
  }

 private:
  /// This part with only the indices in `taken` of its axis `at`.
  [[nodiscard]] shard_spec with(std::size_t at, std::span<const axis_interval> taken) const;
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

  /// The run from element `local` to the end of its interval of the last axis that is cut.
  [[nodiscard]] shard_run piece_at(std::size_t local) const noexcept;

  [[nodiscard]] std::string axis_name(std::size_t axis) const;
  [[nodiscard]] static std::string range_text(std::size_t begin, std::size_t end);

  parx::shape global_, box_;              // of the whole; of the elements in the intervals
  std::vector<axis_interval> intervals_;  // of the axes that are cut: ascending, not adjacent
  std::size_t begin_ = 0, end_ = 1;       // the elements of the box that are in the part
  bool is_flat_ = false;
};

/// Calls use(offset in a, offset in b, length) for each run that two parts of one tensor have in
/// common, in the tensor's order: what the rank with `a` sends to the rank that needs `b`. Throws
/// usage_error where the shapes of the wholes differ.
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

/// Which chunk of an axis this rank has, of activations whose extents vary from call to call.
struct axis_chunk {
  int axis = -1;
  int index = 0;
  int count = 1;
  std::size_t whole = 0;  ///< the extent of the axis in the whole; 0: `count` times the one here

  /// The part of which `here` is the shape. Throws usage_error when the chunk of the whole has
  /// another extent.
  [[nodiscard]] shard_spec of(const parx::shape& here) const;
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/tensor/detail/shard_spec_impl.hpp>
#endif
