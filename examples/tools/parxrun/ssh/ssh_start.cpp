#include "tools/parxrun/ssh/ssh_start.hpp"

#include <chrono>
#include <utility>

#include "tools/parxrun/ssh/ssh_hosts.hpp"
#include <parx/core/formatted.hpp>
#include <parx/core/json.hpp>
#include <parx/core/signal_name.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::detail {

std::vector<std::string> ssh_command(std::string_view ssh, const std::string& host,
                                     const std::string& parxrun) {
  std::vector<std::string> command;
  for (const std::string_view word : split_at(ssh, ' ')) {
    if (!word.empty()) command.emplace_back(word);
  }
  if (command.empty()) command.emplace_back("ssh");
  for (const std::string& word : {std::string("-T"), std::string("-oBatchMode=yes"),
                                  formatted("-oConnectTimeout={}", ssh_patience), host}) {
    command.push_back(word);
  }
  // One word for a shell: sh, csh and fish agree on single quotes.
  std::string quoted;
  for (const char each : parxrun)
    quoted += each == '\'' ? std::string("'\\''") : std::string(1, each);
  command.push_back(formatted("exec '{}' {}", quoted, agent_flag));
  return command;
}

environment travelling_variables(const environment& env, const std::vector<std::string>& exported,
                                 const std::string& secret) {
  environment some;
  for (const auto& [name, value] : env) {
    if (name.starts_with("PARX_") || name.starts_with("OMP_")) some.emplace(name, value);
  }
  for (const std::string_view name :
       {"PARX_HOST_ID", "PARX_SSH", "PARX_SECRET", "PARX_SECRET_FILE"}) {
    some.erase(std::string(name));
  }
  for (const std::string& name : exported) {
    if (const auto found = env.find(name); found != env.end()) some.insert(*found);
  }
  if (!secret.empty()) some.insert_or_assign("PARX_SECRET", secret);
  return some;
}

std::string to_text(const agent_order& order) {
  json::object variables;
  for (const auto& [name, value] : order.variables) variables[name] = value;
  json::array arguments;
  for (const std::string& each : order.arguments) arguments.emplace_back(each);
  const job_nodes& nodes = order.nodes;
  return json::dump(json::object{{"folder", order.folder},
                                 {"variables", std::move(variables)},
                                 {"arguments", std::move(arguments)},
                                 {"ranks", order.ranks},
                                 {"least", nodes.least},
                                 {"most", nodes.most},
                                 {"host", nodes.host},
                                 {"port", nodes.port},
                                 {"id", nodes.id},
                                 {"node_rank", nodes.node_rank},
                                 {"restarts", nodes.restarts},
                                 {"join_limit", nodes.join_limit.count()}});
}

agent_order order_from_text(std::string_view text) {
  const json::value read = json::parse(text);
  agent_order order{
      .folder = read.at("folder").text(),
      .variables = {},
      .arguments = {},
      .ranks = read.as<int>("ranks"),
      .nodes = {.least = read.as<int>("least"),
                .most = read.as<int>("most"),
                .host = read.at("host").text(),
                .port = read.as<std::uint16_t>("port"),
                .id = read.at("id").text(),
                .node_rank = read.as<int>("node_rank"),
                .role = coordinator_role::no,
                .restarts = read.as<int>("restarts"),
                .join_limit = std::chrono::milliseconds(read.as<std::int64_t>("join_limit"))}};
  for (const auto& [name, value] : read.at("variables").members()) {
    order.variables.emplace(name, value.text());
  }
  for (const json::value& each : read.at("arguments").elements()) {
    order.arguments.push_back(each.text());
  }
  return order;
}

std::string why_no_agent(const std::string& host, const exit_status& status,
                         const std::vector<std::string>& errors, const std::string& parxrun) {
  std::string fact;
  for (const std::string& line : errors) {
    if (line.find_first_not_of(" \r") != line.npos) fact = line.substr(0, line.find('\r'));
  }
  const auto has = [&](std::string_view text) {
    for (const std::string& line : errors) {
      if (line.find(text) != line.npos) return true;
    }
    return false;
  };
  static constexpr int of_ssh = 255;
  if (status.signal == 0 && status.code == of_ssh) {
    if (has("Permission denied")) {
      return formatted(
          "host {} does not let this user in by a key ({}): put the public key into "
          "~/.ssh/authorized_keys there, or name another one: --ssh \"ssh -i KEY\"",
          host, fact);
    }
    if (has("Host key verification failed") || has("host key")) {
      return formatted(
          "host {} has a key that is not known here, or another one than before ({}): "
          "log in once by hand, `ssh {} true`, and compare it",
          host, fact, host);
    }
    if (has("ould not resolve")) {
      return formatted(
          "host {} has a name that cannot be resolved here ({}): correct it in --hosts "
          "or --hostfile",
          host, fact);
    }
    return formatted(
        "host {} cannot be reached by ssh ({}): try `ssh {} true`; another port or key "
        "is given by --ssh \"ssh -p PORT -i KEY\"",
        host, fact.empty() ? "ssh has ended without a word" : fact, host);
  }
  if (status.signal == 0 && (status.code == 127 || status.code == 126)) {
    return formatted(
        "host {} has no {} that can be executed ({}): parxrun must be there at the same "
        "path as here",
        host, parxrun, fact);
  }
  return formatted("parxrun on host {} has ended before it had joined the job ({}{}{})", host,
                   to_string(status), fact.empty() ? "" : ": ", fact);
}

}  // namespace parx::detail
