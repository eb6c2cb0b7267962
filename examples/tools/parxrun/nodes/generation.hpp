// generation: the protocol by which the nodes of a job form one world after another.
//
// Each node has an agent, whose children are the ranks. One coordinator admits the agents, forms a
// generation of those that are there, and stops it as a whole when a rank or node is lost or a node
// joins; then it forms the next one. Here is the coordinator's half, generation_node.hpp has the
// agent's. Both are pure: a state, an event and the time give the next state and the messages to
// send. What they promise is searched in tests/launch/generation_test.cpp: ranks of at most one
// generation run at a time; a failure costs one restart; all agents end with one code; nobody waits
// for ever.
//
// Members are connections, not nodes: an agent that comes back is a new one. A lost agent ends its
// ranks by itself once it has not heard of the coordinator for a time that is shorter than its
// lease, so the next generation waits until that lease is over (`fence`).
//
// The store of the ranks does not carry this, as torchrun's does: its keys keep no order between
// messages, do not tell that their writer is gone, and would have to outlive the generation whose
// ranks have the store. Of strangers both take the same (core/newcomers.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/abi.hpp>
#include <parx/core/deadline.hpp>

namespace parx::inline PARX_ABI {

/// What a running job does when a node asks to join it.
enum class on_join {
  now,    ///< its ranks save their work and stop, and go on with the node
  wait,   ///< the node waits until the job stops for another reason
  never,  ///< the node waits; it replaces one that is lost
};

/// What happens to the other ranks when a rank fails.
enum class on_loss {
  end,    ///< they are ended within a second
  go_on,  ///< they go on, by world::shrink(); parxrun keeps the job's store
};

/// How the ranks of a generation are ended.
enum class stop_how {
  terminate,  ///< SIGTERM: another rank has failed
  save,       ///< SIGUSR1: they save their work and return 75
  ask,        ///< SIGTERM: the user wants the job to end, and they may save their work
  wait,       ///< no signal: others have saved theirs, and these are about to
};

namespace detail {

using protocol_clock = deadline::clock;

/// A connection with an agent; never used twice.
using agent_number = int;

struct generation_rules {
  int least_nodes = 1;
  int most_nodes = 1;
  int restarts = 0;  ///< of the whole job, after failures
  on_join joins = on_join::now;
  on_loss losses = on_loss::end;
  std::chrono::milliseconds last_call{2'000};       ///< at the start, where more nodes may come
  std::chrono::milliseconds join_limit{600'000};    ///< for least_nodes to come
  std::chrono::milliseconds return_limit{600'000};  ///< the same, after the first generation
  std::chrono::milliseconds lease{3'000};           ///< silence after which an agent is lost
  /// By how much longer than the lease the coordinator waits for the ranks of a lost agent to end.
  std::chrono::milliseconds fence_margin{500};
};

enum class coordinator_phase {
  gather,  ///< waits for agents
  form,    ///< members start their ranks
  run,
  stop,  ///< members end their ranks
  over,
};

struct admitted_agent {
  agent_number number = 0;
  int order = 0;  ///< ranks are in ascending order of it, then of admission
  protocol_clock::time_point last_heard{};
};

struct generation_member {
  agent_number number = 0;
  bool live = true;  ///< has not been lost
  bool started = false;
  bool done = false;    ///< all its ranks returned 0; where others go on after losses, one of them
  bool failed = false;  ///< none did, and the others go on
  bool stopped = false;
  bool saved = false;  ///< all its ranks have saved their work, and have stopped

  /// Whether its ranks are among those that go on.
  [[nodiscard]] bool takes_part() const noexcept { return live && !failed; }
};

/// The ranks of a lost agent may run until then.
struct open_fence {
  agent_number number = 0;
  protocol_clock::time_point until{};
};

struct coordinator_state {
  coordinator_phase phase = coordinator_phase::gather;
  int generation = 0;  ///< the number of the last one formed; the first is 1
  int restarts = 0;    ///< after failures, so far
  int planned_stops = 0;
  std::vector<admitted_agent> agents;      ///< in the order of admission
  std::vector<generation_member> members;  ///< of `generation`, in the order of their ranks
  std::vector<open_fence> fences;
  std::optional<int> code;  ///< the job's exit code, as soon as it can only end
  std::optional<protocol_clock::time_point> last_call_over;
  std::optional<protocol_clock::time_point> join_over;

  [[nodiscard]] bool has(agent_number number) const {
    return std::any_of(agents.begin(), agents.end(),
                       [&](const admitted_agent& each) { return each.number == number; });
  }
};

struct coordinator_event {
  enum class kind {
    hello,    ///< an agent asks to be admitted
    started,  ///< its ranks of `generation` run
    failed,   ///< one of them failed, with `code`; where others go on after losses, all of them
    done,     ///< all of them returned 0; where others go on after losses, one of them
    saved,    ///< they have saved their work and ended
    stopped,  ///< they have ended, as the coordinator had asked; 75 where all have saved their work
    leave,    ///< somebody has told an agent to end the job, with `code`
    told,     ///< the same of the coordinator itself; of no agent
    blamed,   ///< the nodes' reports say that `code` is the job's; of no agent
    heard,    ///< anything else of an agent
    lost,     ///< its connection is closed
    tick,     ///< time has passed; of no agent
  };

  kind what = kind::tick;
  agent_number agent = 0;
  int generation = 0;
  int code = 0;
  int order = std::numeric_limits<int>::max();  ///< of hello
  /// Of hello: the number that the same process had before; its ranks have ended.
  std::optional<agent_number> replaces = {};
};

/// What an agent tells the coordinator, beside its hello, and the name of it on the wire.
inline constexpr std::array<std::pair<coordinator_event::kind, std::string_view>, 6> told_events{
    {{coordinator_event::kind::started, "started"},
     {coordinator_event::kind::failed, "failed"},
     {coordinator_event::kind::done, "done"},
     {coordinator_event::kind::saved, "saved"},
     {coordinator_event::kind::stopped, "stopped"},
     {coordinator_event::kind::leave, "leave"}}};
[[nodiscard]] constexpr std::string_view name_of(coordinator_event::kind told) {
  for (const auto& [kind, name] : told_events) {
    if (kind == told) return name;
  }
  return {};
}

/// From the coordinator to one agent.
struct coordinator_message {
  enum class kind { form, stop, end };

  kind what = kind::form;
  agent_number to = 0;
  int generation = 0;
  stop_how how = stop_how::terminate;
  int code = 0;  ///< of end
};

struct coordinator_step {
  coordinator_state state;
  std::vector<coordinator_message> messages;  ///< in the order in which they are to be sent
};

/// One event, applied to a coordinator's state.
class coordinator_machine {
 public:
  using time_point = protocol_clock::time_point;

  coordinator_machine(coordinator_state state, const generation_rules& rules, time_point now)
      : rules_(rules), now_(now), step_{std::move(state), {}} {}

  [[nodiscard]] coordinator_step after(const coordinator_event& event) && {
    using kind = coordinator_event::kind;
    if (event.what == kind::tick) {
      tick();
    } else if (event.what == kind::told) {
      leave(event.code);
    } else if (event.what == kind::blamed) {
      if (state().phase == coordinator_phase::stop && state().code) state().code = event.code;
    } else if (event.what == kind::hello) {
      hello(event);
    } else if (state().has(event.agent)) {
      of_agent(event);
    }
    return std::move(step_);
  }

 private:
  [[nodiscard]] coordinator_state& state() noexcept { return step_.state; }

  void of_agent(const coordinator_event& event) {
    using kind = coordinator_event::kind;
    if (event.what == kind::lost) return lose(event.agent, true);
    for (admitted_agent& each : state().agents) {
      if (each.number == event.agent) each.last_heard = now_;
    }
    if (event.what == kind::leave) return leave(event.code);
    generation_member* const member = find_member(event.agent);
    if (member == nullptr || event.generation != state().generation) return;
    const bool goes_on =
        state().phase == coordinator_phase::form || state().phase == coordinator_phase::run;
    switch (event.what) {
      case kind::started:
        member->started = true;
        if (state().phase == coordinator_phase::form && all_have_started()) {
          state().phase = coordinator_phase::run;
          grow();
        }
        break;
      case kind::failed:
        if (goes_on) lose_ranks(*member, event.code);
        break;
      case kind::done:
        member->done = true;
        if (goes_on) end_if_done();
        break;
      case kind::saved:
        if (goes_on) {
          state().code = saved_code;
          stop(stop_how::wait);
        }
        break;
      case kind::stopped:
        member->stopped = true;
        member->saved = event.code == saved_code;
        check_stopped();
        break;
      default:
        break;
    }
  }

  void hello(const coordinator_event& event) {
    if (event.replaces) {
      lose(*event.replaces, false);
      std::erase_if(state().fences,
                    [&](const open_fence& each) { return each.number == *event.replaces; });
    }
    state().agents.push_back({event.agent, event.order, now_});
    switch (state().phase) {
      case coordinator_phase::over:
        tell(event.agent, coordinator_message::kind::end);
        break;
      case coordinator_phase::gather:
        gather();
        break;
      case coordinator_phase::run:
        grow();
        break;
      default:
        break;  // it waits for the next generation
    }
  }

  /// A node has joined: the ranks stop and go on with it, if there is room for it.
  void grow() {
    const bool waits = std::any_of(
        state().agents.begin(), state().agents.end(),
        [&](const admitted_agent& each) { return find_member(each.number) == nullptr; });
    const auto members = std::count_if(state().members.begin(), state().members.end(),
                                       [](const auto& each) { return each.takes_part(); });
    if (rules_.joins != on_join::now || !waits || members >= rules_.most_nodes) return;
    ++state().planned_stops;
    stop(stop_how::save);
  }

  void lose(agent_number number, bool ranks_may_live) {
    const auto found =
        std::find_if(state().agents.begin(), state().agents.end(),
                     [&](const admitted_agent& each) { return each.number == number; });
    if (found == state().agents.end()) return;
    if (ranks_may_live && state().phase != coordinator_phase::over) {
      const auto end = found->last_heard + rules_.lease + rules_.fence_margin;
      if (end > now_) state().fences.push_back({number, end});
    }
    state().agents.erase(found);
    generation_member* const member = find_member(number);
    const bool was_needed = member != nullptr && member->takes_part() && !member->done;
    if (member != nullptr) member->live = false;
    switch (state().phase) {
      case coordinator_phase::form:
      case coordinator_phase::run:
        if (was_needed) lose_ranks(*member, lost_node_code);
        break;
      case coordinator_phase::stop:
        check_stopped();
        break;
      case coordinator_phase::gather:
        gather();
        break;
      case coordinator_phase::over:
        break;
    }
  }

  /// The ranks of a member have failed, or are lost with it. The others go on where they may and
  /// can.
  void lose_ranks(generation_member& member, int code) {
    if (rules_.losses == on_loss::end || state().phase != coordinator_phase::run) return fail(code);
    member.failed = true;
    const auto& members = state().members;
    const bool some_go_on = std::any_of(members.begin(), members.end(), [](const auto& each) {
      return each.takes_part() || each.done;
    });
    if (!some_go_on) return fail(code);
    end_if_done();
  }
  void end_if_done() {
    for (const generation_member& each : state().members) {
      if (each.takes_part() && !each.done) return;
    }
    end(0);
  }

  void fail(int code) {
    if (state().restarts < rules_.restarts) {
      ++state().restarts;
    } else {
      state().code = code;
    }
    stop(stop_how::terminate);
  }

  void leave(int code) {
    if (state().phase == coordinator_phase::over) return;
    if (state().phase == coordinator_phase::gather) return end(code);
    const bool stops_already = state().phase == coordinator_phase::stop;
    if (!state().code) state().code = code;
    if (!stops_already) stop(stop_how::ask);
  }

  void stop(stop_how how) {
    state().phase = coordinator_phase::stop;
    for (const generation_member& each : state().members) {
      if (each.live) tell(each.number, coordinator_message::kind::stop, how);
    }
    check_stopped();
  }

  void check_stopped() {
    if (state().phase != coordinator_phase::stop) return;
    for (const generation_member& each : state().members) {
      if (each.live && !each.stopped) return;
    }
    if (state().code) return end(*state().code);
    state().phase = coordinator_phase::gather;
    gather();
  }

  /// The agents have changed: forms a generation of all that may come, or sets the time limits.
  void gather() {
    const int agents = static_cast<int>(state().agents.size());
    if (agents >= rules_.least_nodes) {
      state().join_over.reset();
      // Later on nobody is expected: a node that comes back joins the running generation.
      state().last_call_over = state().generation == 0 ? now_ + rules_.last_call : now_;
    } else {
      state().last_call_over.reset();
      const auto limit = state().generation == 0 ? rules_.join_limit : rules_.return_limit;
      if (!state().join_over) state().join_over = now_ + limit;
    }
    form_if_ready();
  }

  void form_if_ready() {
    if (!state().fences.empty()) return;
    const int agents = static_cast<int>(state().agents.size());
    const bool called = state().last_call_over && *state().last_call_over <= now_;
    if (agents < rules_.most_nodes && !(called && agents >= rules_.least_nodes)) return;
    std::vector<admitted_agent> chosen = state().agents;
    chosen.resize(std::min(chosen.size(), static_cast<std::size_t>(rules_.most_nodes)));
    std::stable_sort(chosen.begin(), chosen.end(),
                     [](const auto& a, const auto& b) { return a.order < b.order; });
    state().members.clear();
    for (const admitted_agent& each : chosen) state().members.push_back({each.number});
    ++state().generation;
    state().phase = coordinator_phase::form;
    state().last_call_over.reset();
    state().join_over.reset();
    for (const admitted_agent& each : chosen) tell(each.number, coordinator_message::kind::form);
  }

  void tick() {
    std::vector<agent_number> silent;
    for (const admitted_agent& each : state().agents) {
      if (each.last_heard + rules_.lease <= now_) silent.push_back(each.number);
    }
    for (const agent_number each : silent) lose(each, true);
    std::erase_if(state().fences, [&](const open_fence& each) { return each.until <= now_; });
    if (state().phase != coordinator_phase::gather) return;
    form_if_ready();
    if (state().join_over && *state().join_over <= now_) end(all_have_saved() ? saved_code : 1);
  }
  /// The ranks of the last generation, as far as their nodes were not lost.
  [[nodiscard]] bool all_have_saved() const {
    const auto& members = step_.state.members;
    const auto is_live = [](const generation_member& each) { return each.live; };
    return std::any_of(members.begin(), members.end(), is_live) &&
           std::all_of(members.begin(), members.end(),
                       [](const generation_member& each) { return each.saved || !each.live; });
  }

  void end(int code) {
    state().code = code;
    state().phase = coordinator_phase::over;
    for (const admitted_agent& each : state().agents) {
      tell(each.number, coordinator_message::kind::end);
    }
  }

  void tell(agent_number to, coordinator_message::kind what, stop_how how = stop_how::terminate) {
    step_.messages.push_back({what, to, state().generation, how, state().code.value_or(0)});
  }

  [[nodiscard]] generation_member* find_member(agent_number number) {
    for (generation_member& each : state().members) {
      if (each.number == number) return &each;
    }
    return nullptr;
  }
  [[nodiscard]] bool all_have_started() const {
    return std::all_of(step_.state.members.begin(), step_.state.members.end(),
                       [](const generation_member& each) { return each.started; });
  }

  static constexpr int saved_code = 75;
  static constexpr int lost_node_code = 1;

  const generation_rules& rules_;
  const time_point now_;
  coordinator_step step_;
};

[[nodiscard]] inline coordinator_step advance(coordinator_state state,
                                              const generation_rules& rules,
                                              const coordinator_event& event,
                                              protocol_clock::time_point now) {
  return coordinator_machine(std::move(state), rules, now).after(event);
}

/// When a tick has something to do next.
[[nodiscard]] inline std::optional<protocol_clock::time_point> next_deadline(
    const coordinator_state& state, const generation_rules& rules) {
  std::optional<protocol_clock::time_point> first;
  const auto consider = [&](protocol_clock::time_point each) {
    if (!first || each < *first) first = each;
  };
  for (const admitted_agent& each : state.agents) consider(each.last_heard + rules.lease);
  for (const open_fence& each : state.fences) consider(each.until);
  if (state.last_call_over && state.fences.empty()) consider(*state.last_call_over);
  if (state.join_over) consider(*state.join_over);
  return first;
}

}  // namespace detail
}  // namespace parx
