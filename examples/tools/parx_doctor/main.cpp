// parx_doctor: checks the hosts and links of a job before a long run, and shows the last operations
// of its ranks after a failed one.
//
//   parxrun -n 4 build/release/bin/parx_doctor
//   srun -N 2 --ntasks-per-node=2 build/release/bin/parx_doctor
//   parx_doctor recorder DIR [--trace out.json]      # the job's error names DIR
//   parx_doctor host                                 # what parx_slurm check asks a node
// A path of --needs may have commas in it.
#define CXXOPTS_VECTOR_DELIMITER '\0'
#include "tools/parx_doctor/facts.hpp"
#include "tools/parx_doctor/host_flags.hpp"
#include "tools/parx_doctor/links.hpp"
#include <parx/core/did_you_mean.hpp>
#include "tools/parx_doctor/recorder.hpp"
#include "tools/parx_doctor/ucx.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace {

using parx::rank_health;

constexpr std::string_view usage =
    "Checks the hosts and links of a job before a long run; changes nothing.\n"
    "  parxrun -n 4 parx_doctor [--strict]     a line for each host and link, and a sentence for\n"
    "  srun -N 2 parx_doctor [--strict]        each problem; --strict: exit code 1 if any\n"
    "  parx_doctor recorder DIR [--trace OUT]  the last operations of a job that has failed\n"
    "  parx_doctor host FLAGS                  this node's facts as JSON, for parx_slurm check\n"
    "Guide: examples/guide/failures.md\n";

void print_host(const std::vector<const rank_health*>& ranks) {
  const rank_health& first = *ranks.front();
  std::vector<int> numbers, cpus;
  int threads = 0;
  for (const rank_health* each : ranks) {
    numbers.push_back(each->rank);
    cpus.insert(cpus.end(), each->cpus.begin(), each->cpus.end());
    threads += each->threads;
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  fmt::print("{:<16} rank{} {}: {} core{}, {} thread{}, address {}, {} files\n", first.host.node,
             numbers.size() == 1 ? "" : "s", parx::detail::some_of(numbers), cpus.size(),
             cpus.size() == 1 ? "" : "s", threads, threads == 1 ? "" : "s", first.host.address,
             first.host.files);
  fmt::print("{:<16} {}\n", "",
             first.host.why_not_amx.empty()
                 ? "bfloat16 products by AMX"
                 : "bfloat16 products without AMX: " + first.host.why_not_amx);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "recorder") {
    return examples::diagnose_recorder({argv + 2, argv + argc});
  }
  if (argc > 1 && std::string_view(argv[1]) == "host") {
    return examples::print_host_facts(argc - 1, argv + 1);
  }
  const std::string_view asked = argc == 2 ? argv[1] : "";
  if (asked == "--help" || asked == "-h") {
    fmt::print("{}", usage);
    return 0;
  }
  const bool strict = asked == "--strict";
  if (argc > 1 && !strict) {
    const std::string_view first = argv[1];
    const char* const strange = first == "--strict" || first == "--help" ? argv[2] : argv[1];
    fmt::print(stderr, "parx_doctor: \"{}\" is not what it takes{}\n{}", strange,
               parx::meant_question(
                   parx::did_you_mean(strange, {"recorder", "host", "--strict", "--help"})),
               usage);
    return 2;
  }
  const parx::launch_env job = parx::detect_launch();
  std::size_t found = 0;
  const int failed = parx::run([&](parx::world& world) {
    auto ranks = parx::all_gather_object(world, examples::look_at_this_process(world, job));
    rank_health mine = ranks[static_cast<std::size_t>(world.rank())];
    mine.reads_neighbour = examples::reads_neighbour(world, ranks);
    mine.host.clock_ahead_s = examples::clock_ahead(world);
    ranks = parx::all_gather_object(world, mine);
    const auto links = examples::measure_links(world, ranks);
    auto sentences = parx::slurm::sentences_of(parx::findings(ranks, links));
    const examples::ucx_report ucx = examples::ask_ucx(world, mine.host.node, links);
    for (const std::string& each : ucx.problems) sentences.push_back("! " + each);
    found = sentences.size();
    if (world.rank() != 0) return;
    fmt::print("{} rank{} started by {}\n", world.size(), world.size() == 1 ? "" : "s",
               to_string(job.started_by));
    for (const auto& [id, those] : parx::by_host(ranks)) print_host(those);
    for (const auto& each : links) {
      fmt::print("{:>7} - {:<6} {:8.1f} us {:10.1f} MB/s\n", each.rank, each.peer,
                 each.seconds * 1e6, each.bytes_per_second / 1e6);
    }
    for (const std::string& each : ucx.lines) fmt::print("{}\n", each);
    for (const std::string& each : sentences) fmt::print("{}\n", each);
    if (sentences.empty()) fmt::print("nothing found that would hurt the job\n");
    if (strict && found > 0) {
      fmt::print("{} problem{}: exit code 1, as --strict says\n", found, found == 1 ? "" : "s");
    }
  });
  return failed != 0 ? failed : strict && found > 0 ? 1 : 0;
}
