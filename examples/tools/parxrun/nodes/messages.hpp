// messages: what an agent and its job's coordinator say to each other, as values. Pure.
//
// On the job's first node, or its only one, both are in one process and pass them by calls. Between
// processes a message is a JSON object of one member: its name, with its fields.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "tools/common/job_report.hpp"
#include "tools/common/json_fields.hpp"
#include "tools/parxrun/nodes/agent_channel.hpp"
#include "tools/parxrun/nodes/generation.hpp"
#include <parx/core/json.hpp>

namespace parx::inline PARX_ABI {

[[nodiscard]] inline json::value to_json(stop_how how) { return static_cast<int>(how); }
inline void read_json(const json::value& from, stop_how& into) {
  const int how = from.as<int>();
  if (how < 0 || how > static_cast<int>(stop_how::wait)) {
    throw json::error("this is no way to stop ranks");
  }
  into = static_cast<stop_how>(how);
}

namespace detail {

[[noreturn]] inline void throw_other_version() {
  throw channel_error("it is a parxrun of another version");
}

// Of an agent.

/// Its first one.
struct agent_hello {
  static constexpr std::string_view name = "hello";
  std::string node;             ///< its name
  std::string process;          ///< the agent's own name
  std::string nodes;            ///< of the job, as it was started: "least:most"
  int ranks = 0;                ///< of the node
  int order = 0;                ///< nodes get their ranks by it, then as they come
  std::uint16_t free_port = 0;  ///< that the agent holds for rank 0's use

  static void for_each_field(auto& self, auto&& visit) {
    visit("node", self.node);
    visit("process", self.process);
    visit("nodes", self.nodes);
    visit("ranks", self.ranks);
    visit("order", self.order);
    visit("free_port", self.free_port);
  }
};
/// What its ranks run, for the report.
struct agent_command {
  static constexpr std::string_view name = "command";
  std::string text;

  static void for_each_field(auto& self, auto&& visit) { visit("text", self.text); }
};
/// One of its ranks, where the others go on.
struct rank_ended {
  static constexpr std::string_view name = "rank_ended";
  int generation = 0;
  int rank = 0;
  std::string how;

  static void for_each_field(auto& self, auto&& visit) {
    visit("generation", self.generation);
    visit("rank", self.rank);
    visit("how", self.how);
  }
};
/// An event of the protocol (generation.hpp).
struct agent_event {
  static constexpr std::string_view name = "event";
  coordinator_event::kind what = coordinator_event::kind::started;
  int generation = 0;
  int code = 0;
  std::string why;                         ///< empty: nothing is known
  std::optional<std::uint16_t> free_port;  ///< a new one
  std::optional<node_report> report;       ///< where its ranks have ended

  static void for_each_field(auto& self, auto&& visit) {
    visit("what", self.what);
    visit("generation", self.generation);
    visit("code", self.code);
    visit("why", self.why);
    visit("free_port", self.free_port);
    visit("report", self.report);
  }
};
using to_coordinator = std::variant<agent_hello, agent_command, rank_ended, agent_event>;

// Of the coordinator.

/// The agent is admitted.
struct welcome {
  static constexpr std::string_view name = "welcome";
  static void for_each_field(auto& /*self*/, auto&& /*visit*/) {}
};
/// Where the ranks of one node are in their job.
struct rank_placement {
  int generation = 0;
  int restarts = 0;    ///< of the job, after failures, so far
  int first_rank = 0;  ///< of the node
  int world_size = 0;
  int node_rank = 0;
  int nodes = 0;
  std::string coordinator = {};  ///< of all generations: its name; empty where there are none
};
/// A generation begins.
struct form_order {
  static constexpr std::string_view name = "form";
  rank_placement place = {};
  bool goes_on = false;     ///< the other ranks, where one is lost
  std::string run_id;       ///< of the ranks
  std::string master_host;  ///< where rank 0 of a program that is not of parx listens
  std::uint16_t master_port = 0;
  std::uint16_t store_port = 0;  ///< 0: rank 0 keeps the store, at the master's port

  static void for_each_field(auto& self, auto&& visit) {
    visit("generation", self.place.generation);
    visit("restarts", self.place.restarts);
    visit("first_rank", self.place.first_rank);
    visit("world_size", self.place.world_size);
    visit("node_rank", self.place.node_rank);
    visit("nodes", self.place.nodes);
    visit("goes_on", self.goes_on);
    visit("coordinator", self.place.coordinator);
    visit("run_id", self.run_id);
    visit("master_host", self.master_host);
    visit("master_port", self.master_port);
    visit("store_port", self.store_port);
  }
  /// Throws channel_error where the numbers do not fit each other, or a node of so many ranks.
  void check(int ranks) const {
    if (place.generation < 1 || place.restarts < 0 || place.first_rank < 0 ||
        place.first_rank > place.world_size - ranks || place.node_rank < 0 ||
        place.node_rank >= place.nodes) {
      throw_other_version();
    }
  }
};
struct stop_order {
  static constexpr std::string_view name = "stop";
  stop_how how = stop_how::terminate;

  static void for_each_field(auto& self, auto&& visit) { visit("how", self.how); }
};
/// Those that went on after a loss have ended: end the others.
struct end_the_rest {
  static constexpr std::string_view name = "end_the_rest";
  static void for_each_field(auto& /*self*/, auto&& /*visit*/) {}
};
/// The job is over.
struct end_order {
  static constexpr std::string_view name = "end";
  int code = 0;

  static void for_each_field(auto& self, auto&& visit) { visit("code", self.code); }
};
/// The job runs without this node, on so many.
struct wait_notice {
  static constexpr std::string_view name = "waits";
  int members = 0;

  static void for_each_field(auto& self, auto&& visit) { visit("members", self.members); }
};
using to_agent =
    std::variant<welcome, form_order, stop_order, end_the_rest, end_order, wait_notice>;

// On the wire.

[[nodiscard]] inline json::value to_json(coordinator_event::kind what) {
  return std::string(name_of(what));
}
inline void read_json(const json::value& from, coordinator_event::kind& into) {
  const std::string& text = from.text();
  const auto* const known = std::find_if(told_events.begin(), told_events.end(),
                                         [&](const auto& each) { return each.second == text; });
  if (known == told_events.end()) throw_other_version();
  into = known->first;
}
/// `Message` is to_coordinator or to_agent.
template <typename Message>
[[nodiscard]] json::value wire_text(const Message& message) {
  return std::visit(
      [](const auto& each) -> json::value {
        return json::object{{std::string(each.name), json::to_json(each)}};
      },
      message);
}
/// Throws json::error or channel_error where the text is no such message.
template <typename Message>
[[nodiscard]] Message message_of(const json::value& text) {
  Message message;
  const auto read = [&]<typename Each>(std::type_identity<Each>) {
    const json::value* const fields = text.find(Each::name);
    if (fields != nullptr) message = json::from_json<Each>(*fields);
    return fields != nullptr;
  };
  const bool known = [&]<typename... Each>(std::type_identity<std::variant<Each...>>) {
    return (read(std::type_identity<Each>{}) || ...);
  }(std::type_identity<Message>{});
  if (!known) throw_other_version();
  return message;
}

}  // namespace detail

}  // namespace parx
