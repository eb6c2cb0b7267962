// report: rows of results as nccl-tests' table, as OSU's table, or as one JSON object for each
// line.
//
// The first two have the same columns as the originals, for existing plotting scripts.
#pragma once

#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <bench/measure.hpp>

namespace bench {

/// One placement of one size.
struct result {
  timing time;
  std::optional<std::size_t> wrong;  ///< elements over all ranks; unset: not checked
};

struct row {
  operation op = operation::barrier;
  std::string_view algorithm;  ///< as given by --algo
  std::size_t bytes = 0;
  std::size_t count = 0;
  std::optional<result> out_of_place;
  std::optional<result> in_place;
};

/// What all rows have in common.
struct run_info {
  std::string program;
  std::string library;
  std::string network;
  std::vector<std::string> rank_lines;  ///< "Pid 12345 on node01 core 0"
  options given;
};

class report {
 public:
  virtual ~report() = default;
  virtual void begin(operation op, const std::string& algorithm) = 0;
  virtual void add(const row& next) = 0;
  virtual void end(operation op) = 0;

 protected:
  report() = default;
  report(const report&) = default;
  report& operator=(const report&) = default;
};

/// GB/s, of 1e9 bytes.
[[nodiscard]] inline double algorithm_bandwidth(const row& of, const result& column) noexcept {
  return column.time.mean > 0 ? static_cast<double>(of.bytes) / column.time.mean * 1e-3 : 0;
}

class nccl_report final : public report {
 public:
  nccl_report(std::FILE* out, const run_info& info) : out_(out), info_(info) {}

  void begin(operation op, const std::string& algorithm) override {
    wrong_ = 0;
    bandwidth_ = 0;
    columns_ = 0;
    const options& given = info_.given;
    const auto number = [](const std::optional<int>& value) {
      return value ? std::to_string(*value) : std::string("auto");
    };
    fmt::print(out_, "# {} ({}, algorithm: {})\n# Collective test starting: {}_perf\n",
               info_.program, info_.library, algorithm, name_of(op));
    fmt::print(
        out_,
        "# nThread 1 nGpus 0 minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg "
        "iters: 1 validation: {} graph: 0\n",
        given.first_size, given.last_size, given.step > 0 ? given.step : given.factor,
        given.step > 0 ? "bytes" : "factor", number(given.warmup), number(given.iterations),
        given.check ? 1 : 0);
    fmt::print(out_,
               "# time: the slowest rank's mean, operations back to back\n#\n# Using devices\n");
    for (std::size_t rank = 0; rank < info_.rank_lines.size(); ++rank) {
      fmt::print(out_, "#  Rank {:>2} Group  0 {} [{}]\n", rank, info_.rank_lines[rank],
                 info_.network);
    }
    fmt::print(out_, "#\n# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{:^33}{:^33}\n", "", "", "", "", "",
               "out-of-place", "in-place");
    fmt::print(out_, "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "size", "count", "type", "redop",
               "root");
    for (int i = 0; i < 2; ++i) {
      fmt::print(out_, "  {:>7}  {:>6}  {:>6}  {:>6}", "time", "algbw", "busbw", "#wrong");
    }
    fmt::print(out_, "\n# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "(B)", "(elements)", "", "", "");
    for (int i = 0; i < 2; ++i) {
      fmt::print(out_, "  {:>7}  {:>6}  {:>6}  {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
    }
    fmt::print(out_, "\n");
    std::fflush(out_);
  }

  void add(const row& next) override {
    const options& given = info_.given;
    fmt::print(out_, "{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", next.bytes, next.count,
               next.op == operation::barrier ? "none" : nccl_name(given.type),
               reduces(next.op) ? nccl_name(given.reduction) : "none",
               has_root(next.op) ? given.root : -1);
    print_column(next, next.out_of_place);
    print_column(next, next.in_place);
    fmt::print(out_, "\n");
    std::fflush(out_);
  }

  void end(operation op) override {
    fmt::print(out_, "# Out of bounds values : {} {}\n", wrong_,
               !info_.given.check ? "(not checked)"
               : wrong_ == 0      ? "OK"
                                  : "FAILED");
    fmt::print(out_, "# Avg bus bandwidth    : {:g}\n#\n# Collective test concluded: {}_perf\n",
               columns_ > 0 ? bandwidth_ / columns_ : 0, name_of(op));
    std::fflush(out_);
  }

 private:
  /// As many decimals as fit into seven places.
  [[nodiscard]] static std::string seven_places(double microseconds) {
    for (int decimals = 2; decimals > 0; --decimals) {
      auto text = fmt::format("{:.{}f}", microseconds, decimals);
      if (text.size() <= 7) return text;
    }
    return fmt::format("{:.0f}", microseconds);
  }

  void print_column(const row& of, const std::optional<result>& column) {
    if (!column) {
      fmt::print(out_, "  {:>7}  {:>6}  {:>6}  {:>6}", "N/A", "N/A", "N/A", "N/A");
      return;
    }
    const double algbw = algorithm_bandwidth(of, *column);
    const double busbw = algbw * bus_factor(of.op, static_cast<int>(info_.rank_lines.size()));
    bandwidth_ += busbw;
    ++columns_;
    wrong_ += column->wrong.value_or(0);
    fmt::print(out_, "  {:>7}  {:>6.2f}  {:>6.2f}  {:>6}", seven_places(column->time.mean), algbw,
               busbw, column->wrong ? std::to_string(*column->wrong) : "N/A");
  }

  std::FILE* out_;
  const run_info& info_;
  std::size_t wrong_ = 0;
  double bandwidth_ = 0;
  int columns_ = 0;
};

/// Latencies out of place; in place if the operation has no other form.
class osu_report final : public report {
 public:
  osu_report(std::FILE* out, const run_info& info) : out_(out), info_(info) {}

  void begin(operation op, const std::string& algorithm) override {
    fmt::print(out_, "# {} {} Latency Test in the OSU format ({}, {}, {} ranks, algorithm: {})\n",
               info_.program, name_of(op), info_.library, info_.network, info_.rank_lines.size(),
               algorithm);
    fmt::print(out_, "# Datatype: {}.\n{:<10}{:>20}{:>20}{:>20}{:>12}\n",
               nccl_name(info_.given.type), "# Size", "Avg Latency(us)", "Min Latency(us)",
               "Max Latency(us)", "Iterations");
    std::fflush(out_);
  }

  void add(const row& next) override {
    const auto& column = next.out_of_place ? next.out_of_place : next.in_place;
    if (!column) return;
    const timing& time = column->time;
    fmt::print(out_, "{:<10}{:>20.2f}{:>20.2f}{:>20.2f}{:>12}\n", next.bytes, time.rank_average,
               time.rank_fastest, time.mean, time.iterations);
    std::fflush(out_);
  }

  void end(operation) override {}

 private:
  std::FILE* out_;
  const run_info& info_;
};

class json_report final : public report {
 public:
  json_report(std::FILE* out, const run_info& info) : out_(out), info_(info) {}

  void begin(operation, const std::string&) override {}

  void add(const row& next) override {
    const options& given = info_.given;
    fmt::print(out_,
               R"({{"library":"{}","network":"{}","ranks":{},"op":"{}","algorithm":"{}","size":{},)"
               R"("count":{},"type":"{}","redop":"{}","root":{},"out_of_place":{},"in_place":{}}})"
               "\n",
               info_.library, info_.network, info_.rank_lines.size(), name_of(next.op),
               next.algorithm, next.bytes, next.count, parx::name_of(given.type),
               reduces(next.op) ? parx::name_of(given.reduction) : "none",
               has_root(next.op) ? given.root : -1, column_text(next, next.out_of_place),
               column_text(next, next.in_place));
    std::fflush(out_);
  }

  void end(operation) override {}

 private:
  [[nodiscard]] std::string column_text(const row& of, const std::optional<result>& column) const {
    if (!column) return "null";
    const double algbw = algorithm_bandwidth(of, *column);
    const timing& time = column->time;
    return fmt::format(
        R"({{"time_us":{:.3f},"median_us":{:.3f},"min_us":{:.3f},"p90_us":{:.3f},)"
        R"("rank_average_us":{:.3f},"rank_fastest_us":{:.3f},"algbw":{:.5g},"busbw":{:.5g},)"
        R"("wrong":{},"iterations":{},"cores":{:.2f}}})",
        time.mean, time.median, time.minimum, time.p90, time.rank_average, time.rank_fastest, algbw,
        algbw * bus_factor(of.op, static_cast<int>(info_.rank_lines.size())),
        column->wrong ? std::to_string(*column->wrong) : "null", time.iterations, time.cores);
  }

  std::FILE* out_;
  const run_info& info_;
};

[[nodiscard]] inline std::unique_ptr<report> make_report(table_format format, std::FILE* out,
                                                         const run_info& info) {
  switch (format) {
    case table_format::osu: return std::make_unique<osu_report>(out, info);
    case table_format::json: return std::make_unique<json_report>(out, info);
    case table_format::nccl: break;
  }
  return std::make_unique<nccl_report>(out, info);
}

}  // namespace bench
