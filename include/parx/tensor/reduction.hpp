// Reductions: sum, mean, max, min over some or all axes, and argmax.
//
// Contiguous runs are reduced in 16 lanes, of floats by packets: a compiler may not reorder
// floating-point sums by itself. The order of additions depends only on shape and strides: every
// run of the program gives the same bits.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/cut_rows.hpp>
#include <parx/tensor/detail/loop_nest.hpp>
#include <parx/tensor/packet.hpp>
#include <parx/tensor/tensor.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI {

/// Whether a result replaces what is in the memory or adds to it.
enum class accumulate { overwrite, add };
/// Whether axes that were reduced stay, with extent 1.
enum class reduced_axes { dropped, kept };

/// For reduce_lanes().
struct add_op {
  template <typename T>
  [[nodiscard]] T operator()(T a, T b) const noexcept {
    return static_cast<T>(a + b);
  }
};
struct max_op {
  template <typename T>
  [[nodiscard]] T operator()(T a, T b) const noexcept {
    return a < b ? b : a;
  }
};

/// The value_at of elements that are adjacent, which are read in packets.
template <typename T>
struct adjacent {
  const T* from;
  [[nodiscard]] T operator()(std::size_t i) const noexcept { return from[i]; }
};

namespace detail {

/// The larger one; NaN where one of them is NaN.
struct largest_op {
  template <typename T>
  [[nodiscard]] T operator()(T a, T b) const noexcept {
    const T most = a < b ? b : a;
    return b != b ? b : most;
  }
};
struct smallest_op {
  template <typename T>
  [[nodiscard]] T operator()(T a, T b) const noexcept {
    const T least = b < a ? b : a;
    return b != b ? b : least;
  }
};
/// Not larger than any number of T.
template <typename T>
[[nodiscard]] constexpr T least_of() noexcept {
  using limits = std::numeric_limits<T>;
  if constexpr (limits::has_infinity) return static_cast<T>(-limits::infinity());
  else return limits::lowest();
}
template <typename T>
[[nodiscard]] constexpr T most_of() noexcept {
  using limits = std::numeric_limits<T>;
  if constexpr (limits::has_infinity) return limits::infinity();
  else return limits::max();
}

inline constexpr std::size_t reduction_lanes = 16, longest_run = 128 * reduction_lanes;

/// combine of value_at(begin) ... value_at(end - 1), starting from `start` in every lane: the
/// neutral element, or any element of an idempotent operation. Inlined, with loops of fixed length:
/// from g++, a call and loops of variable length take longer than the elements of a short run.
template <typename T, typename Combine, typename ValueAt>
[[nodiscard, gnu::always_inline]] inline T reduce_run(std::size_t begin, std::size_t end, T start,
                                                      Combine combine, ValueAt value_at) {
  constexpr std::size_t lanes = reduction_lanes;
  std::array<T, lanes> lane;
  lane.fill(start);
  std::size_t i = begin;
  if constexpr (std::is_same_v<ValueAt, adjacent<T>> && packet_size<T> > 1) {
    constexpr std::size_t packets = lanes / packet_size<T>;
    std::array<packet<T>, packets> of_lanes;
    of_lanes.fill(all_of<packet<T>>(start));
    for (; i + lanes <= end; i += lanes) {
#pragma GCC unroll 4
      for (std::size_t l = 0; l < packets; ++l) {
        const T* const from = value_at.from + i + l * packet_size<T>;
        of_lanes[l] = combine(of_lanes[l], load_packet(from));
      }
    }
    std::memcpy(lane.data(), of_lanes.data(), sizeof lane);
  } else {
    for (; i + lanes <= end; i += lanes) {
      for (std::size_t l = 0; l < lanes; ++l) lane[l] = combine(lane[l], value_at(i + l));
    }
  }
  for (std::size_t l = 0; i < end; ++i, ++l) lane[l] = combine(lane[l], value_at(i));
  for (std::size_t l = 0; l < 8; ++l) lane[l] = combine(lane[l], lane[l + 8]);
  for (std::size_t l = 0; l < 4; ++l) lane[l] = combine(lane[l], lane[l + 4]);
  for (std::size_t l = 0; l < 2; ++l) lane[l] = combine(lane[l], lane[l + 2]);
  return combine(lane[0], lane[1]);
}
[[nodiscard]] inline std::size_t middle_of(std::size_t begin, std::size_t end) noexcept {
  return begin + (end - begin) / (2 * reduction_lanes) * reduction_lanes;
}
/// The same with long runs halved recursively (pairwise summation): the rounding error of a sum
/// grows with the logarithm of its length.
template <typename T, typename Combine, typename ValueAt>
[[nodiscard]] T reduce_halves(std::size_t begin, std::size_t end, T start, Combine combine,
                              ValueAt value_at) {
  if (end - begin <= longest_run) return reduce_run(begin, end, start, combine, value_at);
  const std::size_t middle = middle_of(begin, end);
  return combine(reduce_halves(begin, middle, start, combine, value_at),
                 reduce_halves(middle, end, start, combine, value_at));
}
/// reduce_halves, by the threads of the rank.
template <typename T, typename Combine, typename ValueAt>
[[nodiscard]] T reduce_by_threads(std::size_t begin, std::size_t end, T start, Combine combine,
                                  ValueAt value_at) {
  // A level of the tree, from left to right, whose parts are short enough for a thread.
  std::vector<std::size_t> bounds{begin, end};
  while (bounds[1] - bounds[0] > elements_of_a_block) {
    std::vector<std::size_t> halved;
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
      halved.insert(halved.end(), {bounds[i], middle_of(bounds[i], bounds[i + 1])});
    }
    halved.push_back(end);
    bounds = std::move(halved);
  }
  std::vector<T> parts(bounds.size() - 1);
  parallel_for(parts.size(), 1, [&](std::size_t i, std::size_t) {
    parts[i] = reduce_halves(bounds[i], bounds[i + 1], start, combine, value_at);
  });
  for (; parts.size() > 1; parts.resize(parts.size() / 2)) {
    for (std::size_t i = 0; i < parts.size() / 2; ++i) {
      parts[i] = combine(parts[2 * i], parts[2 * i + 1]);
    }
  }
  return parts[0];
}
}  // namespace detail

/// combine of value_at(begin) ... value_at(end - 1), in 16 lanes, from `start`: the neutral
/// element, or any element of an idempotent operation. The order depends on the number of elements
/// alone.
template <typename T, typename Combine, typename ValueAt>
[[nodiscard, gnu::always_inline]] inline T reduce_lanes(std::size_t begin, std::size_t end, T start,
                                                        Combine combine, ValueAt value_at) {
  return end - begin <= detail::longest_run
             ? detail::reduce_run(begin, end, start, combine, value_at)
             : detail::reduce_by_threads(begin, end, start, combine, value_at);
}

namespace detail {

/// target[...] = combine(target[...], source[...]) over the axes on which target is repeated. The
/// threads of the rank divide the target, so that what it is combined with comes in one order.
template <typename T, typename Combine>
void reduce_runs(const tensor<T>& source, const tensor<T>& target, T start, Combine combine) {
  const loop_nest<2> nest(
      source.shape(),
      {source.strides(), broadcast_strides(target.shape(), target.strides(), source.shape())});
  const auto step = nest.run_step();
  const auto reduce_one = [&](const auto& offset, std::size_t count) __attribute__((noinline)) {
    const T* const from = source.data() + offset[0];
    T* const to = target.data() + offset[1];
    if (step[0] == 1 && step[1] == 0) {
      *to = combine(*to, reduce_lanes(0, count, start, combine, adjacent<T>{from}));
    } else if (step[0] == 1 && step[1] == 1) {
      if constexpr (std::is_floating_point_v<T>) {
        for_each_packet<T>(count, [&](std::size_t i, auto... left) PARX_PACKET_BODY {
          const auto sum = load_packet(to + i, left...), next = load_packet(from + i, left...);
          store_packet(to + i, combine(sum, next), left...);
        });
      } else {
        for (std::size_t i = 0; i < count; ++i) to[i] = combine(to[i], from[i]);
      }
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        T& sum = to[i * step[1]];
        sum = combine(sum, from[i * step[0]]);
      }
    }
  };
  const std::size_t runs = nest.runs(), length = nest.run_length();
  if (step[1] != 0 && runs > 1) {  // sums of rows: each thread takes some columns of all rows
    const std::size_t grain = std::max<std::size_t>(64, elements_of_a_block / runs / 16 * 16);
    parallel_for(length, grain, [&](std::size_t first, std::size_t last) {
      nest.for_each_run([&](const auto& offset) {
        reduce_one(std::array{offset[0] + first * step[0], offset[1] + first * step[1]},
                   last - first);
      });
    });
  } else if (nest.moves_between_runs(1)) {  // each run has a target of its own
    parallel_for(runs, elements_of_a_block / std::max<std::size_t>(length, 1) + 1,
                 [&](std::size_t first, std::size_t last) {
                   nest.for_each_run(first, last,
                                     [&](const auto& offset) { reduce_one(offset, length); });
                 });
  } else {
    nest.for_each_run([&](const auto& offset) { reduce_one(offset, length); });
  }
}

[[nodiscard]] inline shape keep_reduced(const shape& s, std::span<const int> axes) {
  shape result = s;
  for (const int axis : axes) result[resolve_axis(axis, s)] = 1;
  return result;
}
[[nodiscard]] inline shape drop_reduced(const shape& s, std::span<const int> axes) {
  unsigned reduced = 0;
  for (const int axis : axes) reduced |= 1U << resolve_axis(axis, s);
  shape result;
  for (std::size_t axis = 0; axis < s.rank(); ++axis) {
    if ((reduced & (1U << axis)) == 0) result.push_back(s[axis]);
  }
  return result;
}

/// Throws usage_error where an element of the result has none behind it.
inline void require_elements(const shape& s, std::span<const int> axes, std::string_view which) {
  require(s.size() > 0 || drop_reduced(s, axes).size() == 0,
          "a tensor of shape {} has no {} element", to_string(s), which);
}

template <typename T, typename Combine>
[[nodiscard]] tensor<T> reduce(const tensor<T>& source, std::span<const int> axes,
                               reduced_axes after, T start, Combine combine) {
  const tensor<T> target = tensor<T>::full(keep_reduced(source.shape(), axes), start);
  reduce_runs(source, target, start, combine);
  return after == reduced_axes::kept ? target : target.reshape(drop_reduced(source.shape(), axes));
}

}  // namespace detail

/// Sums `source` over the axes on which `target` has extent 1 or no axis, into target, which must
/// broadcast to source's shape: the inverse of broadcasting. Throws usage_error naming both shapes.
template <typename T>
void sum_into(const tensor<T>& source, const tensor<T>& target, accumulate how) {
  require(target.rank() <= source.rank() &&
              broadcast_shapes(target.shape(), source.shape()) == source.shape(),
          "a tensor of shape {} cannot be summed to shape {}", to_string(source.shape()),
          to_string(target.shape()));
  if (how == accumulate::overwrite) target.fill(T(0));
  detail::reduce_runs(source, target, T(0), add_op{});
}

// Of logits that are cut by classes over ranks these throw usage_error, with the caller's line.

/// The sum over some axes; of all elements, a scalar, where none are given. Numbers of 16 bits are
/// summed as floats.
template <typename T>
[[nodiscard]] tensor<T> sum(const tensor<T>& source, const axis_list& axes = axis_list::all(),
                            reduced_axes after = reduced_axes::dropped,
                            call_site site = call_site::current()) {
  detail::require_no_cut_logits(source, "sum", site);
  if constexpr (is_half<T>) {
    return sum(source.template cast<float>(), axes, after, site).template cast<T>();
  } else {
    return detail::reduce(source, axes.of(source.shape()), after, T(0), add_op{});
  }
}

/// The largest element along some axes; NaN where one is NaN. Throws usage_error where there is
/// none.
template <typename T>
[[nodiscard]] tensor<T> max(const tensor<T>& source, std::span<const int> axes,
                            reduced_axes after = reduced_axes::dropped,
                            call_site site = call_site::current()) {
  detail::require_no_cut_logits(source, "max", site);
  detail::require_elements(source.shape(), axes, "largest");
  return detail::reduce(source, axes, after, detail::least_of<T>(), detail::largest_op{});
}
template <typename T>
[[nodiscard]] tensor<T> max(const tensor<T>& source, std::initializer_list<int> axes,
                            reduced_axes after = reduced_axes::dropped,
                            call_site site = call_site::current()) {
  return max(source, std::span<const int>(axes.begin(), axes.size()), after, site);
}
template <typename T>
[[nodiscard]] tensor<T> min(const tensor<T>& source, std::initializer_list<int> axes,
                            reduced_axes after = reduced_axes::dropped,
                            call_site site = call_site::current()) {
  detail::require_no_cut_logits(source, "min", site);
  detail::require_elements(source.shape(), {axes.begin(), axes.size()}, "smallest");
  return detail::reduce(source, {axes.begin(), axes.size()}, after, detail::most_of<T>(),
                        detail::smallest_op{});
}

/// See argmax. Errors begin with `call`.
template <typename T>
[[nodiscard]] tensor<std::int64_t> argmax_for(std::string_view call, const tensor<T>& source,
                                              call_site site) {
  require(source.rank() >= 1 && source.shape().back() > 0,
          "{} at {} needs a last axis with elements, not shape {}", call, site,
          to_string(source.shape()));
  const cut_rows* const cut = cut_classes(source, call, site);
  const tensor<T> rows = source.contiguous();
  const std::size_t width = rows.shape().back();
  shape s = rows.shape();
  s.erase(s.rank() - 1);
  tensor<std::int64_t> result = tensor<std::int64_t>::empty(s);
  // As std::max_element finds it: a NaN is the largest if it is the first of the whole row.
  const bool is_first = cut == nullptr || cut->axis->rank() == 0;
  parallel_for(s.size(), elements_of_a_block / width + 1, [&](std::size_t row, std::size_t last) {
    for (; row < last; ++row) {
      const T* const x = rows.data() + row * width;
      const T* const end = x + width;
      const T* begin = x;
      if (!is_first) begin = std::find_if(x, end, [](T value) { return value == value; });
      result.data()[row] = begin == end ? 0 : std::max_element(begin, end) - x;
    }
  });
  if (cut != nullptr) [[unlikely]] {
    std::vector<double> own(2 * s.size());  // exact for float and for numbers of classes
    for (std::size_t row = 0; row < s.size(); ++row) {
      const auto place = static_cast<std::size_t>(result.data()[row]);
      own[2 * row] = static_cast<double>(rows.data()[row * width + place]);
      own[2 * row + 1] = static_cast<double>(place);
    }
    const std::vector<std::size_t> best = detail::largest_of_all_ranks(*cut, own);
    std::copy(best.begin(), best.end(), result.data());
  }
  return result;
}

/// The index of the first largest element along the last axis, which disappears. Of logits that are
/// cut by classes over ranks the class of all; collective over them then: one all-gather. Throws
/// usage_error, with the caller's line, where there is none or other rows are cut.
template <typename T>
[[nodiscard]] tensor<std::int64_t> argmax(const tensor<T>& source,
                                          call_site site = call_site::current()) {
  return argmax_for("argmax", source, site);
}

}  // namespace parx
