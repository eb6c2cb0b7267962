// chart: line charts and bar charts as SVG text, for the report.
//
// Text and axes have the page's text colour (currentColor); the colours of curves are visible on
// white and on black. So one drawing serves light and dark mode. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::train::detail {

struct curve {
  std::string name;
  std::vector<std::pair<double, double>> points = {};
  /// Curves of one kind have the same colour or the same dashes; unset: the number of the curve.
  std::optional<std::size_t> colour = {}, dashes = {};
};

struct chart_text {
  std::string title;
  std::string x_label;  ///< with its unit
  std::string y_label;
};

/// The colour of the page's text, for what stands for curves of any colour.
inline constexpr std::size_t text_colour = static_cast<std::size_t>(-1);

/// Colours of curves and bars, repeating.
[[nodiscard]] constexpr std::string_view colour(std::size_t index) noexcept {
  constexpr std::array<std::string_view, 10> colours{"#3b82f6", "#f97316", "#10b981", "#a855f7",
                                                     "#ef4444", "#0891b2", "#ca8a04", "#ec4899",
                                                     "#84888f", "#6d8c1f"};
  return index == text_colour ? "currentColor" : colours[index % colours.size()];
}

/// The tick marks of an axis that includes `low` and `high`: about `wanted`, at multiples of 1, 2
/// or 5 times a power of ten. The axis reaches from the first to the last.
[[nodiscard]] std::vector<double> ticks(double low, double high, double wanted);

/// 1500000 as "1.5M", 0.00002 as "2e-05".
[[nodiscard]] std::string tick_text(double value);

/// The page scales a chart from a phone's width to about this.
inline constexpr double chart_width = 480;
inline constexpr double chart_height = 300;

[[nodiscard]] std::string svg(double height, std::string_view title, std::string_view body);

/// The symbol beside each name in a legend.
enum class legend_symbol { line, area };

/// A legend under a chart, in as many rows as it needs; `y` is moved to its last row. Only the
/// names and colours of the curves count.
[[nodiscard]] std::string legend(const std::vector<curve>& curves, double& y, legend_symbol symbol);

/// `text`, shortened in the middle to at most `most` characters: "a-long-na...er-run".
[[nodiscard]] std::string shortened(std::string_view text, std::size_t most);

/// A pair of axes that includes all finite points, and the mapping from values to pixels.
class chart_axes {
 public:
  explicit chart_axes(const std::vector<curve>& curves);

  [[nodiscard]] bool empty() const noexcept { return x_low_ > x_high_; }
  [[nodiscard]] double x_of(double x) const noexcept {
    return left + (x - x_low_) / (x_high_ - x_low_) * (right - left);
  }
  [[nodiscard]] double y_of(double y) const noexcept {
    return bottom - (y - y_ticks_.front()) / (y_ticks_.back() - y_ticks_.front()) * (bottom - top);
  }

  [[nodiscard]] std::string drawn(const chart_text& text) const;

  static constexpr double left = 72, right = chart_width - 16, top = 32, bottom = chart_height - 72;

 private:
  static constexpr double infinite = std::numeric_limits<double>::infinity();
  double x_low_ = infinite, x_high_ = -infinite, y_low_ = infinite, y_high_ = -infinite;
  std::vector<double> x_ticks_, y_ticks_;
};

/// At most this many points of a curve have tooltips. If one of three or more curves has over twice
/// as many points, at most this many are drawn of each curve, each the mean of a block.
inline constexpr std::size_t most_values = 60;

/// Curves over one pair of axes. The legend names them, or else the curves `named`. Empty if there
/// are no finite points.
[[nodiscard]] std::string line_chart(const chart_text& text, const std::vector<curve>& curves,
                                     const std::vector<curve>& named = {});

struct bar {
  std::string name;
  std::vector<double> parts = {};  ///< in percent of the whole bar
};

/// Horizontal bars of 100 %, one below the other, each divided into the same named parts.
[[nodiscard]] std::string share_bars(std::string_view title, const std::vector<std::string>& parts,
                                     const std::vector<bar>& bars);

}  // namespace parx::train::detail
