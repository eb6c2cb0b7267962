// What parx_slurm check says of nodes: each fault planted alone is found, named with its node and
// given a remedy, and a good node has none.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tools/common/host_facts.hpp"
#include "tools/parx_slurm/preflight/preflight.hpp"


namespace {

using namespace parx::slurm;

host_facts good_node(const std::string& name) {
  host_facts node;
  node.node = name;
  node.host = name;
  node.program = "/home/u/train";
  node.program_hash = "91ab03de00000000";
  node.image = "/home/u/parx.sif";
  node.image_hash = "5a0b000000000000";
  node.needs = {{"/data/ag_news", "", 1000}};
  node.imports = {{"torch", "2.3.1", ""}};
  node.output = "/home/u/out";
  node.cores = 32;
  node.processor = "AVX2";
  node.memory_mb = 62'000;
  node.shm_mb = 14'000;
  node.tmp_mb = 90'000;
  node.tmp = "/tmp";
  node.files = 4096;
  node.processes = -1;
  node.own_name_is = "10.0.0.7";
  node.address = "10.0.0.7";
  node.time_left_s = 3600;
  node.complete = true;
  node.exchanged = true;
  node.clock_ahead_s = 0.003;
  node.round_trip_s = 0.0002;
  return node;
}

const std::vector<std::string> names{"n07", "n08", "n11"};
const host_needs takes{
    .ranks = 2, .threads = 4, .nodes = 3, .memory_mb = 4000, .tmp_mb = 1000, .time_s = 1800};

/// The nodes of a ring, as the check makes it.
std::vector<host_facts> good_nodes(const std::vector<std::string>& all = names) {
  std::vector<host_facts> nodes;
  for (std::size_t i = 0; i < all.size(); ++i) {
    nodes.push_back(good_node(all[i]));
    nodes.back().next = all[(i + 1) % all.size()];
  }
  return nodes;
}

std::vector<std::string> numbered(int count) {
  std::vector<std::string> all;
  for (int i = 0; i < count; ++i) all.push_back(parx::formatted("n{}", i));
  return all;
}

/// What is said of `count` nodes after `plant` has done its work on a good network.
std::vector<std::string> said_of(int count,
                                 const std::function<void(std::vector<host_facts>&)>& plant) {
  auto nodes = good_nodes(numbered(count));
  plant(nodes);
  std::vector<std::string> said;
  for (const std::string& each : sentences_of(
           preflight(numbered(count), nodes, {.ranks = 2, .threads = 4, .nodes = count}))) {
    said.push_back(each.substr(0, each.find(". ")));
  }
  return said;
}
using texts = std::vector<std::string>;

std::string line_of(const host_facts& facts) {
  return parx::json::dump(parx::json::to_json(facts));
}

}  // namespace

BOOST_AUTO_TEST_CASE(good_nodes_have_a_line_each_and_no_finding) {
  const auto nodes = good_nodes();
  const auto found = preflight(names, nodes, takes);
  BOOST_TEST(found.empty());
  BOOST_TEST(node_line(nodes[0], found) ==
             "n07  ok  program 91ab03de  image 5a0b0000  1 of 1 needed path  32 cores AVX2  memory "
             "60 GB  /dev/shm 13 GB  clock +0.003 s, 0.2 ms there and back");
}

BOOST_AUTO_TEST_CASE(facts_survive_the_way_as_a_line) {
  auto node = good_node("n07");
  node.missing_libraries = {"libfmt.so.9", "GLIBC_2.36"};
  node.missing_instructions = {"avx2"};
  node.needs.push_back({"/a \"quoted\" path", "No such file", 0});
  node.container_lacks = {"parxrun", "/data"};
  node.container_problem = "there is no apptainer in PATH";
  node.needs.push_back({"/argument", "", 3, true});
  node.quota_cores = 1.5;
  node.to_first_problem = "x";
  node.from_first_problem = "y";
  node.to_next_problem = "z";
  const auto same = parx::json::from_json<host_facts>(parx::json::parse(line_of(node)));
  BOOST_TEST(line_of(same) == line_of(node));
  BOOST_TEST(same.missing_libraries == node.missing_libraries);
  BOOST_TEST(same.needs.at(1).path == node.needs.at(1).path);
  BOOST_TEST(same.quota_cores == 1.5);
  BOOST_CHECK_THROW((void)parx::json::from_json<host_facts>(parx::json::parse("{}")),
                    parx::json::error);
}

BOOST_AUTO_TEST_CASE(long_facts_of_several_nodes_survive_a_mixture_of_their_lines) {
  auto nodes = good_nodes();
  for (int i = 0; i < 60; ++i) nodes[1].needs.push_back({"/a/long/path/to/something", "", 1, true});
  const std::string first = to_lines(nodes[0], 0), second = to_lines(nodes[1], 0);
  nodes[0].exchanged = false;
  std::vector<std::string> lines{"a prolog's line", "facts about nothing", ""};
  for (const std::string& text : {to_lines(nodes[0], 1), second, first}) {
    for (const auto each : parx::detail::split_at(text, '\n')) lines.emplace_back(each);
  }
  BOOST_TEST(lines.size() > 8u);
  std::shuffle(lines.begin(), lines.end(), std::mt19937(1));
  std::string mixed;
  for (const std::string& each : lines) {
    BOOST_TEST(each.size() < 1024u);
    mixed += each + "\n";
  }
  const auto found = facts_among(mixed);
  BOOST_TEST(found.size() == 2u);
  BOOST_TEST(line_of(found.at(0)) == line_of(nodes[0]));  // the later ones
  BOOST_TEST(line_of(found.at(1)) == line_of(nodes[1]));
  BOOST_TEST(facts_among(first.substr(0, first.size() / 2)).empty());
}

BOOST_AUTO_TEST_CASE(each_planted_fault_is_found_and_its_node_named) {
  struct fault {
    const char* says;  // a part of the sentence
    std::function<void(host_facts&)> plant;
  };
  const std::vector<fault> faults{
      {"its /home/u/train is another one than on most nodes (old and 91ab03de00000000)",
       [](auto& node) { node.program_hash = "old"; }},
      {"the program /home/u/train cannot be started: No such file",
       [](auto& node) {
         node.program_problem = "No such file";
         node.program_hash.clear();
       }},
      {"the program needs libfmt.so.9, GLIBC_2.36, which the node does not have",
       [](auto& node) {
         node.missing_libraries = {"libfmt.so.9", "GLIBC_2.36"};
       }},
      {"the program was compiled for avx2, fma, which its processor does not have",
       [](auto& node) {
         node.missing_instructions = {"avx2", "fma"};
       }},
      {"its /home/u/parx.sif is another one than on most nodes (old and 5a0b000000000000)",
       [](auto& node) { node.image_hash = "old"; }},
      {"the image /home/u/parx.sif cannot be read: No such file",
       [](auto& node) {
         node.image_problem = "No such file";
         node.image_hash.clear();
       }},
      {"there is no apptainer in PATH",
       [](auto& node) { node.container_problem = "there is no apptainer in PATH"; }},
      {"inside the image there is no parxrun",
       [](auto& node) { node.container_lacks = {"parxrun"}; }},
      {"/data/ag_news cannot be read: No such file",
       [](auto& node) { node.needs[0].problem = "No such file"; }},
      {"Python cannot import torch: ModuleNotFoundError",
       [](auto& node) { node.imports[0].problem = "ModuleNotFoundError"; }},
      {"nothing can be written to /home/u/out: /home/u: Read-only file system",
       [](auto& node) { node.output_problem = "/home/u: Read-only file system"; }},
      {"300 MB of memory are free, 4000 MB are needed", [](auto& node) { node.memory_mb = 300; }},
      {"2 MB are free in /dev/shm", [](auto& node) { node.shm_mb = 2; }},
      {"10 MB are free in /tmp, 1000 MB are needed", [](auto& node) { node.tmp_mb = 10; }},
      {"a process may open 64 files, and 6 ranks need about 88",
       [](auto& node) { node.files = 64; }},
      {"a user may have 20 processes and threads", [](auto& node) { node.processes = 20; }},
      {"its name resolves to 127.0.1.1, which other nodes cannot reach",
       [](auto& node) { node.own_name_is = node.address = "127.0.1.1"; }},
      {"5:00 are left of the job, 30:00 are needed", [](auto& node) { node.time_left_s = 300; }},
      {"it cannot connect to the first node, n07: refused",
       [](auto& node) { node.to_first_problem = "refused"; }},
      {"what it was to try, imports or the container, had no end in time",
       [](auto& node) { node.complete = false; }},
      {"it did not answer the first node in time", [](auto& node) { node.exchanged = false; }},
  };
  for (const fault& each : faults) {
    auto nodes = good_nodes();
    each.plant(nodes[2]);
    const auto found = preflight(names, nodes, takes);
    BOOST_TEST_CONTEXT(each.says) {
      BOOST_TEST(found.size() == 1u);
      for (const auto& finding : found) {
        BOOST_TEST(finding.node == "n11");
        BOOST_TEST(finding.fatal);
        BOOST_TEST(!finding.remedy.empty());
      }
      for (const std::string& said : sentences_of(found)) {
        BOOST_TEST(said.starts_with(std::string("! n11: ") + each.says), said);
      }
      BOOST_TEST(bad_nodes(found) == std::vector<std::string>{"n11"});
      BOOST_TEST(node_line(nodes[2], found).starts_with("n11  1 fault"));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_path_that_is_empty_on_one_node_alone_is_noted_there) {
  auto nodes = good_nodes();
  for (host_facts& each : nodes) each.needs[0].size = 5;
  nodes[1].needs[0].size = 0;
  const auto found = preflight(names, nodes, takes);
  BOOST_TEST(bad_nodes(found).empty());
  BOOST_TEST(sentences_of(found) ==
             std::vector<std::string>{
                 "note: n08: /data/ag_news is empty, but not on n07. Is its file system mounted "
                 "there? If not, tell the site, and leave the node out by --exclude"});
  for (host_facts& each : nodes) each.needs[0].size = 0;  // a folder for what the job makes
  BOOST_TEST(preflight(names, nodes, takes).empty());
}

BOOST_AUTO_TEST_CASE(a_cache_that_is_not_there_is_made_by_prepare) {
  auto wanted = takes;
  wanted.cache = "/data/tokens";
  for (const auto& [path, remedy] :
       {std::pair<std::string, std::string>{"/data/tokens", "Make it, where all nodes see it, by"},
        {"/data/tokens/", "Make it, where all nodes see it, by parx_slurm prepare"},
        {"/data/tokens/a.tokens", "Make it, where all nodes see it, by parx_slurm prepare"},
        {"/data/tokens2", "Copy it there"}}) {
    auto nodes = good_nodes();
    nodes[0].needs[0] = {path, "No such file", 0, false};
    const auto said = sentences_of(preflight(names, nodes, wanted));
    BOOST_REQUIRE(!said.empty());
    BOOST_TEST(said[0].find(". " + remedy) != std::string::npos, said[0]);
  }
}

BOOST_AUTO_TEST_CASE(findings_that_only_slow_a_job_down_are_notes) {
  auto nodes = good_nodes();
  nodes[1].clock_ahead_s = 5;
  for (host_facts& each : nodes) each.cores = 4;
  nodes[0].needs.push_back({"/home/u/out", "No such file", 0, true});
  nodes[2].quota_cores = 1.5;
  const auto found = preflight(names, nodes, takes);
  BOOST_TEST(bad_nodes(found).empty());
  BOOST_TEST(sentences_of(found) ==
             (std::vector<std::string>{
                 "note: n07: /home/u/out, an argument of the program, cannot be read: No such "
                 "file. Where all ranks read it, let --stage copy it there",
                 "note: n[07-08,11]: 4 cores for 2 ranks of 4 threads. Ask for -c 8 a node, or "
                 "start fewer ranks or threads",
                 "note: n08: its clock is 5.0 s ahead of n07's. Logs, traces and checkpoints will "
                 "seem out of order: let chrony or ntpd set it"}));
}

BOOST_AUTO_TEST_CASE(nodes_with_too_little_memory_share_a_sentence_that_names_the_least) {
  auto nodes = good_nodes();
  auto needs = takes;
  needs.memory_mb = 120 * 1024;
  nodes[1].memory_mb = 59 * 1024;
  nodes[2].memory_mb = 250 * 1024;
  const std::string rest =
      "of memory are free, 120 GB are needed. Ask Slurm for --mem=122880M, or look at what runs "
      "there";
  BOOST_TEST(sentences_of(preflight(names, nodes, needs)) ==
             std::vector<std::string>{"! n[07-08]: 59 GB (n08, the least) " + rest});
  nodes[0].memory_mb = 59 * 1024 + 1;  // the same in words
  BOOST_TEST(sentences_of(preflight(names, nodes, needs)) ==
             std::vector<std::string>{"! n[07-08]: 59 GB " + rest});
}

BOOST_AUTO_TEST_CASE(a_node_that_does_not_answer_is_a_finding) {
  auto nodes = good_nodes();
  nodes.erase(nodes.begin() + 1);
  const auto found = preflight(names, nodes, takes);
  BOOST_TEST(sentences_of(found) ==
             std::vector<std::string>{
                 "! n08: it did not answer. Leave it out, and tell the site: its slurmd is stopped "
                 "or cut off"});
  BOOST_TEST(silent_nodes(found) == std::vector<std::string>{"n08"});
}

BOOST_AUTO_TEST_CASE(a_job_of_one_node_needs_no_network) {
  auto node = good_node("n07");
  node.exchanged = false;
  node.own_name_is = node.address = "127.0.0.1";
  auto needs = takes;
  needs.nodes = 1;
  BOOST_TEST(preflight({"n07"}, {node}, needs).empty());
}

// The network: n0 is the first node, and each tries the next one.

BOOST_AUTO_TEST_CASE(between_two_nodes_nobody_knows_whose_fault_it_is) {
  const auto says = [](const char* what) {
    return texts{std::string("! between n0 and n1: ") + what};
  };
  BOOST_TEST(said_of(2, [](auto& nodes) { nodes[1].from_first_problem = "no answer"; }) ==
             says("n0 cannot connect to n1: no answer"));
  BOOST_TEST(said_of(2, [](auto& nodes) {
               nodes[1].to_first_problem = "refused";
               nodes[1].exchanged = false;
             }) == says("n1 cannot connect to n0: refused"));
  BOOST_TEST(said_of(2,
                     [](auto& nodes) {  // both ways, and twice the same
                       nodes[1].from_first_problem = nodes[0].to_next_problem = "no answer";
                       nodes[1].to_next_problem = "refused";
                     })
                 .size() == 1u);
  // Who did not answer at all is known.
  BOOST_TEST(said_of(2, [](auto& nodes) {
               nodes[1].exchanged = false;
               nodes[0].to_next_problem = "refused";
             }) == texts{"! n1: it did not answer the first node in time"});
  auto nodes = good_nodes({"n0", "n1"});
  nodes[1].from_first_problem = "no answer";
  const auto found = preflight({"n0", "n1"}, nodes, {.ranks = 2, .threads = 4, .nodes = 2});
  BOOST_TEST(bad_nodes(found) == texts{"n1"});  // the job can go on without it
  BOOST_TEST(node_line(nodes[0], found).starts_with("n0  1 fault"));
  BOOST_TEST(node_line(nodes[1], found).starts_with("n1  1 fault"));
}

BOOST_AUTO_TEST_CASE(a_node_that_dies_in_the_exchange_takes_no_other_along) {
  for (const int count : {3, 16}) {
    for (int dead = 1; dead < count; ++dead) {
      const auto said = said_of(count, [&](auto& nodes) {
        const auto at = static_cast<std::size_t>(dead);
        nodes[at].exchanged = false;  // its facts are those from before
        nodes[at].next.clear();
        nodes[at - 1].to_next_problem = "10.0.0.3:4000: Connection refused";
      });
      BOOST_TEST(said ==
                 texts{parx::formatted("! n{}: it did not answer the first node in time", dead)});
    }
  }
}

BOOST_AUTO_TEST_CASE(a_first_node_that_falls_silent_takes_no_other_along) {
  for (const int count : {2, 3, 16}) {
    for (const bool at_once : {true, false}) {
      const auto said = said_of(count, [&](auto& nodes) {
        nodes[0].exchanged = false;
        for (std::size_t i = 1; i < nodes.size(); ++i) {
          nodes[i].exchanged = !at_once && i % 2 == 0;  // some were served before
          if (at_once) nodes[i].to_first_problem = "refused";
        }
      });
      BOOST_TEST(said == texts{"! n0: it fell silent while the other nodes met there"});
    }
    BOOST_TEST(said_of(count, [](auto& nodes) {
                 nodes[0].to_first_problem = "the port is in use";
                 nodes[0].exchanged = false;
                 nodes[1].to_first_problem = "no answer";
                 nodes[1].exchanged = false;
               }) == texts{"! n0: the others have nobody to meet: the port is in use"});
  }
}

BOOST_AUTO_TEST_CASE(a_node_whose_end_ends_the_step_takes_no_other_along) {
  for (const int count : {2, 3, 16}) {
    const auto said = said_of(count, [](auto& nodes) {
      for (host_facts& each : nodes) each.exchanged = false;
      nodes.pop_back();
    });
    BOOST_TEST(said == texts{parx::formatted("! n{}: it did not answer", count - 1)});
  }
}

BOOST_AUTO_TEST_CASE(a_node_behind_a_firewall_is_named_alone) {
  for (const int count : {3, 16}) {
    for (std::size_t bad = 1; bad < static_cast<std::size_t>(count); ++bad) {
      const auto name = parx::formatted("! n{}: ", bad);
      // Nobody reaches it.
      const auto inwards = said_of(count, [&](auto& nodes) {
        nodes[bad].from_first_problem = "no answer";
        nodes[bad - 1].to_next_problem = "no answer";
      });
      const char* const who =
          bad == 1 ? "the first node, n0, cannot" : "the first node, n0 and 1 more cannot";
      BOOST_TEST(inwards == texts{name + who + " connect to it: no answer"});
      // It reaches nobody.
      const auto outwards = said_of(count, [&](auto& nodes) {
        nodes[bad].to_first_problem = "no route";
        nodes[bad].exchanged = false;
        nodes[bad].next.clear();
        nodes[bad - 1].next = nodes[(bad + 1) % nodes.size()].node;
      });
      BOOST_TEST(outwards == texts{name + "it cannot connect to the first node, n0: no route"});
    }
    // The first node.
    BOOST_TEST(
        said_of(count,
                [](auto& nodes) {
                  for (std::size_t i = 1; i < nodes.size(); ++i) {
                    nodes[i].to_first_problem = "no answer";
                    nodes[i].exchanged = false;
                  }
                }) ==
        texts{parx::formatted("! n0: n1 and {} more cannot connect to it: no answer", count - 2)});
    BOOST_TEST(
        said_of(count,
                [](auto& nodes) {
                  nodes[0].to_next_problem = "no answer";
                  for (std::size_t i = 1; i < nodes.size(); ++i) {
                    nodes[i].from_first_problem = "no answer";
                  }
                }) ==
        texts{parx::formatted("! n0: it cannot connect to n1 and {} more: no answer", count - 2)});
  }
}

BOOST_AUTO_TEST_CASE(several_nodes_at_fault_are_all_named_and_no_other) {
  auto nodes = good_nodes(numbered(16));
  for (const std::size_t bad : {3u, 5u, 6u}) {  // 5 and 6 are neighbours
    nodes[bad].from_first_problem = "no answer";
    nodes[bad - 1].to_next_problem = "no answer";
  }
  nodes[9].exchanged = false;
  nodes[8].to_next_problem = "refused";
  nodes[12].to_first_problem = "no route";
  nodes[12].exchanged = false;
  BOOST_TEST(bad_nodes(preflight(numbered(16), nodes, {.ranks = 2, .threads = 4, .nodes = 16})) ==
             (texts{"n12", "n3", "n5", "n6", "n9"}));
}

BOOST_AUTO_TEST_CASE(a_node_common_to_several_bad_pairs_is_named_and_one_pair_names_both) {
  for (const int count : {3, 16}) {
    const std::size_t last = static_cast<std::size_t>(count) - 1;
    // Its neighbour reaches it, the first node does not, and it does not reach the next one.
    if (count == 16) {
      BOOST_TEST(said_of(count,
                         [](auto& nodes) {
                           nodes[7].from_first_problem = "no answer";
                           nodes[7].to_next_problem = "no answer";
                         }) ==
                 (texts{"! n7: it cannot connect to n8: no answer",
                        "! n7: the first node, n0, cannot connect to it: no answer"}));
    }
    BOOST_TEST(
        said_of(count, [&](auto& nodes) { nodes[last - 1].to_next_problem = "no answer"; }) ==
        texts{parx::formatted("! between n{0} and n{1}: n{0} cannot connect to n{1}: no answer",
                              last - 1, last)});
  }
}

BOOST_AUTO_TEST_CASE(a_quota_below_the_ranks_times_their_threads_is_a_note) {
  const auto says = [](double quota, int ranks, int threads) {
    auto nodes = good_nodes();
    nodes[1].quota_cores = quota;
    auto needs = takes;
    needs.ranks = ranks;
    needs.threads = threads;
    const auto found = preflight(names, nodes, needs);
    BOOST_TEST(bad_nodes(found).empty());
    std::string text;
    for (const std::string& each : sentences_of(found)) text += each;
    return text;
  };
  BOOST_TEST(says(7.5, 2, 4) ==
             "note: n08: a quota of 7.5 cores for 2 ranks of 4 threads. Start fewer ranks or "
             "threads, or ask for more cores");
  BOOST_TEST(says(8, 2, 4) == "");
  BOOST_TEST(says(0, 2, 4) == "");  // there is none
  BOOST_TEST(says(7.5, 1, 7) == "");
  BOOST_TEST(says(1.5, 2, 1) != "");
}

BOOST_AUTO_TEST_CASE(the_room_in_dev_shm_is_asked_for_each_rank_of_the_node) {
  for (const int ranks : {1, 2, 16}) {
    for (const int mb : {8 * ranks - 1, 8 * ranks}) {
      auto nodes = good_nodes();
      nodes[2].shm_mb = mb;
      for (auto& each : nodes) each.cores = 64, each.processes = -1;
      auto needs = takes;
      needs.ranks = ranks;
      const auto found = preflight(names, nodes, needs);
      const bool fits = mb >= 8 * ranks;
      BOOST_TEST(bad_nodes(found) ==
                 (fits ? std::vector<std::string>() : std::vector<std::string>{"n11"}));
      if (fits) continue;
      BOOST_TEST(sentences_of(found).at(0).starts_with(
          parx::formatted("! n11: {} MB are free in /dev/shm", mb)));
    }
  }
}
