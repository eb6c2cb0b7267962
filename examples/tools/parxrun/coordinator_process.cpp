// coordinator_process: a parxrun without ranks: it keeps a job of other nodes, so that any of them
// may be lost, the one with rank 0 too. With --hosts it also starts the parxrun there, by ssh, and
// passes their output on. One thread, as run_ranks() says; the store of the ranks has its own.
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "tools/common/find_program.hpp"
#include "tools/parxrun/nodes/coordinator.hpp"
#include "tools/parxrun/nodes/endpoint_listener.hpp"
#include "tools/parxrun/nodes/report_file.hpp"
#include "tools/parxrun/nodes/secret.hpp"
#include "tools/parxrun/ranks/after.hpp"
#include "tools/parxrun/ranks/caught_signals.hpp"
#include "tools/parxrun/ranks/console.hpp"
#include "tools/parxrun/ranks/node_ranks.hpp"
#include "tools/parxrun/ranks/stop_requests.hpp"
#include "tools/parxrun/run_ranks.hpp"
#include "tools/parxrun/ssh/ssh_agent.hpp"
#include "tools/parxrun/ssh/ssh_start.hpp"
#include <parx/core/check.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hmac.hpp>
#include <parx/core/host_name.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/core/signal_name.hpp>
#include <parx/core/socket_address.hpp>

namespace parx::inline PARX_ABI::detail {

/// The address of this host that `host` sees; empty where its name cannot be resolved. Sends
/// nothing: connecting a UDP socket only asks for the route.
[[nodiscard]] inline std::string address_towards(const std::string& host) {
  static constexpr std::uint16_t any_port = 9;
  int code = 0;
  const address_list found = find_addresses(without_brackets(host).c_str(), any_port, 0, code);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    const descriptor probe(::socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!probe.valid() || ::connect(probe.get(), each->ai_addr, each->ai_addrlen) != 0) continue;
    const socket_address own = socket_address::of(probe.get());
    return address_text(own.data(), own.length);
  }
  return {};
}

/// The address of this host at which the hosts meet: that which the first other one of them sees.
/// Throws usage_error where their names tell nothing.
[[nodiscard]] inline std::string address_for(const std::vector<ssh_host>& hosts) {
  std::string own;
  bool knows_all = true;
  for (const ssh_host& each : hosts) {
    const std::string seen = address_towards(each.host());
    if (seen.empty()) knows_all = false;
    else if (!is_own_address(each.host())) return seen;
    else if (own.empty() || is_loopback(own)) own = seen;
  }
  if (!knows_all) own = address_towards(host_name());  // the names are known to ssh alone
  require(knows_all || (!own.empty() && !is_loopback(own)),
          "the hosts' names cannot be resolved here, so it is not known by which address of this "
          "host they reach it: give one by --rdzv-endpoint");
  return own;
}

class coordinator_process {
 public:
  explicit coordinator_process(const agent_options& options)
      : options_(options), nodes_(options.nodes), env_(process_environment()) {
    for (const auto& [name, value] : options_.variables) env_.insert_or_assign(name, value);
  }
  coordinator_process(const coordinator_process&) = delete;
  coordinator_process& operator=(const coordinator_process&) = delete;

  [[nodiscard]] int run() {
    if (options_.by_ssh && nodes_.host.empty()) nodes_.host = address_for(options_.by_ssh->hosts);
    const std::string secret = find_secret();
    signals_.emplace(io_, [this](int signal) { handle(signal); });
    descriptor listening = listen_at_endpoint(nodes_, env_);
    nodes_.port = bound_port(listening.get());
    coordinator_.emplace(
        io_, nodes_, options_.command, secret, env_, std::move(listening),
        [this](const std::string& text) { say(text); },
        [this](job_report& report) { write_report(options_, report); },
        [this](const job_end& end) { print_end(console_, end); });
    if (options_.by_ssh) start_agents(*options_.by_ssh, secret);
    while (!has_finished()) io_.run_one();
    for (ssh_agent& each : agents_) each.close();
    while (!console_.empty() && !gave_up_on_output_) io_.run_one();
    return exit_code_.value_or(coordinator_->code());
  }

 private:
  /// Over ssh only this job's parxrun get it.
  [[nodiscard]] std::string find_secret() {
    if (options_.by_ssh && !env_string(with_secret(env_), "PARX_SECRET")) {
      return why_no_hmac().empty() ? random_hex() : std::string();
    }
    return secret_of_nodes(nodes_, env_, [this](const std::string& text) { say(text); });
  }

  void start_agents(const ssh_start& by_ssh, const std::string& secret) {
    parxrun_ = std::filesystem::read_symlink("/proc/self/exe").string();
    agent_order order{.folder = std::filesystem::current_path().string(),
                      .variables = travelling_variables(env_, by_ssh.exported, secret),
                      .arguments = by_ssh.arguments,
                      .ranks = 0,
                      .nodes = nodes_};
    environment own = env_;  // ssh's, which may be set up to pass some of it on (SendEnv)
    own.erase("PARX_SECRET");
    for (std::size_t i = 0; i < by_ssh.hosts.size(); ++i) {
      const ssh_host& host = by_ssh.hosts[i];
      const std::vector<std::string> command = ssh_command(by_ssh.ssh, host.name, parxrun_);
      order.ranks = host.ranks.value_or(0);
      order.nodes.node_rank = static_cast<int>(i);
      agents_.emplace_back(io_, console_, host.name, [this](const ssh_agent& gone) { lose(gone); })
          .start(find_program(command.front(), own), command, own, signals_->mask_before(),
                 to_text(order));
    }
  }

  void handle(int signal) {
    switch (signal) {
      case SIGCHLD:
        for (ssh_agent& each : agents_) each.notice_end();
        return;
      case SIGTSTP:
        return;  // A coordinator that is stopped would be taken for lost.
      case SIGPIPE:
        gave_up_on_output_ = true;
        return tell(SIGTERM);
      default:
        return tell(signal);
    }
  }
  void tell(int signal) {
    if (coordinator_->has_ended()) gave_up_on_output_ = true;
    // As if each parxrun had the signal, so that all of its rules hold here as well.
    for (ssh_agent& each : agents_) each.signal(signal);
    if (!agents_.empty() && coordinator_->has_agents()) return;
    const stop_request request = requests_.take(signal, deadline::clock::now());
    if (request == stop_request::second) exit_code_ = 128 + signal;
    if (request != stop_request::first) return;
    coordinator_->end_job(128 + signal, formatted("by {}", signal_name(signal)));
  }

  /// An ssh has ended, and what it has written is passed on.
  void lose(const ssh_agent& agent) {
    if (coordinator_->is_over()) return;
    if (!agent.has_greeted()) {
      say(why_no_agent(agent.host(), *agent.ended(), agent.first_errors(), parxrun_));
    } else {
      say(formatted("the parxrun on host {} has ended ({})", agent.host(),
                    to_string(*agent.ended())));
    }
    // Nobody else can come.
    const auto alive = std::count_if(agents_.begin(), agents_.end(),
                                     [](const ssh_agent& each) { return !each.ended(); });
    if (alive < nodes_.least)
      coordinator_->end_job(1, formatted("since host {} is missing", agent.host()));
  }

  [[nodiscard]] bool has_finished() {
    if (exit_code_) return true;
    if (!coordinator_->has_ended()) return false;
    const bool all_over = std::all_of(agents_.begin(), agents_.end(),
                                      [](const ssh_agent& each) { return each.is_over(); });
    if (all_over || gave_up_on_output_) return true;
    if (!std::exchange(waits_for_output_, true)) {
      for (ssh_agent& each : agents_) each.close_input();
      after(std::chrono::seconds(2), output_timer_, [this] { waited_for_output_ = true; });
    }
    return waited_for_output_ && console_.empty();
  }

  void say(const std::string& text) { console_.queue(stream::err).add("parxrun: " + text + "\n"); }

  const agent_options& options_;
  job_nodes nodes_;
  environment env_;
  std::string parxrun_;  ///< the path of this program
  boost::asio::io_context io_{1};
  boost::asio::steady_timer output_timer_{io_};
  std::optional<caught_signals> signals_;
  console console_{io_};
  std::optional<coordinator> coordinator_;
  std::deque<ssh_agent> agents_;
  stop_requests requests_;
  bool gave_up_on_output_ = false;
  bool waits_for_output_ = false;
  bool waited_for_output_ = false;
  std::optional<int> exit_code_;
};

int run_coordinator_process(const agent_options& options) {
  return coordinator_process(options).run();
}

}  // namespace parx::detail
