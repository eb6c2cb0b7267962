// The hosts of --hosts and --hostfile, the ssh command for each, and what a failed one means.
#include "tools/parxrun/ssh/ssh_hosts.hpp"
#include "tools/parxrun/ssh/ssh_start.hpp"
#include <parx/core/json.hpp>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace {

using parx::environment;
using parx::parse_hostfile;
using parx::parse_hosts;
using parx::ssh_host;
using parx::detail::exit_status;
using parx::detail::why_no_agent;

using texts = std::vector<std::string>;

template <typename Parse>
std::string refusal(Parse parse) {
  try {
    static_cast<void>(parse());
  } catch (const parx::usage_error& refused) {
    return refused.what();
  }
  return {};
}
bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

BOOST_AUTO_TEST_CASE(hosts_are_names_with_or_without_ranks) {
  BOOST_TEST((parse_hosts("a,b:4,me@c,[fe80::1]:2,fe80::2") ==
              std::vector<ssh_host>{{"a"}, {"b", 4}, {"me@c"}, {"fe80::1", 2}, {"fe80::2"}}));
  BOOST_TEST(parse_hosts("").empty());
  BOOST_TEST(parse_hosts("me@c")[0].host() == "c");
  BOOST_TEST((parse_hosts("a,b:2,a,b:3") == std::vector<ssh_host>{{"a", 2}, {"b", 5}}));
}

BOOST_AUTO_TEST_CASE(the_host_files_of_open_mpi_and_of_mpich_are_read) {
  const char* const text =
      "# the cluster\n\nn1 slots=4\n  n2\tslots=2 max_slots=8 # two\r\nn3:3\nn4 max-slots=2\n"
      "n5:2 binding=user:0,1\nn1 slots=1\nn6";
  BOOST_TEST((parse_hostfile(text, "f") ==
              std::vector<ssh_host>{{"n1", 5}, {"n2", 2}, {"n3", 3}, {"n4"}, {"n5", 2}, {"n6"}}));
}

BOOST_AUTO_TEST_CASE(a_wrong_line_is_refused_by_its_number) {
  const auto file = [](const char* text) {
    return refusal([&] { return parse_hostfile(text, "f"); });
  };
  BOOST_TEST(says(file("n1\nn2 slots=x\n"), "f:2: \"x\" is no number of slots"));
  BOOST_TEST(says(file("n1 slots=0"), "f:1: \"0\""));
  BOOST_TEST(says(file("\nn1 4"), "f:2: \"4\" is not understood"));
  BOOST_TEST(says(file("n1 slots 4"), "\"slots\" is not understood"));
  BOOST_TEST(says(file("# nothing\n"), "f has no hosts"));
  const auto list = [](const char* text) { return refusal([&] { return parse_hosts(text); }); };
  BOOST_TEST(says(list("n1:x"), "\"n1:x\" is no host"));
  BOOST_TEST(says(list("n1,,n2"), "\"\" is no host"));
  BOOST_TEST(says(list("n1:5000"), "no number of slots"));
  // ssh would take it for an option that runs a command here.
  BOOST_TEST(says(list("-oProxyCommand=x"), "is no host"));
  BOOST_TEST(says(list("me@-oProxyCommand=x"), "is no host"));
}

BOOST_AUTO_TEST_CASE(the_ssh_command_holds_nothing_but_the_way_to_parxrun) {
  using parx::detail::ssh_command;
  BOOST_TEST(
      ssh_command("ssh -p 2222  -i key", "me@n1", "/opt/it's/parxrun") ==
          (texts{"ssh", "-p", "2222", "-i", "key", "-T", "-oBatchMode=yes", "-oConnectTimeout=10",
                 "me@n1", "exec '/opt/it'\\''s/parxrun' --agent-of-hosts"}),
      boost::test_tools::per_element());
  BOOST_TEST(ssh_command("", "n1", "/p").front() == "ssh");
}

BOOST_AUTO_TEST_CASE(the_variables_that_travel_are_parx_and_omp_and_those_that_are_named) {
  const environment env{{"PARX_TIMEOUT", "9"},  {"OMP_NUM_THREADS", "2"}, {"HOME", "/h"},
                        {"DATA", "/d"},         {"PARX_HOST_ID", "me"},   {"PARX_SSH", "ssh"},
                        {"PARX_SECRET", "old"}, {"PARX_SECRET_FILE", "f"}};
  BOOST_TEST((parx::detail::travelling_variables(env, {"DATA", "MISSING"}, "s3cret") ==
              environment{{"DATA", "/d"},
                          {"OMP_NUM_THREADS", "2"},
                          {"PARX_SECRET", "s3cret"},
                          {"PARX_TIMEOUT", "9"}}));
  BOOST_TEST((parx::detail::travelling_variables(env, {}, "").count("PARX_SECRET")) == 0U);
}

BOOST_AUTO_TEST_CASE(an_order_is_one_line_and_comes_back_as_it_was) {
  const parx::detail::agent_order order{
      .folder = "/a b",
      .variables = {{"PARX_X", "line\nfeed \"quoted\""}},
      .arguments = {"parxrun", "-n", "2", "--", "sh", "-c", "echo 'x'\n"},
      .ranks = 3,
      .nodes = {.least = 2,
                .most = 4,
                .host = "10.0.0.1",
                .port = 29400,
                .id = "job",
                .node_rank = 1,
                .restarts = 5,
                .join_limit = std::chrono::milliseconds(1500)}};
  const std::string text = to_text(order);
  BOOST_TEST(text.find('\n') == text.npos);
  const auto read = parx::detail::order_from_text(text);
  BOOST_TEST(read.folder == order.folder);
  BOOST_TEST((read.variables == order.variables));
  BOOST_TEST(read.arguments == order.arguments, boost::test_tools::per_element());
  BOOST_TEST(read.ranks == 3);
  BOOST_TEST(read.nodes.least == 2);
  BOOST_TEST(read.nodes.most == 4);
  BOOST_TEST(read.nodes.host == "10.0.0.1");
  BOOST_TEST(read.nodes.port == 29400);
  BOOST_TEST(read.nodes.id == "job");
  BOOST_TEST(read.nodes.node_rank == 1);
  BOOST_TEST((read.nodes.role == parx::coordinator_role::no));  // its starter is the coordinator
  BOOST_TEST(read.nodes.restarts == 5);
  BOOST_TEST(read.nodes.join_limit.count() == 1500);
  BOOST_CHECK_THROW(static_cast<void>(parx::detail::order_from_text("hello")), parx::json::error);
}

BOOST_AUTO_TEST_CASE(a_host_without_parxrun_is_one_sentence_with_fact_and_remedy) {
  const auto why = [](exit_status status, const texts& errors) {
    return why_no_agent("n2", status, errors, "/opt/parxrun");
  };
  // What OpenSSH 9.2 and dash write.
  std::string text = why({255, 0}, {"me@n2: Permission denied (publickey).\r"});
  BOOST_TEST(text ==
             "host n2 does not let this user in by a key (me@n2: Permission denied "
             "(publickey).): put the public key into ~/.ssh/authorized_keys there, or name "
             "another one: --ssh \"ssh -i KEY\"");
  text = why({255, 0}, {"ssh: connect to host n2 port 22: Connection refused", ""});
  BOOST_TEST(says(text,
                  "host n2 cannot be reached by ssh (ssh: connect to host n2 port 22: "
                  "Connection refused): try `ssh n2 true`"));
  text = why({255, 0}, {"ssh: Could not resolve hostname n2: Name or service not known"});
  BOOST_TEST(says(text, "host n2 has a name that cannot be resolved here"));
  text = why({255, 0}, {"@  WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!  @",
                        "Host key verification failed."});
  BOOST_TEST(says(text, "log in once by hand, `ssh n2 true`"));
  text = why({127, 0}, {"sh: 1: exec: /opt/parxrun: not found"});
  BOOST_TEST(says(text, "host n2 has no /opt/parxrun that can be executed"));
  text = why({2, 0}, {"parxrun: the folder /x cannot be entered on host n2"});
  BOOST_TEST(says(text, "exit code 2: parxrun: the folder /x"));
  BOOST_TEST(says(why({0, 9}, {}), "killed by SIGKILL"));
  BOOST_TEST(says(why({255, 0}, {}), "ssh has ended without a word"));
}

}  // namespace
