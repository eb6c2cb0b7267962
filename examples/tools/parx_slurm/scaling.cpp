#include "tools/parx_slurm/scaling.hpp"

#include <algorithm>
#include <map>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/split.hpp>
#include <parx/core/text_table.hpp>

namespace parx::inline PARX_ABI::slurm {

std::string to_string(const scale_point& point) {
  return formatted("{} node{} x {} rank{} x {} thread{}", point.nodes, point.nodes == 1 ? "" : "s",
                   point.ranks, point.ranks == 1 ? "" : "s", point.threads,
                   point.threads == 1 ? "" : "s");
}

namespace detail {

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace detail

double spread_of(const std::vector<double>& values) {
  const double middle = median_of(values);
  if (values.size() < 2 || middle == 0) return 0;
  return (detail::quantile(values, 0.75) - detail::quantile(values, 0.25)) / middle;
}

std::size_t add_run(std::string_view train_jsonl, scale_runs& runs) {
  struct line {
    double step_ms, samples, wait;
  };
  std::vector<line> lines;
  for (const std::string_view text : parx::detail::split_at(train_jsonl, '\n')) {
    try {
      const json::value value = json::parse(text);
      if (!value.contains("step_ms") || !value.contains("samples_per_second")) continue;
      lines.push_back({value.at("step_ms").as<double>(),
                       value.at("samples_per_second").as<double>(),
                       value.contains("communication_wait_percent")
                           ? value.at("communication_wait_percent").as<double>()
                           : 0.0});
    } catch (const json::error&) {
      // The last line of a run that was killed.
    }
  }
  if (lines.size() > 1) lines.erase(lines.begin());
  for (const line& each : lines) {
    runs.step_ms.push_back(each.step_ms);
    runs.samples_per_second.push_back(each.samples);
    runs.communication_percent.push_back(each.wait);
  }
  return lines.size();
}

scale_verdict recommend(const std::vector<scale_runs>& all) {
  std::map<int, const scale_runs*> fastest;  // by cores
  for (const scale_runs& each : all) {
    if (each.samples_per_second.empty()) continue;
    const scale_runs*& best = fastest[each.point.cores()];
    if (best == nullptr ||
        median_of(each.samples_per_second) > median_of(best->samples_per_second)) {
      best = &each;
    }
  }
  if (fastest.empty()) return {std::nullopt, "no run gave figures"};
  const scale_runs* taken = fastest.begin()->second;
  for (const auto& [cores, next] : fastest) {
    if (next == taken) continue;
    const double speed = median_of(next->samples_per_second) / median_of(taken->samples_per_second);
    const double growth = static_cast<double>(cores) / taken->point.cores();
    const double share = (speed - 1) / (growth - 1);
    if (share < worthwhile_share) {
      return {taken->point,
              formatted("take {}: {} is {:.2f} times as fast for {:.2f} times the cores ({:.0f} % "
                        "marginal efficiency; the rule is {:.0f} %)",
                        to_string(taken->point), to_string(next->point), speed, growth, 100 * share,
                        100 * worthwhile_share)};
    }
    taken = next;
  }
  return {taken->point,
          fastest.size() == 1
              ? formatted("take {}: the fastest on {} cores", to_string(taken->point),
                          taken->point.cores())
              : formatted("take {}: each step to more cores gave at least {:.0f} % of their share",
                          to_string(taken->point), 100 * worthwhile_share)};
}

std::string scale_table(std::vector<scale_runs> all, double price) {
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.point < b.point; });
  const scale_runs* base = nullptr;
  for (const scale_runs& each : all) {
    if (each.samples_per_second.empty()) continue;
    const auto rank = [](const scale_runs& runs) {
      return std::pair(runs.point.cores(), -median_of(runs.samples_per_second));
    };
    if (base == nullptr || rank(each) < rank(*base)) base = &each;
  }
  const bool knows_epochs = std::any_of(
      all.begin(), all.end(), [](const scale_runs& each) { return each.samples_of_epoch > 0; });
  std::vector<std::string> headings{">nodes",     ">ranks",    ">threads",    ">ms/step", ">spread",
                                    ">samples/s", ">speed-up", ">efficiency", ">waiting"};
  headings.push_back(knows_epochs ? ">core-h/epoch" : ">core-h/million samples");
  if (price > 0) headings.push_back(">price");
  const std::size_t figures = headings.size();
  headings.push_back("");
  text_table table(std::move(headings));
  for (const scale_runs& each : all) {
    std::vector<std::string> cells{std::to_string(each.point.nodes),
                                   std::to_string(each.point.ranks),
                                   std::to_string(each.point.threads)};
    if (each.samples_per_second.empty()) {
      cells.resize(figures, "-");
      cells.push_back("failed: " + each.failure);
      table.add(std::move(cells));
      continue;
    }
    const double rate = median_of(each.samples_per_second);
    const double speed = rate / median_of(base->samples_per_second);
    const double share = speed * base->point.cores() / each.point.cores();
    const double samples = knows_epochs ? each.samples_of_epoch : 1e6;
    const double hours = rate > 0 ? samples / rate * each.point.cores() / 3600 : 0;
    cells.insert(
        cells.end(),
        {formatted("{:.1f}", median_of(each.step_ms)),
         formatted("{:.0f} %", 100 * spread_of(each.step_ms)), formatted("{:.0f}", rate),
         formatted("{:.2f}", speed), formatted("{:.0f} %", 100 * share),
         formatted("{:.0f} %", median_of(each.communication_percent)), formatted("{:.3g}", hours)});
    if (price > 0) cells.push_back(formatted("{:.3g}", hours * price));
    table.add(std::move(cells));
  }
  return table.text();
}

std::vector<scale_point> parse_ranks_threads(std::string_view text, int cores) {
  std::vector<scale_point> points;
  if (text == "auto") {
    for (int ranks = 1; ranks <= cores; ++ranks) {
      if (cores % ranks == 0) points.push_back({.ranks = ranks, .threads = cores / ranks});
    }
    return points;
  }
  for (const std::string_view each : parx::detail::split_at(text, ',')) {
    const auto x = each.find('x');
    const auto ranks = parx::detail::parse_number<int>(each.substr(0, x));
    const auto threads = x == each.npos ? std::optional<int>(1)
                                        : parx::detail::parse_number<int>(each.substr(x + 1));
    require(ranks && threads && *ranks >= 1 && *threads >= 1 && *ranks <= 4096 && *threads <= 4096,
            "--ranks-threads \"{}\": give auto, or ranks of a node x threads of a rank: 4x2,8x1",
            text);
    points.push_back({.ranks = *ranks, .threads = *threads});
  }
  require(!points.empty(), "--ranks-threads \"\": give auto, or 4x2,8x1");
  return points;
}

}  // namespace parx::slurm
