// A small job for generation_search.hpp: how many faults it has, what is broken, its state.
#pragma once

#include "tools/parxrun/nodes/generation.hpp"
#include "tools/parxrun/nodes/generation_node.hpp"

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <string>

namespace generation_search {

using namespace parx::detail;

enum class mutant {
  none,
  no_fence,               ///< the coordinator does not wait for the ranks of a lost agent
  orphans,                ///< ranks outlive their agent
  counts_twice,           ///< each report of a failure costs a restart
  waits_for_lost,         ///< until the lost have stopped
  node_names,             ///< an agent that comes back is taken for its old connection
  forgets_joiners,        ///< those that came during a stop
  waits_for_failed,       ///< a job whose ranks go on waits for those that were lost
  no_end_without_coordinator,  ///< a node without its coordinator keeps its ranks
  second_coordinator,          ///< one is started where the first has died
  forgets_told,           ///< an agent that was told to end the job says so once
};

struct setting {
  int agents = 2;
  int least = 1;
  int ranks = 1;  ///< a node
  int restarts = 1;
  int kills = 0;
  int crashes = 0;
  int cuts = 0;
  int freezes = 0;
  int coordinator_deaths = 0;
  int tells = 0;  ///< an agent is told to end the job
  parx::on_loss losses = parx::on_loss::end;  ///< go_on: with one rank a node
  mutant broken = mutant::none;
};

constexpr std::size_t most_agents = 3;
constexpr std::size_t most_generations = 12;

struct model_agent {
  node_state node;
  agent_number number = -1;  ///< of its connection
  int times_connected = 0;
  bool exists = true;
  bool cut = false;
  bool frozen = false;
  bool closed = false;  ///< its connection, by the coordinator
  bool heard_end = false;
  bool told = false;
  int code = -1;            ///< with which it has ended
  int running = 0;          ///< its ranks
  int of = 0;               ///< their generation
  agent_number under = -1;  ///< the connection under which they were started
};

struct model {
  coordinator_state coordinator;
  bool coordinator_lives = true;
  std::array<model_agent, most_agents> agents;
  std::array<std::deque<coordinator_message>, most_agents> to;
  std::array<std::deque<coordinator_event>, most_agents> from;
  int kills = 0, crashes = 0, cuts = 0, freezes = 0, coordinator_deaths = 0, tells = 0;
  std::array<unsigned, most_generations> members{};  ///< bits of agents
  std::array<unsigned, most_generations> started{};
  std::array<bool, most_generations> has_dead{};
};

/// All of a state in few bytes, hashed. Times are all alike.
inline std::size_t key_of(const model& s, std::size_t agents) {
  std::string b;
  b.reserve(160);
  const auto put = [&](auto value) { b.push_back(static_cast<char>(value)); };
  const coordinator_state& k = s.coordinator;
  put(k.phase), put(k.generation), put(k.restarts), put(k.planned_stops);
  put(k.code.value_or(-1)), put(k.last_call_over.has_value()), put(k.join_over.has_value());
  put(k.agents.size());
  for (const auto& each : k.agents) put(each.number);
  put(k.members.size());
  for (const auto& each : k.members) {
    put(each.number);
    put(each.live | each.started << 1 | each.done << 2 | each.stopped << 3 | each.failed << 4);
  }
  put(k.fences.size());
  for (const auto& each : k.fences) put(each.number);
  put(s.coordinator_lives), put(s.kills), put(s.crashes), put(s.cuts), put(s.freezes);
  put(s.coordinator_deaths), put(s.tells);
  for (std::size_t i = 0; i < agents; ++i) {
    const model_agent& a = s.agents[i];
    put(a.node.phase), put(a.node.generation), put(a.node.code.value_or(-1));
    put(a.node.was_admitted | a.node.stop_asked << 1 | a.node.alone << 2 | a.exists << 3 |
        a.cut << 4 | a.frozen << 5 | a.closed << 6 | a.told << 7);
    put(a.node.told.has_value());
    put(a.heard_end), put(a.number), put(a.times_connected), put(a.code);
    put(a.running), put(a.of), put(a.under);
    put(s.to[i].size());
    for (const auto& each : s.to[i]) {
      put(each.what), put(each.generation), put(each.how), put(each.code);
    }
    put(s.from[i].size());
    for (const auto& each : s.from[i]) {
      put(each.what), put(each.agent), put(each.generation), put(each.code);
    }
  }
  for (std::size_t g = 1; g <= static_cast<std::size_t>(k.generation); ++g) {
    put(s.members[g]), put(s.started[g]), put(s.has_dead[g]);
  }
  return std::hash<std::string>{}(b);
}

}  // namespace generation_search
