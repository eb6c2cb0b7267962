// options: the command line of parx-bench and of its peers. Flags that nccl-tests has too have its
// names.
#pragma once

#include <cxxopts.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bench/operation.hpp>
#include <parx/core/check.hpp>
#include <parx/types/dtype.hpp>
#include <parx/types/reduce.hpp>

namespace bench {

enum class table_format : std::uint8_t { nccl, osu, json };

/// What is measured. Each mode has a header of its name.
enum class mode : std::uint8_t { table, latency, overlap, rate, wire, startup, bootstrap };
inline constexpr std::array<std::string_view, 7> mode_names{"table", "latency", "overlap",  "rate",
                                                            "wire",  "startup", "bootstrap"};

struct options {
  mode measured = mode::table;
  std::vector<operation> operations{operation::all_reduce};
  std::size_t first_size = 4;
  std::size_t last_size = std::size_t{64} << 20;
  std::size_t factor = 2;
  std::size_t step = 0;  ///< bytes added from size to size; 0: multiply by `factor`
  parx::dtype type = parx::dtype::float32;
  parx::reduce_op reduction = parx::reduce_op::sum;
  int root = 0;
  std::optional<int> iterations;  ///< unset: as many as fit into `budget`
  std::optional<int> warmup;      ///< unset: a tenth of that
  double budget = 0.3;            ///< seconds for one column of one size
  bool check = true;
  std::vector<std::string> algorithms{"automatic"};
  bool shared = false;  ///< buffers that all ranks of the host see
  bool simulated = false;
  int simulated_ranks = 64;
  int simulated_hosts = 8;
  double link_latency = 15e-6;   ///< s
  double link_bandwidth = 2.5e9; ///< bytes/s
  std::vector<int> worlds{1, 2, 4, 8};
  table_format format = table_format::nccl;
  std::string json_file;
  std::string plot_file;
};

/// The names in nccl-tests' output, for scripts that parse it.
[[nodiscard]] constexpr std::string_view nccl_name(parx::dtype type) noexcept {
  switch (type) {
    case parx::dtype::float32: return "float";
    case parx::dtype::float64: return "double";
    case parx::dtype::float16: return "half";
    default: return parx::name_of(type);
  }
}
[[nodiscard]] constexpr std::string_view nccl_name(parx::reduce_op op) noexcept {
  switch (op) {
    case parx::reduce_op::product: return "prod";
    case parx::reduce_op::premul_sum: return "mulsum";
    default: return parx::name_of(op);
  }
}

/// "4", "1K", "64M", "2G" (powers of 1024; "1KiB" and "1KB" too) in bytes. Throws
/// parx::usage_error.
[[nodiscard]] inline std::size_t parse_size(std::string_view flag, std::string_view text) {
  std::size_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  unsigned shift = 0;
  if (!unit.empty()) {
    static constexpr std::string_view units = "KMGT";
    const auto found = units.find(static_cast<char>(unit.front() & ~0x20));
    if (found != std::string_view::npos) {
      shift = 10 * (static_cast<unsigned>(found) + 1);
      unit.remove_prefix(1);
    }
    if (unit == "iB" || unit == "B" || unit == "b") unit = {};
  }
  parx::require(code == std::errc{} && unit.empty() && number <= (std::size_t{1} << 48) >> shift,
                "{} {}: a size is a number of bytes such as 4, 1K or 64M", flag, text);
  return number << shift;
}

/// The sizes to measure, in bytes, ascending.
[[nodiscard]] inline std::vector<std::size_t> sizes_of(const options& given) {
  std::vector<std::size_t> sizes;
  std::size_t size = given.first_size;
  while (size <= given.last_size) {
    sizes.push_back(size);
    size = given.step > 0 ? size + given.step : size * given.factor;
  }
  return sizes;
}

namespace detail {

template <typename T, typename Name>
[[nodiscard]] std::optional<T> find_name(std::string_view text, std::size_t count, Name name) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<T>(i);
    if (text == parx::name_of(value) || text == name(value)) return value;
  }
  return std::nullopt;
}

[[nodiscard]] inline std::vector<operation> parse_operations(const std::string& text) {
  std::string names;
  std::vector<operation> all;
  for (const operation_row& each : operation_table) {
    if (text == each.name) return {each.op};
    names += fmt::format("{}, ", each.name);
    all.push_back(each.op);
  }
  parx::require(text == "all", "--op {}: the operations are {}and all", text, names);
  return all;
}

[[nodiscard]] inline mode parse_mode(const std::string& text) {
  const auto found = std::find(mode_names.begin(), mode_names.end(), text);
  parx::require(found != mode_names.end(), "--mode {}: the modes are {}", text,
                fmt::join(mode_names, ", "));
  return static_cast<mode>(found - mode_names.begin());
}

/// "1,2,4": numbers of ranks.
[[nodiscard]] inline std::vector<int> parse_worlds(const std::vector<std::string>& texts) {
  std::vector<int> worlds;
  for (const std::string& text : texts) {
    int world = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), world);
    parx::require(code == std::errc{} && end == text.data() + text.size() && world >= 1,
                  "--worlds {}: a world is a number of ranks such as 4", text);
    worlds.push_back(world);
  }
  return worlds;
}

[[nodiscard]] inline table_format parse_format(const std::string& text) {
  if (text == "osu") return table_format::osu;
  if (text == "json") return table_format::json;
  parx::require(text == "nccl", "--format {}: the formats are nccl, osu and json", text);
  return table_format::nccl;
}

[[nodiscard]] inline cxxopts::Options describe_options(const std::string& program) {
  cxxopts::Options description(
      program,
      "Measures and checks collectives. Start it like any program with ranks:\n"
      "parxrun -n 4 --tag-output=false parx-bench -b 4 -e 64M\n");
  const auto text = [](const char* value) {
    return cxxopts::value<std::string>()->default_value(value);
  };
  const auto list = [](const char* value) {
    return cxxopts::value<std::vector<std::string>>()->default_value(value);
  };
  // clang-format off
  description.add_options()
      ("mode", "table: time and bandwidth of sizes. latency: one operation at a time, with "
       "percentiles. overlap: computation hidden behind the operation. rate: messages a second "
       "between pairs. wire: all_reduce against the loopback and its memory. startup: joining this "
       "job. bootstrap: startup of several worlds, started alone",
       text("table"), "NAME")
      ("op", "all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter, "
       "all_to_all, scan, exscan, send_recv, barrier or all",
       text("all_reduce"), "NAME")
      ("b,minbytes", "First size", text("4"), "SIZE")
      ("e,maxbytes", "Last size", text("64M"), "SIZE")
      ("f,stepfactor", "Factor from size to size",
       cxxopts::value<std::size_t>()->default_value("2"), "N")
      ("i,stepbytes", "Bytes from size to size, instead of a factor", text("0"), "SIZE")
      ("d,datatype", "float, double, half, bfloat16, int8 ... uint64", text("float"), "TYPE")
      ("o,redop", "sum, prod, min, max, avg, mulsum, band, bor, bxor", text("sum"), "OP")
      ("r,root", "Root of broadcast, reduce, gather and scatter",
       cxxopts::value<int>()->default_value("0"), "RANK")
      ("n,iters", "Operations measured for each size; 0: as many as fit into the budget",
       cxxopts::value<int>()->default_value("0"), "N")
      ("w,warmup_iters", "Operations before the clock starts; without it: as the budget permits",
       cxxopts::value<int>(), "N")
      ("budget", "Seconds for each size and placement",
       cxxopts::value<double>()->default_value("0.3"), "S")
      ("c,check", "1: check every element of every size once; 0: do not",
       cxxopts::value<int>()->default_value("1"), "0|1")
      ("algo", "Algorithms to measure, with commas, instead of the library's choice; a wrong name "
       "lists all",
       list("automatic"), "NAMES")
      ("shared", "Buffers in memory that all ranks of the host see (parx::allocate_shared)")
      ("simulate", "Predict instead of measure: parx's schedules on a model of a cluster, started "
       "alone")
      ("ranks", "Ranks to simulate", cxxopts::value<int>()->default_value("64"), "N")
      ("hosts", "Hosts that they are spread over; without it 8, or as many as there are ranks",
       cxxopts::value<int>(), "N")
      ("link-latency", "Latency between simulated hosts",
       cxxopts::value<double>()->default_value("15"), "US")
      ("link-bandwidth", "Bandwidth of a simulated host's network",
       cxxopts::value<double>()->default_value("2.5"), "GB/s")
      ("worlds", "Numbers of ranks of --mode bootstrap", list("1,2,4,8"), "LIST")
      ("format", "Table on standard output: nccl, osu or json", text("nccl"), "NAME")
      ("J,json", "Also write one JSON object a row to this file", text(""), "FILE")
      ("plot", "Also draw size against busbw, a line for each algorithm, into this SVG file",
       text(""), "FILE")
      ("version", "Print the version")
      ("h,help", "Print this");
  // clang-format on
  return description;
}

[[nodiscard]] inline options read_options(const cxxopts::ParseResult& given) {
  const auto text = [&](const char* flag) { return given[flag].as<std::string>(); };
  options result;
  result.measured = parse_mode(text("mode"));
  result.operations = parse_operations(text("op"));
  result.first_size = parse_size("-b", text("minbytes"));
  result.last_size = parse_size("-e", text("maxbytes"));
  const bool small = result.measured == mode::latency || result.measured == mode::rate;
  if (small && given.count("maxbytes") == 0) {
    result.last_size = std::max(result.first_size, std::size_t{8} << 10);
  }
  if (result.measured == mode::wire && given.count("minbytes") == 0) {
    result.first_size = result.last_size;
  }
  result.factor = given["stepfactor"].as<std::size_t>();
  result.step = parse_size("-i", text("stepbytes"));
  parx::require(result.first_size > 0, "-b 0: the first size is at least one byte");
  parx::require(result.first_size <= result.last_size,
                "-b {} -e {}: the first size is beyond the last", text("minbytes"),
                text("maxbytes"));
  parx::require(result.step > 0 || result.factor >= 2, "-f {}: the factor is at least 2",
                result.factor);

  const auto type = find_name<parx::dtype>(text("datatype"), parx::dtype_count,
                                           [](parx::dtype value) { return nccl_name(value); });
  parx::require(type.has_value(), "-d {}: there is no such datatype; see --help", text("datatype"));
  result.type = *type;
  const auto reduction = find_name<parx::reduce_op>(
      text("redop"), parx::reduce_op_count, [](parx::reduce_op value) { return nccl_name(value); });
  parx::require(reduction.has_value(), "-o {}: there is no such reduction; see --help",
                text("redop"));
  result.reduction = *reduction;
  parx::require(parx::is_defined(result.type, result.reduction),
                "-o {}: this is not defined for {}", text("redop"), text("datatype"));

  result.root = given["root"].as<int>();
  const int iterations = given["iters"].as<int>();
  parx::require(iterations >= 0, "-n {}: the number cannot be negative", iterations);
  if (iterations > 0) result.iterations = iterations;
  if (given.count("warmup_iters") > 0) {
    result.warmup = given["warmup_iters"].as<int>();
    parx::require(*result.warmup >= 0, "-w {}: the number cannot be negative", *result.warmup);
  }
  result.budget = given["budget"].as<double>();
  parx::require(result.budget > 0 && result.budget <= 3600,
                "--budget {}: above 0, up to 3600 seconds", result.budget);
  const int check = given["check"].as<int>();
  parx::require(check == 0 || check == 1, "-c {}: write 0 or 1", check);
  result.check = check == 1;
  result.algorithms = given["algo"].as<std::vector<std::string>>();
  result.shared = given.count("shared") > 0;
  result.simulated = given.count("simulate") > 0;
  for (const char* const flag : {"ranks", "hosts", "link-latency", "link-bandwidth"}) {
    parx::require(result.simulated || given.count(flag) == 0,
                  "--{} is for a simulated cluster: add --simulate. The launcher (parxrun -n, "
                  "srun -n) sets the number of ranks that measure",
                  flag);
  }
  result.simulated_ranks = given["ranks"].as<int>();
  result.simulated_hosts = given.count("hosts") > 0 ? given["hosts"].as<int>()
                                                    : std::min(8, result.simulated_ranks);
  parx::require(result.simulated_ranks >= 1 && result.simulated_ranks <= 1 << 20,
                "--ranks {}: from 1 to 1048576", result.simulated_ranks);
  parx::require(result.simulated_hosts >= 1 && result.simulated_hosts <= result.simulated_ranks,
                "--hosts {}: from 1 to the number of ranks, {}", result.simulated_hosts,
                result.simulated_ranks);
  result.link_latency = given["link-latency"].as<double>() * 1e-6;
  result.link_bandwidth = given["link-bandwidth"].as<double>() * 1e9;
  parx::require(result.link_latency >= 0 && result.link_bandwidth > 0,
                "--link-latency {} --link-bandwidth {}: the latency cannot be negative, the "
                "bandwidth must be above 0",
                given["link-latency"].as<double>(), given["link-bandwidth"].as<double>());
  result.worlds = parse_worlds(given["worlds"].as<std::vector<std::string>>());
  result.format = parse_format(text("format"));
  result.json_file = text("json");
  result.plot_file = text("plot");
  parx::require(result.plot_file.empty() || result.operations.size() == 1,
                "--plot {}: a plot shows one operation, so name it with --op", result.plot_file);
  parx::require(!result.simulated || (result.json_file.empty() && result.plot_file.empty()),
                "--simulate prints its own table: remove --json and --plot");
  return result;
}

}  // namespace detail

/// Reads the command line. Returns nullopt after printing the help or the version. Throws
/// parx::usage_error.
[[nodiscard]] inline std::optional<options> parse_options(const std::string& program,
                                                          const std::string& version, int argc,
                                                          const char* const* argv) {
  auto description = detail::describe_options(program);
  try {
    const auto given = description.parse(argc, argv);
    parx::require(given.unmatched().empty(), "{}: this argument belongs to no flag",
                  given.unmatched().empty() ? std::string() : given.unmatched().front());
    if (given.count("help") > 0) {
      fmt::print("{}", description.help());
      return std::nullopt;
    }
    if (given.count("version") > 0) {
      fmt::print("{}\n", version);
      return std::nullopt;
    }
    return detail::read_options(given);
  } catch (const cxxopts::exceptions::exception& wrong) {
    parx::throw_usage("{}; {} --help lists the flags", wrong.what(), program);
  }
}

}  // namespace bench
