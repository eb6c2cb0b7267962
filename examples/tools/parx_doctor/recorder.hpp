// For parx_doctor recorder: the last operations of a job's ranks, from their flight recorders,
// and what they have recorded of their failures.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tools/common/flight/divergence.hpp"
#include <parx/comm/flight/failure_log.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/trace/detail/chrome_json.hpp>

namespace examples {

/// All operations as a Chrome trace: a process for each rank, a line for each group, with aligned
/// clocks. Operations that never finished are drawn to the end of the trace.
inline std::string to_chrome_trace(const std::vector<parx::flight_log>& logs) {
  namespace chrome = parx::trace::detail;
  const auto ahead = parx::align_clocks(logs);
  std::int64_t first = 0, last = 0;
  bool any = false;
  for (std::size_t i = 0; i < logs.size(); ++i) {
    for (const auto& each : logs[i].records) {
      const std::int64_t entered = each.entered_ns - ahead[i];
      const std::int64_t finished = std::max(each.finished_ns, each.entered_ns) - ahead[i];
      first = any ? std::min(first, entered) : entered;
      last = any ? std::max(last, finished) : finished;
      any = true;
    }
  }
  std::string text = "{\"displayTimeUnit\":\"ms\",\n\"traceEvents\":[\n";
  std::string_view comma;
  for (std::size_t i = 0; i < logs.size(); ++i) {
    const auto& log = logs[i];
    text += comma;
    comma = ",\n";
    chrome::append_name(text, "process_name", log.rank, 0,
                        fmt::format("rank {} ({}, pid {})", log.rank, log.host, log.pid));
    std::map<std::uint64_t, int> lines;
    for (const auto& each : log.groups) {
      const int line = static_cast<int>(lines.size());
      if (!lines.emplace(each.id, line).second) continue;
      text += comma;
      chrome::append_name(text, "thread_name", log.rank, line, each.name);
    }
    for (const auto& each : log.records) {
      const auto name = name_of(static_cast<parx::operation>(each.call.operation));
      const std::int64_t start = each.entered_ns - ahead[i] - first;
      const std::int64_t end =
          each.finished_ns == 0 ? last - first : each.finished_ns - ahead[i] - first;
      chrome::event shown{
          .category = "comm", .name = chrome::short_text<48>(name), .argument_count = 3};
      shown.start_ns = std::max<std::int64_t>(start, 0);
      shown.duration_ns = std::max<std::int64_t>(end - shown.start_ns, 0);
      shown.arguments[0] = {"bytes", each.bytes};
      shown.arguments[1] = {"sequence", each.call.number()};
      shown.arguments[2] = {"peer", std::int64_t{each.peer}};
      text += comma;
      chrome::append_event(
          text, shown, log.rank,
          lines.emplace(each.call.group, static_cast<int>(lines.size())).first->second);
    }
  }
  return text + std::string(chrome::json_footer);
}

/// What the ranks have said of their failures: "rank 3 failed in all_reduce #812 on group "dp" at
/// train.cpp:88 (a peer was lost); it blames rank 5 (n3): TEXT".
inline void print_failures(const std::string& directory,
                           const std::vector<parx::flight_log>& logs) {
  const parx::descriptor folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::int64_t start = logs.empty() ? 0 : logs.front().made_unix_ns;
  for (const auto& log : logs) start = std::min(start, log.made_unix_ns);
  for (const parx::failure_record& each : parx::read_failures(folder, start)) {
    fmt::print("rank {} failed", each.rank);
    if (!each.operation.empty()) fmt::print(" in {}", each.operation);
    if (each.sequence > 0) fmt::print(" #{}", each.sequence);
    if (!each.group.empty()) fmt::print(" on group \"{}\"", each.group);
    if (!each.site.empty()) fmt::print(" at {}", each.site);
    if (each.code) fmt::print(" ({})", make_error_code(*each.code).message());
    if (each.blamed >= 0) fmt::print("; it blames rank {}", each.blamed);
    if (each.blamed >= 0 && !each.host.empty()) fmt::print(" ({})", each.host);
    fmt::print(": {}\n", each.text);
  }
}

inline void print_divergences(const std::vector<parx::flight_log>& logs) {
  const auto found = parx::find_divergences(logs);
  for (std::size_t i = 0; i < found.size(); ++i) {
    fmt::print("{} {}\n", i == 0 ? "first divergence:" : "then:", to_text(found[i], logs));
  }
  if (found.empty()) fmt::print("no divergence: the ranks did the same, and finished it\n");
}

/// recorder DIR [--trace out.json]. The exit code is 1 if the ranks diverged or a file is damaged.
inline int diagnose_recorder(const std::vector<std::string_view>& arguments) try {
  const bool traces = arguments.size() == 3 && arguments[1] == "--trace";
  if (arguments.size() != 1 && !traces) {
    std::fputs("usage: parx_doctor recorder DIR [--trace out.json]\n", stderr);
    return 2;
  }
  const auto logs = parx::read_flight_logs(std::string(arguments[0]));
  for (const std::string& each : logs.left_out) fmt::print("! {}\n", each);
  for (const auto& log : logs.ranks) {
    fmt::print("rank {} of {} ({}, pid {}): {} operations; {}{}\n", log.rank, log.world_size,
               log.host, log.pid, log.records.size(), to_text(log.ending),
               log.reason.empty() ? "" : ": " + log.reason);
    if (log.damaged > 0) fmt::print("! {} of its records are damaged\n", log.damaged);
  }
  print_failures(std::string(arguments[0]), logs.ranks);
  print_divergences(logs.ranks);
  if (traces) {
    const std::string path(arguments[2]);
    std::FILE* const out = std::fopen(path.c_str(), "w");
    const std::string text = to_chrome_trace(logs.ranks);
    const bool written =
        out != nullptr && std::fwrite(text.data(), 1, text.size(), out) == text.size();
    if (out == nullptr || std::fclose(out) != 0 || !written) {
      fmt::print(stderr, "cannot write {}: {}\n", path, parx::errno_text(errno));
      return 2;
    }
  }
  return find_divergences(logs.ranks).empty() && logs.left_out.empty() ? 0 : 1;
} catch (const parx::error& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 2;
}

}  // namespace examples
