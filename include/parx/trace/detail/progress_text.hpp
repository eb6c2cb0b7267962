// The text of a progress line, as a pure function of plain values.
//
//   epoch 3:  42%|████████▍           | 100/237 [00:39<00:53,  2.56it/s] loss 0.312
//
// The format is tqdm's (format_meter in tqdm/std.py), with two differences: the percentage is
// rounded down, so that 100% means done, and the note follows the bracket, where it stays when the
// bar is left out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <parx/core/formatted.hpp>
#include <parx/trace/detail/columns.hpp>

namespace parx::inline PARX_ABI::detail {

struct progress_state {
  std::size_t done = 0;
  std::size_t total = 0;    ///< 0: unknown
  std::size_t initial = 0;  ///< done before the clock started; not counted in the rate
  double seconds = 0;       ///< since the clock started
  std::string_view label = {};
  std::string_view note = {};
};

enum class progress_look { bar, plain };

inline constexpr std::size_t unlimited_columns = std::numeric_limits<std::size_t>::max();

/// Seconds as "mm:ss", from an hour on as "h:mm:ss"; "?" when they are negative, not a number or
/// beyond a century.
[[nodiscard]] inline std::string clock_text(double seconds) {
  constexpr double century = 3.2e9;
  if (!(seconds >= 0 && seconds < century)) return "?";
  const auto whole = static_cast<std::uint64_t>(seconds);
  const auto hours = whole / 3600;
  const auto minutes = whole / 60 % 60;
  if (hours > 0) return formatted("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return formatted("{:02}:{:02}", minutes, whole % 60);
}

/// Steps a second, or below one a second the seconds that a step takes.
[[nodiscard]] inline std::string rate_text(double per_second) {
  if (!(per_second > 0)) return "?it/s";
  return per_second >= 1 ? formatted("{:5.2f}it/s", per_second)
                         : formatted("{:5.2f}s/it", 1 / per_second);
}

/// `units` times done / total, rounded down; in whole numbers, since 29 of 100 in floating point
/// are 28.999 %. Exact up to 2^56 steps.
[[nodiscard]] constexpr std::size_t share_of(std::size_t units, std::size_t done,
                                             std::size_t total) noexcept {
  return units * std::min(done, total) / total;
}

/// A bar of `cells` columns of which `eighths` eighths are filled, from the left.
[[nodiscard]] inline std::string bar_text(std::size_t eighths, std::size_t cells) {
  static constexpr const char* partial[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string text;
  for (std::size_t i = 0; i < eighths / 8; ++i) text += "█";
  text += partial[eighths % 8];
  text.append(cells - (eighths + 7) / 8, ' ');
  return text;
}

/// The line for `state`, at most `width` columns wide. What does not fit is left out in this order:
/// the bar, the end of the note, the note, the label, the times, the counts.
[[nodiscard]] inline std::string progress_text(const progress_state& state, progress_look look,
                                               std::size_t width) {
  constexpr std::size_t widest_bar = 20;
  constexpr std::size_t narrowest_bar = 4;
  constexpr std::size_t shortest_note = 8;

  const bool known = state.total > 0;
  const auto fresh = static_cast<double>(state.done - std::min(state.initial, state.done));
  const double rate = state.seconds > 0 ? fresh / state.seconds : 0.0;

  const std::string label = state.label.empty() ? "" : formatted("{}: ", state.label);
  const std::string percent =
      known ? formatted("{:3}%", share_of(100, state.done, state.total)) : "";
  const std::string counts =
      known ? formatted("{}/{}", state.done, state.total) : formatted("{}it", state.done);
  std::string times = clock_text(state.seconds);
  if (known) {
    const std::size_t left = state.total - std::min(state.done, state.total);
    times += '<' + (left == 0  ? clock_text(0)
                    : rate > 0 ? clock_text(static_cast<double>(left) / rate)
                               : std::string("?"));
  }
  const std::string body = formatted("{} [{}, {}]", counts, times, rate_text(rate));
  const std::string note = state.note.empty() ? "" : formatted(" {}", state.note);
  const std::string space = known ? " " : "";

  if (look == progress_look::bar && known) {
    const std::size_t others = columns(label) + percent.size() + 3 + body.size() + columns(note);
    const std::size_t cells = std::min(width - std::min(others, width), widest_bar);
    if (cells >= narrowest_bar) {
      const std::string bar = bar_text(share_of(8 * cells, state.done, state.total), cells);
      return formatted("{}{}|{}| {}{}", label, percent, bar, body, note);
    }
  }
  std::string text = label + percent + space + body;
  const std::size_t used = columns(text);
  if (used + columns(note) <= width) return text + note;
  if (used + shortest_note <= width) return text.append(cut_to_columns(note, width - used));
  for (const std::string& shorter :
       {text, percent + space + body, percent + space + counts, known ? percent : counts}) {
    if (columns(shorter) <= width) return shorter;
  }
  return std::string(cut_to_columns(known ? percent : counts, width));
}

}  // namespace parx::detail
