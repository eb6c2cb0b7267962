// parx-bench: time, bandwidth and correctness of parx's collectives, in the columns of nccl-tests.
//
//   parxrun -n 4 --tag-output=false parx-bench -b 4 -e 64M
//   srun -N 2 --ntasks-per-node=2 parx-bench --op all --format osu
//
// What it does is in bench/; peers/ measures other libraries in the same way.
#include <cstdio>

#include <fmt/format.h>

#include <bench/options.hpp>
#include <bench/parx_backend.hpp>
#include <bench/run.hpp>
#include <parx/launch.hpp>

int main(int argc, char** argv) {
  static constexpr int wrong_result = 1;
  static constexpr int wrong_usage = 2;
  const std::string version = "parx-bench version " PARX_VERSION;
  try {
    const auto given = bench::parse_options("parx-bench", version, argc, argv);
    if (!given) return 0;
    const auto use = bench::parse_algorithm(given->algorithm);
    std::size_t wrong = 0;
    const int code = parx::run([&](parx::world& world) {
      bench::parx_backend ranks(world, use);
      wrong = bench::run_all(ranks, *given, version);
    });
    return code != 0 ? code : wrong > 0 ? wrong_result : 0;
  } catch (const parx::usage_error& wrong) {
    fmt::print(stderr, "parx-bench: {}\n", wrong.what());
    return wrong_usage;
  }
}
