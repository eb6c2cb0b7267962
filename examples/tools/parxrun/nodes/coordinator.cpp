#include "tools/parxrun/nodes/coordinator.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "tools/parxrun/ranks/after.hpp"
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/core/unix_time.hpp>
#include <parx/core/version.hpp>
#include <parx/store/tcp_server.hpp>

namespace parx::inline PARX_ABI::detail {

coordinator::coordinator(boost::asio::io_context& io, const job_nodes& nodes,
                         const std::vector<std::string>& command, std::string secret,
                         const environment& env, descriptor listening,
                         std::function<void(const std::string&)> say,
                         std::function<void(job_report&)> record,
                         std::function<void(job_end&)> report)
    : nodes_(nodes),
      rules_(rules_of(nodes)),
      secret_(std::move(secret)),
      encrypts_(env_flag(env, "PARX_TLS").value_or(false)),
      say_(std::move(say)),
      record_(std::move(record)),
      report_(std::move(report)),
      deadline_(io),
      job_{.id = nodes.id, .command = joined_text(command, " "), .parx = PARX_VERSION} {
  if (!secret_.empty()) key_.emplace(secret_, nodes_.id, encrypts_);
  state_.join_over = protocol_clock::now() + rules_.join_limit;
  if (listening.valid()) {
    door_.emplace(
        io, std::move(listening), nodes_.id, key_ ? &*key_ : nullptr,
        coordinator_door::handlers{
            .hello = [this](const auto& socket, const auto& hello) { return admit(socket, hello); },
            .alive = [this](agent_number number) { hear_of(number); },
            .message = [this](agent_number number, const auto& text) { receive(number, text); },
            .gone = [this](agent_number number, const std::string& why) { lose(number, why); },
            .say = say_});
  }
  wait_for_deadline();
}

coordinator::~coordinator() {
  for (auto& [number, each] : connections_) each.close();
}

coordinator::agent_connection coordinator::agent_connection::of(
    const agent_hello& hello, std::function<void(const to_agent&)> tell,
    std::shared_ptr<framed_socket> socket) {
  return {.tell = std::move(tell),
          .socket = std::move(socket),
          .node = printable(hello.node),
          .process = hello.process,
          .ranks = hello.ranks,
          .free_port = hello.free_port};
}

void coordinator::take_in(const agent_hello& hello, std::function<void(const to_agent&)> tell) {
  own_ = next_number_;
  enter(agent_connection::of(hello, std::move(tell), nullptr), hello.order, std::nullopt);
}

void coordinator::end_job(int code, const std::string& why) {
  handle({.what = coordinator_event::kind::told, .code = code}, why);
}

std::optional<agent_number> coordinator::admit(const std::shared_ptr<framed_socket>& socket,
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

agent_number coordinator::enter(agent_connection fresh, int order,
                                std::optional<agent_number> replaces) {
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

void coordinator::receive(agent_number number, const to_coordinator& text) {
  if (connections_.contains(number)) {
    std::visit([this, number](const auto& each) { take(number, each); }, text);
  }
}

void coordinator::hear_of(agent_number number) {
  if (connections_.contains(number))
    handle({.what = coordinator_event::kind::heard, .agent = number});
}

void coordinator::take(agent_number number, const agent_command& command) {
  job_.command = printable(command.text);
  hear_of(number);
}

void coordinator::take(agent_number number, const rank_ended& end) {
  if (end.generation == state_.generation) note_end(end.rank, printable(end.how));
  hear_of(number);
}

void coordinator::take(agent_number number, const agent_event& event) {
  if (event.free_port) connections_.at(number).free_port = *event.free_port;
  if (event.report && event.generation == state_.generation) {
    reports_[number] = *event.report;
    blame();
  }
  handle({.what = event.what, .agent = number, .generation = event.generation, .code = event.code},
         printable(event.why));
}

bool coordinator::runs() const {
  return state_.phase == coordinator_phase::form || state_.phase == coordinator_phase::run;
}

void coordinator::note_end(int rank, const std::string& how) {
  if (goes_on() && runs() && ranks_->leaves_none(rank, how)) end_the_rest();
}

void coordinator::note_fences(const std::vector<open_fence>& before) {
  if (!goes_on() || !runs()) return;
  for (const open_fence& each : before) {
    const auto is_same = [&](const open_fence& other) { return other.number == each.number; };
    if (std::any_of(state_.fences.begin(), state_.fences.end(), is_same)) continue;
    if (ranks_->lose(each.number, "its node was lost")) end_the_rest();
  }
}

void coordinator::end_the_rest() {
  for (auto& [number, each] : connections_) {
    each.tell(detail::end_the_rest{});
  }
}

void coordinator::lose(agent_number number, const std::string& why) {
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

void coordinator::forget(agent_number number) {
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  found->second.close();
  connections_.erase(found);
}

void coordinator::blame() {
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

// A generation that ends is recorded at once, by what is known then, before the step's messages are
// sent. It is reported when it is clear what follows: the next generation, which the first `form`
// among these or later messages begins (begin_generation), or the end of the job (tell_end).
void coordinator::handle(const coordinator_event& event, const std::string& why) {
  using kind = coordinator_event::kind;
  const coordinator_phase before = state_.phase;
  const int restarts = state_.restarts;
  const int generation = state_.generation;
  const bool tells = event.what == kind::leave || event.what == kind::told;
  const bool has_failed = before == coordinator_phase::stop && state_.code;
  if (tells && !has_failed && !std::exchange(was_told_, true)) why_ = why;
  const std::vector<open_fence> fences = state_.fences;
  coordinator_step step = advance(std::move(state_), rules_, event, protocol_clock::now());
  state_ = std::move(step.state);
  if (state_.generation == generation) note_fences(fences);
  const bool ran = before != coordinator_phase::stop && before != coordinator_phase::over;
  const bool ends =
      state_.phase == coordinator_phase::stop || state_.phase == coordinator_phase::over;
  if (ran && ends && !was_told_) why_ = why;
  if (state_.restarts > restarts) {
    say_(formatted("{}; restart {} of {}", why.empty() ? "a rank failed" : why, state_.restarts,
                   rules_.restarts));
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

void coordinator::drop_silent() {
  std::vector<agent_number> silent;
  for (const auto& [number, each] : connections_) {
    if (!state_.has(number)) silent.push_back(number);
  }
  for (const agent_number each : silent) forget(each);
}

job_end coordinator::end_now() const {
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

void coordinator::tell_end() {
  job_end end = end_now();
  if (gave_up_waiting_ && !was_told_) {
    if (!end.loss.empty()) end.loss += "; then ";
    end.loss += formatted("{} of {} nodes came within {:.0f} s: {}", connections_.size(),
                          rules_.least_nodes, join_seconds(), names_of_nodes());
  }
  report_(end);
  record_end(end);
}

double coordinator::join_seconds() const {
  const generation_rules& rules = rules_;
  const auto limit = state_.generation == 0 ? rules.join_limit : rules.return_limit;
  return std::chrono::duration<double>(limit).count();
}

std::string coordinator::names_of_nodes() const {
  std::vector<std::string> names;
  for (const auto& [number, each] : connections_) names.push_back(each.node);
  return names.empty() ? "none" : joined_text(names, ", ");
}

void coordinator::tell_waiting(coordinator_phase before) {
  const int least = rules_.least_nodes;
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

void coordinator::send(const coordinator_message& message) {
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

void coordinator::begin_generation() {
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
  if (!secret_.empty()) key.emplace(secret_, run_id(), encrypts_);
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
  if (nodes_.has_generations() || goes_on()) {
    store.emplace(kept_store_options{
        .address = narrowest_address(nodes_.host), .run_id = run_id(), .key = std::move(key)});
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

std::string coordinator::run_id() const {
  return nodes_.has_generations() ? formatted("{}.{}", nodes_.id, state_.generation) : nodes_.id;
}

void coordinator::record_end(const job_end& end) {
  if (job_.generations.empty()) return;
  generation_report& last = job_.generations.back();
  if (!last.end) last.end = unix_seconds();
  last.outcome = outcome_of(end);
  last.nodes = end.reports;
  record_(job_);
}

form_order coordinator::order_for(agent_number to) const {
  const auto place = std::find_if(state_.members.begin(), state_.members.end(),
                                  [&](const auto& each) { return each.number == to; });
  const agent_connection& first = connections_.at(state_.members.front().number);
  const std::string address = first.address();
  // Others may have come from a loopback address, where several nodes are on one host.
  const bool is_here = address.empty() || is_loopback(address);
  return {.place = {.generation = state_.generation,
                    .restarts = state_.restarts,
                    .first_rank = ranks_->first_rank(to),
                    .world_size = ranks_->world_size(),
                    .node_rank = static_cast<int>(place - state_.members.begin()),
                    .nodes = static_cast<int>(state_.members.size()),
                    .coordinator = nodes_.has_generations() ? name_ : std::string()},
          .goes_on = goes_on(),
          .run_id = run_id(),
          .master_host = is_here ? nodes_.host : address,
          .master_port = first.free_port,
          .store_port = ranks_->store_port()};
}

std::string coordinator::nodes_text() const {
  return formatted("{}:{}", rules_.least_nodes, rules_.most_nodes);
}

void coordinator::wait_for_deadline() {
  const auto next = next_deadline(state_, rules_);
  if (!next) return;
  after(*next - protocol_clock::now(), deadline_, [this] {
    if (own_) handle({.what = coordinator_event::kind::heard, .agent = *own_});
    note_silent();
    handle({.what = coordinator_event::kind::tick});
  });
}

void coordinator::note_silent() {
  const auto now = protocol_clock::now();
  std::vector<agent_number> silent;
  for (const admitted_agent& each : state_.agents) {
    if (each.last_heard + rules_.lease <= now) silent.push_back(each.number);
  }
  for (const agent_number each : silent) {
    lose(each, formatted("no word of it for {:.1f} s",
                         std::chrono::duration<double>(rules_.lease).count()));
  }
}

}  // namespace parx::detail
