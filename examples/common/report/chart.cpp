#include "common/report/chart.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "common/xml_text.hpp"
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::train::detail {

std::vector<double> ticks(double low, double high, double wanted) {
  // Values that differ only in their last digits count as one: ticks between them would coincide.
  if (!(high - low > 1e-9 * std::max(std::abs(low), std::abs(high)))) {
    const double half = low == 0 ? 0.5 : std::abs(low) / 2;
    low -= half;
    high += half;
  }
  const double rough = (high - low) / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double nice : {1.0, 2.0, 5.0}) {
    if (nice * power >= rough * 0.999) {
      step = nice * power;
      break;
    }
  }
  std::vector<double> marks;
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  for (double i = first; i <= last; ++i) marks.push_back(i * step == 0 ? 0 : i * step);
  return marks;
}

std::string tick_text(double value) {
  const double size = std::abs(value);
  if (size >= 1e9) return formatted("{:.4g}G", value / 1e9);
  if (size >= 1e6) return formatted("{:.4g}M", value / 1e6);
  if (size >= 1e4) return formatted("{:.4g}k", value / 1e3);
  return formatted("{:.4g}", value);
}

[[nodiscard]] std::string text_at(double x, double y, std::string_view text,
                                  std::string_view more = "") {
  return formatted("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, more, xml_text(text));
}

std::string svg(double height, std::string_view title, std::string_view body) {
  return formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" "
      "font-family=\"system-ui,sans-serif\" font-size=\"12\" fill=\"currentColor\" role=\"img\" "
      "aria-label=\"{2}\">\n{3}{4}</svg>\n",
      chart_width, height, xml_text(title),
      text_at(chart_width / 2, 18, shortened(title, 56),
              "text-anchor=\"middle\" font-size=\"14\" font-weight=\"600\""),
      body);
}

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  const std::size_t kept = most - 3, front = kept / 2;
  return formatted("{}...{}", text.substr(0, front), text.substr(text.size() - (kept - front)));
}

/// The stroke of curve number `i`. Dashed, so that a curve below is visible through the gaps.
[[nodiscard]] std::string stroke_of(const curve& drawn, std::size_t i) {
  static constexpr std::string_view dashes[] = {"none", "9 5", "3 4", "12 4 3 4"};
  return formatted("fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" stroke-dasharray=\"{}\"",
                   colour(drawn.colour.value_or(i)),
                   dashes[drawn.dashes.value_or(i) % std::size(dashes)]);
}

std::string legend(const std::vector<curve>& curves, double& y, legend_symbol symbol) {
  constexpr double left = 24;
  const double size = symbol == legend_symbol::line ? 24 : 10;
  std::string body;
  double x = left;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const std::string name = shortened(curves[i].name, 48);
    const double width = size + 14 + 7.0 * static_cast<double>(name.size());
    if (x + width > chart_width - 10 && x > left) {
      x = left;
      y += 18;
    }
    body += symbol == legend_symbol::line
                ? formatted("<path d=\"M{:.1f} {:.1f}h{}\" {}/>\n", x, y - 4, size,
                            stroke_of(curves[i], i))
                : formatted(
                      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" "
                      "fill=\"{}\"/>\n",
                      x, y - 9, size, size, colour(i));
    body += text_at(x + size + 4, y, name);
    x += width;
  }
  return body;
}

chart_axes::chart_axes(const std::vector<curve>& curves) {
  for (const curve& each : curves) {
    for (const auto& [x, y] : each.points) {
      if (!std::isfinite(y)) continue;
      x_low_ = std::min(x_low_, x);
      x_high_ = std::max(x_high_, x);
      y_low_ = std::min(y_low_, y);
      y_high_ = std::max(y_high_, y);
    }
  }
  if (empty()) return;
  // If the values are close enough to zero, the axis starts at zero.
  if (y_low_ > 0 && y_low_ < 0.5 * y_high_) y_low_ = 0;
  x_ticks_ = ticks(x_low_, x_high_, 7);
  y_ticks_ = ticks(y_low_, y_high_, 5);
  if (!(x_high_ > x_low_)) {
    x_low_ = x_ticks_.front();
    x_high_ = x_ticks_.back();
  }
}

std::string chart_axes::drawn(const chart_text& text) const {
  std::string body;
  for (const double tick : y_ticks_) {
    body += formatted(
        "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"currentColor\" "
        "stroke-opacity=\"0.15\"/>\n",
        left, right, y_of(tick), y_of(tick));
    body +=
        text_at(left - 6, y_of(tick) + 4, tick_text(tick), "text-anchor=\"end\" font-size=\"11\"");
  }
  for (const double tick : x_ticks_) {
    if (tick < x_low_ - 1e-9 * std::abs(x_low_) || tick > x_high_ * (1 + 1e-9)) continue;
    body += text_at(x_of(tick), bottom + 16, tick_text(tick),
                    "text-anchor=\"middle\" font-size=\"11\"");
  }
  body += formatted(
      "<path d=\"M{} {}V{}H{}\" fill=\"none\" stroke=\"currentColor\" stroke-opacity=\"0.6\"/>\n",
      left, top, bottom, right);
  body += text_at((left + right) / 2, bottom + 34, text.x_label, "text-anchor=\"middle\"");
  body += text_at(0, 0, text.y_label,
                  formatted("text-anchor=\"middle\" transform=\"translate(12 {}) rotate(-90)\"",
                            (top + bottom) / 2));
  return body;
}

/// The means of every `block` points; a mean over a point that is not finite is not finite.
[[nodiscard]] curve means_of(const curve& given, std::size_t block) {
  curve means{.name = given.name, .colour = given.colour, .dashes = given.dashes};
  for (std::size_t from = 0; from < given.points.size(); from += block) {
    const std::size_t count = std::min(block, given.points.size() - from);
    double x = 0, y = 0;
    for (std::size_t i = from; i < from + count; ++i) {
      x += given.points[i].first / static_cast<double>(count);
      y += given.points[i].second / static_cast<double>(count);
    }
    means.points.emplace_back(x, y);
  }
  return means;
}

/// A line with tooltips, interrupted at points that are not finite. If there are few points, they
/// are also drawn as dots.
[[nodiscard]] std::string drawn_curve(const chart_axes& axes, const curve& given,
                                      std::size_t number, std::string_view x_label) {
  std::string path, dots;
  bool draws = false;
  const std::size_t between_values = (given.points.size() + most_values - 1) / most_values;
  for (std::size_t i = 0; i < given.points.size(); ++i) {
    const auto [x, y] = given.points[i];
    if (!std::isfinite(y)) {
      draws = false;
      continue;
    }
    path += formatted("{}{:.1f} {:.1f}", draws ? 'L' : 'M', axes.x_of(x), axes.y_of(y));
    draws = true;
    if (i % between_values != 0) continue;
    const bool is_seen = given.points.size() <= 12;
    dots += formatted(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"><title>{}, {} {:.6g}: {:.5g}"
        "</title></circle>\n",
        axes.x_of(x), axes.y_of(y), is_seen ? 3 : 5,
        is_seen ? colour(given.colour.value_or(number)) : "transparent", xml_text(given.name),
        xml_text(x_label), x, y);
  }
  return formatted("<path d=\"{}\" {} stroke-linejoin=\"round\"/>\n{}", path,
                   stroke_of(given, number), dots);
}

std::string line_chart(const chart_text& text, const std::vector<curve>& curves,
                       const std::vector<curve>& named) {
  std::size_t longest = 0;
  for (const curve& each : curves) longest = std::max(longest, each.points.size());
  // Many noisy curves are unreadable: draw means of blocks instead.
  const bool is_crowded = curves.size() > 2 && longest > 2 * most_values;
  const std::size_t block = is_crowded ? (longest + most_values - 1) / most_values : 1;
  std::vector<curve> shown;
  for (const curve& each : curves) shown.push_back(means_of(each, block));
  const chart_axes axes(shown);
  if (axes.empty()) return "";
  std::string body = axes.drawn(text);
  for (std::size_t i = 0; i < shown.size(); ++i)
    body += drawn_curve(axes, shown[i], i, text.x_label);
  double y = chart_axes::bottom + 54;
  body += legend(named.empty() ? shown : named, y, legend_symbol::line);
  const std::string title =
      is_crowded ? formatted("{} (means of {} values)", text.title, block) : text.title;
  return svg(y + 12, title, body);
}

std::string share_bars(std::string_view title, const std::vector<std::string>& parts,
                       const std::vector<bar>& bars) {
  if (bars.empty()) return "";
  constexpr double left = 84, right = chart_width - 16, top = 32, height = 18;
  std::string body;
  double y = top;
  for (const bar& each : bars) {
    body += text_at(left - 6, y + 13, each.name, "text-anchor=\"end\"");
    double x = left;
    for (std::size_t i = 0; i < each.parts.size(); ++i) {
      const double width = std::clamp(each.parts[i] / 100 * (right - left), 0.0, right - x);
      body += formatted(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\">"
          "<title>{}: {} {:.1f} %</title></rect>\n",
          x, y, width, height - 4, colour(i), xml_text(each.name), xml_text(parts[i]),
          each.parts[i]);
      if (width > 40) {
        body += text_at(x + width / 2, y + 11, formatted("{:.0f} %", each.parts[i]),
                        "text-anchor=\"middle\" fill=\"#fff\" font-size=\"10\"");
      }
      x += width;
    }
    y += height;
  }
  for (int percent = 0; percent <= 100; percent += 20) {
    body += text_at(left + percent / 100.0 * (right - left), y + 14, formatted("{}", percent),
                    "text-anchor=\"middle\"");
  }
  body += text_at((left + right) / 2, y + 32, "share of the time (%)", "text-anchor=\"middle\"");
  y += 52;
  std::vector<curve> named;
  for (const std::string& part : parts) named.push_back({.name = part});
  body += legend(named, y, legend_symbol::area);
  return svg(y + 12, title, body);
}

}  // namespace parx::train::detail
