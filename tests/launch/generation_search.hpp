// Every interleaving of a small job: agents, their ranks, one coordinator, first-in first-out
// channels, and faults. A rank dies; an agent dies, and its ranks with it; a node is cut off and
// heals; an agent is stopped for a while (SIGSTOP), or told to end the job; the coordinator dies.
// Clocks are adversaries: any time limit may be over at any time. The one assumption is the fence:
// the coordinator waits for a lost agent until that agent has ended its ranks by its own clock. It
// is broken for an agent that is stopped, whose ranks cannot reach those of a later generation.
//
// In every state: ranks of one generation alone run (one); a generation has as many nodes as it may
// (size); no more generations than reasons for them (budget); all agents hear one code, and 0 only
// if all ranks were done (codes); no ranks run on once the coordinator could know that an agent was
// told to end the job (told). Over all states: whoever has not ended can take a step that is no
// fault (hang), and such steps form no cycle (livelock), so once faults end each job ends.
#pragma once

#include "tools/parxrun/nodes/generation.hpp"
#include "tools/parxrun/nodes/generation_node.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "launch/generation_model.hpp"

namespace generation_search {

class searched {
 public:
  explicit searched(const setting& how) : how_(how) {
    rules_.least_nodes = how.least;
    rules_.most_nodes = how.agents;
    rules_.restarts = how.restarts;
    rules_.losses = how.losses;
  }

  /// Empty where all holds.
  std::string run() {
    model start;
    start.kills = how_.kills;
    start.crashes = how_.crashes;
    start.cuts = how_.cuts;
    start.freezes = how_.freezes;
    start.coordinator_deaths = how_.coordinator_deaths;
    start.tells = how_.tells;
    struct level {
      std::size_t key;
      std::vector<step> steps;
      std::size_t next = 0;
    };
    std::vector<level> path;
    std::vector<std::string> labels;
    const auto failure = [&](const std::string& why) {
      std::string text = why;
      for (const std::string& each : labels) text += "\n  " + each;
      return text;
    };
    // Depth first. Faults use up a budget, so a way back to a state on the path has none.
    const auto enter = [&](const model& state, std::size_t key) -> std::string {
      const std::string wrong = check(state);
      if (!wrong.empty()) return failure(wrong);
      level here{key, steps_of(state)};
      bool goes_on = has_ended(state);
      for (const step& each : here.steps) goes_on |= !each.fault;
      if (!goes_on) return failure("hang: nobody can take a step");
      visited_.emplace(key, true);
      path.push_back(std::move(here));
      return {};
    };
    if (auto wrong = enter(start, key_of(start, count())); !wrong.empty()) return wrong;
    while (!path.empty()) {
      level& top = path.back();
      if (top.next == top.steps.size()) {
        visited_[top.key] = false;
        path.pop_back();
        if (!labels.empty()) labels.pop_back();
        continue;
      }
      step each = std::move(top.steps[top.next++]);
      const std::size_t key = key_of(each.next, count());
      const auto found = visited_.find(key);
      labels.push_back(each.label);
      if (found == visited_.end()) {
        if (auto wrong = enter(each.next, key); !wrong.empty()) return wrong;
        continue;
      }
      if (found->second) return failure("livelock: the same state again");
      labels.pop_back();
    }
    return {};
  }
  [[nodiscard]] std::size_t states() const noexcept { return visited_.size(); }

 private:
  struct step {
    bool fault;
    std::string label;
    model next;
  };
  using event = coordinator_event::kind;

  [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(how_.agents); }
  [[nodiscard]] std::size_t owner(agent_number number) const {
    return static_cast<std::size_t>(number % how_.agents);
  }
  static std::size_t index(int generation) { return static_cast<std::size_t>(generation); }

  // The coordinator, with its mutants.

  void coordinator_gets(model& s, coordinator_event what) const {
    coordinator_state& k = s.coordinator;
    const bool stops = k.phase == coordinator_phase::stop;
    switch (how_.broken) {
      case mutant::counts_twice:
        if (what.what == event::failed && stops && !k.code) k.phase = coordinator_phase::run;
        break;
      case mutant::waits_for_lost:
        if (what.what != event::lost || !stops) break;
        for (auto& each : k.members)
          if (each.number == what.agent) each.number = -1;
        break;
      case mutant::node_names:
        if (what.what != event::hello || !what.replaces || !k.has(*what.replaces)) break;
        for (auto& each : k.agents)
          if (each.number == *what.replaces) each.number = what.agent;
        for (auto& each : k.members)
          if (each.number == *what.replaces) each.number = what.agent;
        return;
      case mutant::waits_for_failed:
        if (what.what == event::done) {
          for (auto& each : k.members) each.failed = false;
        }
        break;
      case mutant::forgets_joiners:
        if (!stops) break;
        std::erase_if(k.agents, [&](const admitted_agent& each) {
          return std::none_of(k.members.begin(), k.members.end(),
                              [&](const auto& member) { return member.number == each.number; });
        });
        break;
      default:
        break;
    }
    coordinator_step done = advance(std::move(k), rules_, what, {});
    k = std::move(done.state);
    if (how_.broken == mutant::no_fence || how_.broken == mutant::second_coordinator) {
      k.fences.clear();
      coordinator_step formed = advance(std::move(k), rules_, {.what = event::tick}, {});
      k = std::move(formed.state);
      for (const coordinator_message& each : formed.messages) done.messages.push_back(each);
    }
    for (const coordinator_message& each : done.messages) {
      if (each.what == coordinator_message::kind::form) {
        s.members[index(each.generation)] |= 1U << owner(each.to);
      }
      const model_agent& agent = s.agents[owner(each.to)];
      if (agent.exists && agent.number == each.to && !agent.cut && !agent.closed) {
        s.to[owner(each.to)].push_back(each);
      }
    }
  }

  void coordinator_loses(model& s, agent_number number) const {
    model_agent& agent = s.agents[owner(number)];
    if (agent.number == number) {
      agent.closed = true;
      s.from[owner(number)].clear();
      s.to[owner(number)].clear();
    }
    coordinator_gets(s, {.what = event::lost, .agent = number});
  }

  // The agents.

  void node_gets(model& s, std::size_t i, const node_event& what) const {
    model_agent& agent = s.agents[i];
    node_step done = advance(agent.node, what);
    agent.node = done.state;
    if (how_.broken == mutant::forgets_told) agent.node.told.reset();
    for (const node_action& each : done.actions) {
      switch (each.what) {
        case node_action::kind::start:
          agent.running = how_.ranks;
          agent.of = each.generation;
          agent.under = agent.number;
          s.started[index(each.generation)] |= 1U << i;
          node_gets(s, i, {.what = node_event::kind::started});
          break;
        case node_action::kind::send:
          if (s.coordinator_lives && !agent.cut && !agent.closed) {
            s.from[i].push_back({.what = each.message,
                                 .agent = agent.number,
                                 .generation = each.generation,
                                 .code = each.code});
          }
          break;
        case node_action::kind::exit:
          agent.exists = false;
          agent.code = each.code;
          break;
        case node_action::kind::connect:
          s.to[i].clear();
          s.from[i].clear();
          break;
        default:
          break;
      }
    }
  }

  void rank_ends(model& s, std::size_t i, int code) const {
    model_agent& agent = s.agents[i];
    --agent.running;
    if (code != 0) s.has_dead[index(agent.of)] = true;
    if (code != 0 && agent.node.phase == node_phase::running && !goes_on()) {
      node_gets(s, i, {.what = node_event::kind::failed, .code = code});
    }
    if (agent.running == 0) node_gets(s, i, {.what = node_event::kind::gone, .code = code});
  }

  /// All ranks of an agent that its signals have reached.
  void ranks_end(model& s, std::size_t i) const {
    s.has_dead[index(s.agents[i].of)] = true;
    s.agents[i].running = 0;
    node_gets(s, i, {.what = node_event::kind::gone, .code = 143});
  }

  // The steps.

  std::vector<step> steps_of(const model& s) const {
    std::vector<step> all;
    const auto add = [&](bool fault, std::string label, const std::function<void(model&)>& change) {
      all.push_back({fault, std::move(label), s});
      change(all.back().next);
    };
    for (std::size_t i = 0; i < count(); ++i) {
      const std::string name = std::to_string(i);
      const model_agent& agent = s.agents[i];
      if (agent.exists && !agent.frozen) steps_of_agent(s, i, name, add);
      if (agent.exists) faults_of_agent(s, i, name, add);
      if (agent.frozen) {
        add(false, name + " is continued", [i](model& t) { t.agents[i].frozen = false; });
      }
      if (s.coordinator_lives && !agent.cut && !agent.closed && !s.from[i].empty()) {
        add(false, "the coordinator hears " + name, [&, i](model& t) {
          const coordinator_event what = t.from[i].front();
          t.from[i].pop_front();
          coordinator_gets(t, what);
        });
      }
    }
    if (s.coordinator_lives) {
      steps_of_coordinator(s, add);
    } else if (how_.broken == mutant::second_coordinator) {
      for (std::size_t i = 0; i < count(); ++i) {
        if (s.agents[i].node.phase != node_phase::apart || !s.agents[i].exists) continue;
        add(false, "a second coordinator", [](model& t) {
          const int generation = t.coordinator.generation;
          t.coordinator = {};
          t.coordinator.generation = generation;
          t.coordinator_lives = true;
        });
        break;
      }
    }
    return all;
  }

  template <typename Add>
  void steps_of_agent(const model& s, std::size_t i, const std::string& name,
                      const Add& add) const {
    const model_agent& agent = s.agents[i];
    const bool apart = agent.node.phase == node_phase::apart;
    if (apart && s.coordinator_lives && !agent.cut) {
      add(false, name + " says hello", [&, i](model& t) {
        model_agent& changed = t.agents[i];
        coordinator_event hello{.what = event::hello};
        if (changed.number >= 0) hello.replaces = changed.number;
        changed.number = static_cast<int>(i) + how_.agents * changed.times_connected++;
        changed.closed = false;
        hello.agent = changed.number;
        t.to[i].clear();
        t.from[i] = {hello};
        node_gets(t, i, {.what = node_event::kind::admitted});
      });
    }
    if (apart && (!s.coordinator_lives || agent.cut)) {
      add(false, name + " gives up",
          [&, i](model& t) { node_gets(t, i, {.what = node_event::kind::gave_up}); });
    }
    if (apart && agent.cut && agent.number >= 0) {
      add(false, name + " heals", [i](model& t) { t.agents[i].cut = false; });
    }
    const bool alone = agent.cut || agent.closed || !s.coordinator_lives;
    if (!apart && alone && !agent.node.alone && how_.broken != mutant::no_end_without_coordinator) {
      add(false, name + " misses the coordinator",
          [&, i](model& t) { node_gets(t, i, {.what = node_event::kind::silent}); });
    }
    if (!apart && !alone && !s.to[i].empty()) {
      add(false, name + " hears the coordinator", [&, i](model& t) {
        const coordinator_message what = t.to[i].front();
        t.to[i].pop_front();
        using kind = coordinator_message::kind;
        t.agents[i].heard_end |= what.what == kind::end;
        node_gets(t, i,
                  {.what = what.what == kind::form   ? node_event::kind::form
                           : what.what == kind::stop ? node_event::kind::stop
                                                     : node_event::kind::end,
                   .generation = what.generation,
                   .code = what.code,
                   .how = what.how});
      });
    }
    if (agent.running == 0) return;
    const auto g = index(agent.of);
    if ((!s.has_dead[g] || goes_on()) && s.started[g] == s.members[g]) {
      add(false, "a rank of " + name + " is done", [&, i](model& t) { rank_ends(t, i, 0); });
    }
    if (s.has_dead[g]) {
      add(false, "a rank of " + name + " fails after another",
          [&, i](model& t) { rank_ends(t, i, 1); });
    }
    if (agent.node.phase == node_phase::ending) {
      add(false, "the ranks of " + name + " end", [&, i](model& t) { ranks_end(t, i); });
    }
  }

  template <typename Add>
  void faults_of_agent(const model& s, std::size_t i, const std::string& name,
                       const Add& add) const {
    const model_agent& agent = s.agents[i];
    if (s.kills > 0 && agent.running > 0 && !agent.frozen) {
      add(true, "KILL a rank of " + name, [&, i](model& t) {
        --t.kills;
        rank_ends(t, i, 137);
      });
    }
    if (s.crashes > 0) {
      add(true, "KILL agent " + name, [&, i](model& t) {
        --t.crashes;
        model_agent& changed = t.agents[i];
        if (changed.running > 0) t.has_dead[index(changed.of)] = true;
        if (how_.broken != mutant::orphans) changed.running = 0;
        changed.exists = false;
        changed.frozen = false;
        t.to[i].clear();
      });
    }
    if (s.tells > 0 && !agent.frozen) {
      add(true, "TELL agent " + name, [&, i](model& t) {
        --t.tells;
        t.agents[i].told = true;
        node_gets(t, i, {.what = node_event::kind::told, .code = 75});
      });
    }
    const bool is_in = agent.node.phase != node_phase::apart && !agent.cut && s.coordinator_lives;
    if (s.cuts > 0 && is_in) {
      add(true, "CUT " + name, [i](model& t) {
        --t.cuts;
        t.agents[i].cut = true;
        t.to[i].clear();
        t.from[i].clear();
      });
    }
    if (s.freezes > 0 && is_in && !agent.frozen) {
      add(true, "STOP agent " + name, [i](model& t) {
        --t.freezes;
        t.agents[i].frozen = true;
      });
    }
  }

  template <typename Add>
  void steps_of_coordinator(const model& s, const Add& add) const {
    const coordinator_state& k = s.coordinator;
    for (const admitted_agent& each : k.agents) {
      const model_agent& agent = s.agents[owner(each.number)];
      const bool silent = !agent.exists || agent.cut || agent.frozen ||
                          agent.number != each.number || agent.node.phase == node_phase::apart;
      if (silent && !(k.phase == coordinator_phase::over && !agent.exists)) {
        add(false, "the coordinator loses connection " + std::to_string(each.number),
            [&, number = each.number](model& t) { coordinator_loses(t, number); });
      }
    }
    const auto tick = [this](model& t) { coordinator_gets(t, {.what = event::tick}); };
    for (std::size_t f = 0; f < k.fences.size(); ++f) {
      const model_agent& agent = s.agents[owner(k.fences[f].number)];
      const bool ranks_live = agent.running > 0 && agent.under == k.fences[f].number;
      if (ranks_live && !agent.frozen) continue;
      add(false, "a fence is over", [&, f](model& t) {
        t.coordinator.fences[f].until = {};
        tick(t);
      });
    }
    if (k.phase != coordinator_phase::gather) {
      if (s.coordinator_deaths > 0) {
        add(true, "KILL the coordinator", [](model& t) { coordinator_dies(t); });
      }
      return;
    }
    if (s.coordinator_deaths > 0)
      add(true, "KILL the coordinator", [](model& t) { coordinator_dies(t); });
    if (k.last_call_over && k.fences.empty()) {
      add(false, "the last call is over", [&](model& t) {
        t.coordinator.last_call_over = protocol_clock::time_point{};
        tick(t);
      });
    }
    // Only where nobody can come any more: else each job could end at once.
    bool may_come = false;
    for (std::size_t i = 0; i < count(); ++i) {
      const model_agent& agent = s.agents[i];
      const bool knows = agent.number >= 0 && k.has(agent.number);
      may_come |= agent.exists && (!knows || agent.cut || agent.frozen || !s.from[i].empty());
    }
    if (k.join_over && !may_come) {
      add(false, "the join limit is over", [&](model& t) {
        t.coordinator.join_over = protocol_clock::time_point{};
        tick(t);
      });
    }
  }

  static void coordinator_dies(model& t) {
    --t.coordinator_deaths;
    t.coordinator_lives = false;
    for (auto& each : t.to) each.clear();
    for (auto& each : t.from) each.clear();
  }

  [[nodiscard]] bool goes_on() const { return how_.losses == parx::on_loss::go_on; }

  // What must hold.

  bool has_ended(const model& s) const {
    for (std::size_t i = 0; i < count(); ++i) {
      if (s.agents[i].exists || s.agents[i].running > 0) return false;
    }
    return true;
  }

  std::string check(const model& s) const {
    int alive = 0;
    int code = -1;
    for (std::size_t i = 0; i < count(); ++i) {
      const model_agent& agent = s.agents[i];
      const bool was_stopped = how_.freezes > s.freezes && (agent.frozen || agent.closed);
      if (agent.running > 0 && !was_stopped) {
        if (alive != 0 && alive != agent.of) return "one: ranks of two generations run";
        alive = agent.of;
      }
      if (!agent.heard_end || agent.exists) continue;
      if (code >= 0 && agent.code != code) return "codes: two agents heard different ones";
      code = agent.code;
    }
    const coordinator_state& k = s.coordinator;
    for (std::size_t i = 0; i < count(); ++i) {
      const model_agent& agent = s.agents[i];
      const bool is_heard = agent.exists && k.has(agent.number) && !agent.cut && !agent.closed &&
                            !agent.frozen && agent.node.phase != node_phase::apart;
      if (agent.told && is_heard && s.coordinator_lives && s.from[i].empty() &&
          (k.phase == coordinator_phase::form || k.phase == coordinator_phase::run)) {
        return "told: the job goes on though an agent was told to end it";
      }
    }
    const int size = static_cast<int>(k.members.size());
    if ((k.phase == coordinator_phase::form || k.phase == coordinator_phase::run) &&
        (size < how_.least || size > how_.agents)) {
      return "size: a generation of " + std::to_string(size) + " nodes";
    }
    if (k.restarts > how_.restarts) return "budget: too many restarts";
    if (k.generation > 1 + k.restarts + k.planned_stops) {
      return "budget: " + std::to_string(k.generation) + " generations";
    }
    const int faults = how_.kills - s.kills + how_.crashes - s.crashes + how_.cuts - s.cuts +
                       how_.freezes - s.freezes;
    if (k.restarts > faults) return "budget: a failure has cost two restarts";
    if (k.code && *k.code != 0 && *k.code != 75 && s.coordinator_lives &&
        k.join_over == std::nullopt && faults <= how_.restarts &&
        k.phase == coordinator_phase::stop) {
      return "budget: given up with restarts left";
    }
    if (k.phase == coordinator_phase::over && k.code == 0 &&
        std::any_of(k.members.begin(), k.members.end(), [&](const auto& each) {
          return goes_on() ? each.takes_part() && !each.done : !each.done;
        })) {
      return "codes: 0, though not all were done";
    }
    if (k.phase == coordinator_phase::over && k.code == 0 &&
        std::none_of(k.members.begin(), k.members.end(),
                     [](const auto& each) { return each.done; })) {
      return "codes: 0, though none was done";
    }
    return {};
  }

  setting how_;
  generation_rules rules_;
  std::unordered_map<std::size_t, bool> visited_;  ///< by key: whether it is on the present path
};

}  // namespace generation_search
