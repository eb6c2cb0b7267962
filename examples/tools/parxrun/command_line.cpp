#include "tools/parxrun/command_line.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>

#include <fmt/format.h>

#include "tools/parxrun/nodes/job_nodes.hpp"
#include <parx/core/check.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/split.hpp>
#include <parx/core/thread_count.hpp>

namespace examples {

namespace {

/// Options that take no value of their own.
bool is_lone_option(std::string_view word) {
  for (const std::string_view each : {"--standalone", "--coordinator", "--no-python", "-m",
                                      "--module", "--help", "-h", "--version", "--tag-output"}) {
    if (word == each) return true;
  }
  return false;
}

}  // namespace

int count_own_arguments(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--" || !argument.starts_with('-')) return i;
    const bool is_long = argument.starts_with("--");
    if (is_long) std::replace(argument.begin(), argument.end(), '_', '-');
    const bool has_value = argument.find('=') != std::string::npos ||
                           (!is_long && argument.size() > 2 && argument != "-np");
    if (!has_value && !is_lone_option(argument)) ++i;
  }
  return argc;
}

std::vector<const char*> with_short_n(int count, const char* const* argv) {
  std::vector<const char*> arguments(argv, argv + count);
  for (const char*& each : arguments) {
    if (std::string_view(each) == "-np") each = "-n";
  }
  return arguments;
}

void warn_of_late_n(const std::vector<std::string>& command) {
  static constexpr std::size_t looked_at = 4;
  for (std::size_t i = 1; i + 1 < std::min(command.size(), looked_at + 1); ++i) {
    const std::string& number = command[i + 1];
    if (command[i] != "-n" && command[i] != "-np") continue;
    if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string text = fmt::format(
        "parxrun: starts 1 rank: {0} {1} comes after the program, so it is an argument of it; "
        "write parxrun {0} {1} {2}\n",
        command[i], number, command[0]);
    std::fputs(text.c_str(), stderr);
    return;
  }
}

void declare_options(cxxopts::Options& description) {
  const auto text = [] { return cxxopts::value<std::string>()->default_value(""); };
  auto option = description.add_options();
  option("n,ranks", "Number of ranks, before the program; -np, as mpirun has it, is the same",
         cxxopts::value<std::string>()->default_value("1"), "N");
  option("threads", "Threads of each rank (the cores divided by the ranks)",
         cxxopts::value<std::string>(), "N");
  option("log-dir",
         "Write each rank's output to DIR/rank_R.out and rank_R.err instead of here; of several "
         "nodes, or with restarts, to DIR/ID/attempt_RESTARTS.GENERATION/nNODE.rRANK.out and .err",
         text(), "DIR");
  option("t,tee", "Streams to show here as well as in the files: 1 out, 2 err, 3 both", text(),
         "N");
  option("show-ranks", "Show only the lines of these ranks here; the files have all", text(),
         "R,R");
  option("tag-output", "Put \"[rank R] \" before each line; --tag-output=false leaves it out",
         cxxopts::value<std::string>()->default_value("true")->implicit_value("true"));
  option("grace", "Seconds from passing on SIGINT or SIGTERM to SIGKILL",
         cxxopts::value<std::string>()->default_value("30"), "S");
  option("on-loss", "When a rank fails: end the others, or let them continue (world.shrink())",
         cxxopts::value<std::string>()->default_value("end"), "WHAT");
  option("env", "Set a variable for the ranks; may be given often",
         cxxopts::value<std::vector<std::string>>(), "NAME=VALUE");
  option("remove-at-end",
         "Remove this path of the node when its ranks have ended; may be given often",
         cxxopts::value<std::vector<std::string>>(), "PATH");
  option("version", "Print the version");
  option("h,help", "Print this");

  auto node = description.add_options("Several nodes, and restarts");
  node("nnodes", "Number of nodes, one parxrun on each; MIN:MAX: go on with as many as there are",
       text(), "N");
  node("rdzv-endpoint", "Where the parxrun of all nodes meet: an address of one of them", text(),
       "HOST:PORT");
  node("rdzv-id", "The job's name, the same on all nodes", text(), "ID");
  node("max-restarts", "How often all ranks are started again after a failure, in the whole job",
       cxxopts::value<std::string>()->default_value("0"), "K");
  node("on-join", "When a node comes: stop at the next step and go on with it, wait, or never",
       cxxopts::value<std::string>()->default_value("now"), "WHAT");
  node("coordinator", "Only keep the job, so that any of its nodes may be lost; runs no program");
  node("standalone", "A job of this node alone, also inside srun");
  node("node-rank", "This node's place in the order of ranks", text(), "N");

  auto host = description.add_options("Hosts, on which parxrun starts itself by ssh");
  host("hosts", "Their names, and the ranks on each where they are not -n", text(), "H[:N],H[:N]");
  host("hostfile", "The same, one host a line: n1 slots=4 or n1:4", text(), "FILE");
  host("ssh", "The command, with its port and key (PARX_SSH)", text(), "\"ssh -p 22 -i KEY\"");
  host("export", "Variables that the ranks get beside PARX_* and OMP_*", text(), "NAME,NAME");

  auto torch = description.add_options("As torchrun has them");
  torch("nproc-per-node", "The same as -n; auto and cpu: as many as there are cores", text(), "N");
  torch("master-addr", "The same as --rdzv-endpoint", text(), "HOST");
  torch("master-port", "Its port", text(), "PORT");
  torch("rdzv-backend",
        "c10d or static: the node that listens is found by its address or is node 0", text(),
        "WHAT");
  torch("rdzv-conf", "join_timeout, last_call_timeout and is_host", text(), "NAME=VALUE,...");
  torch("role", "ROLE_NAME of the ranks", cxxopts::value<std::string>()->default_value("default"),
        "NAME");
  torch("r,redirects", "Streams that go to the files of --log-dir: 1 out, 2 err, 3 both", text(),
        "N");
  torch("local-ranks-filter", "As --show-ranks, by the numbers on each node", text(), "R,R");
  torch("m,module", "The program is a module of Python");
  torch("no-python", "The program is run as it is, also where its name ends in .py");
  torch("monitor-interval", "Accepted: parxrun notices the end of a rank at once", text(), "S");
  torch("start-method", "Accepted: parxrun always executes the program", text(), "WHAT");
}

parx::output_streams streams(const cxxopts::ParseResult& given, const char* flag) {
  const std::string text = given[flag].as<std::string>();
  const auto bits = parx::detail::parse_number<int>(text);
  parx::require(bits && *bits >= 0 && *bits <= 3,
                "--{} \"{}\": give 0, 1 for standard output, 2 for standard error, or 3 for both",
                flag, text);
  return {(*bits & 1) != 0, (*bits & 2) != 0};
}

namespace {

std::vector<int> rank_numbers(const cxxopts::ParseResult& given, const char* flag) {
  std::vector<int> numbers;
  const std::string text = given[flag].as<std::string>();
  for (const std::string_view each : parx::detail::split_at(text, ',')) {
    const auto number = parx::detail::parse_number<int>(each);
    parx::require(number && *number >= 0, "--{} \"{}\": give ranks, as 0,3", flag, text);
    numbers.push_back(*number);
  }
  return numbers;
}

/// Which output goes where.
void read_output(const cxxopts::ParseResult& given, parx::agent_options& options) {
  options.log_dir = given["log-dir"].as<std::string>();
  options.tags = choice(given, "tag-output", {"true", "false"}) == "true" ? parx::output_tags::rank
                                                                          : parx::output_tags::none;
  options.shown_ranks = rank_numbers(given, "show-ranks");
  options.shown_local_ranks = rank_numbers(given, "local-ranks-filter");
  const bool redirects = given.count("redirects") != 0, tees = given.count("tee") != 0;
  if (!redirects && !tees) return;
  options.to_files = redirects ? streams(given, "redirects") : parx::output_streams{};
  if (tees) options.tee = streams(given, "tee");
  options.to_files.out |= options.tee.out;
  options.to_files.err |= options.tee.err;
  parx::require(!options.log_dir.empty() || (!options.to_files.out && !options.to_files.err),
                "--redirects and --tee need the folder of the files: --log-dir DIR");
}

/// Of --nproc-per-node, else of -n.
int rank_count(const cxxopts::ParseResult& given, int threads) {
  const std::string per_node = given["nproc-per-node"].as<std::string>();
  if (per_node.empty()) return number(given, "n", 1, 4096);
  if (per_node == "auto" || per_node == "cpu") {
    const auto cores = static_cast<int>(parx::allowed_cores().size());
    return std::max(1, cores / std::max(1, threads));
  }
  const auto count = parx::detail::parse_number<int>(per_node);
  parx::require(count && *count >= 1 && *count <= 4096,
                "--nproc-per-node \"{}\": give a whole number from 1 to 4096, or auto", per_node);
  return *count;
}

/// Of --hosts or --hostfile.
std::vector<parx::ssh_host> host_list(const cxxopts::ParseResult& given) {
  const std::string list = given["hosts"].as<std::string>();
  const std::string file = given["hostfile"].as<std::string>();
  parx::require(list.empty() || file.empty(), "--hosts and --hostfile exclude each other");
  if (file.empty()) return parx::parse_hosts(list);
  const auto text = parx::detail::file_text(file);
  parx::require(text.has_value(), "--hostfile {} cannot be read: {}", file, std::strerror(errno));
  return parx::parse_hostfile(*text, file);
}

}  // namespace

parx::agent_options read_options(const cxxopts::ParseResult& given) {
  parx::agent_options options;
  if (given.count("threads") != 0) options.threads = number(given, "threads", 1, 4096);
  options.ranks = rank_count(given, options.threads);
  read_output(given, options);
  options.grace =
      std::chrono::milliseconds(static_cast<long long>(number(given, "grace", 0.0, 1e6) * 1000));
  options.role = given["role"].as<std::string>();
  if (given.count("env") == 0) return options;
  for (const std::string& setting : given["env"].as<std::vector<std::string>>()) {
    const auto equals = setting.find('=');
    parx::require(equals != std::string::npos && equals > 0, "--env {}: write NAME=VALUE", setting);
    options.variables.insert_or_assign(setting.substr(0, equals), setting.substr(equals + 1));
  }
  return options;
}

void read_nodes(const cxxopts::ParseResult& given, const parx::environment& env,
                const std::vector<std::string>& words, parx::agent_options& options) {
  const auto text = [&](const char* name) { return given[name].as<std::string>(); };
  const std::vector<parx::ssh_host> hosts = host_list(given);
  if (!hosts.empty()) {
    const std::string ssh = text("ssh"), exported = text("export");
    options.by_ssh = parx::ssh_start{
        .hosts = hosts,
        .ssh = !ssh.empty() ? ssh : parx::env_string(env, "PARX_SSH").value_or("ssh"),
        .exported = {},
        .arguments = words};
    for (const std::string_view each : parx::detail::split_at(exported, ',')) {
      options.by_ssh->exported.emplace_back(each);
    }
  }
  const std::string joins = choice(given, "on-join", {"now", "wait", "never"});
  const bool goes_on = choice(given, "on-loss", {"end", "continue"}) == "continue";
  const int restarts = number(given, "max-restarts", 0, 1'000'000);
  options.nodes = parx::find_nodes({.nodes = text("nnodes"),
                                    .endpoint = text("rdzv-endpoint"),
                                    .id = text("rdzv-id"),
                                    .backend = text("rdzv-backend"),
                                    .conf = text("rdzv-conf"),
                                    .node_rank = text("node-rank"),
                                    .master_addr = text("master-addr"),
                                    .master_port = text("master-port"),
                                    .standalone = given.count("standalone") != 0,
                                    .coordinator = given.count("coordinator") != 0,
                                    .hosts = hosts,
                                    .restarts = restarts,
                                    .joins = joins == "now"    ? parx::on_join::now
                                             : joins == "wait" ? parx::on_join::wait
                                                               : parx::on_join::never,
                                    .losses = goes_on ? parx::on_loss::go_on : parx::on_loss::end},
                                   env);
}

std::vector<std::string> command_of(std::vector<std::string> command,
                                    const cxxopts::ParseResult& given,
                                    const parx::environment& env) {
  const bool is_module = given.count("module") != 0;
  const bool as_it_is = given.count("no-python") != 0;
  parx::require(!is_module || !as_it_is, "-m and --no-python exclude each other");
  if (command.empty() || as_it_is || (!is_module && !command.front().ends_with(".py"))) {
    return command;
  }
  std::vector<std::string> by_python{parx::env_string(env, "PYTHON_EXEC").value_or("python3"),
                                     "-u"};
  if (is_module) by_python.push_back("-m");
  by_python.insert(by_python.end(), command.begin(), command.end());
  return by_python;
}

}  // namespace examples
