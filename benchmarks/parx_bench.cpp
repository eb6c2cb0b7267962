// parx-bench: time, bandwidth and correctness of parx's collectives, in the columns of nccl-tests.
//
//   parxrun -n 4 --tag-output=false parx-bench -b 4 -e 64M
//   srun -N 2 --ntasks-per-node=2 parx-bench --op all --format osu
//   parxrun -n 2 --tag-output=false parx-bench --mode latency --op broadcast
//   parx-bench --mode bootstrap --worlds 2,4,8
//   parx-bench --simulate --ranks 4096 --hosts 512 -b 1M -e 64M -f 8
//
// The implementation is in bench/; the programs in peers/ measure other libraries in the same way.
#include <cstdio>

#include <fmt/format.h>

#include <bench/options.hpp>
#include <bench/parx_backend.hpp>
#include <bench/run.hpp>
#include <bench/simulate.hpp>
#include <bench/startup.hpp>
#include <common/networks.hpp>
#include <parx/launch.hpp>

namespace {

/// The exit code: `code`, or 1 instead of 0 if not all of the output could be written.
int when_printed(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  std::fputs("parx-bench: not all of the output could be written\n", stderr);
  return code != 0 ? code : 1;
}

}  // namespace

int main(int argc, char** argv) {
  static constexpr int wrong_result = 1;
  static constexpr int wrong_usage = 2;
  const std::string version = "parx-bench version " PARX_VERSION;
  try {
    const auto given = bench::parse_options("parx-bench", version, argc, argv);
    if (!given) return 0;
    if (given->measured == bench::mode::bootstrap) {
      bench::run_bootstrap(*given);
      return when_printed(0);
    }
    if (given->simulated) {
      bench::run_simulation(*given);
      return when_printed(0);
    }
    std::size_t wrong = 0;
    const bench::detail::stopwatch since_start;
    const int code = parx::run([&](parx::world& world) {
      const double init_seconds = since_start.seconds();
      bench::parx_backend ranks(world,
                                given->shared ? bench::buffers::shared : bench::buffers::ordinary);
      if (given->measured == bench::mode::startup) {
        bench::run_startup(ranks, *given, init_seconds);
      } else {
        wrong = bench::run_all(ranks, *given, version);
      }
    });
    return when_printed(code != 0 ? code : wrong > 0 ? wrong_result : 0);
  } catch (const parx::usage_error& wrong) {
    std::fprintf(stderr, "parx-bench: %s\n", wrong.what());
    return wrong_usage;
  }
}
