// job_section: how a job of parxrun went, from its report.json, as a part of the page: a row for
// each start of its ranks, and below it one for each rank that failed by itself. Pure but for
// read_job().
#pragma once

#include <string>

#include "common/xml_text.hpp"
#include "tools/common/job_report.hpp"
#include <parx/core/error.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/json.hpp>
#include <parx/core/printable.hpp>

namespace parx::inline PARX_ABI {

/// Throws errc::bad_data for a file that is no report.json of parxrun, or cannot be read.
[[nodiscard]] inline job_report read_job(const std::string& path) {
  const auto text = detail::file_text(path);
  if (!text) throw_error(errc::bad_data, "cannot read \"{}\"", printable(path));
  try {
    return json::from_json<job_report>(json::parse(*text));
  } catch (const json::error& wrong) {
    throw_error(errc::bad_data, "\"{}\" is no report.json of parxrun's --log-dir: {}",
                printable(path), wrong.what());
  }
}

[[nodiscard]] inline std::string job_section(const job_report& job) {
  std::string rows;
  for (const generation_report& each : job.generations) {
    std::string nodes;
    int ranks = 0;
    for (const job_member& member : each.members) {
      nodes += (nodes.empty() ? "" : ", ") + member.node;
      ranks += member.ranks;
    }
    rows += formatted(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.0f}</td><td>{}</td><td>{}</td></tr>\n",
        each.generation, xml_text(nodes), ranks, each.start - job.generations.front().start,
        each.end ? formatted("{:.0f}", *each.end - each.start) : "-",
        !each.outcome              ? "not known"
        : each.outcome->has_failed ? xml_text(each.outcome->why)
                                   : formatted("exit code {}", each.outcome->code));
    for (const detail::node_report& node : each.nodes) {
      for (const detail::rank_end& rank : node.ranks) {
        if (!rank.failed_by_itself()) continue;
        const std::string said = rank.record ? ": " + rank.record->text : std::string();
        rows += formatted(
            "<tr><td></td><td>{}</td><td>rank {}</td><td></td><td>{:.0f}</td><td>{}</td></tr>\n",
            xml_text(node.node), rank.rank, rank.seconds, xml_text(to_string(rank.status) + said));
      }
    }
  }
  return "<h2>Job " + xml_text(job.id) +
         "</h2>\n<table><tr><th>start</th><th>nodes</th><th>ranks</th><th>began (s)</th>"
         "<th>took (s)</th><th>ended</th></tr>\n" +
         rows + "</table>\n";
}

}  // namespace parx
