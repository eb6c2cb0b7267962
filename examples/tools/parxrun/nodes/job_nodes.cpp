#include "tools/parxrun/nodes/job_nodes.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/core/split.hpp>
#include <parx/launch/detail/rank_env.hpp>
#include <parx/launch/detail/slurm_env.hpp>

namespace parx::inline PARX_ABI {

namespace {

void read_node_count(const std::string& text, job_nodes& nodes) {
  const auto colon = text.find(':');
  const auto least = detail::parse_number<int>(text.substr(0, colon));
  const auto most = colon == text.npos ? least : detail::parse_number<int>(text.substr(colon + 1));
  require(least && most && *least >= 1 && *most >= *least && *most <= 4096,
          "--nnodes \"{}\": give the number of nodes, or MIN:MAX as 2:4", text);
  nodes.least = *least;
  nodes.most = *most;
}

/// torchrun's NAME=VALUE,...; what has no meaning here is accepted.
void read_conf(const std::string& text, job_nodes& nodes) {
  for (const std::string_view each : detail::split_at(text, ',')) {
    const auto equals = each.find('=');
    const std::string name(each.substr(0, equals));
    const std::string value(equals == each.npos ? "" : each.substr(equals + 1));
    const auto seconds = [&] {
      const auto number = detail::parse_number<int>(value);
      require(number && *number >= 0, "--rdzv-conf {}: give a number of seconds", each);
      return std::chrono::seconds(*number);
    };
    if (name == "join_timeout" || name == "timeout") nodes.join_limit = seconds();
    else if (name == "last_call_timeout") nodes.last_call = seconds();
    else if (name == "is_host") {
      const bool yes = value == "1" || value == "true" || value == "True";
      nodes.role = yes ? coordinator_role::yes : coordinator_role::no;
    } else {
      require(name == "close_timeout" || name == "read_timeout" || name == "store_type" ||
                  name == "keep_alive_interval" || name == "keep_alive_max_attempt" ||
                  name == "heartbeat_timeout",
              "--rdzv-conf {}: known are join_timeout, last_call_timeout and is_host", each);
    }
  }
}

[[nodiscard]] bool is_loopback_name(std::string_view host) {
  return host == "localhost" || detail::is_loopback(host);
}

void read_endpoint(const node_flags& flags, job_nodes& nodes) {
  const bool fixed = flags.endpoint.empty();
  const std::string& text = fixed ? flags.master_addr : flags.endpoint;
  const std::string_view name = fixed ? "--master-addr" : "--rdzv-endpoint";
  const auto address = detail::split_address(text);
  require(address.has_value(), "{} \"{}\": write the host and the port, as node1:29400", name,
          printable(text));
  detail::require_host(name, text, address->host);
  nodes.host = address->host;
  nodes.port = address->port.value_or(detail::default_endpoint_port);
  if (!fixed || flags.master_port.empty()) return;
  const auto port = detail::parse_number<std::uint16_t>(flags.master_port);
  require(port && *port > 0, "--master-port \"{}\": a port is a number from 1 to 65535",
          flags.master_port);
  nodes.port = *port;
}

/// The step of srun that this process is a task of, where it has several tasks.
struct slurm_tasks {
  int nodes = 1;
  int node = 0;  ///< this one's number
  std::string first_node;
  std::string id;
  std::uint16_t port = 0;
};

[[nodiscard]] std::optional<slurm_tasks> slurm_tasks_of(const environment& env) {
  if (!detail::in_slurm_step(env)) return std::nullopt;
  const int tasks = env_number<int>(env, "SLURM_STEP_NUM_TASKS").value_or(1);
  const int nodes = env_number<int>(env, "SLURM_STEP_NUM_NODES").value_or(1);
  if (tasks <= 1) return std::nullopt;
  require(tasks == nodes,
          "srun has started {} tasks on {} {}, and each would be a world of its own: start one "
          "parxrun on each node (srun --ntasks-per-node=1 parxrun -n 2 ...), which starts the "
          "ranks there. --standalone makes each a job of its own",
          tasks, nodes, nodes == 1 ? "node" : "nodes");
  // The names that the ranks under srun have as well.
  environment first = env;
  first.insert_or_assign("SLURM_PROCID", "0");
  first.insert_or_assign("SLURM_NODEID", "0");
  const launch_env step = detail::from_slurm(first);
  return slurm_tasks{.nodes = nodes,
                     .node = env_number<int>(env, "SLURM_NODEID").value_or(0),
                     .first_node = step.master_host,
                     .id = step.run_id,
                     .port = step.master_port};
}

/// One node for each of --hosts. Its coordinator is in the parxrun that starts them; where no
/// endpoint is given, run_ranks() finds the address and a free port.
[[nodiscard]] job_nodes nodes_by_ssh(const node_flags& flags, job_nodes nodes) {
  require(!flags.standalone && !flags.coordinator && flags.master_addr.empty() &&
              flags.node_rank.empty(),
          "--hosts starts one parxrun on each host and keeps their job here: leave --standalone, "
          "--coordinator, --master-addr and --node-rank out");
  const auto hosts = static_cast<int>(flags.hosts.size());
  nodes.least = nodes.most = hosts;
  if (!flags.nodes.empty()) read_node_count(flags.nodes, nodes);
  require(nodes.most <= hosts, "--nnodes {}, but --hosts names {}", flags.nodes, hosts);
  if (!flags.conf.empty()) read_conf(flags.conf, nodes);
  if (!flags.endpoint.empty()) {
    read_endpoint(flags, nodes);
    if (!detail::split_address(flags.endpoint)->port) nodes.port = 0;
  }
  nodes.role = coordinator_role::only;
  nodes.id = flags.id.empty() ? detail::random_hex() : flags.id;
  return nodes;
}

}  // namespace

namespace detail {

generation_rules rules_of(const job_nodes& nodes) {
  static constexpr std::chrono::milliseconds for_a_cut{5'000};
  return {
      .least_nodes = nodes.least,
      .most_nodes = nodes.most,
      .restarts = nodes.restarts,
      .joins = nodes.joins,
      .losses = nodes.losses,
      .last_call = nodes.last_call,
      .join_limit = nodes.join_limit,
      .return_limit = nodes.may_return ? nodes.join_limit : std::min(nodes.join_limit, for_a_cut)};
}

}  // namespace detail

job_nodes find_nodes(const node_flags& flags, const environment& env) {
  using namespace detail;
  job_nodes nodes;
  nodes.restarts = flags.restarts;
  nodes.joins = flags.joins;
  nodes.losses = flags.losses;
  require(flags.backend.empty() || flags.backend == "c10d" || flags.backend == "static",
          "--rdzv-backend {}: parxrun's own is used for c10d and static; there is no other",
          flags.backend);
  if (!flags.hosts.empty()) return nodes_by_ssh(flags, std::move(nodes));
  std::optional<slurm_tasks> step;
  if (!flags.standalone) {
    if (!flags.nodes.empty()) read_node_count(flags.nodes, nodes);
    if (flags.nodes.empty() || nodes.most > 1) step = slurm_tasks_of(env);
    if (step && flags.nodes.empty()) nodes.least = nodes.most = step->nodes;
  }
  if (!flags.conf.empty()) read_conf(flags.conf, nodes);
  if (flags.coordinator) nodes.role = coordinator_role::only;
  require(!flags.coordinator || nodes.most > 1,
          "--coordinator keeps a job of several nodes: give their number by --nnodes, the meeting "
          "point "
          "by --rdzv-endpoint and the job's name by --rdzv-id, the same as on the nodes");
  if (nodes.most == 1) {
    nodes.role = coordinator_role::yes;
    if (flags.restarts > 0) nodes.id = flags.id;
    return nodes;
  }
  const bool is_static =
      flags.backend == "static" ||
      (flags.backend.empty() && flags.endpoint.empty() && !flags.master_addr.empty());
  if (!flags.endpoint.empty() || !flags.master_addr.empty()) {
    read_endpoint(flags, nodes);
  } else {
    require(step.has_value(),
            "--nnodes {} needs a meeting point: --rdzv-endpoint HOST:PORT with the name of one of "
            "the nodes, the same on each",
            flags.nodes);
    nodes.host = step->first_node;
    nodes.port = step->port;
    if (nodes.role == coordinator_role::by_address) {
      nodes.role = step->node == 0 ? coordinator_role::yes : coordinator_role::no;
    }
  }
  if (step) nodes.node_rank = step->node;
  nodes.may_return = !step;
  if (!flags.node_rank.empty()) {
    const auto number = parse_number<int>(flags.node_rank);
    require(number && *number >= 0 && *number < nodes.most,
            "--node-rank \"{}\": the nodes have the numbers 0 to {}", flags.node_rank,
            nodes.most - 1);
    nodes.node_rank = *number;
    if (is_static) nodes.role = *number == 0 ? coordinator_role::yes : coordinator_role::no;
  }
  require(!is_loopback_name(nodes.host) || env_string(env, "PARX_HOST_ID"),
          "{} is each node's own address, so {} nodes cannot meet there: give the name of one of "
          "them by --rdzv-endpoint (to try several nodes on one host, give each parxrun another "
          "PARX_HOST_ID)",
          nodes.host, nodes.most);
  nodes.id = !flags.id.empty() ? flags.id : step ? step->id : "none";
  return nodes;
}

}  // namespace parx
