// coordinator: carries the coordinator's half of the protocol in generation.hpp. It is in the first
// node's parxrun, beside that node's agent, and keeps the store of the ranks' generation.
//
// The agent beside it is told by calls. Others come in by its door (coordinator_door.hpp), over
// TCP, once they have proved to be of the job; a second parxrun on a node that has one is told so
// and closed. Agents send beats, and it answers each. Each generation has a store of its own, whose
// key contains its number, so that ranks of an earlier one can reach neither it nor the ranks of
// this one. One thread; the store has its own.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "tools/common/job_report.hpp"
#include "tools/parxrun/failures/job_end.hpp"
#include "tools/parxrun/nodes/generation.hpp"
#include "tools/parxrun/nodes/generation_ranks.hpp"
#include "tools/parxrun/nodes/agent_connection.hpp"
#include "tools/parxrun/nodes/coordinator_door.hpp"
#include "tools/parxrun/nodes/coordinator_options.hpp"
#include "tools/parxrun/nodes/messages.hpp"
#include "tools/parxrun/ranks/after.hpp"
#include <parx/core/descriptor.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/core/unix_time.hpp>
#include <parx/core/version.hpp>

namespace parx::inline PARX_ABI::detail {

class coordinator {
 public:
  /// `listening` listens at the endpoint; not valid in a job of one node. `say` gets lines for the
  /// console, `record` what is known of the job whenever a generation has begun or ended, and
  /// `report`, which may add to it, how one has ended, before the next one begins or none does.
  coordinator(boost::asio::io_context& io, coordinator_options options, descriptor listening,
              std::function<void(const std::string&)> say, std::function<void(job_report&)> record,
              std::function<void(job_end&)> report)
      : options_(std::move(options)),
        say_(std::move(say)),
        record_(std::move(record)),
        report_(std::move(report)),
        deadline_(io),
        job_{.id = options_.id, .command = options_.command, .parx = PARX_VERSION} {
    if (!options_.secret.empty()) key_.emplace(options_.secret, options_.id, options_.encrypts);
    state_.join_over = protocol_clock::now() + options_.rules.join_limit;
    if (listening.valid()) {
      door_.emplace(
          io, std::move(listening), options_.id, key_ ? &*key_ : nullptr,
          coordinator_door::handlers{
              .hello = [this](const auto& socket,
                              const auto& hello) { return admit(socket, hello); },
              .alive = [this](agent_number number) { hear_of(number); },
              .message = [this](agent_number number, const auto& text) { receive(number, text); },
              .gone = [this](agent_number number, const std::string& why) { lose(number, why); },
              .say = say_});
    }
    wait_for_deadline();
  }
  coordinator(const coordinator&) = delete;
  coordinator& operator=(const coordinator&) = delete;
  ~coordinator() {
    for (auto& [number, each] : connections_) each.close();
  }

  /// The agent in this process says hello. `tell` gets what the coordinator has to say to it, and
  /// must not call the coordinator before it returns.
  void take_in(const agent_hello& hello, std::function<void(const to_agent&)> tell) {
    own_ = next_number_;
    enter(agent_connection::of(hello, std::move(tell), nullptr), hello.order, std::nullopt);
  }
  /// That agent says something else, or has ended.
  void hear(const to_coordinator& text) { receive(*own_, text); }
  void let_go() { forget(*own_); }

  /// Whether the job is over and every agent has heard so, or has gone.
  [[nodiscard]] bool has_ended() const {
    return state_.phase == coordinator_phase::over && connections_.empty();
  }
  /// Whether as many nodes have been there as the job needs.
  [[nodiscard]] bool all_have_come() const { return next_number_ >= options_.rules.least_nodes; }
  /// The job's exit code, once it has ended.
  [[nodiscard]] int code() const { return state_.code.value_or(1); }
  [[nodiscard]] bool is_over() const { return state_.phase == coordinator_phase::over; }
  [[nodiscard]] bool has_agents() const { return !connections_.empty(); }
  /// Ends the job: its ranks may save their work. `why` is for the report.
  void end_job(int code, const std::string& why) {
    handle({.what = coordinator_event::kind::told, .code = code}, why);
  }

 private:
  /// None where it is refused.
  [[nodiscard]] std::optional<agent_number> admit(const std::shared_ptr<framed_socket>& socket,
                                                  const agent_hello& hello) {
    agent_connection fresh = agent_connection::of(
        hello, [to = socket.get()](const to_agent& each) { to->send(wire_text(each)); }, socket);
    if (hello.nodes != nodes_text()) {
      socket->refuse(
          formatted("it was started with --nnodes {}, and this one with --nnodes "
                    "{}: all parxrun of a job need the same",
                    nodes_text(), printable(hello.nodes)));
      return std::nullopt;
    }
    std::optional<agent_number> replaces;
    for (const auto& [number, each] : connections_) {
      if (each.process == fresh.process) replaces = number;
      else if (each.node == fresh.node) {
        socket->refuse(
            formatted("node {} has a parxrun of this job already: start one on each node (srun "
                      "--ntasks-per-node=1), which starts the ranks by -n",
                      fresh.node));
        return std::nullopt;
      }
    }
    if (const auto former = former_.find(fresh.process); former != former_.end()) {
      replaces = former->second;
    }
    if (fresh.ranks < 1 || fresh.ranks > most_ranks_of_node) {
      throw_other_version();
    }
    return enter(std::move(fresh), hello.order, replaces);
  }
  agent_number enter(agent_connection fresh, int order, std::optional<agent_number> replaces) {
    const agent_number number = next_number_++;
    former_[fresh.process] = number;
    fresh.tell(welcome{});
    connections_.insert_or_assign(number, std::move(fresh));
    handle({.what = coordinator_event::kind::hello,
            .agent = number,
            .order = order,
            .replaces = replaces});
    if (replaces) forget(*replaces);
    return number;
  }

  void receive(agent_number number, const to_coordinator& text) {
    if (connections_.contains(number)) {
      std::visit([this, number](const auto& each) { take(number, each); }, text);
    }
  }
  void hear_of(agent_number number) {
    if (connections_.contains(number))
      handle({.what = coordinator_event::kind::heard, .agent = number});
  }
  void take(agent_number number, const agent_hello& /*again*/) { hear_of(number); }
  void take(agent_number number, const agent_command& command) {
    job_.command = printable(command.text);
    hear_of(number);
  }
  void take(agent_number number, const rank_ended& end) {
    if (end.generation == state_.generation) note_end(end.rank, printable(end.how));
    hear_of(number);
  }
  void take(agent_number number, const agent_event& event) {
    if (event.free_port) connections_.at(number).free_port = *event.free_port;
    if (event.report && event.generation == state_.generation) {
      reports_[number] = *event.report;
      blame();
    }
    handle(
        {.what = event.what, .agent = number, .generation = event.generation, .code = event.code},
        printable(event.why));
  }

  [[nodiscard]] bool goes_on() const { return options_.rules.losses == on_loss::go_on; }
  [[nodiscard]] bool runs() const {
    return state_.phase == coordinator_phase::form || state_.phase == coordinator_phase::run;
  }

  /// Where the ranks go on after losses: one has ended, or, with its node, all of an agent.
  void note_end(int rank, const std::string& how) {
    if (goes_on() && runs() && ranks_->leaves_none(rank, how)) end_the_rest();
  }
  void note_fences(const std::vector<open_fence>& before) {
    if (!goes_on() || !runs()) return;
    for (const open_fence& each : before) {
      const auto is_same = [&](const open_fence& other) { return other.number == each.number; };
      if (std::any_of(state_.fences.begin(), state_.fences.end(), is_same)) continue;
      if (ranks_->lose(each.number, "its node was lost")) end_the_rest();
    }
  }
  void end_the_rest() {
    for (auto& [number, each] : connections_) {
      each.tell(detail::end_the_rest{});
    }
  }

  void lose(agent_number number, const std::string& why) {
    const auto found = connections_.find(number);
    if (found == connections_.end()) return;
    const bool was_member =
        std::any_of(state_.members.begin(), state_.members.end(),
                    [&](const auto& each) { return each.number == number && !each.done; });
    const std::string text = formatted("node {} was lost: {}", found->second.node, why);
    if (was_member && runs() && loss_.empty()) {
      loss_ = text;
      lost_node_ = found->second.node;
    }
    forget(number);
    handle({.what = coordinator_event::kind::lost, .agent = number}, text);
    if (!goes_on() || !was_member || !runs()) return;
    loss_.clear();
    say_(text + "; the others go on");
  }
  void forget(agent_number number) {
    const auto found = connections_.find(number);
    if (found == connections_.end()) return;
    found->second.close();
    connections_.erase(found);
  }

  /// The cause of a failure, once more is known of it, has the job's code.
  void blame() {
    if (!state_.code || *state_.code == 0) return;
    std::vector<node_report> reports;
    for (const auto& [number, each] : reports_) reports.push_back(each);
    const auto ends = ends_of(reports);
    const bool is_complete =
        std::all_of(state_.members.begin(), state_.members.end(),
                    [&](const auto& each) { return !each.live || reports_.contains(each.number); });
    if (is_complete && all_have_saved(reports)) {
      handle({.what = coordinator_event::kind::blamed, .code = stopped_exit_code});
    } else if (loss_.empty() && any_failed_by_itself(ends) && !was_told_) {
      handle({.what = coordinator_event::kind::blamed,
              .code = ends[judge(ends).cause].status.shell_code()});
    }
  }

  void handle(const coordinator_event& event, const std::string& why = {}) {
    using kind = coordinator_event::kind;
    const coordinator_phase before = state_.phase;
    const int restarts = state_.restarts;
    const int generation = state_.generation;
    const bool tells = event.what == kind::leave || event.what == kind::told;
    const bool has_failed = before == coordinator_phase::stop && state_.code;
    if (tells && !has_failed && !std::exchange(was_told_, true)) why_ = why;
    const std::vector<open_fence> fences = state_.fences;
    coordinator_step step =
        advance(std::move(state_), options_.rules, event, protocol_clock::now());
    state_ = std::move(step.state);
    if (state_.generation == generation) note_fences(fences);
    const bool ran = before != coordinator_phase::stop && before != coordinator_phase::over;
    const bool ends =
        state_.phase == coordinator_phase::stop || state_.phase == coordinator_phase::over;
    if (ran && ends && !was_told_) why_ = why;
    if (state_.restarts > restarts) {
      say_(formatted("{}; restart {} of {}", why.empty() ? "a rank failed" : why, state_.restarts,
                     options_.rules.restarts));
    }
    const bool has_ended =
        state_.phase == coordinator_phase::gather || state_.generation > generation;
    if (before != coordinator_phase::over && state_.phase == coordinator_phase::over) {
      gave_up_waiting_ = before == coordinator_phase::gather;
      tell_end();
    } else if (before != coordinator_phase::gather && before != coordinator_phase::over &&
               has_ended) {
      ended_ = end_now();
      record_end(*ended_);
    }
    for (const coordinator_message& each : step.messages) send(each);
    if (event.what == kind::tick || event.what == kind::hello) drop_silent();
    tell_waiting(before);
    wait_for_deadline();
  }

  /// The machine has dropped agents that were silent for too long.
  void drop_silent() {
    std::vector<agent_number> silent;
    for (const auto& [number, each] : connections_) {
      if (!state_.has(number)) silent.push_back(number);
    }
    for (const agent_number each : silent) forget(each);
  }

  /// How the generation has ended, by what is known now.
  [[nodiscard]] job_end end_now() const {
    job_end end{.command = job_.command,
                .generation = job_.generations.empty() ? 0 : job_.generations.back().generation,
                .restarts = state_.restarts,
                .loss = loss_,
                .lost_node = lost_node_,
                .why = why_,
                .told = was_told_,
                .code = state_.code.value_or(0)};
    for (const auto& [number, each] : reports_) end.reports.push_back(each);
    if (job_.generations.empty()) return end;
    // Not those of `state_`, which may be of the next one by now.
    for (const job_member& each : job_.generations.back().members) {
      end.world_size += each.ranks;
      const auto is_of_it = [&](const node_report& report) { return report.node == each.node; };
      if (std::none_of(end.reports.begin(), end.reports.end(), is_of_it)) {
        end.unheard.push_back(each.node);
      }
    }
    return end;
  }
  void tell_end() {
    job_end end = end_now();
    if (gave_up_waiting_ && !was_told_) {
      if (!end.loss.empty()) end.loss += "; then ";
      end.loss += formatted("{} of {} nodes came within {:.0f} s: {}", connections_.size(),
                            options_.rules.least_nodes, join_seconds(), names_of_nodes());
    }
    report_(end);
    record_end(end);
  }
  [[nodiscard]] double join_seconds() const {
    const generation_rules& rules = options_.rules;
    const auto limit = state_.generation == 0 ? rules.join_limit : rules.return_limit;
    return std::chrono::duration<double>(limit).count();
  }
  [[nodiscard]] std::string names_of_nodes() const {
    std::vector<std::string> names;
    for (const auto& [number, each] : connections_) names.push_back(each.node);
    return names.empty() ? "none" : joined_text(names, ", ");
  }

  /// Says of nodes why nothing happens there, or here.
  void tell_waiting(coordinator_phase before) {
    const int least = options_.rules.least_nodes;
    const bool waits = state_.phase == coordinator_phase::gather && state_.generation > 0 &&
                       static_cast<int>(state_.agents.size()) < least;
    if (waits && before != coordinator_phase::gather) {
      say_(
          formatted("{} of the {} nodes that the job needs {} here: {}; waits up to {:.0f} s for "
                    "others",
                    connections_.size(), least, connections_.size() == 1 ? "is" : "are",
                    names_of_nodes(), join_seconds()));
    }
    if (state_.phase != coordinator_phase::run) return;
    for (auto& [number, each] : connections_) {
      const auto is_this = [n = number](const auto& member) { return member.number == n; };
      if (std::any_of(state_.members.begin(), state_.members.end(), is_this)) continue;
      if (std::exchange(each.told_to_wait, true)) continue;
      each.tell(wait_notice{static_cast<int>(state_.members.size())});
    }
  }

  void send(const coordinator_message& message) {
    const auto found = connections_.find(message.to);
    if (found == connections_.end()) return;
    const auto& tell = found->second.tell;
    switch (message.what) {
      case coordinator_message::kind::form:
        if (message.to == state_.members.front().number) begin_generation();
        tell(order_for(message.to));
        break;
      case coordinator_message::kind::stop:
        tell(stop_order{message.how});
        break;
      case coordinator_message::kind::end:
        tell(end_order{*state_.code});
        break;
    }
  }

  void begin_generation() {
    if (ended_) {
      ended_->goes_on = true;
      ended_->restarts = state_.restarts;
      report_(*ended_);
      record_end(*ended_);
      ended_.reset();
    }
    reports_.clear();
    loss_.clear();
    lost_node_.clear();
    why_.clear();
    ranks_.reset();
    std::optional<job_key> key;
    if (!options_.secret.empty()) key.emplace(options_.secret, run_id(), options_.encrypts);
    std::vector<std::string> names;
    std::vector<job_member> nodes;
    std::vector<std::pair<agent_number, int>> members;
    for (const auto& each : state_.members) {
      const agent_connection& member = connections_.at(each.number);
      names.push_back(member.node);
      members.emplace_back(each.number, member.ranks);
      nodes.push_back({.node = member.node, .ranks = member.ranks});
    }
    std::optional<kept_store_options> store;
    if (options_.has_generations || goes_on()) {
      store.emplace(kept_store_options{
          .address = options_.address, .port = 0, .run_id = run_id(), .key = std::move(key)});
    }
    ranks_.emplace(std::move(store), members);
    job_.generations.push_back({.generation = state_.generation,
                                .restarts = state_.restarts,
                                .start = unix_seconds(),
                                .members = std::move(nodes)});
    record_(job_);
    if (state_.generation == 1) return;
    say_(formatted("generation {} on {}", state_.generation, joined_text(names, ", ")));
  }

  /// The id of the generation's ranks (PARX_RUN_ID).
  [[nodiscard]] std::string run_id() const {
    return options_.has_generations ? formatted("{}.{}", options_.id, state_.generation)
                                    : options_.id;
  }

  void record_end(const job_end& end) {
    if (job_.generations.empty()) return;
    generation_report& last = job_.generations.back();
    if (!last.end) last.end = unix_seconds();
    last.outcome = outcome_of(end);
    last.nodes = end.reports;
    record_(job_);
  }

  /// What an agent is told of the generation that begins.
  [[nodiscard]] form_order order_for(agent_number to) const {
    const auto place = std::find_if(state_.members.begin(), state_.members.end(),
                                    [&](const auto& each) { return each.number == to; });
    const agent_connection& first = connections_.at(state_.members.front().number);
    const std::string address = first.address();
    // Others may have come from a loopback address, where several nodes are on one host.
    const bool is_here = address.empty() || is_loopback(address);
    return {.generation = state_.generation,
            .restarts = state_.restarts,
            .first_rank = ranks_->first_rank(to),
            .world_size = ranks_->world_size(),
            .node_rank = static_cast<int>(place - state_.members.begin()),
            .nodes = static_cast<int>(state_.members.size()),
            .goes_on = goes_on(),
            .coordinator = options_.has_generations ? name_ : std::string(),
            .run_id = run_id(),
            .master_host = is_here ? options_.host : address,
            .master_port = first.free_port,
            .store_port = ranks_->store_port()};
  }

  [[nodiscard]] std::string nodes_text() const {
    return formatted("{}:{}", options_.rules.least_nodes, options_.rules.most_nodes);
  }

  void wait_for_deadline() {
    const auto next = next_deadline(state_, options_.rules);
    if (!next) return;
    after(*next - protocol_clock::now(), deadline_, [this] {
      if (own_) handle({.what = coordinator_event::kind::heard, .agent = *own_});
      note_silent();
      handle({.what = coordinator_event::kind::tick});
    });
  }
  void note_silent() {
    const auto now = protocol_clock::now();
    std::vector<agent_number> silent;
    for (const admitted_agent& each : state_.agents) {
      if (each.last_heard + options_.rules.lease <= now) silent.push_back(each.number);
    }
    for (const agent_number each : silent) {
      lose(each, formatted("no word of it for {:.1f} s",
                           std::chrono::duration<double>(options_.rules.lease).count()));
    }
  }

  coordinator_options options_;
  const std::string name_ = random_hex();  ///< of all that this coordinator starts
  std::function<void(const std::string&)> say_;
  std::function<void(job_report&)> record_;
  std::function<void(job_end&)> report_;
  std::optional<job_key> key_;
  boost::asio::steady_timer deadline_;
  coordinator_state state_;
  std::map<agent_number, agent_connection> connections_;  ///< those with a connection
  std::map<std::string, agent_number> former_;            ///< by process: its last number
  std::map<agent_number, node_report> reports_;           ///< of the generation
  job_report job_;
  std::optional<job_end> ended_;  ///< the generation, before the next one begins
  std::string why_;               ///< the generation is stopped
  std::string loss_;              ///< of the first node that the generation has lost
  std::string lost_node_;
  bool was_told_ = false;         ///< an agent was told to end the job
  bool gave_up_waiting_ = false;  ///< for nodes
  agent_number next_number_ = 0;
  std::optional<agent_number> own_;        ///< the agent in this process
  std::optional<generation_ranks> ranks_;  ///< of the generation
  std::optional<coordinator_door> door_;
};

}  // namespace parx::detail
