// lane_drawing: what several threads do, drawn as SVG. One row for each, time from left to right, a
// box for each span, or a curve for a quantity. Pure.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/xml_text.hpp"
#include <parx/core/formatted.hpp>

namespace examples {

struct lane_box {
  double begin = 0, end = 0;  ///< milliseconds
  std::string label;          ///< drawn where it fits; always shown under the mouse
  std::string_view fill;
};

struct lane {
  std::string name;
  std::vector<lane_box> boxes = {};
  /// Instead of boxes a step curve: time in milliseconds, and the quantity from then on.
  std::vector<std::pair<double, double>> curve = {};
  std::string_view unit = {};  ///< of the curve
};

struct lane_picture {
  std::string title;
  std::vector<lane> lanes;
  std::vector<std::pair<std::string_view, std::string>> legend;  ///< fill, meaning
};

namespace detail {

inline constexpr double lane_left = 128, lane_width = 720, lane_height = 30;

/// The curve of `row`, whose highest value fills the lane.
inline std::string drawn_curve(const lane& row, double y, double scale, double end) {
  double most = 0, before = 0;
  for (const auto& [time, value] : row.curve) most = std::max(most, value);
  const auto height = [&](double value) {
    return y + lane_height - 6 - value / std::max(most, 1e-300) * (lane_height - 8);
  };
  std::string path = parx::formatted("M {:.1f} {:.1f}", lane_left, height(0));
  for (const auto& [time, value] : row.curve) {
    const double x = lane_left + std::max(time, 0.0) * scale;
    path +=
        parx::formatted(" L {:.1f} {:.1f} L {:.1f} {:.1f}", x, height(before), x, height(value));
    before = value;
  }
  const double last = lane_left + end * scale;
  path +=
      parx::formatted(" L {:.1f} {:.1f} L {:.1f} {:.1f} Z", last, height(before), last, height(0));
  return parx::formatted(
      "<path d=\"{}\" fill=\"#c9b3de\" stroke=\"#7d5ba6\"><title>{}</title></path>\n"
      "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"10\" fill=\"#555555\">{:.0f} {}</text>\n",
      path, parx::xml_text(row.name), last + 5, y + 11, most, row.unit);
}

inline std::string drawn_box(const lane_box& each, double y, double scale) {
  const double x = lane_left + each.begin * scale;
  const double wide = std::max((each.end - each.begin) * scale, 0.6);
  std::string svg = parx::formatted(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\" "
      "stroke=\"#ffffff\" stroke-width=\"0.6\"><title>{}</title></rect>\n",
      x, y, wide, lane_height - 6, each.fill, parx::xml_text(each.label));
  if (6.4 * static_cast<double>(each.label.size()) > wide) return svg;
  return svg + parx::formatted("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                               x + wide / 2, y + 16, parx::xml_text(each.label));
}

}  // namespace detail

inline std::string to_svg(const lane_picture& drawn) {
  using namespace detail;
  double end = 1e-300;
  for (const lane& row : drawn.lanes) {
    for (const lane_box& each : row.boxes) end = std::max(end, each.end);
  }
  const double scale = lane_width / end, top = 36;
  const double bottom = top + lane_height * static_cast<double>(drawn.lanes.size());
  std::string svg = parx::formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
      "<text x=\"8\" y=\"22\" font-size=\"13\" font-weight=\"bold\">{2}</text>\n",
      lane_left + lane_width + 70, bottom + 58, parx::xml_text(drawn.title));
  const double tick = end > 100 ? 20 : end > 40 ? 10 : 5;  // milliseconds
  for (double at = 0; at <= end; at += tick) {
    const double x = lane_left + at * scale;
    svg += parx::formatted(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#dddddd\"/>\n"
        "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\" "
        "font-size=\"10\">{4:.0f}{5}</text>\n",
        x, top, bottom, bottom + 13, at, at == 0 ? " ms" : "");
  }
  double y = top;
  for (const lane& row : drawn.lanes) {
    svg += parx::formatted(
        "<text x=\"8\" y=\"{:.1f}\">{}</text>\n<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" "
        "height=\"{}\" fill=\"#999999\" fill-opacity=\"0.12\"/>\n",
        y + 16, parx::xml_text(row.name), lane_left, y, lane_width, lane_height - 6);
    for (const lane_box& each : row.boxes) svg += drawn_box(each, y, scale);
    if (!row.curve.empty()) svg += drawn_curve(row, y, scale, end);
    y += lane_height;
  }
  double x = lane_left;
  for (const auto& [fill, meaning] : drawn.legend) {
    svg += parx::formatted(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        x, bottom + 30, fill, x + 17, bottom + 40, parx::xml_text(meaning));
    x += 34 + 6.2 * static_cast<double>(meaning.size());
  }
  return svg + "</svg>\n";
}

}  // namespace examples
