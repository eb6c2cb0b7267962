// table: time, bandwidth and correctness of operations, sizes and placements, in nccl-tests'
// columns.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bench/backend.hpp>
#include <bench/measure.hpp>
#include <bench/oracle.hpp>
#include <bench/place.hpp>
#include <bench/plot.hpp>
#include <bench/report.hpp>
#include <parx/core/error.hpp>

namespace bench {

namespace detail {

struct file_closer {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using file = std::unique_ptr<std::FILE, file_closer>;

[[nodiscard]] inline file open_to_write(std::string_view flag, const std::string& path) {
  file opened(std::fopen(path.c_str(), "we"));
  if (opened == nullptr) {
    parx::throw_error(parx::errc::io, "{} {}: the file cannot be written: {}", flag, path,
                      parx::errno_text(errno));
  }
  return opened;
}

/// Throws parx::error if not all of it could be written: the disk may be full.
inline void finish_writing(std::string_view flag, const std::string& path, file written) {
  if (written == nullptr) return;
  const bool failed = std::ferror(written.get()) != 0;
  if (std::fclose(written.release()) != 0 || failed) {
    parx::throw_error(parx::errc::io, "{} {}: not all of it could be written: {}", flag, path,
                      parx::errno_text(errno));
  }
}

[[nodiscard]] inline std::string describe_rank() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("Pid {:>6} on {:>10} core {:>2}", ::getpid(), host.data(), ::sched_getcpu());
}

[[nodiscard]] inline std::vector<std::string> describe_all(backend& ranks) {
  static constexpr std::size_t width = 320;
  std::string mine = describe_rank();
  mine.resize(width);
  std::string all(width * static_cast<std::size_t>(ranks.size()), '\0');
  ranks.gather(mine, all);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < all.size(); at += width) lines.emplace_back(all.c_str() + at);
  return lines;
}

}  // namespace detail

/// Measures one placement of one size. Collective.
[[nodiscard]] inline result measure_call(backend& ranks, const options& given, const call& next) {
  result column;
  if (given.check) {
    const oracle truth(given.type, given.reduction, ranks.size());
    if (next.op != operation::barrier) truth.prepare(next, ranks.rank());
    ranks.run(next);
    auto wrong = static_cast<double>(truth.count_wrong(next, ranks.rank()));
    ranks.sum_over_ranks({&wrong, 1});
    column.wrong = static_cast<std::size_t>(wrong);
  }
  clear(next);
  column.time = measure(ranks, given, [&] { ranks.run(next); });
  return column;
}

/// Collective. Measures everything that the options name; rank 0 prints. Returns the number of
/// wrong elements, the same on all ranks.
[[nodiscard]] inline std::size_t run_table(backend& ranks, const options& given,
                                           const std::string& program) {
  const run_info info{program, ranks.name(), ranks.network(), detail::describe_all(ranks), given};
  std::vector<std::unique_ptr<report>> reports;
  detail::file json;
  detail::file drawing;
  if (ranks.rank() == 0) {
    reports.push_back(make_report(given.format, stdout, info));
    if (!given.json_file.empty()) {
      json = detail::open_to_write("--json", given.json_file);
      reports.push_back(make_report(table_format::json, json.get(), info));
    }
    if (!given.plot_file.empty()) drawing = detail::open_to_write("--plot", given.plot_file);
  }

  const std::size_t element_size = parx::size_of(given.type);
  const buffer_pair buffers(ranks, given, sizes_of(given).back());
  std::size_t wrong = 0;
  std::vector<plot_line> lines;
  for_each_choice(ranks, given, [&](operation op, const std::string& algorithm) {
    for (const auto& each : reports) each->begin(op, algorithm);
    lines.push_back({algorithm, {}});
    for_each_shape(ranks, given, op, [&](const shape& elements) {
      row next{op,           algorithm,   elements.whole() * element_size, elements.count,
               std::nullopt, std::nullopt};
      for (const placement where : {placement::out_of_place, placement::in_place}) {
        if (!ranks.has(op, where)) continue;
        auto& column = where == placement::in_place ? next.in_place : next.out_of_place;
        column = measure_call(ranks, given,
                              place_call(op, where, elements, given, ranks.rank(), buffers));
        wrong += column->wrong.value_or(0);
      }
      for (const auto& each : reports) each->add(next);
      const result& usual = next.in_place ? *next.in_place : *next.out_of_place;
      lines.back().points.push_back(
          {static_cast<double>(next.bytes),
           algorithm_bandwidth(next, usual) * bus_factor(op, ranks.size())});
    });
    for (const auto& each : reports) each->end(op);
  });
  if (drawing != nullptr) {
    const std::string subtitle =
        fmt::format("{}, {}, {}", ranks.name(), ranks.network(), nccl_name(given.type));
    fmt::print(
        drawing.get(), "{}",
        draw_plot(fmt::format("{}, {} ranks", name_of(given.operations.front()), ranks.size()),
                  subtitle, lines));
  }
  detail::finish_writing("--json", given.json_file, std::move(json));
  detail::finish_writing("--plot", given.plot_file, std::move(drawing));
  return wrong;
}

}  // namespace bench
