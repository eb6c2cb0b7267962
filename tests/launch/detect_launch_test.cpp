#include <parx/launch/detail/known_variables.hpp>
#include <parx/launch/detect_launch.hpp>

#include <boost/test/unit_test.hpp>

#include <set>
#include <string>
#include <tuple>

namespace {

using parx::detect_launch;
using parx::environment;
using parx::launch_env;
using parx::launcher;
using parx::store_host;

/// What each launcher really gives its processes, as captured from Slurm 22.05, Open MPI 4.1.4,
/// MPICH 4.0.2 and torchrun 1.13.1.
environment slurm_task() {
  return {{"SLURM_PROCID", "3"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_GTIDS", "2,3"},
          {"SLURM_NTASKS", "6"},
          {"SLURM_NPROCS", "6"},
          {"SLURM_NNODES", "3"},
          {"SLURM_NTASKS_PER_NODE", "2"},
          {"SLURM_TASKS_PER_NODE", "2(x3)"},
          {"SLURM_JOB_ID", "2"},
          {"SLURM_JOBID", "2"},
          {"SLURM_JOB_NODELIST", "node[1-3]"},
          {"SLURM_NODELIST", "node[1-3]"},
          {"SLURM_JOB_NUM_NODES", "3"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEPID", "0"},
          {"SLURM_STEP_NODELIST", "node[1-3]"},
          {"SLURM_STEP_NUM_NODES", "3"},
          {"SLURM_STEP_NUM_TASKS", "6"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"},
          {"SLURM_LAUNCH_NODE_IPADDR", "10.77.0.254"},
          {"SLURM_SRUN_COMM_HOST", "10.77.0.254"},
          {"SLURMD_NODENAME", "node2"}};
}

environment open_mpi_task() {
  return {{"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_SIZE", "3"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
          {"OMPI_COMM_WORLD_NODE_RANK", "1"},
          {"OMPI_UNIVERSE_SIZE", "2"},
          {"OMPI_MCA_orte_num_nodes", "1"},
          {"OMPI_MCA_ess_base_jobid", "1078198273"},
          {"OMPI_MCA_ess_base_vpid", "1"},
          {"OMPI_MCA_orte_hnp_uri", "1078198272.0;tcp://192.0.2.2:50259"},
          {"PMIX_RANK", "1"},
          {"PMIX_NAMESPACE", "1078198273"},
          {"PMIX_HOSTNAME", "vm"}};
}

environment mpich_task() {
  return {{"PMI_RANK", "1"},
          {"PMI_SIZE", "3"},
          {"PMI_FD", "8"},
          {"MPI_LOCALRANKID", "1"},
          {"MPI_LOCALNRANKS", "3"},
          {"HYDI_CONTROL_FD", "7"},
          {"MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "vm"}};
}

environment torchrun_task() {
  return {{"RANK", "1"},
          {"WORLD_SIZE", "2"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"GROUP_RANK", "0"},
          {"GROUP_WORLD_SIZE", "1"},
          {"ROLE_RANK", "1"},
          {"ROLE_WORLD_SIZE", "2"},
          {"ROLE_NAME", "default"},
          {"MASTER_ADDR", "localhost"},
          {"MASTER_PORT", "54435"},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"TORCHELASTIC_MAX_RESTARTS", "0"},
          {"TORCHELASTIC_RUN_ID", "9a68daf5-50ad-4192-a96d-b82712f66f32"},
          {"TORCHELASTIC_USE_AGENT_STORE", "False"},
          {"OMP_NUM_THREADS", "1"}};
}

environment parxrun_task() {
  return {{"PARX_RANK", "3"},
          {"PARX_WORLD_SIZE", "4"},
          {"PARX_LOCAL_RANK", "3"},
          {"PARX_LOCAL_WORLD_SIZE", "4"},
          {"PARX_MASTER_PORT", "4711"},
          {"PARX_MASTER_ADDR", "127.0.0.1"},
          {"PARX_RUN_ID", "r1"},
          {"PARX_SECRET", "s3cret"},
          {"RANK", "3"},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "3"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", "4711"}};
}

/// `env` with some variables changed; an empty value is as good as none.
environment with(environment env, const environment& changes) {
  for (const auto& [name, value] : changes) env.insert_or_assign(name, value);
  return env;
}

/// Checks that detection fails with a usage_error that contains all of `parts`.
void check_refused(const environment& env, std::initializer_list<std::string_view> parts) {
  BOOST_CHECK_EXCEPTION((void)detect_launch(env), parx::usage_error, [&](const auto& e) {
    const std::string_view text = e.what();
    BOOST_TEST_CONTEXT(text) {
      for (const std::string_view part : parts) {
        BOOST_TEST((text.find(part) != text.npos), "no \"" << part << "\"");
      }
    }
    return true;
  });
}

BOOST_AUTO_TEST_CASE(nothing_in_the_environment_is_a_world_of_one) {
  const launch_env job = detect_launch(environment{{"PATH", "/bin"}, {"RANK", ""}});
  BOOST_TEST(job.rank == 0);
  BOOST_TEST(job.world_size == 1);
  BOOST_TEST(job.local_rank.value() == 0);
  BOOST_TEST((job.started_by == launcher::alone));
  BOOST_TEST(job.master_host.empty());
  BOOST_TEST(job.warning.empty());
  BOOST_TEST(!job.hosts_store());
}

BOOST_AUTO_TEST_CASE(a_task_of_srun_meets_on_the_first_node_of_its_step) {
  const launch_env job = detect_launch(slurm_task());
  BOOST_TEST(job.rank == 3);
  BOOST_TEST(job.world_size == 6);
  BOOST_TEST(job.local_rank.value() == 1);
  BOOST_TEST(job.local_world_size.value() == 2);
  BOOST_TEST(job.node_rank.value() == 1);
  BOOST_TEST((job.started_by == launcher::slurm));
  BOOST_TEST(job.master_host == "node1");
  BOOST_TEST(job.master_port == 20128);
  BOOST_TEST(job.run_id == "slurm-2.0");
  BOOST_TEST(!job.hosts_store());
  const auto rank_zero = with(slurm_task(), {{"SLURM_PROCID", "0"},
                                             {"SLURM_LOCALID", "0"},
                                             {"SLURM_NODEID", "0"},
                                             {"SLURM_GTIDS", "0,1"}});
  BOOST_TEST(detect_launch(rank_zero).hosts_store());
}

BOOST_AUTO_TEST_CASE(a_step_smaller_than_its_job_counts_its_own_tasks_and_nodes) {
  const launch_env job = detect_launch(with(slurm_task(), {{"SLURM_PROCID", "1"},
                                                           {"SLURM_GTIDS", "0,1"},
                                                           {"SLURM_NTASKS", "2"},
                                                           {"SLURM_STEP_NUM_TASKS", "2"},
                                                           {"SLURM_STEP_NUM_NODES", "1"},
                                                           {"SLURM_STEP_NODELIST", "node3"},
                                                           {"SLURM_STEP_ID", "7"}}));
  BOOST_TEST(job.world_size == 2);
  // One node: its name need not resolve.
  BOOST_TEST(job.master_host == "127.0.0.1");
  BOOST_TEST(job.master_port == 20135);
}

BOOST_AUTO_TEST_CASE(ranks_need_not_be_contiguous_on_a_node) {
  // srun -N3 -n5 -m cyclic: node1 has ranks 0, 3, 4... as seen by rank 3.
  const launch_env job = detect_launch(with(slurm_task(), {{"SLURM_NTASKS", "5"},
                                                           {"SLURM_STEP_NUM_TASKS", "5"},
                                                           {"SLURM_NODEID", "0"},
                                                           {"SLURM_GTIDS", "0,3,4"},
                                                           {"SLURM_DISTRIBUTION", "cyclic"}}));
  BOOST_TEST(job.local_rank.value() == 1);
  BOOST_TEST(job.local_world_size.value() == 3);
}

BOOST_AUTO_TEST_CASE(the_script_of_a_batch_job_is_a_world_of_one_with_a_warning) {
  environment script = with(slurm_task(), {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}});
  for (const char* name : {"SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST",
                           "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES"}) {
    script.erase(name);
  }
  const launch_env job = detect_launch(script);
  BOOST_TEST(job.world_size == 1);
  BOOST_TEST((job.started_by == launcher::alone));
  BOOST_TEST((job.warning.find("srun to use the job's 6 tasks") != std::string::npos));
  // salloc's interactive step has a number of its own kind.
  const auto shell = with(script, {{"SLURM_STEP_ID", "4294967290"}});
  BOOST_TEST(!detect_launch(shell).warning.empty());
  BOOST_TEST(detect_launch(with(script, {{"SLURM_NTASKS", "1"}})).warning.empty());
}

BOOST_AUTO_TEST_CASE(an_arbitrary_distribution_needs_the_address_of_rank_0) {
  const auto arbitrary = with(slurm_task(), {{"SLURM_DISTRIBUTION", "arbitrary"}});
  check_refused(arbitrary, {"-m arbitrary", "MASTER_ADDR"});
  BOOST_TEST(detect_launch(with(arbitrary, {{"MASTER_ADDR", "node3"}})).master_host == "node3");
  // Whatever put it there, rank 0 itself sees that it is not where the others look.
  check_refused(
      with(slurm_task(), {{"SLURM_PROCID", "0"}, {"SLURM_GTIDS", "0"}, {"SLURM_LOCALID", "0"}}),
      {"node 1", "node2", "node1", "MASTER_ADDR"});
}

BOOST_AUTO_TEST_CASE(the_steps_of_near_slurm_jobs_get_different_unprivileged_ports) {
  std::set<int> ports;
  for (int job = 1000; job < 1155; ++job) {
    for (int step = 0; step < 64; ++step) {
      const auto env = with(slurm_task(), {{"SLURM_JOB_ID", std::to_string(job)},
                                           {"SLURM_STEP_ID", std::to_string(step)}});
      ports.insert(detect_launch(env).master_port);
    }
  }
  BOOST_TEST(ports.size() == 155U * 64U);
  BOOST_TEST(*ports.begin() >= 20000);
  BOOST_TEST(*ports.rbegin() < 30000);
}

BOOST_AUTO_TEST_CASE(a_requeued_slurm_job_has_another_run_id) {
  BOOST_TEST(detect_launch(with(slurm_task(), {{"SLURM_RESTART_COUNT", "1"}})).run_id ==
             "slurm-2.0.1");
}

BOOST_AUTO_TEST_CASE(open_mpi_on_one_host_meets_on_loopback_at_a_port_of_its_job) {
  const launch_env job = detect_launch(open_mpi_task());
  BOOST_TEST(job.rank == 1);
  BOOST_TEST(job.world_size == 3);
  BOOST_TEST(job.local_world_size.value() == 3);
  BOOST_TEST((job.started_by == launcher::open_mpi));
  BOOST_TEST(job.master_host == "127.0.0.1");
  BOOST_TEST(job.run_id == "ompi-1078198273");
  const auto other = with(open_mpi_task(), {{"OMPI_MCA_ess_base_jobid", "1078132737"}});
  BOOST_TEST(detect_launch(other).master_port != job.master_port);
  BOOST_TEST(job.master_port >= 20000);
}

BOOST_AUTO_TEST_CASE(an_mpi_launcher_on_several_hosts_needs_the_address_of_rank_0) {
  const auto two_hosts = with(open_mpi_task(), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  check_refused(two_hosts, {"Open MPI", "3 processes", "2 of them", "mpirun -x MASTER_ADDR"});
  const launch_env job =
      detect_launch(with(two_hosts, {{"MASTER_ADDR", "n1"}, {"MASTER_PORT", "999"}}));
  BOOST_TEST(job.master_host == "n1");
  BOOST_TEST(job.master_port == 999);
  check_refused(with(mpich_task(), {{"MPI_LOCALNRANKS", "2"}}), {"MPICH", "-genv MASTER_ADDR"});
}

BOOST_AUTO_TEST_CASE(mpich_on_one_host_meets_on_loopback) {
  const launch_env job = detect_launch(mpich_task());
  BOOST_TEST(job.rank == 1);
  BOOST_TEST(job.world_size == 3);
  BOOST_TEST(job.local_rank.value() == 1);
  BOOST_TEST((job.started_by == launcher::pmi));
  BOOST_TEST(job.master_host == "127.0.0.1");
  const auto first = detect_launch(with(mpich_task(), {{"PARX_RUN_ID", "hydra-100"}}));
  const auto second = detect_launch(with(mpich_task(), {{"PARX_RUN_ID", "hydra-200"}}));
  BOOST_TEST(first.master_port != second.master_port);
}

BOOST_AUTO_TEST_CASE(the_kernels_description_of_a_process_is_read_whatever_its_name_holds) {
  const auto plain = parx::detail::parse_process_stat("812 (hydra_pmi_proxy) S 810 811 810 0");
  BOOST_TEST(plain.name == "hydra_pmi_proxy");
  BOOST_TEST(plain.parent == 810);
  const auto odd = parx::detail::parse_process_stat("7 (a) R 1 (b) S 42 0");
  BOOST_TEST(odd.name == "a) R 1 (b");
  BOOST_TEST(odd.parent == 42);
  for (const char* text : {"", "7", "7 (a", "7 (a)", ")7(", "7 (a) S"}) {
    BOOST_TEST(parx::detail::parse_process_stat(text).parent == 0);
  }
}

BOOST_AUTO_TEST_CASE(an_address_may_be_ipv6_and_hold_the_port) {
  const environment by_hand{{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  const std::tuple<const char*, const char*, const char*, int> read[] = {
      {"::1", "1", "::1", 1},
      {"[::1]", "1", "::1", 1},
      {"[::1]:29500", "", "::1", 29500},
      {"[fe80::1%eth0]:29500", "29500", "fe80::1%eth0", 29500},
      {"fd00::7", "2", "fd00::7", 2},
      {"node1:29500", "", "node1", 29500},
      {"10.0.0.7", "3", "10.0.0.7", 3}};
  for (const auto& [address, port, host, number] : read) {
    for (const std::string prefix : {"", "PARX_"}) {
      const launch_env job = detect_launch(
          with(by_hand, {{prefix + "MASTER_ADDR", address}, {prefix + "MASTER_PORT", port}}));
      BOOST_TEST(job.master_host == host);
      BOOST_TEST(job.master_port == number);
    }
  }
  for (const char* wrong : {"[::1", "[]:1", "[::1]29500", "node1:", "node1:x", "node1:0", ":29500",
                            "[::1]:70000"}) {
    check_refused(with(by_hand, {{"MASTER_ADDR", wrong}, {"MASTER_PORT", "1"}}),
                  {"MASTER_ADDR=", wrong, "::1 or [::1]"});
  }
  check_refused(with(by_hand, {{"MASTER_ADDR", "[::1]:29500"}, {"MASTER_PORT", "29501"}}),
                {"MASTER_ADDR=[::1]:29500 contradicts MASTER_PORT=29501"});
}

BOOST_AUTO_TEST_CASE(a_variable_that_no_host_or_number_can_be_is_named_at_once_and_printably) {
  const environment by_hand{
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
  for (const std::string prefix : {"", "PARX_"}) {
    const std::string address = prefix + "MASTER_ADDR", port = prefix + "MASTER_PORT";
    check_refused(with(by_hand, {{address, "node1\r"}}),
                  {address + "=\"node1\\x0d\" is no host's name", "Windows line ends"});
    check_refused(with(by_hand, {{address, "node1\r:29500"}}), {address, "node1\\x0d"});
    check_refused(with(by_hand, {{address, "$HEAD_NODE"}}),
                  {address + "=\"$HEAD_NODE\" is no host's name", "single quotes"});
    check_refused(with(by_hand, {{address, "node1 "}}),
                  {address + "=\"node1 \" is no host's name", "letters, digits, dots"});
    check_refused(with(by_hand, {{port, "29500\r"}}), {port + "=\"29500\\x0d\" is not a port"});
    check_refused(with(by_hand, {{port, "$PORT"}}), {port + "=\"$PORT\" is not a port"});
  }
  check_refused(with(by_hand, {{"RANK", "1\n"}}), {"RANK=\"1\\x0a\" is not a rank"});
  check_refused(with(by_hand, {{"WORLD_SIZE", "2\r"}}),
                {"WORLD_SIZE=\"2\\x0d\" is not a number of processes"});
  check_refused(with(by_hand, {{"PARX_TLS", "1\r"}}), {"PARX_TLS=\"1\\x0d\" is neither"});
}

BOOST_AUTO_TEST_CASE(torchrun_tells_everything_and_whose_store_it_is) {
  const launch_env job = detect_launch(torchrun_task());
  BOOST_TEST(job.rank == 1);
  BOOST_TEST(job.world_size == 2);
  BOOST_TEST(job.local_rank.value() == 1);
  BOOST_TEST(job.node_rank.value() == 0);
  BOOST_TEST((job.started_by == launcher::torchrun));
  BOOST_TEST(job.master_host == "localhost");
  BOOST_TEST(job.master_port == 54435);
  BOOST_TEST((job.hosted_by == store_host::rank_zero));
  BOOST_TEST(job.run_id == "9a68daf5-50ad-4192-a96d-b82712f66f32");
  // An agent counts the failures of its own workers, so another one's ranks may have another count.
  BOOST_TEST(detect_launch(with(torchrun_task(), {{"TORCHELASTIC_RESTART_COUNT", "1"}})).run_id ==
             job.run_id);

  const auto static_rank_0 = with(torchrun_task(), {{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                    {"TORCHELASTIC_RUN_ID", "none"},
                                                    {"TORCHELASTIC_RESTART_COUNT", "2"},
                                                    {"RANK", "0"},
                                                    {"LOCAL_RANK", "0"}});
  const launch_env restarted = detect_launch(static_rank_0);
  BOOST_TEST((restarted.hosted_by == store_host::agent));
  BOOST_TEST(!restarted.hosts_store());
  BOOST_TEST(restarted.run_id == "none");
}

BOOST_AUTO_TEST_CASE(parxrun_is_recognised_beside_the_names_it_sets_for_other_programs) {
  const launch_env job = detect_launch(parxrun_task());
  BOOST_TEST(job.rank == 3);
  BOOST_TEST((job.started_by == launcher::parx));
  BOOST_TEST(job.master_host == "127.0.0.1");
  BOOST_TEST(job.master_port == 4711);
  BOOST_TEST(job.run_id == "r1");
  BOOST_TEST(job.secret == "s3cret");
}

BOOST_AUTO_TEST_CASE(the_innermost_of_several_launchers_is_right) {
  const environment slurm_daemon = with(
      slurm_task(), {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  const auto inside = [&](const environment& inner) {
    return detect_launch(with(slurm_daemon, inner));
  };
  BOOST_TEST((inside(torchrun_task()).started_by == launcher::torchrun));
  BOOST_TEST((inside(open_mpi_task()).started_by == launcher::open_mpi));
  BOOST_TEST((inside(mpich_task()).started_by == launcher::pmi));
  BOOST_TEST((inside(parxrun_task()).started_by == launcher::parx));
  BOOST_TEST(inside(mpich_task()).world_size == 3);
  BOOST_TEST(
      (detect_launch(with(open_mpi_task(), torchrun_task())).started_by == launcher::torchrun));
}

BOOST_AUTO_TEST_CASE(srun_that_speaks_pmi_is_still_srun_and_knows_its_first_node) {
  const launch_env job = detect_launch(
      with(slurm_task(),
           {{"PMI_RANK", "3"}, {"PMI_SIZE", "6"}, {"PMI_FD", "11"}, {"PMI_JOBID", "2.0"}}));
  BOOST_TEST((job.started_by == launcher::slurm));
  BOOST_TEST(job.master_host == "node1");
}

BOOST_AUTO_TEST_CASE(a_world_size_set_for_other_programs_is_accepted_when_it_agrees) {
  const environment script = with(slurm_task(), {{"WORLD_SIZE", "6"}, {"MASTER_ADDR", "node1"}});
  BOOST_TEST((detect_launch(script).started_by == launcher::slurm));
  check_refused(with(script, {{"WORLD_SIZE", "4"}}), {"WORLD_SIZE=4", "6 processes", "srun"});
  check_refused({{"WORLD_SIZE", "4"}}, {"WORLD_SIZE=4", "RANK is not"});
  BOOST_TEST(detect_launch(environment{{"WORLD_SIZE", "1"}}).world_size == 1);
}

BOOST_AUTO_TEST_CASE(ranks_set_by_hand_need_a_master_and_leave_the_local_rank_open) {
  const environment by_hand{
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};
  const launch_env job = detect_launch(by_hand);
  BOOST_TEST((job.started_by == launcher::variables));
  BOOST_TEST(!job.local_rank);
  BOOST_TEST(job.hosts_store());
  check_refused(with(by_hand, {{"MASTER_ADDR", ""}}),
                {"RANK and WORLD_SIZE", "MASTER_ADDR is not"});
  check_refused(with(by_hand, {{"MASTER_PORT", ""}}), {"MASTER_PORT is not", "10.0.0.1"});
  BOOST_TEST(detect_launch(environment{{"RANK", "0"}, {"WORLD_SIZE", "1"}}).local_rank.value() ==
             0);
  const environment parx_by_hand{{"PARX_RANK", "1"},
                                 {"PARX_WORLD_SIZE", "2"},
                                 {"MASTER_ADDR", "a"},
                                 {"PARX_MASTER_PORT", "1"}};
  BOOST_TEST(detect_launch(parx_by_hand).master_host == "a");
}

BOOST_AUTO_TEST_CASE(a_half_set_or_contradictory_environment_is_refused_by_name) {
  check_refused({{"RANK", "2"}}, {"RANK is set but WORLD_SIZE is not"});
  check_refused({{"PARX_RANK", "2"}}, {"PARX_RANK is set but PARX_WORLD_SIZE is not"});
  check_refused({{"PARX_WORLD_SIZE", "2"}}, {"PARX_WORLD_SIZE is set but PARX_RANK is not"});
  check_refused({{"OMPI_COMM_WORLD_SIZE", "2"}}, {"OMPI_COMM_WORLD_RANK is not"});
  check_refused({{"PMI_RANK", "2"}}, {"PMI_RANK is set but PMI_SIZE is not"});
  check_refused(with(slurm_task(), {{"SLURM_PROCID", ""}}), {"SLURM_PROCID is not"});
  check_refused(with(slurm_task(), {{"SLURM_JOB_ID", ""}}), {"SLURM_JOB_ID is not"});
  check_refused(with(slurm_task(), {{"SLURM_STEP_NODELIST", ""}}), {"SLURM_STEP_NODELIST is not"});
  check_refused(with(slurm_task(), {{"SLURM_STEP_NODELIST", "node[1-"}}),
                {"node[1-", "character 8"});
  check_refused(with(slurm_task(), {{"SLURM_LOCALID", "2"}}), {"SLURM_LOCALID=2", "SLURM_GTIDS"});
  check_refused(with(torchrun_task(), {{"RANK", "2"}}), {"RANK=2 contradicts WORLD_SIZE=2"});
  check_refused(with(torchrun_task(), {{"RANK", "-1"}}), {"RANK=-1", "from 0 to 1"});
  check_refused(with(torchrun_task(), {{"RANK", "one"}}), {"RANK=\"one\""});
  check_refused(with(torchrun_task(), {{"RANK", "1x"}}),
                {"RANK=\"1x\" is not a rank from 0 to 1 (WORLD_SIZE=2)"});
  check_refused(with(torchrun_task(), {{"WORLD_SIZE", "four"}}),
                {"WORLD_SIZE=\"four\" is not a number of processes", "1 or more"});
  check_refused(with(torchrun_task(), {{"MASTER_PORT", "99999999999"}}), {"from 1 to 65535"});
  check_refused(with(torchrun_task(), {{"GROUP_RANK", "a"}}),
                {"GROUP_RANK=\"a\" is not a whole number from -2147483648 to 2147483647"});
  check_refused(with(torchrun_task(), {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE=0", "at least one"});
  check_refused(with(torchrun_task(), {{"WORLD_SIZE", "99999999999"}}),
                {"WORLD_SIZE=\"99999999999\""});
  check_refused(with(torchrun_task(), {{"MASTER_PORT", "70000"}}), {"MASTER_PORT=70000", "65535"});
  check_refused(with(torchrun_task(), {{"LOCAL_RANK", "2"}}),
                {"LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"});
  check_refused(with(torchrun_task(), {{"LOCAL_WORLD_SIZE", "3"}}),
                {"LOCAL_WORLD_SIZE=3", "WORLD_SIZE=2"});
  check_refused(with(parxrun_task(), {{"RANK", "1"}}),
                {"PARX_RANK=3 contradicts RANK=1", "nested"});
}

BOOST_AUTO_TEST_CASE(a_misspelt_variable_is_told_with_the_one_that_was_meant) {
  const auto told = parx::detail::misspelt_variables({{"PARX_TIMEOUTT", "60"},
                                                      {"PARX_TRANSPORT", "tcp"},
                                                      {"PARX_TEST_DATA", "/data"},
                                                      {"PARX", "1"},
                                                      {"PARX_ALGOS", "ring"}});
  BOOST_REQUIRE(told.size() == 2U);
  BOOST_TEST(told[0] == "parx reads no variable PARX_ALGOS. Did you mean PARX_ALGO?");
  BOOST_TEST(told[1] == "parx reads no variable PARX_TIMEOUTT. Did you mean PARX_TIMEOUT?");
}

BOOST_AUTO_TEST_CASE(the_distance_of_words_is_levenshteins) {
  BOOST_TEST(parx::edits_between("kitten", "sitting") == 3U);
  BOOST_TEST(parx::edits_between("", "abc") == 3U);
  BOOST_TEST(parx::edits_between("flaw", "lawn") == 2U);
}

}  // namespace
