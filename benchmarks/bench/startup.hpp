// startup: how long the ranks take to join their job. bootstrap: the same for several world sizes.
//
// init is parx::init on the slowest rank; first is the first all_reduce, of four bytes, which opens
// the connections that it needs; job is the whole run of parxrun.
#pragma once

#include <stdio.h>  // popen
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <bench/figures.hpp>
#include <bench/measure.hpp>
#include <bench/parx_backend.hpp>
#include <parx/core/error.hpp>

namespace bench {

/// Collective. `init_seconds` is the time of this rank's parx::init.
inline void run_startup(parx_backend& ranks, const options& given, double init_seconds) {
  static constexpr double milli = 1e3;
  const detail::stopwatch watch;
  float one = 1;
  const parx::buffer_view value{&one, 1, parx::dtype::float32};
  ranks.run({operation::all_reduce,
             placement::in_place,
             {&one, 1, value.type},
             value,
             parx::reduce_op::sum,
             0});
  std::array slowest{init_seconds, watch.seconds()};
  double sum = init_seconds;
  ranks.max_over_ranks(slowest);
  ranks.sum_over_ranks({&sum, 1});
  const figures table(ranks, given, "parx::init",
                      "milliseconds of the slowest rank; first: the first all_reduce",
                      {{"init_avg_ms"}, {"init_max_ms"}, {"first_ms"}});
  const std::array row{sum / ranks.size() * milli, slowest[0] * milli, slowest[1] * milli};
  table.add(row);
}

namespace detail {

[[nodiscard]] inline std::string shell_quoted(const std::string& text) {
  std::string result = "'";
  for (const char each : text) result += each == '\'' ? std::string("'\\''") : std::string(1, each);
  return result + "'";
}

struct job_times {
  double init = 0;
  double first = 0;
  double job = 0;
};

/// The number after `"name":` in a line of JSON.
[[nodiscard]] inline double number_of(std::string_view line, std::string_view name) {
  const std::string key = fmt::format("\"{}\":", name);
  const auto at = line.find(key);
  if (at == std::string_view::npos) {
    parx::throw_error(parx::errc::io, "--mode bootstrap: no {} in what the job printed: {}", name,
                      line);
  }
  return std::strtod(std::string(line.substr(at + key.size())).c_str(), nullptr);
}

/// Runs a job of `world` ranks of this program under the parxrun in the same folder.
[[nodiscard]] inline job_times start_job(int world) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const auto launcher = self.parent_path() / "parxrun";
  parx::require(::access(launcher.c_str(), X_OK) == 0,
                "--mode bootstrap: {} is missing; build it first", launcher.string());
  const std::string command =
      fmt::format("{} -n {} --tag-output=false {} --mode startup --format json",
                  shell_quoted(launcher), world, shell_quoted(self));
  const stopwatch watch;
  FILE* output = ::popen(command.c_str(), "re");
  if (output == nullptr)
    parx::throw_error(parx::errc::io, "{}: {}", command, parx::errno_text(errno));
  std::string text;
  std::array<char, 512> piece{};
  while (std::fgets(piece.data(), piece.size(), output) != nullptr) text += piece.data();
  const int status = ::pclose(output);
  const double seconds = watch.seconds();
  if (status != 0) {
    parx::throw_error(parx::errc::io, "{}: it ended with status {}", command,
                      WIFEXITED(status) ? WEXITSTATUS(status) : status);
  }
  return {number_of(text, "init_max_ms"), number_of(text, "first_ms"), seconds * 1e3};
}

}  // namespace detail

/// Not a rank: starts parxrun `-n` (5) times for each world size, and prints medians over the jobs.
inline void run_bootstrap(const options& given) {
  const figures table(
      given, "parx::init", "parx " PARX_VERSION,
      fmt::format("median milliseconds over {} jobs a world", given.iterations.value_or(5)),
      {{"ranks", 0}, {"init_min_ms"}, {"init_ms"}, {"init_max_ms"}, {"first_ms"}, {"job_ms"}});
  for (const int world : given.worlds) {
    std::vector<double> init;
    std::vector<double> first;
    std::vector<double> job;
    for (int i = 0; i < given.iterations.value_or(5); ++i) {
      const auto times = detail::start_job(world);
      init.push_back(times.init);
      first.push_back(times.first);
      job.push_back(times.job);
    }
    for (auto* each : {&init, &first, &job}) std::sort(each->begin(), each->end());
    const auto middle = [](const std::vector<double>& times) { return times[times.size() / 2]; };
    const std::array row{static_cast<double>(world),
                         init.front(),
                         middle(init),
                         init.back(),
                         middle(first),
                         middle(job)};
    table.add(row);
  }
}

}  // namespace bench
