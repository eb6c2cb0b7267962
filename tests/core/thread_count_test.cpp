// How many threads a rank computes with, by tables of variables, masks and control groups.
#include <parx/core/thread_count.hpp>

#include <map>
#include <string>

#include <boost/test/unit_test.hpp>

#include <parx/core/cpu_quota.hpp>

namespace {

parx::thread_choice choose(const parx::environment& env, int cores,
                           std::optional<double> quota = {}) {
  return parx::choose_threads(env, cores, quota);
}

/// The smallest quota of all hierarchies, where `files` are all that can be read.
std::optional<double> quota(const std::string& cgroup, const std::string& mounts,
                            const std::map<std::string, std::string>& files) {
  std::optional<double> smallest;
  for (const auto& each : parx::detail::cpu_hierarchies(cgroup, mounts)) {
    const auto found = parx::detail::quota_of(each, [&](const std::string& path) {
      const auto file = files.find(path);
      return file == files.end() ? std::nullopt : std::optional(file->second);
    });
    if (found) smallest = std::min(smallest.value_or(1e9), *found);
  }
  return smallest;
}

const std::string v2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

}  // namespace

BOOST_AUTO_TEST_CASE(the_variables_in_their_order) {
  BOOST_TEST(choose({}, 8).threads == 1);
  BOOST_TEST(choose({}, 8).reason() == "");
  BOOST_TEST(choose({{"SLURM_CPUS_PER_TASK", "4"}}, 8).threads == 4);
  BOOST_TEST(choose({{"SLURM_CPUS_PER_TASK", "4"}, {"OMP_NUM_THREADS", "2"}}, 8).threads == 2);
  BOOST_TEST(choose({{"PARX_THREADS", "3"}, {"OMP_NUM_THREADS", "2"}}, 8).threads == 3);
  BOOST_TEST(choose({{"OMP_NUM_THREADS", "4,3,2"}}, 8).threads == 4);
  BOOST_TEST(choose({{"PARX_THREADS", ""}, {"OMP_NUM_THREADS", "2"}}, 8).threads == 2);
}

BOOST_AUTO_TEST_CASE(a_number_has_blanks_around_it_as_openmp_allows) {
  BOOST_TEST(choose({{"OMP_NUM_THREADS", " 2 "}}, 8).threads == 2);
  BOOST_TEST(choose({{"OMP_NUM_THREADS", "3\r"}}, 8).threads == 3);
  BOOST_TEST(choose({{"OMP_NUM_THREADS", "\t4 , 2"}}, 8).threads == 4);
  BOOST_TEST(choose({{"OMP_NUM_THREADS", " 2 "}}, 8).warning() == "");
  BOOST_TEST(choose({{"OMP_NUM_THREADS", " "}}, 8).threads == 1);
}

BOOST_AUTO_TEST_CASE(another_programs_variable_that_is_no_number_is_named_in_a_sentence) {
  BOOST_TEST(choose({{"OMP_NUM_THREADS", "auto"}}, 8).warning() ==
             "OMP_NUM_THREADS=\"auto\" is no number of threads: each rank computes with 1 (the "
             "default). PARX_THREADS says how many");
  BOOST_TEST(choose({{"OMP_NUM_THREADS", "all\x1b"}, {"SLURM_CPUS_PER_TASK", "2"}}, 8).warning() ==
             "OMP_NUM_THREADS=\"all\\x1b\" is no number of threads: each rank computes with 2 "
             "(SLURM_CPUS_PER_TASK=2). PARX_THREADS says how many");
  BOOST_TEST(choose({{"PARX_THREADS", "2"}, {"OMP_NUM_THREADS", "auto"}}, 8).warning() == "");
  BOOST_TEST(choose({{"OMP_NUM_THREADS", ""}}, 8).warning() == "");
}

BOOST_AUTO_TEST_CASE(threads_of_openmp_beside_those_of_parx_are_told_where_cores_are_too_few) {
  const auto beside = [](const char* threads, int cores, int openmp) {
    return choose({{"PARX_THREADS", threads}}, cores).warning_beside(openmp);
  };
  BOOST_TEST(beside("4", 4, 4) ==
             "each rank has 4 threads of parx (PARX_THREADS) and 4 of OpenMP on 4 cores: give both "
             "their number by OMP_NUM_THREADS, or OpenMP one by OMP_NUM_THREADS=1");
  BOOST_TEST(beside("2", 8, 4) == "");
  BOOST_TEST(beside("4", 4, 1) == "");
  BOOST_TEST(beside("4", 4, 0) == "");
  BOOST_TEST(beside("1", 4, 4) == "");
  BOOST_TEST(choose({{"OMP_NUM_THREADS", "4"}}, 4).warning_beside(4) == "");
}

BOOST_AUTO_TEST_CASE(nonsense_is_refused_in_our_variable_and_passed_over_in_others) {
  for (const char* const text : {"0", "-1", "x", "2.5", "99999999999"}) {
    BOOST_CHECK_THROW(choose({{"PARX_THREADS", text}}, 8), parx::usage_error);
    BOOST_TEST(choose({{"OMP_NUM_THREADS", text}}, 8).threads == 1);
    BOOST_TEST(choose({{"OMP_NUM_THREADS", text}, {"SLURM_CPUS_PER_TASK", "2"}}, 8).threads == 2);
  }
}

BOOST_AUTO_TEST_CASE(never_more_than_the_mask_and_the_quota) {
  const parx::environment many{{"OMP_NUM_THREADS", "64"}};
  BOOST_TEST(choose(many, 2).threads == 2);
  BOOST_TEST(choose(many, 2).reason() == "OMP_NUM_THREADS=64, 2 cores");
  BOOST_TEST(choose(many, 1).reason() == "OMP_NUM_THREADS=64, 1 core");
  BOOST_TEST(choose(many, 0).threads == 1);
  BOOST_TEST(choose(many, 8, 7.65).threads == 7);
  BOOST_TEST(choose(many, 8, 1.5).threads == 1);
  BOOST_TEST(choose(many, 8, 1.5).reason() == "OMP_NUM_THREADS=64, a quota of 1.5 cores");
  BOOST_TEST(choose(many, 8, 0.2).threads == 1);
  BOOST_TEST(choose({{"PARX_THREADS", "3"}}, 8, 100.0).reason() == "PARX_THREADS=3");
}

BOOST_AUTO_TEST_CASE(quotas_of_v2_at_every_level) {
  const std::string group = "0::/user.slice/job\n";
  const std::string root = "/sys/fs/cgroup";
  BOOST_TEST(!quota(group, v2, {}));
  BOOST_TEST(!quota(group, v2, {{root + "/user.slice/job/cpu.max", "max 100000\n"}}));
  BOOST_TEST(*quota(group, v2, {{root + "/user.slice/job/cpu.max", "150000 100000\n"}}) == 1.5);
  BOOST_TEST(*quota(group, v2,
                    {{root + "/user.slice/job/cpu.max", "max 100000\n"},
                     {root + "/user.slice/cpu.max", "50000 20000\n"}}) == 2.5);
  BOOST_TEST(*quota("0::/\n", v2, {{root + "/cpu.max", "300000 100000\n"}}) == 3);
  // The smallest counts, whichever group has it.
  for (const auto& [own, above] : {std::pair("150000", "250000"), {"250000", "150000"}}) {
    BOOST_TEST(*quota(group, v2,
                      {{root + "/user.slice/job/cpu.max", std::string(own) + " 100000\n"},
                       {root + "/user.slice/cpu.max", std::string(above) + " 100000\n"},
                       {root + "/cpu.max", "900000 100000\n"}}) == 1.5);
  }
}

BOOST_AUTO_TEST_CASE(quotas_of_v1_and_in_containers) {
  const std::string mounts =
      "31 30 0:27 /docker/1f /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
      "32 30 0:28 / /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
  const std::string groups = "5:memory:/docker/1f\n4:cpu,cpuacct:/docker/1f\n";
  BOOST_TEST(*quota(groups, mounts,
                    {{"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n"},
                     {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}}) == 2);
  BOOST_TEST(!quota(groups, mounts,
                    {{"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
                     {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}}));
  BOOST_TEST(!quota("garbage\n:\n::\n", "garbage\n", {}));
}

BOOST_AUTO_TEST_CASE(this_process_can_tell_its_cores) {
  BOOST_TEST(!parx::allowed_cores().empty());
  BOOST_TEST(parx::choose_threads({{"PARX_THREADS", "100000"}}).threads <=
             static_cast<int>(parx::allowed_cores().size()));
}
