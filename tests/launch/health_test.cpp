#include "tools/parx_doctor/health.hpp"

#include <boost/test/unit_test.hpp>

#include "messages.hpp"

namespace {

using parx::findings;
using parx::link_health;
using parx::rank_health;

/// Two hosts of two ranks each, on which all is well.
std::vector<rank_health> healthy() {
  std::vector<rank_health> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    const bool first = rank < 2;
    ranks.push_back({.rank = rank,
                     .host = {.node = first ? "n1" : "n2",
                              .program_hash = "1234",
                              .shm_mb = 1000,
                              .files = 1024,
                              .processes = -1,
                              .address = first ? "10.0.0.1" : "10.0.0.2"},
                     .boot_id = first ? "a" : "b",
                     .version = "0.1.0",
                     .cpus = {0, 1}});
  }
  return ranks;
}

/// The only finding after `change` was done to healthy ranks.
template <typename Change>
std::string finding_after(Change change, std::vector<link_health> links = {}) {
  auto ranks = healthy();
  change(ranks);
  const auto found = parx::slurm::sentences_of(findings(ranks, links));
  BOOST_TEST(found.size() == 1U);
  for (const auto& each : found) BOOST_TEST_MESSAGE(each);
  return found.empty() ? "" : found.front();
}

}  // namespace

BOOST_AUTO_TEST_CASE(nothing_is_found_where_all_is_well) {
  const std::vector<link_health> links{{0, 2, 20e-6, 1e9}, {0, 4, 25e-6, 1e9}, {2, 4, 22e-6, 9e8}};
  BOOST_TEST(findings(healthy(), links).empty());
}

BOOST_AUTO_TEST_CASE(each_thing_that_hurts_is_named_with_its_host_and_the_way_out) {
  const auto told = [](const std::string& text, auto... parts) {
    BOOST_TEST((parx_test::mentions(text, parts) && ...), text);
  };
  told(finding_after([](auto& ranks) { ranks[3].host.program_hash = "9"; }),
       "! the ranks: they run different programs", "1234 on ranks 0, 1, 2; 9 on ranks 3");
  told(finding_after([](auto& ranks) { ranks[0].version = "0.2.0"; }), "different versions");
  told(finding_after([](auto& ranks) { ranks[2].cpus = ranks[3].cpus = {5}; }),
       "note: n2: 1 core for 2 ranks of 1 thread", "-c 2");
  told(finding_after([](auto& ranks) { ranks[0].threads = ranks[1].threads = 2; }),
       "note: n1: 2 cores for 2 ranks of 2 threads", "or start fewer ranks or threads");
  told(finding_after([](auto& ranks) {
         ranks[2].cpus = ranks[3].cpus = {0, 1, 2, 3};
       }),
       "note: n2: 2 of the 4 cores that its ranks may use have no thread", "2 threads a rank");
  told(finding_after([](auto& ranks) { ranks[1].reads_neighbour = false; }),
       "note: n1: ", "process_vm_readv", "ptrace_scope");
  told(finding_after(
           [](auto& ranks) { ranks[2].host.address = ranks[3].host.address = "127.0.1.1"; }),
       "! n2: its address is 127.0.1.1", "PARX_SOCKET_IFNAME");
  told(finding_after(
           [](auto& ranks) { ranks[2].host.address = ranks[3].host.address = "10.0.0.1"; }),
       "! n2: it has the address 10.0.0.1, and so has n1");
  told(finding_after([](auto& ranks) { ranks[3].host.files = 40; }), "! n2: a process may open 40",
       "ulimit -n 80");
  told(finding_after([](auto& ranks) { ranks[2].host.shm_mb = 3; }), "! n2: 3 MB are free in ");
  told(finding_after(
           [](auto& ranks) { ranks[2].host.clock_ahead_s = ranks[3].host.clock_ahead_s = -2.5; }),
       "note: n2: its clock is 2.5 s behind rank 0's");
}

BOOST_AUTO_TEST_CASE(a_link_that_is_much_worse_than_most_is_named) {
  const auto nothing = [](auto&) {};
  BOOST_TEST(finding_after(nothing, {{0, 2, 20e-6, 1e9}, {0, 4, 90e-6, 1e9}, {2, 4, 22e-6, 1e9}}) ==
             "note: ranks 0 and 4: 90 us a message, where 22 us is usual");
  BOOST_TEST(finding_after(nothing, {{0, 2, 20e-6, 1e9}, {0, 4, 20e-6, 1e9}, {2, 4, 20e-6, 1e8}}) ==
             "note: ranks 2 and 4: 100 MB/s, where 1000 MB/s is usual");
}

BOOST_AUTO_TEST_CASE(facts_travel_as_text) {
  auto facts = healthy()[3];
  facts.reads_neighbour = false;
  facts.host.clock_ahead_s = -0.25;
  facts.threads = 3;
  const std::string text = facts.to_bytes();
  const auto back = rank_health::from_bytes(std::as_bytes(std::span(text)));
  BOOST_TEST(back.to_bytes() == text);
  BOOST_TEST(back.host.node == "n2");
  BOOST_TEST((back.cpus == std::vector<int>{0, 1}));
  BOOST_CHECK_THROW((void)rank_health::from_bytes({}), parx::json::error);
}
