#include "common/report/report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <utility>

#include "common/xml_text.hpp"
#include <parx/checkpoint/atomic_file.hpp>
#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/log.hpp>
#include <parx/train/detail/log_lines.hpp>

namespace parx::inline PARX_ABI::train {

double run_report::last(std::string_view figure) const {
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (const auto value = line->find(figure)) return *value;
  }
  return 0;
}

std::vector<double> run_report::settled(std::string_view figure) const {
  std::vector<double> values;
  for (const record& line : lines) {
    if (const auto value = line.find(figure)) values.push_back(*value);
  }
  if (values.size() > 2) values.erase(values.begin());
  return values;
}

double run_report::mean(std::string_view figure) const {
  const std::vector<double> values = settled(figure);
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double run_report::rate() const {
  double count = 0, time = 0;
  for (const double value : settled("samples_per_second")) {
    if (value <= 0) continue;
    ++count;
    time += 1 / value;
  }
  return count > 0 ? count / time : 0;
}

}  // namespace parx::train

namespace parx::inline PARX_ABI::train::detail {

/// Parses a line of ranks.jsonl. Throws json::error unless it has every figure, each for the same
/// number of ranks.
[[nodiscard]] json::value rank_line(const std::string& text) {
  json::value line = json::parse(text);
  (void)line.as<double>("seconds");
  const std::size_t world = line.at(rank_quantities[0]).elements().size();
  for (const char* name : rank_quantities) {
    const json::array& values = line.at(name).elements();
    for (const json::value& value : values) (void)value.as<double>();
    if (values.empty() || values.size() != world)
      throw json::error(formatted("\"{}\" is of {} ranks, \"{}\" of {}", rank_quantities[0], world,
                                  name, values.size()));
  }
  return line;
}

}  // namespace parx::train::detail

namespace parx::inline PARX_ABI::train {

run_report read_run(const std::string& folder) {
  run_report run{.name = std::filesystem::path(folder).lexically_normal().filename().string()};
  if (run.name.empty())
    run.name = std::filesystem::path(folder).lexically_normal().parent_path().filename().string();
  const auto each_line = [&](const std::string& path, auto take) {
    std::ifstream file(path);
    if (!file.is_open()) {
      throw_error(errc::io, "cannot read \"{}\". Give the output_dir of a training run.", path);
    }
    detail::for_each_log_line(file, path, take);
  };
  each_line(folder + "/train.jsonl", [&](const std::string& line, std::size_t) {
    const json::value whole = json::parse(line);
    (void)whole.as<std::uint64_t>("step");
    run.lines.push_back(record_from(whole));
  });
  each_line(folder + "/ranks.jsonl", [&](const std::string& line, std::size_t) {
    run.ranks.push_back(detail::rank_line(line));
  });
  if (std::ifstream file(folder + "/run.json"); file.is_open()) {
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    try {
      const json::value settings = json::parse(text);
      for (const json::member& each : settings.members()) (void)each.held.text();
      run.settings = settings.members();
    } catch (const json::error& damage) {
      log(log_level::warn, "\"{}/run.json\" is damaged and left out: {}", folder, damage.what());
    }
  }
  if (!run.ranks.empty())
    run.world = run.ranks.back().at(detail::rank_quantities[0]).elements().size();
  return run;
}

}  // namespace parx::train

namespace parx::inline PARX_ABI::train::detail {

std::string rate_text(double rate) {
  constexpr double most = 1e18;
  if (!(rate >= 1000 && rate < most)) return formatted("{:.1f}", rate);
  return with_commas(static_cast<std::uint64_t>(std::llround(rate)));
}

/// Figures of the log over steps: one curve for each run and figure. Of several runs each has a
/// colour, in all charts the same, and each figure its dashes.
[[nodiscard]] std::string chart_of(const std::vector<run_report>& runs, const chart_text& text,
                                   const std::vector<std::string>& figures) {
  std::vector<curve> curves;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const run_report& run = runs[r];
    for (std::size_t f = 0; f < figures.size(); ++f) {
      const std::string& figure = figures[f];
      const std::string both = figures.size() > 1 ? run.name + " " + figure : run.name;
      curve made{.name = runs.size() > 1 ? both : figure};
      if (runs.size() > 1) {
        made.colour = r;
        made.dashes = f;
      }
      for (const record& line : run.lines) {
        if (const auto value = line.find(figure)) made.points.emplace_back(line.at("step"), *value);
      }
      if (!made.points.empty()) curves.push_back(std::move(made));
    }
  }
  std::vector<curve> named;  // the runs by their colours, then the figures by their dashes
  if (runs.size() > 1 && figures.size() > 1) {
    for (std::size_t r = 0; r < runs.size(); ++r)
      named.push_back({.name = runs[r].name, .colour = r, .dashes = 0});
    for (std::size_t f = 0; f < figures.size(); ++f)
      named.push_back({.name = figures[f], .colour = text_colour, .dashes = f});
  }
  return line_chart(text, curves, named);
}

/// A figure of each rank over time; for more than eight ranks the minimum, mean and maximum.
[[nodiscard]] std::string chart_of_ranks(const run_report& run, const chart_text& text,
                                         std::string_view quantity) {
  const bool each_rank = run.world <= 8;
  std::vector<curve> curves;
  if (each_rank) {
    for (std::size_t rank = 0; rank < run.world; ++rank)
      curves.push_back({.name = formatted("rank {}", rank)});
  } else {
    curves = {{.name = "least"}, {.name = "mean"}, {.name = "most"}};
  }
  for (const json::value& line : run.ranks) {
    const double seconds = line.as<double>("seconds");
    std::vector<double> values;
    for (const json::value& value : line.at(quantity).elements())
      values.push_back(value.as<double>());
    if (values.size() != run.world) continue;  // a run with another number of ranks wrote this
    if (each_rank) {
      for (std::size_t rank = 0; rank < run.world; ++rank)
        curves[rank].points.emplace_back(seconds, values[rank]);
      continue;
    }
    double sum = 0;
    for (const double value : values) sum += value;
    curves[0].points.emplace_back(seconds, *std::min_element(values.begin(), values.end()));
    curves[1].points.emplace_back(seconds, sum / static_cast<double>(values.size()));
    curves[2].points.emplace_back(seconds, *std::max_element(values.begin(), values.end()));
  }
  return line_chart(text, curves);
}

/// The mean of a figure over the time of the run, by rank; all shares of time in the page are made
/// of it. As in run_report::settled(), the first of more than two lines is left out. Every line
/// covers the same number of samples, so its time goes by one over its rate.
[[nodiscard]] std::vector<double> mean_by_rank(const run_report& run, std::string_view quantity) {
  std::vector<double> sums(run.world, 0.0);
  double time = 0;
  for (std::size_t i = run.ranks.size() > 2 ? 1 : 0; i < run.ranks.size(); ++i) {
    const json::value& line = run.ranks[i];
    if (!line.contains(quantity)) continue;  // of an earlier parx
    const json::array& values = line.at(quantity).elements();
    const json::array& rates = line.at("samples_per_second").elements();
    if (values.size() != run.world || rates.size() != run.world) continue;
    double rate = 0;
    for (const json::value& each : rates) rate += each.as<double>();
    if (!(rate > 0)) continue;
    for (std::size_t rank = 0; rank < run.world; ++rank) {
      sums[rank] += values[rank].as<double>() / rate;
    }
    time += 1 / rate;
  }
  for (double& sum : sums) sum /= time > 0 ? time : 1;
  return sums;
}

/// The mean of a share of time over all ranks.
[[nodiscard]] double mean_of_ranks(const run_report& run, std::string_view quantity) {
  const std::vector<double> by_rank = mean_by_rank(run, quantity);
  return std::accumulate(by_rank.begin(), by_rank.end(), 0.0) /
         static_cast<double>(std::max<std::size_t>(1, by_rank.size()));
}

/// The part of the communication, in percent, for which no rank waited.
[[nodiscard]] double hidden_percent(const run_report& run) {
  const double wait = mean_of_ranks(run, "communication_wait_percent");
  const double all = mean_of_ranks(run, "communication_percent");
  return all > 0 ? 100 * std::clamp(1 - wait / all, 0.0, 1.0)
                 : run.mean("communication_hidden_percent");  // of an earlier parx
}

[[nodiscard]] std::string shares_of(const run_report& run) {
  constexpr std::size_t most_bars = 32;
  const auto compute = mean_by_rank(run, "compute_percent");
  const auto wait = mean_by_rank(run, "communication_wait_percent");
  const auto data = mean_by_rank(run, "data_wait_percent");
  std::vector<std::size_t> shown(run.world);
  std::iota(shown.begin(), shown.end(), std::size_t{0});
  std::string title = "Where the time went, " + run.name;
  if (shown.size() > most_bars) {
    // The rank that waits least is the slowest: the others wait for it.
    std::sort(shown.begin(), shown.end(), [&](std::size_t a, std::size_t b) {
      return wait[a] < wait[b] || (wait[a] == wait[b] && a < b);
    });
    shown.resize(most_bars);
    title += formatted(" (the {} of {} ranks that wait least)", most_bars, run.world);
  }
  std::vector<bar> bars;
  for (const std::size_t rank : shown) {
    bars.push_back({formatted("rank {}", rank), {compute[rank], wait[rank], data[rank]}});
  }
  return share_bars(title, {"compute", "waiting for communication", "waiting for data"}, bars);
}

/// Notable findings, one sentence each.
[[nodiscard]] std::vector<std::string> findings_of(const run_report& run) {
  std::vector<std::string> findings;
  if (run.ranks.empty()) return findings;
  const auto wait = mean_by_rank(run, "communication_wait_percent");
  const double data = mean_of_ranks(run, "data_wait_percent");
  if (run.world > 1) {
    findings.push_back(formatted(
        "{:.1f} % of the time went into waiting for communication; {:.0f} % of the communication "
        "was hidden behind computation.",
        mean_of_ranks(run, "communication_wait_percent"), hidden_percent(run)));
    const auto slowest = std::min_element(wait.begin(), wait.end());
    const auto most = std::max_element(wait.begin(), wait.end());
    if (*most - *slowest > 10) {
      findings.push_back(formatted(
          "Rank {} is slower than the others: it waits {:.0f} % of its time, rank {} {:.0f} %.",
          slowest - wait.begin(), *slowest, most - wait.begin(), *most));
    }
  }
  // A thread that computes has a processor, unless others have it.
  constexpr double starved = 0.6;
  const double computing = mean_of_ranks(run, "compute_percent");
  const double running = mean_of_ranks(run, "cpu_percent");
  if (running < starved * computing) {
    findings.push_back(formatted(
        "The ranks lack cores: they computed for {:.0f} % of the time, and had a processor for "
        "{:.0f} % of it. Start fewer ranks a host, or look for other programs on it (top) and at "
        "the binding (srun --cpu-bind).",
        computing, running));
  }
  if (data > late_loader_percent) {
    findings.push_back(formatted(
        "The loader is late: {:.0f} % of the time went into waiting for data, the first batch of "
        "an epoch included. More workers or a larger prefetch may help.",
        data));
  }
  double memory = 0;
  for (const json::value& line : run.ranks) {
    for (const json::value& each : line.at("resident_mib").elements())
      memory = std::max(memory, each.as<double>());
  }
  findings.push_back(formatted("A rank held up to {:.0f} MiB in memory.", memory));
  return findings;
}

/// The throughput of the fastest run with each number of ranks, and the parallel efficiency
/// relative to the run with the fewest.
[[nodiscard]] std::string scaling_of(const std::vector<run_report>& all) {
  std::vector<const run_report*> runs;
  for (const run_report& each : all) runs.push_back(&each);
  std::sort(runs.begin(), runs.end(), [](const auto* a, const auto* b) {
    return a->world != b->world ? a->world < b->world : a->rate() > b->rate();
  });
  const auto same_ranks = [](const auto* a, const auto* b) { return a->world == b->world; };
  runs.erase(std::unique(runs.begin(), runs.end(), same_ranks), runs.end());
  if (runs.size() < 2) return "";
  const auto fewest_ranks = static_cast<double>(runs.front()->world);
  const double base = runs.front()->rate() / fewest_ranks;
  if (!(base > 0)) return "";
  curve rate{.name = "measured"}, ideal{.name = "ideal"}, efficiency{.name = "parallel efficiency"};
  std::string rows;
  for (const run_report* const run : runs) {
    const auto ranks = static_cast<double>(run->world);
    const double measured = run->rate();
    rate.points.emplace_back(ranks, measured);
    ideal.points.emplace_back(ranks, base * ranks);
    efficiency.points.emplace_back(ranks, 100 * measured / (base * ranks));
    rows +=
        formatted("<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.2f}</td><td>{:.0f} %</td></tr>\n",
                  xml_text(run->name), run->world, rate_text(measured),
                  measured / (base * fewest_ranks), efficiency.points.back().second);
  }
  return formatted(
      "<h2>Scaling</h2>\n<table><tr><th>run</th><th>ranks</th><th>samples/s</th><th>speed-up</th>"
      "<th>efficiency</th></tr>\n{}</table>\n<div class=\"charts\">\n{}{}</div>\n",
      rows, line_chart({"Throughput", "ranks", "samples/s"}, {rate, ideal}),
      line_chart({"Parallel efficiency", "ranks", "% of the smallest run's rate per rank"},
                 {efficiency}));
}

/// The names of all metrics of evaluations, without timing; eval_loss comes first.
[[nodiscard]] std::vector<std::string> evaluation_metrics(const std::vector<run_report>& runs) {
  std::vector<std::string> names;
  for (const run_report& run : runs) {
    for (const record& line : run.lines) {
      for (const auto& [name, value] : line.entries()) {
        const bool timing = name.ends_with("_runtime") || name.ends_with("_per_second");
        if (!name.starts_with("eval_") || timing) continue;
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
  }
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string& name) { return name == "eval_loss"; });
  return names;
}

/// The settings: of one run a row for each; of several those that differ as columns, the others in
/// a sentence.
[[nodiscard]] std::string settings_of(const std::vector<run_report>& runs) {
  std::vector<std::string> names;
  for (const run_report& run : runs) {
    for (const json::member& each : run.settings) {
      if (std::find(names.begin(), names.end(), each.key) == names.end()) names.push_back(each.key);
    }
  }
  if (names.empty()) return "";
  const auto value_of = [](const run_report& run, const std::string& name) {
    const json::value* const held = run.settings.find(name);
    return held != nullptr ? xml_text(held->text()) : "-";
  };
  std::string table, heads, same;
  std::vector<std::string> different;
  for (const std::string& name : names) {
    const std::string first = value_of(runs.front(), name);
    const bool is_same = std::all_of(runs.begin(), runs.end(), [&](const run_report& run) {
      return value_of(run, name) == first;
    });
    if (runs.size() == 1) {
      table += formatted("<tr><td>{}</td><td>{}</td></tr>\n", xml_text(name), first);
    } else if (is_same) {
      same += formatted("{}{} {}", same.empty() ? "" : "; ", xml_text(name), first);
    } else {
      heads += formatted("<th>{}</th>", xml_text(name));
      different.push_back(name);
    }
  }
  if (!different.empty()) {
    table = formatted("<tr><th>run</th>{}</tr>\n", heads);
    for (const run_report& run : runs) {
      table += formatted("<tr><td>{}</td>", xml_text(run.name));
      for (const std::string& name : different) {
        table += formatted("<td>{}</td>", value_of(run, name));
      }
      table += "</tr>\n";
    }
  }
  std::string text = "<h2>Settings</h2>\n";
  if (!table.empty()) text += formatted("<table>{}</table>\n", table);
  if (!same.empty()) text += formatted("<p>The same in all runs: {}.</p>\n", same);
  if (std::find(names.begin(), names.end(), "products") != names.end())
    text += "<p>Products: the type of the numbers in which matrices are multiplied.</p>\n";
  return text;
}

[[nodiscard]] std::string table_of(const std::vector<run_report>& runs) {
  const std::vector<std::string> measured = evaluation_metrics(runs);
  std::string rows, heads;
  for (const std::string& name : measured) heads += formatted("<th>{}</th>", xml_text(name));
  for (const run_report& run : runs) {
    std::string evaluated;
    for (const std::string& name : measured) {
      const bool has = std::any_of(run.lines.begin(), run.lines.end(),
                                   [&](const record& line) { return line.find(name).has_value(); });
      evaluated += has ? formatted("<td>{:.4f}</td>", run.last(name)) : "<td>-</td>";
    }
    const double in_all = run.last("train_samples_per_second");
    rows += formatted(
        "<tr><td>{}</td><td>{}</td><td>{:.0f}</td><td>{:.2f}</td><td>{:.1f}</td><td>{}</td>"
        "<td>{}</td><td>{:.2f}</td><td>{:.4f}</td>{}<td>{}</td><td>{:.1f} %</td></tr>\n",
        xml_text(run.name), run.world, run.last("step"), run.last("epoch"), run.last("seconds"),
        rate_text(run.rate()), in_all > 0 ? rate_text(in_all) : "-", run.mean("step_ms"),
        run.last("loss"), evaluated,
        run.world > 1 ? formatted("{:.0f} %", hidden_percent(run)) : "-",
        mean_of_ranks(run, "data_wait_percent"));
  }
  return "<table><tr><th>run</th><th>ranks</th><th>steps</th><th>epochs</th><th>time (s)</th>"
         "<th>samples/s</th><th>samples/s in all</th><th>step (ms)</th><th>last loss</th>" +
         heads + "<th>hidden</th><th>waits for data</th></tr>\n" + rows +
         "</table>\n<p>samples/s, step and all shares of time are those of training steps: without "
         "evaluations, files and the first line of the log, in which memory and caches warm up. "
         "samples/s in all is the log's train_samples_per_second: of the whole run. Hidden is the "
         "part of the communication for which no rank waited, because it computed meanwhile.</p>\n";
}

}  // namespace parx::train::detail

namespace parx::inline PARX_ABI::train {

std::string report_html(const std::vector<run_report>& runs, const std::string& more) {
  using namespace detail;
  require(!runs.empty(), "a report needs at least one run");
  std::string body = table_of(runs) + "<ul>\n";
  for (const run_report& run : runs) {
    const std::vector<std::string> findings = findings_of(run);
    if (findings.empty()) continue;
    body += runs.size() > 1 ? formatted("<li>{}: {}</li>\n", xml_text(run.name),
                                        xml_text(joined_text(findings, " ")))
                            : formatted("<li>{}</li>\n", joined_text(findings, "</li>\n<li>"));
  }
  body += "</ul>\n" + more + settings_of(runs) + "<h2>Time</h2>\n<div class=\"charts\">\n";
  for (const run_report& run : runs) body += shares_of(run);
  body += "</div>\n" + scaling_of(runs) + "<h2>Training</h2>\n<div class=\"charts\">\n";
  body += chart_of(runs, {"Loss", "step", "loss"}, {"loss", "eval_loss"});
  std::vector<std::string> measured = evaluation_metrics(runs);
  std::erase(measured, "eval_loss");
  // The curves of several runs are named after the runs, so the axis names the metric.
  const std::string value = measured.size() == 1 ? measured.front() : "value";
  body += chart_of(runs, {"Evaluations", "step", value}, measured);
  body += chart_of(runs, {"Learning rate", "step", "learning rate"}, {"learning_rate"});
  body += chart_of(runs, {"Gradient norm", "step", "norm"}, {"grad_norm"});
  body += chart_of(runs, {"Throughput", "step", "samples/s"}, {"samples_per_second"});
  body += chart_of(runs, {"Tokens", "step", "tokens/s"}, {"tokens_per_second"});
  body += "</div>\n<h2>Ranks</h2>\n<div class=\"charts\">\n";
  for (const run_report& run : runs) {
    const std::string which = runs.size() > 1 ? ", " + run.name : "";
    body += chart_of_ranks(run, {"Processor" + which, "time (s)", "CPU (%)"}, "cpu_percent");
    body += chart_of_ranks(run, {"Memory" + which, "time (s)", "resident (MiB)"}, "resident_mib");
    body += chart_of_ranks(run, {"Throughput of each rank" + which, "time (s)", "samples/s"},
                           "samples_per_second");
  }
  body += "</div>\n";
  return page_start + body + "</body></html>\n";
}

void write_report(const std::string& path, const std::vector<std::string>& output_dirs,
                  const std::string& more) {
  std::vector<run_report> runs;
  for (const std::string& folder : output_dirs) runs.push_back(read_run(folder));
  parx::detail::write_atomically(path, report_html(runs, more));
}

}  // namespace parx::train
