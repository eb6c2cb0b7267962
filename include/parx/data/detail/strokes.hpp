// The ten digits as strokes, and a painter that draws strokes into a small grey image.
//
// Coordinates: the unit square, x to the right, y downwards. Angles in radians, from the x axis
// towards the y axis (so clockwise as seen).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::data::detail {

struct point {
  float x = 0;
  float y = 0;
};

/// An arc of an ellipse; a straight line where both radii are 0, from `center` to `end`.
struct stroke {
  point center;
  point radius;
  float from = 0;
  float to = 0;
  point end;
};

[[nodiscard]] constexpr stroke line(point a, point b) {
  return {.center = a, .radius = {}, .end = b};
}
[[nodiscard]] constexpr stroke arc(point center, point radius, float from_pi, float to_pi) {
  constexpr float pi = 3.14159265F;
  return {.center = center, .radius = radius, .from = from_pi * pi, .to = to_pi * pi, .end = {}};
}

inline constexpr std::array<std::array<stroke, 3>, 10> digit_strokes{{
    {arc({.50F, .50F}, {.28F, .42F}, 0, 2)},
    {line({.34F, .26F}, {.53F, .08F}), line({.53F, .08F}, {.53F, .92F})},
    {arc({.50F, .33F}, {.27F, .25F}, -1, .20F), line({.72F, .48F}, {.22F, .90F}),
     line({.22F, .90F}, {.80F, .90F})},
    {arc({.46F, .29F}, {.27F, .21F}, -.85F, .50F), arc({.46F, .71F}, {.30F, .21F}, -.50F, .85F)},
    {line({.60F, .08F}, {.20F, .62F}), line({.20F, .62F}, {.84F, .62F}),
     line({.62F, .30F}, {.62F, .92F})},
    {line({.76F, .10F}, {.30F, .10F}), line({.30F, .10F}, {.27F, .47F}),
     arc({.48F, .67F}, {.29F, .25F}, -.75F, .78F)},
    {arc({.50F, .69F}, {.26F, .23F}, 0, 2), arc({.74F, .68F}, {.50F, .60F}, -1, -.62F)},
    {line({.20F, .10F}, {.80F, .10F}), line({.80F, .10F}, {.40F, .92F})},
    {arc({.50F, .29F}, {.22F, .20F}, 0, 2), arc({.50F, .71F}, {.27F, .21F}, 0, 2)},
    {arc({.50F, .31F}, {.26F, .23F}, 0, 2), arc({.26F, .32F}, {.50F, .60F}, 0, .38F)},
}};

[[nodiscard]] constexpr bool is_empty(const stroke& s) {
  return s.radius.x == 0 && s.end.x == 0 && s.end.y == 0;
}

/// The corners of the polyline that approximates a stroke.
[[nodiscard]] inline std::vector<point> trace(const stroke& s) {
  if (s.radius.x == 0) return {s.center, s.end};
  const int pieces = 3 + static_cast<int>(std::abs(s.to - s.from) * 2.0F);
  std::vector<point> corners;
  for (int i = 0; i <= pieces; ++i) {
    const float angle =
        s.from + (s.to - s.from) * static_cast<float>(i) / static_cast<float>(pieces);
    corners.push_back(
        {s.center.x + s.radius.x * std::cos(angle), s.center.y + s.radius.y * std::sin(angle)});
  }
  return corners;
}

/// Brightens the pixels within `thickness` of the line from `a` to `b`, with a soft edge of one
/// pixel. All lengths in pixels; pixel (row, column) has its centre at (column + 0.5, row + 0.5).
inline void paint(std::span<float> image, std::size_t side, point a, point b, float thickness,
                  float brightness) {
  const float reach = thickness + 0.5F;
  const float limit = static_cast<float>(side);
  const auto clamp_pixel = [&](float v) {
    return static_cast<std::size_t>(std::clamp(v, 0.0F, limit));
  };
  const std::size_t row_end = clamp_pixel(std::max(a.y, b.y) + reach + 1);
  const std::size_t column_end = clamp_pixel(std::max(a.x, b.x) + reach + 1);
  const point along{b.x - a.x, b.y - a.y};
  const float squared_length = std::max(along.x * along.x + along.y * along.y, 1e-6F);
  for (std::size_t row = clamp_pixel(std::min(a.y, b.y) - reach); row < row_end; ++row) {
    for (std::size_t column = clamp_pixel(std::min(a.x, b.x) - reach); column < column_end;
         ++column) {
      const point from_a{static_cast<float>(column) + 0.5F - a.x,
                         static_cast<float>(row) + 0.5F - a.y};
      const float t =
          std::clamp((from_a.x * along.x + from_a.y * along.y) / squared_length, 0.0F, 1.0F);
      const float dx = from_a.x - t * along.x;
      const float dy = from_a.y - t * along.y;
      const float ink = std::clamp(reach - std::sqrt(dx * dx + dy * dy), 0.0F, 1.0F) * brightness;
      float& pixel = image[row * side + column];
      pixel = std::max(pixel, ink);
    }
  }
}

}  // namespace parx::data::detail
