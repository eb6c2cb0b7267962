// What parx_slurm check says of nodes: each fault planted alone is found, named with its node and
// given a remedy, and a good node has none.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <parx/slurm.hpp>

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
  node.exchanged = true;
  node.next = "n08";
  node.clock_ahead_s = 0.003;
  node.round_trip_s = 0.0002;
  return node;
}

const std::vector<std::string> names{"n07", "n08", "n11"};
const preflight_needs takes{
    .ranks = 2, .threads = 4, .nodes = 3, .memory_mb = 4000, .tmp_mb = 1000, .time_s = 1800};

std::vector<host_facts> good_nodes() {
  return {good_node("n07"), good_node("n08"), good_node("n11")};
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
  const auto same = host_facts::from_line(node.to_line());
  BOOST_TEST(same.to_line() == node.to_line());
  BOOST_TEST(same.missing_libraries == node.missing_libraries);
  BOOST_TEST(same.needs.at(1).path == node.needs.at(1).path);
  BOOST_TEST(same.quota_cores == 1.5);
  BOOST_CHECK_THROW(static_cast<void>(host_facts::from_line("{}")), parx::json::error);
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
  BOOST_TEST(found.at(0).to_line() == nodes[0].to_line());  // the later ones
  BOOST_TEST(found.at(1).to_line() == nodes[1].to_line());
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
      {"the first node, n07, cannot connect to it: no answer",
       [](auto& node) { node.from_first_problem = "no answer"; }},
      {"it cannot connect to n08: no answer",
       [](auto& node) { node.to_next_problem = "no answer"; }},
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
                 "start fewer ranks",
                 "note: n08: its clock is 5.0 s ahead of n07's. Logs and checkpoints will seem out "
                 "of order: let chrony or ntpd set it"}));
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
