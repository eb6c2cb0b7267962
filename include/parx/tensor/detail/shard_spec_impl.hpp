// Definitions of shard_spec.hpp.
#pragma once

#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/tensor/shard_spec.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE shard_spec shard_spec::whole(const parx::shape& s) {
  shard_spec all;
  all.global_ = all.box_ = s;
  all.end_ = s.size();
  return all;
}

PARX_INLINE shard_spec shard_spec::of_cuts(const parx::shape& s,
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

PARX_INLINE shard_spec shard_spec::slice(int axis, std::size_t begin, std::size_t end) const {
  const parx::shape here = shape();
  const std::size_t at = resolve_axis(axis, here);
  require(begin <= end && end <= here[at], "slice [{}, {}) of axis {} is outside {}", begin, end,
          axis, text());
  return is_flat_ ? flat(begin, end) : with(at, {{at, begin, end}});
}

PARX_INLINE shard_spec shard_spec::chunk(int axis, int index, int count) const {
  require(index >= 0 && index < count, "chunk {} of {} does not exist", index, count);
  const parx::shape here = shape();
  const std::size_t extent = here[resolve_axis(axis, here)];
  return slice(axis, chunk_begin(extent, count, index), chunk_begin(extent, count, index + 1));
}

PARX_INLINE shard_spec shard_spec::chunk_of_blocks(int axis, std::span<const std::size_t> blocks,
                                                   int index, int count) const {
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

PARX_INLINE shard_spec shard_spec::flat(std::size_t begin, std::size_t end) const {
  require(begin <= end && end <= size(), "elements [{}, {}) are outside {}", begin, end, text());
  if (box_.rank() == 1) return slice(0, begin, end);
  shard_spec piece = *this;
  piece.is_flat_ = true;
  piece.end_ = begin_ + end;
  piece.begin_ += begin;
  return piece;
}

PARX_INLINE shard_run shard_spec::run_at(std::size_t local) const noexcept {
  shard_run run = piece_at(local);
  for (std::size_t next; (next = run.local + run.length) < size();) {
    const shard_run more = piece_at(next);
    if (more.global != run.global + run.length) break;
    run.length += more.length;
  }
  return run;
}

PARX_INLINE std::string shard_spec::text() const {
  std::string cuts;
  for (std::size_t i = 0; i < intervals_.size(); ++i) {
    const axis_interval& each = intervals_[i];
    const bool same_axis = i > 0 && intervals_[i - 1].axis == each.axis;
    if (i > 0) cuts += same_axis ? "," : " and ";
    if (!same_axis) cuts += axis_name(each.axis);
    cuts += range_text(each.begin, each.end);
  }
  return formatted("{}{}{}[{}]", is_flat_ ? "elements" + range_text(begin_, end_) + " of " : "",
                   cuts, cuts.empty() ? "" : " of ", joined_text(global_));
}

PARX_INLINE shard_spec shard_spec::with(std::size_t at,
                                        std::span<const axis_interval> taken) const {
  std::vector<axis_interval> kept;
  const auto keep = [&](std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    if (!kept.empty() && kept.back().end == begin)
      kept.back().end = end;
    else
      kept.push_back({at, begin, end});
  };
  for (const axis_interval& some : taken) {
    std::size_t first = 0;  // the index in this part at which an interval of the whole begins
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

PARX_INLINE shard_run shard_spec::piece_at(std::size_t local) const noexcept {
  const std::size_t at = begin_ + local, rest = end_ - at;
  if (intervals_.empty()) return {local, at, rest};
  const std::size_t last = intervals_.back().axis;
  std::size_t stride = 1;
  for (std::size_t axis = last + 1; axis < global_.rank(); ++axis) stride *= global_[axis];
  shard_run piece{local, at % stride, 0};
  std::size_t index = at / stride;  // row-major over the axes up to `axis`
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

PARX_INLINE std::string shard_spec::axis_name(std::size_t axis) const {
  if (global_.rank() == 1) return "elements";
  if (axis == 0) return "rows";
  if (global_.rank() == 2) return "columns";
  return formatted("axis {}:", axis);
}

PARX_INLINE std::string shard_spec::range_text(std::size_t begin, std::size_t end) {
  if (begin == end) return " none";
  return end - begin == 1 ? formatted(" {}", begin) : formatted(" {}-{}", begin, end - 1);
}

PARX_INLINE shard_spec axis_chunk::of(const parx::shape& here) const {
  if (count == 1) return shard_spec::whole(here);
  parx::shape all = here;
  const std::size_t at = resolve_axis(axis, here);
  all[at] = whole != 0 ? whole : here[at] * static_cast<std::size_t>(count);
  shard_spec part = shard_spec::whole(all).chunk(axis, index, count);
  require(part.shape() == here, "activations of shape {} are not {}", to_string(here), part.text());
  return part;
}

}  // namespace parx
