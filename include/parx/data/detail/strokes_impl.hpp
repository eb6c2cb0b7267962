// Definitions of strokes.hpp.
#pragma once

#include <algorithm>
#include <cmath>

#include <parx/data/detail/strokes.hpp>

namespace parx::inline PARX_ABI::data::detail {

PARX_INLINE std::vector<point> trace(const stroke& s) {
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

PARX_INLINE void paint(std::span<float> image, std::size_t side, point a, point b, float thickness,
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
