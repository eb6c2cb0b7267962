// fixed_point: gradients as integers, so that their sums are exact in any order.
//
// Let n be the rows of all ranks and 2^e a power of two above max |g| over all of them. Each g is
// rounded, half to even, to q = g 2^(b - e), and hessians likewise with an e of their own.
//
// Width. |sum q| <= n 2^b, so a sum fits into 64 bits if b + ceil(log2 n) <= 62. b = 31 serves 2^31
// rows. With a power of two for a scale, 0.25, 0.5 and every float within b bits of the greatest
// are exact.
//
// Error. A unit is u = 2^(e - b), so a rounding errs by u / 2 at most, and a sum G of n rows by
// n u / 2 (its standard deviation is u sqrt(n / 12)). A node's gain is G^2 / (H + lambda); with
// w = G / (H + lambda), d gain = 2 w dG - w^2 dH, and a split's gain has three such terms. b = 31,
// n = 10^6, max |g| = 1: |dG| <= 2.4e-4 in the worst case and 1.3e-7 typically, where G itself, the
// sum of a sample, has a deviation of some 500. A float32 gradient was rounded to 2^-25 |g| before:
// the fixed point is the finer of the two for |g| >= 2^-7 max |g|, and else absolutely as fine.
//
// Long tails are the danger: where the greatest |g| is 2^R times a typical one, b - R bits are left
// of that. So where n max |g| > 2^16 sum |g|, b is 62 - ceil(log2 n), and a row's pair takes 16
// bytes in place of 8. A cell of a histogram has 16 bytes in either case.
//
// Quantised (Shi 2022). With few units, max |g| = B / 2 of them and max h = B, a value is rounded
// up with the probability of the part that is cut off, else down: a sum then errs by sqrt(n) / 2
// units at most in standard deviation, and has no bias. What decides is a hash of the row's number
// among all ranks' rows, so the sums are as exact as the others, and small enough to be sent in 2
// or 4 bytes (histogram_exchange.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <variant>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/core/error.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/trees/gradient.hpp>
#include <parx/trees/huge_pages.hpp>
#include <parx/trees/sampling.hpp>

namespace parx::inline PARX_ABI::trees {

/// The sums of gradients and of hessians of some rows, in units: a cell of a histogram.
struct alignas(16) sums {
  std::int64_t g = 0;
  std::int64_t h = 0;

  friend bool operator==(const sums&, const sums&) = default;
  friend sums operator-(const sums& a, const sums& b) noexcept { return {a.g - b.g, a.h - b.h}; }
  sums& operator-=(const sums& less) noexcept {
    g -= less.g;
    h -= less.h;
    return *this;
  }
  sums& operator+=(const sums& more) noexcept {
    g += more.g;
    h += more.h;
    return *this;
  }
};

/// A row's, where 31 bits do.
struct narrow_gradient {
  std::int32_t g;
  std::int32_t h;
};

/// One tree's gradients on this rank.
struct fixed_gradients {
  std::variant<row_vector<narrow_gradient>, row_vector<sums>> rows;
  sums total;         ///< of all ranks' rows
  double g_unit = 1;  ///< what a unit is worth: a power of two
  double h_unit = 1;
  int quant_bins = 0;  ///< no row has more units of g or h; 0: not quantised
};

/// How gradients are rounded to few units.
struct quantisation {
  int bins = 0;                ///< 0: not
  std::uint64_t stream = 0;    ///< of the tree's draws
  std::int64_t first_row = 0;  ///< the number of this rank's first row among all
};

namespace detail {

/// The smallest e such that x < 2^e. x is finite and from 0.
[[nodiscard]] inline int exponent_above(double x) noexcept { return x > 0 ? std::ilogb(x) + 1 : 0; }

/// The greatest |g| and h of some rows.
struct greatest_gradient {
  double g = 0;
  double h = 0;

  greatest_gradient& operator+=(const greatest_gradient& other) noexcept {
    g = std::max(g, other.g);
    h = std::max(h, other.h);
    return *this;
  }
};

/// g is infinite where a gradient is not finite, or a hessian below 0.
[[nodiscard]] inline greatest_gradient greatest_of(std::span<const gradient> given) {
  return ordered_reduce<greatest_gradient>(
      given.size(), elements_of_a_block, [given](std::size_t first, std::size_t last) {
        greatest_gradient found;
        bool valid = true;
        for (const gradient& each : given.subspan(first, last - first)) {
          found += {std::abs(static_cast<double>(each.g)), static_cast<double>(each.h)};
          valid = valid && std::isfinite(each.g) && std::isfinite(each.h) && each.h >= 0;
        }
        if (!valid) found.g = HUGE_VAL;
        return found;
      });
}

/// In units: of g, of h, and of |g|.
struct rounded_sums {
  std::array<std::int64_t, 3> of{};

  rounded_sums& operator+=(const rounded_sums& more) noexcept {
    for (std::size_t i = 0; i < of.size(); ++i) of[i] += more.of[i];
    return *this;
  }
};

/// Half to even.
struct to_nearest {
  std::span<const gradient> given;
  double g_scale;
  double h_scale;

  [[nodiscard]] sums operator()(std::size_t i) const {
    return {static_cast<std::int64_t>(std::nearbyint(static_cast<double>(given[i].g) * g_scale)),
            static_cast<std::int64_t>(std::nearbyint(static_cast<double>(given[i].h) * h_scale))};
  }
};

/// Up or down by a draw: in units of 2^-32, so that integers alone are added.
struct by_draw {
  std::span<const gradient> given;
  double g_scale;
  double h_scale;
  const quantisation* how;

  [[nodiscard]] sums operator()(std::size_t i) const {
    const std::uint64_t draw = hash_of(how->stream, static_cast<std::uint64_t>(how->first_row) + i);
    const auto round = [](float value, double scale, std::uint64_t up_to) {
      return (std::llrint(static_cast<double>(value) * (scale * 0x1p32)) +
              static_cast<std::int64_t>(up_to)) >>
             32;
    };
    return {round(given[i].g, g_scale, draw >> 32), round(given[i].h, h_scale, draw & 0xffffffffU)};
  }
};

/// Writes round(i) of each row to `into` and returns this rank's sums.
template <typename Fixed, typename Round>
[[nodiscard]] rounded_sums round_gradients(const Round& round, row_vector<Fixed>& into) {
  using integer = decltype(Fixed::g);
  into.resize(round.given.size());
  return ordered_reduce<rounded_sums>(
      into.size(), elements_of_a_block, [&](std::size_t first, std::size_t last) {
        rounded_sums sum;
        for (std::size_t i = first; i < last; ++i) {
          const sums pair = round(i);
          into[i] = {static_cast<integer>(pair.g), static_cast<integer>(pair.h)};
          sum += {{pair.g, pair.h, std::abs(pair.g)}};
        }
        return sum;
      });
}

}  // namespace detail

/// Collective: two or three small all_reduces. `given` are this rank's, a pair a row, all hessians
/// from 0; `rows_of_all` is n. `fixed` is overwritten, and its memory used again. All ranks throw
/// errc::bad_data for a gradient that is not finite or a hessian below 0.
inline void fix_gradients(process_group& group, std::span<const gradient> given,
                          std::int64_t rows_of_all, fixed_gradients& fixed,
                          const quantisation& quantised = {}) {
  const detail::greatest_gradient here = detail::greatest_of(given);
  std::array<double, 2> top{here.g, here.h};
  all_reduce(group, top, {.op = reduce_op::max});
  if (!std::isfinite(top[0])) {
    throw_error(
        errc::bad_data,
        "the objective gave a gradient that is not finite, or a hessian that is below 0 or "
        "not finite; a learning_rate that is too great does that, or an objective of yours");
  }
  const int log_rows = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rows_of_all)));
  const auto round = [&]<typename Fixed>(Fixed, const auto& how) {
    if (!std::holds_alternative<row_vector<Fixed>>(fixed.rows)) {
      fixed.rows.emplace<row_vector<Fixed>>();
    }
    auto sum = detail::round_gradients(how, std::get<row_vector<Fixed>>(fixed.rows));
    all_reduce(group, sum.of);
    fixed.total = {sum.of[0], sum.of[1]};
    return sum.of[2];
  };
  const auto to_nearest = [&](int bits) {
    fixed.g_unit = std::ldexp(1.0, detail::exponent_above(top[0]) - bits);
    fixed.h_unit = std::ldexp(1.0, detail::exponent_above(top[1]) - bits);
    return detail::to_nearest{given, 1 / fixed.g_unit, 1 / fixed.h_unit};
  };
  constexpr int narrow_bits = 31;
  if (log_rows + narrow_bits > 62) {
    throw_error(errc::bad_data, "{} rows: the exact sums of 64 bits hold 2^31", rows_of_all);
  }
  fixed.quant_bins = quantised.bins;
  if (quantised.bins > 0) {
    const int bins = quantised.bins;
    fixed.g_unit = top[0] > 0 ? top[0] / (bins / 2) : 1;
    fixed.h_unit = top[1] > 0 ? top[1] / bins : 1;
    round(narrow_gradient{},
          detail::by_draw{given, 1 / fixed.g_unit, 1 / fixed.h_unit, &quantised});
    return;
  }
  const std::int64_t absolute = round(narrow_gradient{}, to_nearest(narrow_bits));
  const auto has_long_tail = [&](double greatest_value, double unit, std::int64_t sum) {
    return static_cast<double>(rows_of_all) * greatest_value >
           65536.0 * unit * static_cast<double>(sum);
  };
  if (has_long_tail(top[0], fixed.g_unit, absolute) ||
      has_long_tail(top[1], fixed.h_unit, fixed.total.h)) {
    round(sums{}, to_nearest(62 - log_rows));
  }
}

}  // namespace parx::trees
