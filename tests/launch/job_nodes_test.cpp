// Over which nodes a job runs, by parxrun's options; and what parxrun on them say to each other.
#include "tools/parxrun/nodes/agent_channel.hpp"
#include "tools/parxrun/nodes/endpoint_listener.hpp"
#include "tools/parxrun/nodes/job_nodes.hpp"
#include "tools/parxrun/nodes/messages.hpp"
#include "tools/parxrun/failures/job_end.hpp"
#include <parx/core/socket_address.hpp>
#include <parx/store/detail/listen.hpp>

#include <boost/test/unit_test.hpp>

#include <sys/socket.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace {

using parx::coordinator_role;
using parx::environment;
using parx::find_nodes;
using parx::node_flags;

environment step(int tasks, int nodes, int node, const std::string& list) {
  return {{"SLURM_JOB_ID", "100"},
          {"SLURM_STEP_ID", "2"},
          {"SLURM_STEP_NUM_TASKS", std::to_string(tasks)},
          {"SLURM_STEP_NUM_NODES", std::to_string(nodes)},
          {"SLURM_STEP_NODELIST", list},
          {"SLURM_PROCID", std::to_string(node)},
          {"SLURM_NODEID", std::to_string(node)}};
}

/// What the error says; empty where there is none.
std::string refusal(const node_flags& flags, const environment& env) {
  try {
    static_cast<void>(find_nodes(flags, env));
  } catch (const parx::usage_error& refused) {
    return refused.what();
  }
  return {};
}
bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

BOOST_AUTO_TEST_CASE(a_job_of_one_host_needs_no_meeting_point) {
  for (const auto& alone :
       {find_nodes({}, {}), find_nodes({.nodes = "1", .endpoint = "n1:29400"}, {}),
        find_nodes({}, step(1, 1, 0, "n1")),
        find_nodes({.standalone = true}, step(4, 2, 0, "n[1-2]")), parx::job_nodes{}}) {
    BOOST_TEST(alone.is_alone());
    BOOST_TEST(!alone.has_generations());
  }
  const auto restarted = find_nodes({.restarts = 3}, {});
  BOOST_TEST(restarted.is_alone());
  BOOST_TEST(restarted.has_generations());
  BOOST_TEST(!find_nodes({.nodes = "2", .endpoint = "n1"}, {}).is_alone());
}

BOOST_AUTO_TEST_CASE(a_step_of_srun_says_where_the_nodes_meet) {
  const auto first = find_nodes({}, step(3, 3, 0, "n[07-09]"));
  const auto last = find_nodes({}, step(3, 3, 2, "n[07-09]"));
  BOOST_TEST(first.host == "n07");
  BOOST_TEST(last.host == "n07");
  BOOST_TEST(first.port == last.port);
  BOOST_TEST(first.id == "slurm-100.2");
  BOOST_TEST((first.role == coordinator_role::yes));
  BOOST_TEST((last.role == coordinator_role::no));
  BOOST_TEST(last.node_rank == 2);
  BOOST_TEST(first.least == 3);
  environment again = step(3, 3, 0, "n[07-09]");
  again["SLURM_RESTART_COUNT"] = "1";
  BOOST_TEST(find_nodes({}, again).id == "slurm-100.2.1");
  // S1's line: torchrun's own options inside the step.
  const auto labs =
      find_nodes({.nodes = "3", .endpoint = "n07:29500", .id = "x", .backend = "c10d"},
                 step(3, 3, 1, "n[07-09]"));
  BOOST_TEST(labs.port == 29500);
  BOOST_TEST(labs.id == "x");
  BOOST_TEST((labs.role == coordinator_role::by_address));
}

BOOST_AUTO_TEST_CASE(torchruns_options_mean_what_they_do_there) {
  const auto elastic = find_nodes({.nodes = "2:4",
                                   .endpoint = "n1",
                                   .conf = "join_timeout=30,last_call_timeout=5,read_timeout=9"},
                                  {});
  BOOST_TEST(elastic.least == 2);
  BOOST_TEST(elastic.most == 4);
  BOOST_TEST(elastic.port == 29400);
  BOOST_TEST(elastic.id == "none");
  BOOST_TEST(elastic.join_limit.count() == 30'000);
  BOOST_TEST(elastic.last_call.count() == 5'000);
  const auto fixed =
      find_nodes({.nodes = "2", .node_rank = "1", .master_addr = "n1", .master_port = "1234"}, {});
  BOOST_TEST(fixed.port == 1234);
  BOOST_TEST((fixed.role == coordinator_role::no));
  BOOST_TEST((find_nodes({.nodes = "2", .node_rank = "0", .master_addr = "n1"}, {}).role ==
              coordinator_role::yes));
  // With c10d the number orders the ranks, and the address says who listens.
  const auto ordered = find_nodes({.nodes = "2", .endpoint = "n1", .node_rank = "1"}, {});
  BOOST_TEST((ordered.role == coordinator_role::by_address));
  BOOST_TEST(ordered.node_rank == 1);
}

BOOST_AUTO_TEST_CASE(what_would_become_two_worlds_or_wait_for_ever_is_refused) {
  BOOST_TEST(says(refusal({}, step(4, 2, 0, "n[1-2]")), "--ntasks-per-node=1"));
  BOOST_TEST(says(refusal({}, step(2, 1, 0, "n1")), "2 tasks on 1 node,"));
  BOOST_TEST(says(refusal({.nodes = "2"}, {}), "needs a meeting point"));
  for (const char* own : {"localhost", "127.0.0.1:29400", "[::1]:29400"}) {
    BOOST_TEST(says(refusal({.nodes = "2", .endpoint = own}, {}), "each node's own address"));
  }
  BOOST_TEST(refusal({.nodes = "2", .endpoint = "localhost"}, {{"PARX_HOST_ID", "a"}}) == "");
  for (const char* wrong : {"0", "x", "3:2", "2:", "5000"}) {
    BOOST_TEST(says(refusal({.nodes = wrong, .endpoint = "n1"}, {}), "MIN:MAX"), wrong);
  }
  BOOST_TEST(says(refusal({.nodes = "2", .endpoint = "n1:x"}, {}), "host and the port"));
  BOOST_TEST(says(refusal({.nodes = "2", .endpoint = "n1", .backend = "etcd"}, {}), "etcd"));
  BOOST_TEST(says(refusal({.nodes = "2", .endpoint = "n1", .conf = "a=1"}, {}), "known are"));
  BOOST_TEST(says(refusal({.nodes = "2", .endpoint = "n1", .node_rank = "2"}, {}), "0 to 1"));
}

BOOST_AUTO_TEST_CASE(a_port_that_somebody_has_without_listening_is_refused_at_once) {
  int code = 0;
  const auto found = parx::detail::find_addresses("127.0.0.1", 0, 0, code);
  const parx::descriptor other = parx::detail::stream_socket(AF_INET);
  BOOST_REQUIRE(::bind(other.get(), found->ai_addr, found->ai_addrlen) == 0);
  const std::uint16_t port = parx::detail::bound_port(other.get());
  const parx::job_nodes nodes{
      .host = "127.0.0.1", .port = port, .id = "x", .role = coordinator_role::by_address};
  const auto started = std::chrono::steady_clock::now();
  std::string text;
  try {
    static_cast<void>(parx::detail::listen_at_endpoint(nodes, {}));
  } catch (const parx::error& refused) {
    text = refused.what();
  }
  BOOST_TEST(says(text, "127.0.0.1:" + std::to_string(port) + ": it is in use"), text);
  BOOST_TEST(says(text, "MASTER_PORT"), text);
  BOOST_TEST(says(text, "Choose another port"), text);
  BOOST_TEST((std::chrono::steady_clock::now() - started < std::chrono::seconds(2)));
  // One that listens is the job's first parxrun, for what can be known here.
  BOOST_REQUIRE(::listen(other.get(), 1) == 0);
  BOOST_TEST(!parx::detail::listen_at_endpoint(nodes, {}).valid());
}

using parx::detail::agent_channel;
using parx::detail::channel_error;
using parx::detail::channel_side;

using parx::job_key;
using parx::json::object;

/// Two sides that have gone through their proofs.
struct pair_of_channels {
  explicit pair_of_channels(const job_key* of_agent, const job_key* of_coordinator)
      : agent(channel_side::agent, "job", of_agent),
        coordinator(channel_side::coordinator, "job", of_coordinator) {
    for (int turn = 0; turn < 2; ++turn) {
      coordinator.feed(agent.take_replies());
      BOOST_TEST(!coordinator.next().has_value());
      agent.feed(coordinator.take_replies());
      BOOST_TEST(!agent.next().has_value());
    }
    BOOST_TEST((agent.is_open() && coordinator.is_open()));
  }
  agent_channel agent;
  agent_channel coordinator;
};

/// A frame by hand, without a signature.
std::string raw_frame(const std::string& text) {
  std::string bytes(4, '\0');
  for (std::size_t i = 0; i < 4; ++i) bytes[i] = static_cast<char>(text.size() >> (8 * i) & 0xFF);
  return bytes + text;
}

BOOST_AUTO_TEST_CASE(texts_between_parxrun_arrive_whole_however_the_bytes_do) {
  const job_key key("0123456789abcdef", "job");
  for (const job_key* each : {&key, static_cast<const job_key*>(nullptr)}) {
    pair_of_channels two(each, each);
    const std::string bytes =
        two.agent.frame(object{{"event", "done"}}) + two.agent.frame(object{{"event", "leave"}});
    std::string heard;
    for (const char byte : bytes) {
      two.coordinator.feed({&byte, 1});
      if (const auto text = two.coordinator.next()) heard += text->at("event").text() + " ";
    }
    BOOST_TEST(heard == "done leave ");
  }
}

BOOST_AUTO_TEST_CASE(a_text_that_is_changed_repeated_or_sent_back_is_refused) {
  const job_key key("0123456789abcdef", "job");
  {
    pair_of_channels two(&key, &key);
    std::string bytes = two.agent.frame(object{{"code", 1}});
    bytes[bytes.find('1')] = '0';
    two.coordinator.feed(bytes);
    BOOST_CHECK_THROW(static_cast<void>(two.coordinator.next()), channel_error);
  }
  {
    pair_of_channels two(&key, &key);
    const std::string bytes = two.agent.frame(object{{"code", 1}});
    two.coordinator.feed(bytes + bytes);
    BOOST_TEST(two.coordinator.next().has_value());
    BOOST_CHECK_THROW(static_cast<void>(two.coordinator.next()), channel_error);
  }
  pair_of_channels two(&key, &key);  // what the coordinator has said, sent back to it
  two.coordinator.feed(two.coordinator.frame(object{{"code", 1}}));
  BOOST_CHECK_THROW(static_cast<void>(two.coordinator.next()), channel_error);
}

/// What an agent says of a coordinator that answers like that before, or in place of, its proof.
std::string said_of(const job_key* key, const std::vector<std::string>& answers) {
  agent_channel agent(channel_side::agent, "job", key);
  try {
    for (const std::string& each : answers) {
      agent.feed(each);
      if (agent.next()) return "a text was passed on";
      if (agent.is_open()) return "it is open";
    }
  } catch (const channel_error& refused) {
    return refused.what();
  }
  return "waits";
}

BOOST_AUTO_TEST_CASE(an_agent_obeys_nobody_who_has_not_proved_to_know_the_key) {
  const job_key key("0123456789abcdef", "job");
  const std::string nonce = raw_frame(R"({"nonce":"k"})");
  const std::string zeros(sizeof(parx::mac), '\0');
  constexpr auto no_parxrun = "something else than parxrun answers there";
  for (const char* order :
       {R"({"end":{"code":0}})", R"({"welcome":0})", R"({"form":{}})", R"({"stop":{"how":0}})",
        R"({"beat":0})", R"({"proof":true})", "{}", "[]", "0", "", "{", "null"}) {
    for (const job_key* each : {&key, static_cast<const job_key*>(nullptr)}) {
      BOOST_TEST(said_of(each, {raw_frame(order)}) == no_parxrun, order);
    }
    if (order == std::string_view(R"({"proof":true})")) continue;
    BOOST_TEST(said_of(nullptr, {nonce, raw_frame(order)}) == no_parxrun, order);
  }
  BOOST_TEST(said_of(&key, {nonce, raw_frame(R"({"proof":true})") + zeros})
                 .starts_with("it has another secret"));
  BOOST_TEST(said_of(&key, {raw_frame(R"({"refused":"no \u001b[2J"})")}) == "no \\x1b[2J");
  BOOST_TEST(said_of(&key, {"HTTP/1.1 400 Bad Request\r\n"}) == no_parxrun);
  // Not even a part of a long text is kept.
  BOOST_TEST(said_of(&key, {std::string("\x01\x10\0\0", 4)}) == no_parxrun);
  BOOST_TEST(said_of(&key, {std::string("\0\x10\0\0", 4)}) == "waits");
  {
    // Its own proof, sent back.
    agent_channel agent(channel_side::agent, "job", &key);
    static_cast<void>(agent.take_replies());
    agent.feed(nonce);
    static_cast<void>(agent.next());
    agent.feed(agent.take_replies());
    BOOST_CHECK_THROW(static_cast<void>(agent.next()), channel_error);
    BOOST_TEST(!agent.is_open());
  }
}

BOOST_AUTO_TEST_CASE(a_coordinator_hears_nobody_who_has_not_proved_to_know_the_key) {
  const job_key key("0123456789abcdef", "job");
  const job_key other("0123456789abcdeg", "job");
  const auto refusal_of = [&](agent_channel& coordinator, const std::vector<std::string>& bytes) {
    try {
      for (const std::string& each : bytes) {
        coordinator.feed(each);
        if (coordinator.next()) return std::string("a text was passed on");
      }
    } catch (const channel_error& refused) {
      return std::string(refused.what());
    }
    return std::string(coordinator.is_open() ? "open" : "waits");
  };
  {
    agent_channel coordinator(channel_side::coordinator, "job", &key);
    agent_channel agent(channel_side::agent, "job", &other);
    BOOST_TEST(refusal_of(coordinator, {agent.take_replies()}) == "waits");
    agent.feed(coordinator.take_replies());
    static_cast<void>(agent.next());
    const std::string why = refusal_of(coordinator, {agent.take_replies()});
    BOOST_TEST(why.starts_with("it has another secret"));
    // It learns so, and gets no signature with which it could test guesses.
    const std::string told = coordinator.refusal(why);
    BOOST_TEST(told.ends_with(std::string(sizeof(parx::mac), '\0')));
    agent.feed(told);
    BOOST_CHECK_THROW(static_cast<void>(agent.next()), channel_error);
  }
  for (const char* hello : {R"({"node":"n"})", R"({"event":"leave"})", "{}"}) {
    agent_channel coordinator(channel_side::coordinator, "job", &key);
    BOOST_TEST(refusal_of(coordinator, {raw_frame(hello)}) ==
               "something else than parxrun answers there");
  }
  agent_channel coordinator(channel_side::coordinator, "job", nullptr);
  agent_channel stranger(channel_side::agent, "other", nullptr);
  BOOST_TEST(
      refusal_of(coordinator, {stranger.take_replies()}).starts_with("the job there is \"job\""));
  agent_channel with_key(channel_side::agent, "job", &key);
  agent_channel without(channel_side::coordinator, "job", nullptr);
  BOOST_TEST(refusal_of(without, {with_key.take_replies()})
                 .starts_with("the parxrun there has no secret, and this one has one"));
}

using parx::detail::message_of;
using parx::detail::to_agent;
using parx::detail::to_coordinator;
using parx::detail::wire_text;

BOOST_AUTO_TEST_CASE(every_message_comes_back_from_its_text) {
  using namespace parx::detail;
  using parx::stop_how;
  const auto same = [](const auto& message) {
    const parx::json::value text = wire_text(message);
    return wire_text(message_of<std::decay_t<decltype(message)>>(text)) == text;
  };
  BOOST_TEST(same(to_coordinator(agent_hello{"a", "p", "1:2", 3, 4, 5})));
  BOOST_TEST(same(to_coordinator(agent_command{"./train --epochs 5"})));
  BOOST_TEST(same(to_coordinator(rank_ended{2, 7, "exit code 1"})));
  for (const auto& [what, name] : told_events) {
    BOOST_TEST(
        same(to_coordinator(agent_event{what, 2, 75, "why", 4711, node_report{.node = "a"}})));
    const agent_event bare{what, 1, 0, "", std::nullopt, std::nullopt};
    BOOST_TEST(same(to_coordinator(bare)));
    const auto back = message_of<to_coordinator>(wire_text(to_coordinator(bare)));
    BOOST_TEST((std::get<agent_event>(back).what == what));
    BOOST_TEST(!std::get<agent_event>(back).report.has_value());
  }
  BOOST_TEST(same(to_agent(welcome{})));
  BOOST_TEST(same(to_agent(end_the_rest{})));
  BOOST_TEST(same(to_agent(end_order{137})));
  BOOST_TEST(same(to_agent(wait_notice{3})));
  for (const stop_how how : {stop_how::terminate, stop_how::save, stop_how::ask, stop_how::wait}) {
    const auto back = message_of<to_agent>(wire_text(to_agent(stop_order{how})));
    BOOST_TEST((std::get<stop_order>(back).how == how));
  }
  for (const char* text : {"{}", R"({"beat":0})"}) {
    BOOST_CHECK_THROW(static_cast<void>(message_of<to_agent>(parx::json::parse(text))),
                      channel_error);
  }
  for (const char* text :
       {R"({"stop":{"how":4}})", R"({"stop":{"how":-1}})", R"({"stop":{"how":"x"}})",
        R"({"stop":1})", R"({"form":{}})", "[]", "0"}) {
    BOOST_CHECK_THROW(static_cast<void>(message_of<to_agent>(parx::json::parse(text))),
                      std::runtime_error);
  }
  BOOST_CHECK_THROW(static_cast<void>(message_of<to_coordinator>(parx::json::parse(
                        R"({"event":{"what":"heard","generation":1,"code":0,"why":"",
                            "free_port":null,"report":null}})"))),
                    channel_error);
}

BOOST_AUTO_TEST_CASE(the_order_to_form_a_generation_is_taken_whole_or_not_at_all) {
  using parx::detail::form_order;
  const form_order given{.place = {.generation = 2,
                                   .restarts = 1,
                                   .first_rank = 4,
                                   .world_size = 6,
                                   .node_rank = 1,
                                   .nodes = 2,
                                   .coordinator = "k"},
                         .goes_on = true,
                         .run_id = "job.2",
                         .master_host = "n1",
                         .master_port = 4711,
                         .store_port = 4712};
  const parx::json::value whole = parx::json::to_json(given);
  const auto taken = [](const object& fields, int ranks) {
    const auto order = std::get<form_order>(message_of<to_agent>(object{{"form", fields}}));
    order.check(ranks);
    return parx::json::to_json(order);
  };
  const object fields(whole.members());
  BOOST_TEST((taken(fields, 2) == whole));
  BOOST_CHECK_THROW(static_cast<void>(taken(fields, 3)), channel_error);
  for (const auto& [name, value] : whole.members()) {
    object changed = fields;
    changed[name] = parx::json::array{};
    BOOST_CHECK_THROW(static_cast<void>(taken(changed, 2)), parx::json::error);
  }
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, int>>{{"generation", 0},
                                                {"restarts", -1},
                                                {"first_rank", -1},
                                                {"first_rank", 2'000'000'000},
                                                {"world_size", 5},
                                                {"node_rank", 2},
                                                {"nodes", 1}}) {
    object changed = fields;
    changed[name] = value;
    BOOST_CHECK_THROW(static_cast<void>(taken(changed, 2)), channel_error);
  }
}

using parx::detail::job_end;
using parx::detail::node_report;
using parx::detail::report_text;

node_report saved_on(const std::string& node, int rank) {
  node_report report{.node = node};
  report.ranks.push_back({.rank = rank, .status = {75, 0}});
  return report;
}

BOOST_AUTO_TEST_CASE(a_report_says_whose_work_is_saved_and_why_the_job_has_ended) {
  job_end end{.reports = {saved_on("a", 0)}, .command = "./train", .told = true, .code = 75};
  BOOST_TEST(report_text(end) ==
             "parxrun: ended as asked: ./train; the ranks have saved their work (exit code 75)\n");
  end.unheard = {"b"};
  BOOST_TEST(report_text(end) ==
             "parxrun: ended as asked: ./train; the ranks on a have saved their work (exit code "
             "75), of those on b nothing is known\n");
  end.told = false;
  end.loss = "node b was lost: it closed the connection";
  BOOST_TEST(says(report_text(end),
                  "parxrun: node b was lost: it closed the connection; the ranks on a have saved"));
  job_end none{
      .command = "./train", .why = "on node b: cannot make a pipe: Too many open files", .code = 1};
  BOOST_TEST(report_text(none) ==
             "parxrun: the job has ended: on node b: cannot make a pipe: Too "
             "many open files: ./train\n");
  none.told = true;
  none.why = "by SIGTERM";
  BOOST_TEST(report_text(none) == "parxrun: ended by SIGTERM: ./train\n");
}

BOOST_AUTO_TEST_CASE(the_outcome_blames_the_rank_or_the_node_that_is_the_cause) {
  using parx::detail::outcome_of;
  job_end end{.reports = {{.node = "a"}, {.node = "b"}}, .world_size = 2, .code = 1};
  end.reports[0].ranks.push_back({.rank = 0, .status = {1, 0}, .seconds = 1});
  end.reports[1].ranks.push_back({.rank = 1, .status = {0, SIGKILL}, .seconds = 2});
  end.reports[0].ranks[0].record = parx::failure_record{
      .code = parx::errc::peer_lost, .rank = 0, .blamed = 1, .operation = "barrier"};
  const auto killed = outcome_of(end);
  BOOST_TEST(killed.has_failed);
  BOOST_TEST(killed.rank == 1);
  BOOST_TEST(killed.node == "b");
  BOOST_TEST(killed.signal == SIGKILL);
  BOOST_TEST(killed.told_by == -1);
  BOOST_TEST(says(killed.why, "killed by SIGKILL (signal 9), 2.0 s after the start"));
  // A rank of whose failure only another one's record tells.
  end.reports[1].ranks[0].status = {0, 0};
  const auto left = outcome_of(end);
  BOOST_TEST(left.rank == 1);
  BOOST_TEST(left.node == "b");
  BOOST_TEST(left.told_by == 0);
  BOOST_TEST(says(left.why, "rank 1 ended with exit code 0 while others still waited for it"));
  end.reports[0].ranks[0].record = std::nullopt;
  const auto own = outcome_of(end);
  BOOST_TEST(own.rank == 0);
  BOOST_TEST(own.node == "a");
  BOOST_TEST(own.told_by == -1);
  BOOST_TEST(says(own.why, "exit code 1, 1.0 s after the start"));
  // The loss of a node is the cause of all that follows.
  end.loss = "node c was lost";
  end.lost_node = "c";
  const auto lost = outcome_of(end);
  BOOST_TEST(lost.has_failed);
  BOOST_TEST(lost.rank == -1);
  BOOST_TEST(lost.node == "c");
  // Nobody is to blame where the job was told to end, or has ended well.
  end.told = true;
  BOOST_TEST(!outcome_of(end).has_failed);
  end.told = false;
  end.code = 0;
  BOOST_TEST(!outcome_of(end).has_failed);
  end.goes_on = true;  // it has no code yet
  BOOST_TEST(outcome_of(end).has_failed);
}

BOOST_AUTO_TEST_CASE(the_report_of_a_node_with_many_ranks_is_one_text) {
  node_report report{.node = "n"};
  for (int rank = 0; rank < 4096; ++rank) {
    report.ranks.push_back({.rank = rank, .status = {1, 0}});
    for (int line = 0; line < 20; ++line) {
      report.ranks.back().last_lines.push_back(std::to_string(line) + std::string(900, 'x'));
    }
  }
  const std::string text = parx::json::dump(parx::json::to_json(parx::detail::shortened(report)));
  BOOST_TEST(text.size() < agent_channel::longest);
  const node_report got = parx::json::from_json<node_report>(parx::json::parse(text));
  BOOST_TEST_REQUIRE(got.ranks.size() == 4096U);
  BOOST_TEST_REQUIRE(!got.ranks.back().last_lines.empty());
  BOOST_TEST(got.ranks.back().last_lines.back().starts_with("19x"));  // the last ones are kept
}

}  // namespace
