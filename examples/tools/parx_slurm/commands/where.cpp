#include "tools/parx_slurm/commands/where.hpp"

#include <grp.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/shell_text.hpp"
#include "tools/common/instructions.hpp"
#include "tools/common/read_problem.hpp"
#include "tools/common/run_command.hpp"
#include "tools/parx_slurm/command_line.hpp"
#include "tools/parx_slurm/nodes/partition.hpp"
#include "tools/parx_slurm/nodes/salloc.hpp"
#include "tools/parx_slurm/nodes/test_only.hpp"
#include "tools/parx_slurm/nodes/where_text.hpp"
#include <parx/core/env.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/hostlist.hpp>

namespace examples {

std::string slurm_output(const std::vector<std::string>& words) {
  const auto result = parx::slurm::run_command(words, std::chrono::seconds(30));
  if (result.code == 127) {
    parx::throw_error(parx::errc::io,
                      "{}: there is no such program here. Run parx_slurm on a node of the cluster "
                      "where Slurm's commands are, usually its login node",
                      words[0]);
  }
  if (!result.success()) {
    const std::string what = result.timed_out ? "no answer within 30 s" : result.err;
    parx::throw_error(parx::errc::io, "{}: {}", parx::slurm::shell_text(words),
                      what.substr(0, what.find_last_not_of('\n') + 1));
  }
  return result.out;
}

std::vector<std::string> groups_of_this_user() {
  std::vector<gid_t> ids(static_cast<std::size_t>(std::max(::getgroups(0, nullptr), 0)));
  ids.resize(
      static_cast<std::size_t>(std::max(::getgroups(static_cast<int>(ids.size()), ids.data()), 0)));
  ids.push_back(::getegid());
  std::vector<std::string> names;
  for (const gid_t id : ids) {
    if (const group* const found = ::getgrgid(id)) names.emplace_back(found->gr_name);
  }
  return names;
}

std::int64_t megabytes(const cxxopts::ParseResult& given, const std::string& flag) {
  const std::string text = given[flag].as<std::string>();
  std::string digits = text;
  std::int64_t unit = 1;
  if (!digits.empty()) {
    const char last = digits.back();
    if (last == 'K' || last == 'M' || last == 'G' || last == 'T') digits.pop_back();
    unit = last == 'G' ? 1024 : last == 'T' ? 1024 * 1024 : 1;
    const auto value = parx::detail::parse_number<std::int64_t>(digits);
    if (value && *value >= 0 && *value <= 1'000'000'000) {
      return last == 'K' ? (*value + 1023) / 1024 : *value * unit;
    }
  }
  parx::throw_usage("--{} \"{}\": give MB, or a number with K, M, G or T behind it: 2G", flag,
                    text);
}

std::chrono::seconds length_of(const cxxopts::ParseResult& given, const char* flag) {
  const std::string text = given[flag].as<std::string>();
  const auto time = parx::slurm::parse_time_limit(text);
  parx::require(time && *time != parx::slurm::no_time_limit,
                "--{} \"{}\": give 30m, 2h, 1-12:00:00, or minutes", flag, text);
  return *time;
}

void add_request_flags(cxxopts::Options& options) {
  const auto yes = cxxopts::value<bool>();
  options.add_options()("N,nodes", "how many", text("1"))(
      "c,cores", "of each node: its ranks times their threads", text("1"))(
      "mem", "of each node: 500M, 2G; 0: what the site gives", text("0"))(
      "t,time", "30m, 2h, 1-12:00:00; a number is minutes; 0: the partition's default", text("0"))(
      "program", "a program whose instruction sets the nodes must have", text(""))(
      "isa", "baseline, avx, avx2 or avx512, instead of --program", text(""))(
      "gpu-nodes", "nodes with GPUs count as well", yes)("p,partition", "only this one", text(""))(
      "x,exclude", "nodes to leave out: n[3,7]", text(""))("A,account",
                                                           "the account that is billed", text(""));
}

parx::slurm::instruction_level level_of_file(const std::string& path) {
  return parx::slurm::level_of_program(
      parx::instructions_of(parx::detail::file_text(path).value_or("")));
}

namespace {

parx::slurm::instruction_level level_of(const cxxopts::ParseResult& given) {
  using enum parx::slurm::instruction_level;
  if (given.count("isa") != 0) {
    const std::string word = choice(given, "isa", {"baseline", "avx", "avx2", "avx512"});
    return word == "avx512" ? avx512 : word == "avx2" ? avx2 : word == "avx" ? avx : baseline;
  }
  const std::string path = path_of_program(given["program"].as<std::string>());
  if (path.empty()) return baseline;
  std::uint64_t size = 0;
  const std::string problem = detail::read_problem(path, size);
  parx::require(problem.empty(), "--program {}: {}: give its path, or a name in PATH", path,
                problem);
  return level_of_file(path);
}

}  // namespace

parx::slurm::node_request request_of(const cxxopts::ParseResult& given) {
  const auto env = parx::process_environment();
  std::string account = given["account"].as<std::string>();
  for (const char* const name : {"SALLOC_ACCOUNT", "SBATCH_ACCOUNT", "SLURM_ACCOUNT"}) {
    if (account.empty()) account = parx::env_string(env, name).value_or("");
  }
  parx::slurm::node_request request;
  request.nodes = number(given, "nodes", 1, 100'000);
  request.cores = number(given, "cores", 1, 100'000);
  request.memory_mb = megabytes(given, "mem");
  request.time = length_of(given, "time");
  request.level = level_of(given);
  request.gpu_nodes = given["gpu-nodes"].as<bool>();
  request.partition = given["partition"].as<std::string>();
  request.account = account;
  request.groups = groups_of_this_user();
  request.is_root = ::geteuid() == 0;
  request.exclude = parx::expand_hostlist(given["exclude"].as<std::string>());
  return request;
}

search_result search_nodes(const parx::slurm::node_request& request) {
  namespace slurm = parx::slurm;
  search_result found;
  found.nodes = slurm::parse_sinfo(
      slurm_output({"sinfo", "-h", "-N", "-o", std::string(slurm::sinfo_format)}));
  std::erase_if(found.nodes, [&](const auto& each) {
    return std::find(request.exclude.begin(), request.exclude.end(), each.name) !=
           request.exclude.end();
  });
  // Both may be forbidden; then less is known.
  const auto optional = [](const std::vector<std::string>& words) {
    const auto result = slurm::run_command(words, std::chrono::seconds(30));
    return result.success() ? result.out : std::string();
  };
  slurm::read_allocated_memory(optional({"sinfo", "-h", "-N", "-O", "NodeList:200,AllocMem:20"}),
                               found.nodes);
  found.ranked = slurm::candidates(
      found.nodes, slurm::parse_partitions(optional({"scontrol", "show", "partition", "-o"})),
      request);
  found.at = std::chrono::system_clock::now();
  for (slurm::candidate& each : found.ranked) {
    if (!each.may_fit(request)) continue;
    std::vector<std::string> words{"sbatch", "--test-only"};
    for (std::string& word : slurm::salloc_options(each, found.nodes, request)) {
      words.push_back(std::move(word));
    }
    words.insert(words.end(), {"--wrap", "true"});
    const auto answer = slurm::run_command(words, std::chrono::seconds(30));
    // An older sbatch ends with 0 where it refuses, so its text decides.
    if (answer.code != 127 && !answer.timed_out) each.start = slurm::parse_test_only(answer.err);
  }
  slurm::rank(found.ranked, request, found.at);
  return found;
}

int where(const parx::slurm::node_request& request) {
  const search_result found = search_nodes(request);
  const auto what = parx::slurm::verdict(found.ranked, found.nodes, request);
  fmt::print("{}{}\n", parx::slurm::where_table(found.ranked, request, found.at), what.text);
  return what.found ? 0 : 3;
}

}  // namespace examples
