// Recorded events as Chrome's trace JSON, which Perfetto, chrome://tracing and speedscope open.
//
// Pure functions that append to a string. Times are microseconds on the steady clock, which all
// processes of a host share; `clock_offset_us` in otherData turns them into Unix time, for merging
// the files of several hosts.
// Source: "Trace Event Format", Chromium project (phases X, C and M).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <variant>

#include <parx/core/formatted.hpp>
#include <parx/core/json_quote.hpp>
#include <parx/trace/detail/recorder.hpp>

namespace parx::inline PARX_ABI::trace::detail {

/// JSON has no infinity and no NaN: they become strings.
inline void append_json_number(std::string& out, const number& value) {
  if (const auto* count = std::get_if<std::uint64_t>(&value)) {
    out += std::to_string(*count);
  } else if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    out += std::to_string(*whole);
  } else if (const auto* real = std::get_if<double>(&value)) {
    out += formatted("{0}{1}{0}", std::isfinite(*real) ? "" : "\"", *real);
  }
}

/// Nanoseconds, not negative, as microseconds with all their digits: a double would round them.
inline void append_microseconds(std::string& out, std::int64_t ns) {
  out += formatted("{}.{:03}", ns / 1000, ns % 1000);
}

inline void append_event(std::string& out, const event& e, int pid, int tid) {
  out += "{\"ph\":";
  out += e.kind == event_kind::span ? "\"X\"" : "\"C\"";
  if (*e.category != '\0') {
    out += ",\"cat\":";
    out += json::quote(e.category);
  }
  out += ",\"name\":";
  out += json::quote(e.name.view());
  out += formatted(",\"pid\":{},\"tid\":{},\"ts\":", pid, tid);
  append_microseconds(out, e.start_ns);
  if (e.kind == event_kind::span) {
    out += ",\"dur\":";
    append_microseconds(out, e.duration_ns);
  }
  if (e.argument_count > 0) {
    out += ",\"args\":";
    for (std::size_t i = 0; i < e.argument_count; ++i) {
      out += i == 0 ? '{' : ',';
      out += json::quote(e.arguments[i].key);
      out += ':';
      append_json_number(out, e.arguments[i].value);
    }
    out += '}';
  }
  out += '}';
}

inline void append_name(std::string& out, std::string_view kind, int pid, int tid,
                        std::string_view name) {
  out += formatted(
      "{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":", kind,
      pid, tid);
  out += json::quote(name);
  out += "}}";
}

struct process_description {
  int pid = 0;  ///< the rank
  std::string name;
  double clock_offset_us = 0;  ///< Unix time minus steady time
};

/// Everything before the first event of a thread.
inline void append_header(std::string& out, const process_description& process,
                          std::uint64_t dropped) {
  out += formatted(
      "{{\"displayTimeUnit\":\"ms\",\n\"otherData\":{{\"clock_offset_us\":{:.0f},"
      "\"dropped_events\":{}}},\n\"traceEvents\":[\n",
      process.clock_offset_us, dropped);
  append_name(out, "process_name", process.pid, 0, process.name);
}

/// A thread's name and its events by start time, an enclosing span before what it encloses.
inline void append_thread(std::string& out, thread_events thread, int pid) {
  const auto starts_before = [](const event& a, const event& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.duration_ns > b.duration_ns;
  };
  // Every program compiles this, and a heap is a third of what std::sort consists of.
  std::make_heap(thread.events.begin(), thread.events.end(), starts_before);
  std::sort_heap(thread.events.begin(), thread.events.end(), starts_before);
  out += ",\n";
  const std::string fallback = formatted("thread {}", thread.tid);
  append_name(out, "thread_name", pid, thread.tid,
              thread.thread_name.empty() ? fallback : thread.thread_name);
  for (const event& e : thread.events) {
    out += ",\n";
    append_event(out, e, pid, thread.tid);
  }
}

inline constexpr std::string_view json_footer = "\n]}\n";

}  // namespace parx::trace::detail
