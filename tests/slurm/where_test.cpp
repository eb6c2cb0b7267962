// What parx_slurm where says of clusters: the partition that a person would take, the line to type,
// and why the other nodes do not count. The outputs of sinfo and scontrol are those of Slurm 22.05;
// `cluster` writes them for more kinds of sites.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <string>
#include <vector>

#include "tools/common/instruction_level.hpp"
#include "tools/parx_slurm/nodes/node_state.hpp"
#include "tools/parx_slurm/nodes/partition.hpp"
#include "tools/parx_slurm/nodes/record.hpp"
#include "tools/parx_slurm/nodes/salloc.hpp"
#include "tools/parx_slurm/nodes/sinfo.hpp"
#include "tools/parx_slurm/nodes/test_only.hpp"
#include "tools/parx_slurm/nodes/time_limit.hpp"
#include "tools/parx_slurm/nodes/where.hpp"
#include "tools/parx_slurm/nodes/where_text.hpp"
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hostlist.hpp>

namespace {

using namespace parx::slurm;
using std::chrono::hours;
using std::chrono::minutes;
using texts = std::vector<std::string>;

/// A cluster as the two commands print it.
class cluster {
 public:
  /// `rest`: further fields of scontrol's record, "AllowGroups=staff MaxNodes=2".
  cluster& partition(const std::string& name, const std::string& limit = "infinite",
                     const std::string& rest = "") {
    limit_ = limit;
    up_ = rest.find("State=DOWN") == std::string::npos;
    name_ = name;
    rules_ +=
        parx::formatted("PartitionName={} AllowGroups=ALL MaxTime={} {}\n", name, limit, rest);
    return *this;
  }
  /// Nodes of the last partition. `cpus`: allocated/idle/other/all.
  cluster& nodes(const std::string& list, const std::string& cpus, const std::string& state,
                 const std::string& features = "(null)", const std::string& gres = "(null)",
                 int threads = 1, int memory = 1, const std::string& reason = "none") {
    for (const std::string& each : parx::expand_hostlist(list)) {
      nodes_ += parx::formatted("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}\n", name_, each, cpus, threads,
                                state, features, gres, memory, up_ ? "up" : "down", limit_, reason);
    }
    return *this;
  }
  [[nodiscard]] std::vector<candidate> ranked(const node_request& request) const {
    auto all = candidates(parse_sinfo(nodes_), parse_partitions(rules_), request);
    rank(all, request, std::chrono::system_clock::now());
    return all;
  }
  /// Exactly the line that `where` prints below its table.
  [[nodiscard]] std::string verdict(const node_request& request) const {
    return parx::slurm::verdict(ranked(request), parse_sinfo(nodes_), request).text;
  }

 private:
  std::string name_, limit_, nodes_, rules_;
  bool up_ = true;
};

node_request of(int nodes, int cores, std::chrono::seconds time = minutes(30)) {
  node_request request;
  request.nodes = nodes;
  request.cores = cores;
  request.time = time;
  return request;
}

}  // namespace

BOOST_AUTO_TEST_CASE(times_are_read_as_sbatch_reads_them) {
  const auto seconds = [](const char* text) { return parse_time_limit(text).value().count(); };
  BOOST_TEST(seconds("30") == 1800);
  BOOST_TEST(seconds("30:10") == 1810);
  BOOST_TEST(seconds("1:30:10") == 5410);
  BOOST_TEST(seconds("2-12") == 2 * 86400 + 12 * 3600);
  BOOST_TEST(seconds("2-12:30") == 2 * 86400 + 12 * 3600 + 1800);
  BOOST_TEST(seconds("1-00:00:01") == 86401);
  BOOST_TEST(seconds("90s") == 90);
  BOOST_TEST(seconds("2h") == 7200);
  BOOST_TEST((parse_time_limit("infinite") == no_time_limit));
  BOOST_TEST((parse_time_limit("UNLIMITED") == no_time_limit));
  for (const char* const wrong :
       {"", "n/a", "1:2:3:4", "-5", "5-", "h", "1.5h", "x", "1-2h", "99999999999"}) {
    BOOST_TEST(!parse_time_limit(wrong).has_value(), wrong);
  }
  for (const long each : {1L, 59L, 60L, 3599L, 3600L, 86399L, 86400L, 1'000'000L}) {
    const std::chrono::seconds time(each);
    BOOST_TEST((parse_time_limit(to_time_limit(time)) == time), to_time_limit(time));
  }
}

BOOST_AUTO_TEST_CASE(a_node_is_free_only_where_no_mark_says_otherwise) {
  const auto is = [](const char* word) { return parse_node_state(word).is; };
  for (const char* const word : {"idle", "mix", "mixed", "IDLE", "idle~", "idle#", "pow_dn"}) {
    BOOST_TEST((is(word) == availability::free), word);
  }
  BOOST_TEST(parse_node_state("idle~").powered_off);
  BOOST_TEST(!parse_node_state("idle").powered_off);
  for (const char* const word :
       {"idle*", "idle!", "idle%", "mix@", "alloc*", "down", "down*", "fail", "failg", "futr",
        "unk", "boot", "idle^", "no_respond", "", "npc"}) {
    BOOST_TEST((is(word) == availability::down), word);
  }
  for (const char* const word : {"alloc", "comp", "allocated", "alloc-"}) {
    BOOST_TEST((is(word) == availability::busy), word);
  }
  for (const char* const word : {"drain", "drng", "draining@", "drained*", "DRAINED"}) {
    BOOST_TEST((is(word) == availability::drained), word);
  }
  BOOST_TEST((is("idle-") == availability::planned));
  BOOST_TEST((is("mix-") == availability::planned));
  BOOST_TEST((is("plnd") == availability::planned));
  BOOST_TEST((is("idle$") == availability::maintenance));
  BOOST_TEST((is("maint") == availability::maintenance));
  BOOST_TEST((is("resv") == availability::reserved));
}

BOOST_AUTO_TEST_CASE(a_reason_may_contain_what_separates_columns) {
  // Printed by Slurm 22.05.8.
  const auto nodes = parse_sinfo(
      "off|node1|4/4/0/8|1|mix|avx2,zen3|(null)|1000|down|infinite|none\n"
      "Parallel|node3|0/0/8/8|2|drain|avx2,zen3|gpu:a100:2(S:0,1),shard:8|515000+|up|1:00:00|bad "
      "disk | see ticket 7\n");
  BOOST_TEST(nodes.size() == 2u);
  BOOST_TEST(nodes[0].idle_cpus == 4);
  BOOST_TEST(!nodes[0].partition_is_up);
  BOOST_TEST(nodes[0].reason == "");
  BOOST_TEST(nodes[1].partition == "Parallel");
  BOOST_TEST(nodes[1].cores() == 4);
  BOOST_TEST(nodes[1].gpus == 2);
  BOOST_TEST(nodes[1].memory_mb == 515000);
  BOOST_TEST(nodes[1].reason == "bad disk | see ticket 7");
  BOOST_TEST((nodes[1].time_limit == hours(1)));
  BOOST_CHECK_EXCEPTION(static_cast<void>(parse_sinfo("PARTITION AVAIL\n")), parx::usage_error,
                        [](const auto& error) {
                          return std::string(error.what()).find("this is no line of sinfo") !=
                                 std::string::npos;
                        });
}

BOOST_AUTO_TEST_CASE(gpus_are_counted_whatever_their_kind) {
  for (const auto& [text, gpus] :
       std::vector<std::pair<const char*, int>>{{"(null)", 0},
                                                {"gpu:4", 4},
                                                {"gpu", 1},
                                                {"gpu:a100:4(S:0-1)", 4},
                                                {"craynetwork:4", 0},
                                                {"gpu:v100:2(S:0,1),gpu:t4:1", 3},
                                                {"gpuless:3", 0},
                                                {"license:1,gpu:2", 2},
                                                {"", 0}}) {
    const auto nodes =
        parse_sinfo(std::string("p|n|0/8/0/8|1|idle|(null)|") + text + "|1|up|infinite|none\n");
    BOOST_TEST(nodes.at(0).gpus == gpus, text);
  }
}

BOOST_AUTO_TEST_CASE(a_record_of_scontrol_keeps_values_with_spaces) {
  const auto fields = parse_record(
      "PartitionName=long AllowGroups=a,b Reason=bad disk [root@2026-11-26T10:00:00] OS=Linux "
      "5.10 #1 SMP x=y State=UP TRESBillingWeights=CPU=4.0,Mem=0.25G");
  BOOST_TEST(fields.at("Reason") == "bad disk [root@2026-11-26T10:00:00]");
  BOOST_TEST(fields.at("OS") == "Linux 5.10 #1 SMP x=y");
  BOOST_TEST(fields.at("State") == "UP");
  const auto all = parse_partitions(
      "PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO "
      "QoS=N/A DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO "
      "MaxNodes=UNLIMITED MaxTime=2-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED "
      "Nodes=node[4-5] RootOnly=NO ReqResv=NO OverSubscribe=EXCLUSIVE State=DOWN TotalCPUs=16 "
      "MaxMemPerNode=UNLIMITED TRES=cpu=16,mem=2000M TRESBillingWeights=CPU=4.0\n"
      "PartitionName=p AllowGroups=staff,it MaxNodes=2 MaxTime=UNLIMITED Default=YES State=UP "
      "MaxMemPerNode=4000 DenyAccounts=x\n");
  BOOST_TEST(all.size() == 2u);
  BOOST_TEST((all[0].max_time == hours(48)));
  BOOST_TEST(all[0].max_nodes > 1'000'000);
  BOOST_TEST(all[0].whole_nodes);
  BOOST_TEST(!all[0].is_up);
  BOOST_TEST(all[0].cpu_price == 4.0);
  BOOST_TEST(all[1].allowed_groups == (texts{"staff", "it"}));
  BOOST_TEST(all[1].denied_accounts == texts{"x"});
  BOOST_TEST(all[1].max_nodes == 2);
  BOOST_TEST(all[1].max_memory_mb == 4000);
  BOOST_TEST((all[1].max_time == no_time_limit));
  BOOST_TEST(all[1].is_default);
}

BOOST_AUTO_TEST_CASE(slurms_own_answer_is_a_start_or_a_refusal) {
  const auto start = parse_test_only(
      "sbatch: Job 2 to start at 2026-11-26T19:21:15 using 16 processors on nodes node[1-2] in "
      "partition Parallel\n");
  BOOST_REQUIRE(start.at.has_value());
  std::tm parts{};
  const std::time_t time = std::chrono::system_clock::to_time_t(*start.at);
  ::localtime_r(&time, &parts);
  BOOST_TEST(parts.tm_hour == 19);
  BOOST_TEST(parts.tm_mday == 26);
  BOOST_TEST(parse_test_only("allocation failure: Requested node configuration is not available\n")
                 .refusal == "Requested node configuration is not available");
  BOOST_TEST(parse_test_only("sbatch: error: invalid partition specified: parallel\nallocation "
                             "failure: Invalid partition name specified\n")
                 .refusal == "Invalid partition name specified");
  BOOST_TEST(parse_test_only("").refusal == "Slurm gave no reason");
}

BOOST_AUTO_TEST_CASE(host_names_are_compressed_as_slurm_writes_them) {
  for (const auto& [names, text] :
       std::vector<std::pair<texts, std::string>>{{{}, ""},
                                                  {{"x"}, "x"},
                                                  {{"n1"}, "n1"},
                                                  {{"n2", "n1", "n3"}, "n[1-3]"},
                                                  {{"n9", "n10", "n12"}, "n[9-10,12]"},
                                                  {{"n08", "n09", "n10"}, "n[08-10]"},
                                                  {{"a1", "b1", "x"}, "x,a1,b1"},
                                                  {{"7"}, "7"},
                                                  {{"n1", "n1"}, "n1"}}) {
    const std::string compressed = compress_hostlist(names);
    BOOST_TEST(compressed == text);
    auto expanded = parx::expand_hostlist(compressed);
    auto sorted = names;
    std::sort(sorted.begin(), sorted.end());
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    std::sort(expanded.begin(), expanded.end());
    BOOST_TEST(expanded == sorted);
  }
}

// 1. The users' labs: one partition, all idle.
BOOST_AUTO_TEST_CASE(an_idle_cluster_needs_no_more_than_its_partition) {
  const auto c = cluster().partition("parallel", "1:00:00").nodes("hpc[01-12]", "0/8/0/8", "idle");
  BOOST_TEST(c.verdict(of(3, 8)) == "best: salloc -p parallel -N 3 --ntasks-per-node=1 -c 8 -t 30");
}
// 2. Slurm refuses a lower-cased name.
BOOST_AUTO_TEST_CASE(the_case_of_a_name_is_kept) {
  const auto c = cluster().partition("Parallel").nodes("n[1-2]", "0/8/0/8", "idle");
  BOOST_TEST(c.verdict(of(1, 2)) == "best: salloc -p Parallel -N 1 --ntasks-per-node=1 -c 2 -t 30");
  auto request = of(1, 2);
  request.partition = "parallel";
  BOOST_CHECK_EXCEPTION(static_cast<void>(c.ranked(request)), parx::usage_error, [](const auto& e) {
    return std::string(e.what()) ==
           "there is no partition \"parallel\" (Slurm minds upper and "
           "lower case); there are: Parallel";
  });
}
// 3. GPU nodes are found by their GPUs, not by the name of the partition.
BOOST_AUTO_TEST_CASE(gpus_are_left_to_others_whatever_the_partitions_name) {
  const auto c = cluster()
                     .partition("main")
                     .nodes("g[1-8]", "0/64/0/64", "idle", "(null)", "gpu:4")
                     .partition("gpu_free")
                     .nodes("c[1-4]", "0/16/0/16", "idle");
  BOOST_TEST(c.verdict(of(4, 8)) == "best: salloc -p gpu_free -N 4 --ntasks-per-node=1 -c 8 -t 30");
  auto request = of(4, 8);
  request.gpu_nodes = true;
  BOOST_TEST(c.ranked(request).front().rules.name == "main");
}
// 4. A partition with both kinds: the GPU nodes are kept out by name.
BOOST_AUTO_TEST_CASE(gpu_nodes_of_a_mixed_partition_are_excluded) {
  const auto c = cluster()
                     .partition("all")
                     .nodes("n[1-3]", "0/8/0/8", "idle")
                     .nodes("n[4-5]", "0/8/0/8", "idle", "(null)", "gpu:2");
  BOOST_TEST(c.verdict(of(3, 8)) ==
             "best: salloc -p all -N 3 --ntasks-per-node=1 -c 8 -t 30 '--exclude=n[4-5]'");
}
// 5. A partition that is down has idle nodes, and Slurm says "now" of it.
BOOST_AUTO_TEST_CASE(a_partition_that_is_down_is_not_taken) {
  const auto c = cluster()
                     .partition("fast", "infinite", "State=DOWN")
                     .nodes("n[1-9]", "0/8/0/8", "idle")
                     .partition("slow")
                     .nodes("m[1-2]", "0/8/0/8", "idle");
  BOOST_TEST(c.ranked(of(2, 8)).front().rules.name == "slow");
  BOOST_TEST(c.verdict(of(5, 8)) ==
             "no partition has 5 nodes of 8 cores for this job; nearest: slow has 2 of 5: it would "
             "do with -N 2");
}
// 6. Slurm accepts a job that is longer than the limit, and never starts it.
BOOST_AUTO_TEST_CASE(a_limit_shorter_than_the_job_is_seen) {
  const auto c = cluster()
                     .partition("debug", "30:00")
                     .nodes("n[1-9]", "0/8/0/8", "idle")
                     .partition("long", "7-00:00:00")
                     .nodes("n[1-4]", "0/8/0/8", "idle");
  BOOST_TEST(c.ranked(of(2, 8, hours(2))).front().rules.name == "long");
  BOOST_TEST(c.ranked(of(2, 8, hours(2))).back().refusal == "its limit is 30:00");
  const auto short_ones = cluster()
                              .partition("test", "5:00")
                              .nodes("n[1-3]", "0/8/0/8", "idle")
                              .partition("debug", "1:00:00")
                              .nodes("m[1-2]", "0/8/0/8", "idle");
  BOOST_TEST(short_ones.verdict(of(3, 2, hours(2))) ==
             "no partition has 3 nodes of 2 cores for this job; test: its limit is 5:00: it would "
             "do with -t 5:00; debug: its limit is 1:00:00");
}
// 7. Groups.
BOOST_AUTO_TEST_CASE(a_partition_of_another_group_is_not_taken) {
  const auto c = cluster()
                     .partition("chem", "infinite", "AllowGroups=chem")
                     .nodes("n[1-9]", "0/64/0/64", "idle")
                     .partition("all")
                     .nodes("m[1-2]", "0/8/0/8", "idle");
  auto request = of(2, 8);
  request.groups = {"bio", "users"};
  BOOST_TEST(c.ranked(request).front().rules.name == "all");
  BOOST_TEST(c.ranked(request).back().refusal == "only for the group chem");
  request.groups.push_back("chem");
  BOOST_TEST(c.ranked(request).front().rules.name == "chem");
}
// 8. Accounts, where the user's is known.
BOOST_AUTO_TEST_CASE(a_partition_that_denies_the_account_is_not_taken) {
  const auto c = cluster()
                     .partition("a", "infinite", "DenyAccounts=teach")
                     .nodes("n[1-9]", "0/8/0/8", "idle")
                     .partition("b", "infinite", "AllowAccounts=teach,lab")
                     .nodes("m[1-3]", "0/8/0/8", "idle");
  auto request = of(2, 8);
  request.account = "teach";
  BOOST_TEST(c.verdict(request) ==
             "best: salloc -p b -N 2 --ntasks-per-node=1 -c 8 -t 30 -A teach");
}
// 9. Drained, down, reserved and planned nodes look idle by their CPUs.
BOOST_AUTO_TEST_CASE(idle_cpus_of_nodes_that_cannot_be_had_do_not_count) {
  const auto c = cluster()
                     .partition("p")
                     .nodes("n[1-2]", "0/8/0/8", "drain")
                     .nodes("n3", "0/8/0/8", "idle*")
                     .nodes("n4", "0/8/0/8", "maint")
                     .nodes("n5", "0/8/0/8", "resv")
                     .nodes("n6", "0/8/0/8", "idle-")
                     .nodes("n7", "0/8/0/8", "idle");
  const auto all = c.ranked(of(1, 8));
  BOOST_TEST(all.front().usable.size() == 1u);
  BOOST_TEST(
      where_table(all, of(1, 8), std::chrono::system_clock::now()) ==
      "partition  usable  of  cores  limit     starts  why not the others\n"
      "p*              1   7      8  infinite  now     2 drained, 1 kept for a waiting job, 1 "
      "in maintenance, 1 reserved, 1 down\n");
}
// 10. Mixed nodes have room.
BOOST_AUTO_TEST_CASE(a_node_in_part_allocated_counts_with_the_cores_that_are_left) {
  const auto c = cluster().partition("p").nodes("n[1-3]", "24/8/0/32", "mix");
  BOOST_TEST(c.ranked(of(3, 8)).front().fits_now(of(3, 8)));
  BOOST_TEST(!c.ranked(of(3, 9)).front().fits_now(of(3, 9)));
  BOOST_TEST(c.verdict(of(3, 9)) ==
             "best: salloc -p p -N 3 --ntasks-per-node=1 -c 9 -t 30  (waits: the nodes are busy)");
}
// 11. Sites that give whole nodes.
BOOST_AUTO_TEST_CASE(an_exclusive_partition_has_no_room_beside_a_job) {
  const auto c = cluster()
                     .partition("p", "infinite", "OverSubscribe=EXCLUSIVE")
                     .nodes("n[1-2]", "1/31/0/32", "mix")
                     .nodes("n3", "0/32/0/32", "idle");
  BOOST_TEST(c.ranked(of(1, 8)).front().usable.size() == 1u);
}
// 12. Hardware threads.
BOOST_AUTO_TEST_CASE(cores_with_two_threads_are_asked_for_by_both) {
  const auto c =
      cluster().partition("p").nodes("n[1-2]", "0/16/0/16", "idle", "(null)", "(null)", 2);
  BOOST_TEST(c.verdict(of(2, 8)) == "best: salloc -p p -N 2 --ntasks-per-node=1 -c 16 -t 30");
  BOOST_TEST(c.ranked(of(2, 9)).front().others.at(obstacle::too_few_cores).size() == 2u);
  BOOST_TEST(c.verdict(of(2, 9)) ==
             "no partition has 2 nodes of 9 cores for this job; 2 nodes do not count: too few "
             "cores: the largest has 8; ask for fewer a node");
}
// 13. Memory, where the site says it.
BOOST_AUTO_TEST_CASE(memory_that_belongs_to_jobs_is_not_free) {
  auto nodes = parse_sinfo(
      "p|n1|1/7/0/8|1|mix|(null)|(null)|64000|up|infinite|none\n"
      "p|n2|0/8/0/8|1|idle|(null)|(null)|64000|up|infinite|none\n"
      "p|n3|0/8/0/8|1|idle|(null)|(null)|1|up|infinite|none\n");
  read_allocated_memory("n1      60000      \nn2     0     \n", nodes);
  auto request = of(1, 4);
  request.memory_mb = 8000;
  const auto all = candidates(nodes, {}, request);
  BOOST_TEST(all.at(0).others.at(obstacle::busy) == texts{"n1"});
  BOOST_TEST(all.at(0).usable.size() == 2u, "n3's site does not say how much it has");
  request.memory_mb = 65000;
  BOOST_TEST(candidates(nodes, {}, request).at(0).others.at(obstacle::too_little_memory).size() ==
             2u);
}
// 14. Processors by name: Slurm would give the program a node on which it ends by SIGILL.
BOOST_AUTO_TEST_CASE(nodes_too_old_for_the_program_are_kept_out_by_a_feature) {
  const auto c = cluster()
                     .partition("p")
                     .nodes("a[1-4]", "0/16/0/16", "idle", "ivybridge,ib")
                     .nodes("b[1-4]", "0/16/0/16", "idle", "milan,ib");
  auto request = of(4, 16);
  request.level = instruction_level::avx2;
  BOOST_TEST(c.verdict(request) ==
             "best: salloc -p p -N 4 --ntasks-per-node=1 -c 16 -t 30 -C milan");
  request.level = instruction_level::avx512;
  BOOST_TEST(c.verdict(request) ==
             "no partition has 4 nodes of 16 cores for this job; 8 nodes do not count: wrong "
             "processor");
}
// 15. Features that say nothing.
BOOST_AUTO_TEST_CASE(instructions_that_the_features_do_not_name_are_mentioned) {
  const auto c = cluster().partition("p").nodes("a[1-4]", "0/16/0/16", "idle", "rack7");
  auto request = of(4, 16);
  request.level = instruction_level::avx2;
  BOOST_TEST(c.verdict(request) ==
             "best: salloc -p p -N 4 --ntasks-per-node=1 -c 16 -t 30\nThe features of its nodes do "
             "not say whether they have AVX2: parx_slurm check looks at the nodes themselves");
}
// 16. Price.
BOOST_AUTO_TEST_CASE(of_equal_partitions_the_cheaper_is_taken) {
  const auto c = cluster()
                     .partition("urgent", "infinite", "TRESBillingWeights=CPU=4.0")
                     .nodes("n[1-4]", "0/8/0/8", "idle")
                     .partition("normal", "infinite", "TRESBillingWeights=CPU=1.0")
                     .nodes("n[1-4]", "0/8/0/8", "idle");
  BOOST_TEST(c.ranked(of(2, 8)).front().rules.name == "normal");
  BOOST_TEST(where_table(c.ranked(of(2, 8)), of(2, 8), {}).find("CPU price") != std::string::npos);
}
// 17. Nodes alike, where there are enough.
BOOST_AUTO_TEST_CASE(enough_nodes_of_one_kind_are_preferred_to_a_mixture) {
  const auto c = cluster()
                     .partition("mixed")
                     .nodes("a[1-3]", "0/32/0/32", "idle", "zen2")
                     .nodes("b[1-2]", "0/64/0/64", "idle", "zen3");
  BOOST_TEST(c.verdict(of(3, 8)) ==
             "best: salloc -p mixed -N 3 --ntasks-per-node=1 -c 8 -t 30 -C zen2");
  BOOST_TEST(c.verdict(of(5, 8)) == "best: salloc -p mixed -N 5 --ntasks-per-node=1 -c 8 -t 30");
}
// 18. Nodes switched off to save energy.
BOOST_AUTO_TEST_CASE(nodes_that_are_switched_off_count_and_it_is_said) {
  const auto c = cluster().partition("cloud").nodes("n[1-8]", "0/8/0/8", "idle~");
  BOOST_TEST(
      c.verdict(of(2, 8)) ==
      "best: salloc -p cloud -N 2 --ntasks-per-node=1 -c 8 -t 30  (some nodes are switched off "
      "and take minutes to start)");
}
// 19. Limits on nodes and CPUs.
BOOST_AUTO_TEST_CASE(limits_of_a_partition_are_those_of_the_job) {
  const auto c = cluster()
                     .partition("small", "infinite", "MaxNodes=2")
                     .nodes("n[1-9]", "0/8/0/8", "idle")
                     .partition("large", "infinite", "MinNodes=4")
                     .nodes("n[1-9]", "0/8/0/8", "idle")
                     .partition("half", "infinite", "MaxCPUsPerNode=4")
                     .nodes("n[1-9]", "0/8/0/8", "idle")
                     .partition("root", "infinite", "RootOnly=YES")
                     .nodes("n[1-9]", "0/8/0/8", "idle")
                     .partition("resv", "infinite", "ReqResv=YES")
                     .nodes("n[1-9]", "0/8/0/8", "idle");
  BOOST_TEST(c.ranked(of(2, 8)).front().rules.name == "small");
  BOOST_TEST(c.ranked(of(4, 8)).front().rules.name == "large");
  BOOST_TEST(c.ranked(of(3, 4)).front().rules.name == "half");
  BOOST_TEST(
      c.verdict(of(3, 8)) ==
      "no partition has 3 nodes of 8 cores for this job; small: at most 2 nodes a job; large: "
      "at least 4 nodes a job; half: at most 4 CPUs of a node; root: only for root; resv: only "
      "with a reservation");
}
// 19a. All nodes are out: their administrator says why.
BOOST_AUTO_TEST_CASE(where_no_node_can_be_had_the_administrators_reasons_are_told) {
  const auto c = cluster()
                     .partition("p")
                     .nodes("n[1-2]", "0/8/0/8", "drain", "(null)", "(null)", 1, 1, "bad disk")
                     .nodes("n3", "0/8/0/8", "down", "(null)", "(null)", 1, 1, "Not responding")
                     .partition("q")
                     .nodes("n[1-2]", "0/8/0/8", "drain", "(null)", "(null)", 1, 1, "bad disk")
                     .nodes("m1", "0/8/0/8", "maint");
  auto request = of(1, 8);
  request.partition = "p";
  BOOST_TEST(c.verdict(request) ==
             "no partition has 1 node of 8 cores for this job; 2 nodes do not count: drained\n"
             "n[1-2] are drained: bad disk\nn3 is down: Not responding");
  // A node of two partitions is one node. One that will come back is the nearest.
  BOOST_TEST(c.verdict(of(2, 8)) ==
             "no partition has 2 nodes of 8 cores for this job; nearest: q has 1 of 2: it would do "
             "with -N 1\nm1 is in maintenance\nn[1-2] are drained: bad disk");
}
// 20. Slurm's own answers decide between partitions that look alike.
BOOST_AUTO_TEST_CASE(the_partition_that_slurm_starts_first_is_taken) {
  const auto c = cluster()
                     .partition("a")
                     .nodes("n[1-4]", "0/8/0/8", "idle")
                     .partition("b")
                     .nodes("m[1-4]", "0/8/0/8", "idle")
                     .partition("c")
                     .nodes("o[1-4]", "0/8/0/8", "idle");
  auto all = c.ranked(of(2, 8));
  const auto now = std::chrono::system_clock::now();
  for (candidate& each : all) {
    if (each.rules.name == "a") each.start.refusal = "Invalid qos specification";
    if (each.rules.name == "b") each.start.at = now + hours(3);
    if (each.rules.name == "c") each.start.at = now + std::chrono::seconds(5);
  }
  rank(all, of(2, 8), now);
  BOOST_TEST(all[0].rules.name == "c");
  BOOST_TEST(all[1].rules.name == "b");
  BOOST_TEST(all[2].rules.name == "a");
  const std::string table = where_table(all, of(2, 8), now);
  BOOST_TEST(table.find("no      Invalid qos specification") != std::string::npos, table);
}
