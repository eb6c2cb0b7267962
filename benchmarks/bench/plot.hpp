// plot: size against bandwidth, both logarithmic, as one self-contained SVG file.
//
// It needs no script, font or other file. Colours follow the viewer's light or dark mode; lines
// also differ in markers and dashes, for black-and-white print and colour blindness.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "common/xml_text.hpp"

namespace bench {

struct plot_point {
  double bytes = 0;
  double bandwidth = 0;  ///< GB/s; 0 is left out, since the axis is logarithmic
};

struct plot_line {
  std::string name;
  std::vector<plot_point> points;  ///< by ascending size
};

namespace detail {

struct frame {
  static constexpr double width = 780;
  static constexpr double height = 440;
  static constexpr double left = 66;
  static constexpr double right = 620;
  static constexpr double top = 64;
  static constexpr double bottom = 384;
};

/// Hues that can be told apart with the usual kinds of colour blindness, on white and on
/// near-black.
inline constexpr std::array<std::string_view, 8> light_colours{
    "#0068b3", "#d1570b", "#00875f", "#b0437f", "#8a6a00", "#6b4bc4", "#3d7f99", "#555b66"};
inline constexpr std::array<std::string_view, 8> dark_colours{
    "#5db2ff", "#ff9457", "#35d6a0", "#f58fc4", "#e8c23a", "#b7a0ff", "#7fd0ee", "#c3c9d4"};

class axis {
 public:
  /// Maps values from `low` to `high` (above zero) to pixels `from` to `to`.
  axis(double low, double high, double from, double to)
      : low_(std::log2(low)), high_(std::log2(high)), from_(from), to_(to) {}
  [[nodiscard]] double at(double value) const {
    return from_ + (std::log2(value) - low_) / (high_ - low_) * (to_ - from_);
  }

 private:
  double low_;
  double high_;
  double from_;
  double to_;
};

/// The next of ..., 0.1, 0.2, 0.5, 1, 2, 5, 10, ... at or below (above) `value`.
[[nodiscard]] inline double round_step(double value, bool up) {
  const double decade = std::pow(10.0, std::floor(std::log10(value) + 1e-9));
  if (up) {
    for (const double step : {1.0, 2.0, 5.0, 10.0}) {
      if (step * decade >= value * (1 - 1e-9)) return step * decade;
    }
  }
  for (const double step : {5.0, 2.0}) {
    if (step * decade <= value * (1 + 1e-9)) return step * decade;
  }
  return decade;
}

[[nodiscard]] inline std::string size_label(double bytes) {
  static constexpr std::array<std::string_view, 4> units{"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:g} {}", bytes, units[unit]);
}

[[nodiscard]] inline std::string marker(std::size_t line, double x, double y) {
  switch (line % 4) {
    case 0: return fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3.4"/>)", x, y);
    case 1:
      return fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="6" height="6"/>)", x - 3, y - 3);
    case 2:
      return fmt::format(R"(<path d="M{:.1f} {:.1f}l4.2 4.2l-4.2 4.2l-4.2 -4.2z"/>)", x, y - 4.2);
    default: return fmt::format(R"(<path d="M{:.1f} {:.1f}l4.2 7.2h-8.4z"/>)", x, y - 4.4);
  }
}

[[nodiscard]] inline std::string style() {
  std::string text =
      "<style>\n"
      "text{font:13px system-ui,sans-serif;fill:#22262e}.title{font-size:16px;font-weight:600}\n"
      ".quiet{fill:#5c6370}.paper{fill:#ffffff}.grid{stroke:#e3e6ea}.edge{stroke:#8a919c}\n"
      ".line{fill:none;stroke-width:2;stroke-linejoin:round}\n";
  const auto colours = [&](const auto& palette) {
    for (std::size_t i = 0; i < palette.size(); ++i) {
      text += fmt::format(".c{} .line{{stroke:{}}}.c{} .dots{{fill:{}}}\n", i, palette[i], i,
                          palette[i]);
    }
  };
  colours(light_colours);
  text +=
      "@media (prefers-color-scheme:dark){\n"
      "text{fill:#e6e8ec}.quiet{fill:#a3abb8}.paper{fill:#15181d}.grid{stroke:#2b3038}"
      ".edge{stroke:#7a828f}\n";
  colours(dark_colours);
  return text + "}\n</style>\n";
}

}  // namespace detail

/// The whole file.
[[nodiscard]] inline std::string draw_plot(std::string_view title, std::string_view subtitle,
                                           const std::vector<plot_line>& lines) {
  using detail::frame;
  double smallest = 0, largest = 0, slowest = 0, fastest = 0;
  for (const plot_line& line : lines) {
    for (const plot_point& each : line.points) {
      if (each.bandwidth <= 0 || each.bytes <= 0) continue;
      const bool first = fastest == 0;
      smallest = first ? each.bytes : std::min(smallest, each.bytes);
      largest = first ? each.bytes : std::max(largest, each.bytes);
      slowest = first ? each.bandwidth : std::min(slowest, each.bandwidth);
      fastest = first ? each.bandwidth : std::max(fastest, each.bandwidth);
    }
  }
  if (fastest == 0) smallest = largest = slowest = fastest = 1;
  const double low = detail::round_step(slowest, false);
  const double high = std::max(detail::round_step(fastest, true), 2 * low);
  const detail::axis x(smallest, std::max(largest, 2 * smallest), frame::left, frame::right);
  const detail::axis y(low, high, frame::bottom, frame::top);

  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" )"
      R"(role="img">)"
      "\n<title>{2}</title>\n{3}"
      R"(<rect class="paper" width="{0}" height="{1}"/>)"
      "\n"
      R"(<text class="title" x="{4}" y="28">{2}</text>)"
      "\n"
      R"(<text class="quiet" x="{4}" y="48">{5}</text>)"
      "\n",
      frame::width, frame::height, parx::xml_text(title), detail::style(), frame::left,
      parx::xml_text(subtitle));
  auto out = std::back_inserter(svg);

  // About eight labels along the sizes, each a power of two.
  const int first_power = static_cast<int>(std::ceil(std::log2(smallest) - 1e-9));
  const int last_power = static_cast<int>(std::floor(std::log2(largest) + 1e-9));
  const int stride = std::max(1, (last_power - first_power + 7) / 8);
  for (int power = first_power; power <= last_power; power += stride) {
    const double bytes = std::exp2(power);
    fmt::format_to(out,
                   R"(<path class="grid" d="M{0:.1f} {1}V{2}"/><text class="quiet" x="{0:.1f}" )"
                   R"(y="{3}" text-anchor="middle">{4}</text>)"
                   "\n",
                   x.at(bytes), frame::top, frame::bottom, frame::bottom + 20,
                   detail::size_label(bytes));
  }
  // Lines at 1, 2, 5, 10, ...; over many decades only the powers of ten have labels.
  const bool crowded = high / low > 1001;
  for (double step = low; step <= high * (1 + 1e-9);) {
    const double decade = std::pow(10.0, std::round(std::log10(step)));
    const bool is_decade = std::abs(step - decade) < 1e-6 * step;
    fmt::format_to(out, R"(<path class="grid" d="M{} {:.1f}H{}"/>)", frame::left, y.at(step),
                   frame::right);
    if (!crowded || is_decade) {
      fmt::format_to(out, R"(<text class="quiet" x="{}" y="{:.1f}" text-anchor="end">{:g}</text>)",
                     frame::left - 8, y.at(step) + 4.5, step);
    }
    svg += '\n';
    step = detail::round_step(step * 1.5, true);
  }
  fmt::format_to(out,
                 R"(<path class="edge" fill="none" d="M{0} {1}V{2}H{3}"/>)"
                 "\n"
                 R"(<text x="{4:.1f}" y="{5}" text-anchor="middle">size</text>)"
                 "\n"
                 R"svg(<text transform="translate(18 {6:.1f})rotate(-90)" text-anchor="middle">)svg"
                 "bus bandwidth, GB/s</text>\n",
                 frame::left, frame::top, frame::bottom, frame::right,
                 (frame::left + frame::right) / 2, frame::bottom + 42,
                 (frame::top + frame::bottom) / 2);

  // The legend lists the lines in the order of their right ends, from the top down.
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < lines.size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto end = [&](std::size_t i) {
      return lines[i].points.empty() ? 0 : lines[i].points.back().bandwidth;
    };
    return end(a) > end(b);
  });
  for (std::size_t place = 0; place < order.size(); ++place) {
    const std::size_t i = order[place];
    const std::string dashes =
        i % 8 < 4 ? std::string() : std::string(R"( stroke-dasharray="6 4")");
    std::string track;
    std::string dots;
    for (const plot_point& each : lines[i].points) {
      if (each.bandwidth <= 0 || each.bytes <= 0) continue;
      const double px = x.at(each.bytes);
      const double py = y.at(each.bandwidth);
      track += fmt::format("{}{:.1f} {:.1f}", track.empty() ? "M" : "L", px, py);
      dots += detail::marker(i, px, py);
    }
    const double row = frame::top + 12 + 22 * static_cast<double>(place);
    const double key = frame::right + 18;
    fmt::format_to(out,
                   R"(<g class="c{0}"><path class="line"{1} d="{2}M{3} {4}h26"/>)"
                   R"(<g class="dots">{5}{6}</g></g>)"
                   R"(<text x="{7}" y="{8}">{9}</text>)"
                   "\n",
                   i % 8, dashes, track, key, row, dots, detail::marker(i, key + 13, row), key + 34,
                   row + 4.5, parx::xml_text(lines[i].name));
  }
  return svg + "</svg>\n";
}

}  // namespace bench
