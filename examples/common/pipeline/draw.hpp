// draw: a pipeline's timeline, predicted (simulate.hpp) or measured, for a terminal or as SVG.
//
// One row for each rank, time from left to right, one box for each action, with its micro-batch. F
// is blue, B green, I teal, W orange; the stages of one rank differ in shade. The empty space is
// the bubble.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "common/xml_text.hpp"
#include <parx/core/formatted.hpp>
#include <parx/pipeline/simulate.hpp>

namespace parx::inline PARX_ABI {

enum class drawing_colour {
  none,  ///< each action in letters: F0, or 2F0 where ranks have several stages
  ansi,  ///< coloured boxes with micro-batches
};

struct drawing_options {
  drawing_colour colour = drawing_colour::none;
  std::size_t columns = 160;  ///< at most; labels that do not fit are left out
};

namespace detail {

struct action_colour {
  std::array<std::string_view, 2> svg;  ///< for a rank's first stage, and for its others
  std::array<int, 2> ansi;              ///< the same, of the terminal's 256 colours
};
[[nodiscard]] constexpr action_colour colour_of(stage_work kind) noexcept {
  switch (kind) {
    case stage_work::forward: return {{"#4a86c8", "#9dc3ee"}, {{68, 117}}};
    case stage_work::backward: return {{"#5aa55a", "#a5d6a0"}, {{71, 114}}};
    case stage_work::backward_inputs: return {{"#2f9e9b", "#8fd3cf"}, {{37, 80}}};
    default: return {{"#e08a3c", "#f5c58f"}, {{172, 215}}};
  }
}

/// An index into action_colour: 0 for a rank's first stage, 1 for its others.
[[nodiscard]] inline std::size_t shade_of(const pipeline_timeline& of, int stage) noexcept {
  return stage >= static_cast<int>(of.ranks.size()) ? 1 : 0;
}

/// The time of the shortest action.
[[nodiscard]] inline double shortest(const pipeline_timeline& of) {
  double least = of.makespan();
  for (const auto& rank : of.ranks) {
    for (const action_span& each : rank) {
      if (is_compute(each.action.kind) && each.end > each.begin) {
        least = std::min(least, each.end - each.begin);
      }
    }
  }
  return least;
}

}  // namespace detail

/// Lines of text. The last one gives makespan and bubble.
[[nodiscard]] inline std::string to_text(const pipeline_timeline& drawn,
                                         const drawing_options& options = {}) {
  const bool coloured = options.colour == drawing_colour::ansi;
  const bool several = drawn.stages > static_cast<int>(drawn.ranks.size());
  const double makespan = drawn.makespan();
  const double wanted = coloured ? 3 : (several ? 5 : 4);  // columns of the shortest action
  const double fitting =
      static_cast<double>(options.columns - std::min<std::size_t>(options.columns - 1, 5)) /
      std::max(makespan, 1e-300);
  const double scale = std::min(wanted / std::max(detail::shortest(drawn), 1e-300), fitting);
  const auto column = [&](double time) {
    return static_cast<std::size_t>(std::lround(time * scale));
  };
  std::string text;
  for (std::size_t rank = 0; rank < drawn.ranks.size(); ++rank) {
    text += formatted("{:>3}: ", rank);
    std::size_t at = 0;
    for (const action_span& each : drawn.ranks[rank]) {
      if (!is_compute(each.action.kind)) continue;
      const std::size_t begin = std::max(at, column(each.begin));
      const std::size_t width = std::max(begin, column(each.end)) - begin;
      text.append(begin - at, coloured ? ' ' : '.');
      at = begin + width;
      const std::string number = formatted("{}", each.action.microbatch);
      std::string label = coloured ? number
                          : several ? to_string(each.action)
                                    : formatted("{}{}", to_string(each.action.kind), number);
      if (label.size() + (coloured ? 0 : 1) > width) label.clear();
      label.resize(width, coloured ? ' ' : label.empty() ? '?' : '-');
      // Letters end in a space, so that neighbours do not run together.
      if (!coloured && width > 0) label.back() = ' ';
      if (!coloured) std::replace(label.begin(), label.end(), '?', to_string(each.action.kind)[0]);
      const auto shade = detail::shade_of(drawn, each.action.stage);
      text += coloured ? formatted("\x1b[30;48;5;{}m{}\x1b[0m",
                                   detail::colour_of(each.action.kind).ansi[shade], label)
                       : label;
    }
    const std::size_t end = column(makespan);
    text.append(end - std::min(end, at), coloured ? ' ' : '.');
    text += '\n';
  }
  text += formatted("{}: {:.4g} long, bubble {:.1f} %\n", drawn.name, makespan,
                      100 * drawn.bubble());
  return text;
}

/// One picture of several timelines, one below the other, at the same scale: prediction and
/// measurement, or two schedules. Their names are the captions.
[[nodiscard]] inline std::string to_svg(std::span<const pipeline_timeline> drawn) {
  double longest = 0, least = 1e300;
  std::size_t rows = 0;
  for (const pipeline_timeline& each : drawn) {
    longest = std::max(longest, each.makespan());
    least = std::min(least, detail::shortest(each));
    rows += each.ranks.size();
  }
  constexpr double left = 64, row = 26, caption = 34, legend = 30;
  const double scale =
      std::clamp(24 / std::max(least, 1e-300), 600 / std::max(longest, 1e-300),
                 2400 / std::max(longest, 1e-300));
  const double width = left + longest * scale + 16;
  const double height = static_cast<double>(rows) * row +
                        static_cast<double>(drawn.size()) * (caption + 8) + legend;
  std::string svg = formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      width, height);
  double y = 0;
  for (const pipeline_timeline& each : drawn) {
    svg += formatted(
        "<text x=\"8\" y=\"{:.1f}\" font-size=\"13\" font-weight=\"bold\">{}: {:.4g} long, bubble "
        "{:.1f} %</text>\n",
        y + 22, xml_text(each.name), each.makespan(), 100 * each.bubble());
    y += caption;
    for (std::size_t rank = 0; rank < each.ranks.size(); ++rank, y += row) {
      svg += formatted("<text x=\"8\" y=\"{:.1f}\">rank {}</text>\n"
                         "<rect x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" "
                         "fill=\"#eeeeee\"/>\n",
                         y + 16, rank, left, y, each.makespan() * scale, row - 4);
      for (const action_span& span : each.ranks[rank]) {
        const double wide = (span.end - span.begin) * scale;
        if (!is_compute(span.action.kind) || wide <= 0) continue;
        const auto fill = detail::colour_of(span.action.kind)
                              .svg[detail::shade_of(each, span.action.stage)];
        const double x = left + span.begin * scale;
        svg += formatted("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" "
                           "fill=\"{}\" stroke=\"#ffffff\" stroke-width=\"0.7\">"
                           "<title>{} {:.4g} to {:.4g}</title></rect>\n",
                           x, y, wide, row - 4, fill, to_string(span.action), span.begin,
                           span.end);
        const std::string label = formatted("{}", span.action.microbatch);
        if (7 * static_cast<double>(label.size()) > wide) continue;
        svg += formatted("<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                         x + wide / 2, y + 15, label);
      }
    }
    y += 8;
  }
  double x = left;
  for (const auto& [kind, what] :
       {std::pair{stage_work::forward, "forward"}, std::pair{stage_work::backward, "backward"},
        std::pair{stage_work::backward_inputs, "inputs"},
        std::pair{stage_work::backward_weights, "weights"}}) {
    svg += formatted("<rect x=\"{0}\" y=\"{1:.1f}\" width=\"14\" height=\"14\" fill=\"{2}\"/>"
                       "<text x=\"{3}\" y=\"{4:.1f}\">{5} {6}</text>\n",
                       x, y + 4, detail::colour_of(kind).svg[0], x + 19, y + 15, to_string(kind),
                       what);
    x += 100;
  }
  return svg + "</svg>\n";
}

}  // namespace parx
