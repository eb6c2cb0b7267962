#include "tools/parxrun/nodes/node_report.hpp"

#include <cstddef>
#include <utility>

#include <parx/core/failure_record.hpp>

namespace parx::inline PARX_ABI::detail {

json::value to_json(const node_report& report) {
  constexpr std::size_t longest_line = 1000;
  constexpr std::size_t most_lines = 4 << 20;  // bytes of all
  const std::size_t most = most_lines / std::max<std::size_t>(report.ranks.size(), 1);
  json::array ranks;
  for (const node_rank_end& each : report.ranks) {
    std::size_t first = each.last_lines.size();
    for (std::size_t bytes = 0; first > 0; --first) {
      bytes += std::min(each.last_lines[first - 1].size(), longest_line);
      if (bytes > most) break;
    }
    json::array lines;
    for (std::size_t i = first; i < each.last_lines.size(); ++i) {
      lines.emplace_back(each.last_lines[i].substr(0, longest_line));
    }
    ranks.emplace_back(json::object{{"rank", each.end.rank},
                                    {"pid", each.end.pid},
                                    {"code", each.end.status.code},
                                    {"signal", each.end.status.signal},
                                    {"was_signalled", each.end.was_signalled},
                                    {"seconds", each.end.seconds},
                                    {"is_silent", each.end.is_silent},
                                    {"record", each.end.record ? to_text(*each.end.record) : ""},
                                    {"log_file", each.log_file},
                                    {"last_lines", std::move(lines)}});
  }
  return json::object{{"node", report.node},
                      {"ranks", std::move(ranks)},
                      {"recorder", report.recorder},
                      {"reason", report.reason}};
}

node_report report_from_json(const json::value& text) {
  node_report report{.node = text.at("node").text(),
                     .ranks = {},
                     .recorder = text.at("recorder").text(),
                     .reason = text.at("reason").text()};
  for (const json::value& each : text.at("ranks").elements()) {
    node_rank_end one;
    one.end = {.rank = each.as<int>("rank"),
               .pid = each.as<pid_t>("pid"),
               .status = {each.as<int>("code"), each.as<int>("signal")},
               .was_signalled = each.as<bool>("was_signalled"),
               .seconds = each.as<double>("seconds"),
               .is_silent = each.as<bool>("is_silent"),
               .record = failure_from_text(each.at("record").text())};
    one.log_file = each.at("log_file").text();
    for (const json::value& line : each.at("last_lines").elements()) {
      one.last_lines.push_back(line.text());
    }
    report.ranks.push_back(std::move(one));
  }
  return report;
}

bool all_have_saved(const std::vector<node_report>& reports) {
  return !reports.empty() && std::all_of(reports.begin(), reports.end(),
                                         [](const auto& each) { return each.all_have_saved(); });
}

bool any_failed_by_itself(const std::vector<rank_end>& ends) {
  return std::any_of(ends.begin(), ends.end(),
                     [](const rank_end& each) { return each.failed_by_itself(); });
}

std::vector<rank_end> ends_of(const std::vector<node_report>& reports) {
  std::vector<rank_end> ends;
  for (const node_report& report : reports) {
    for (const node_rank_end& each : report.ranks) ends.push_back(each.end);
  }
  std::sort(ends.begin(), ends.end(),
            [](const rank_end& a, const rank_end& b) { return a.rank < b.rank; });
  return ends;
}

}  // namespace parx::detail
