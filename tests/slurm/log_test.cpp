// What parx_slurm logs finds in logs: those of a script that goes on turn by turn, of torchrun and
// of the labs.
#include <boost/test/unit_test.hpp>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <parx/slurm.hpp>

using namespace parx::slurm;

BOOST_AUTO_TEST_CASE(only_the_last_turn_counts_for_the_end_of_a_job) {
  log_summary summary;
  read_log(
      "turn 0 of job 7 on n[1-2] at 2026-11-26T10:00:00\n"
      "[parx rank 1] error: train.cpp:8: rank 0 was lost\n"
      "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-26T11:00:00 DUE TO PREEMPTION ***\n"
      "turn 1 of job 7 on n[1-2] at 2026-11-26T12:00:00\n"
      "[RANK 0] WORLD_SIZE=2\n[RANK 1] WORLD_SIZE=2\n"
      "step 10\n",
      "train-7.log", summary);
  BOOST_TEST(summary.turns == 2);
  BOOST_TEST(summary.lines == 7u);
  BOOST_TEST(!summary.first_error.has_value());
  BOOST_TEST(summary.slurm_lines.empty());
  BOOST_TEST(summary.ranks == (std::set<int>{0, 1}));
  BOOST_TEST(summary.world_size == 2);
}

BOOST_AUTO_TEST_CASE(the_first_error_is_told_with_the_lines_before_it) {
  log_summary summary;
  read_log(
      "a\nb\n[default1]:Traceback (most recent call last):\n[default1]:RuntimeError: no\n"
      "[default0]:RuntimeError: Connection closed by peer\n"
      "srun: error: n08: task 1: Exited with exit code 1\n",
      "x.out", summary);
  BOOST_REQUIRE(summary.first_error.has_value());
  BOOST_TEST(summary.first_error->number == 3u);
  BOOST_TEST(summary.first_error->file == "x.out");
  BOOST_TEST(summary.before == (std::vector<std::string>{"a", "b"}));
  BOOST_TEST(summary.after == std::deque<std::string>{"[default1]:RuntimeError: no"});
  BOOST_TEST(who_failed(summary) == " rank 1,");  // on n08 is torchrun, not rank 1
  BOOST_TEST(summary.later_errors == 2u);
  BOOST_TEST(summary.slurm_lines.size() == 1u);
  BOOST_TEST(summary.ranks == (std::set<int>{0, 1}));
}

BOOST_AUTO_TEST_CASE(the_first_error_is_told_with_its_rank_its_node_and_the_last_lines_of_it) {
  log_summary summary;
  std::string text = "[rank 2 on n1] step 1\n[rank 5 on n2] step 1\n";
  text += "[rank 5 on n2] Traceback (most recent call last):\n";
  for (int i = 0; i < 20; ++i) text += parx::formatted("[rank 5 on n2]   line {}\n", i);
  text += "[rank 2 on n1] RuntimeError: Connection closed by peer\n[rank 5 on n2] KeyError: 'x'\n";
  read_log(text, "x.log", summary);
  BOOST_TEST(who_failed(summary) == " rank 5 on n2,");
  BOOST_TEST(summary.before == std::vector<std::string>{"[rank 5 on n2] step 1"});
  BOOST_TEST(summary.after.size() == 10u);
  BOOST_TEST(summary.after.front() == "[rank 5 on n2]   line 11");
  BOOST_TEST(summary.after.back() == "[rank 5 on n2] KeyError: 'x'");
  BOOST_TEST(summary.later_errors == 2u);
}

BOOST_AUTO_TEST_CASE(of_ranks_that_srun_has_started_its_own_lines_know_the_nodes) {
  const std::string error = "[parx rank 3] error: train.cpp:8: out of memory\n";
  const std::string ends =
      "srun: error: n08: task 3: Exited with exit code 1\n"
      "srun: error: n07: tasks 0-2: Exited with exit code 1\n";
  const auto who = [](const std::string& log) {
    log_summary summary;
    read_log(log, "x.log", summary);
    return who_failed(summary);
  };
  BOOST_TEST(who(error + ends) == " rank 3 on n08,");
  BOOST_TEST(who("[RANK 2] WORLD_SIZE=4\n[RANK 2] Error: no\n" + ends) == " rank 2 on n07,");
  // A task of several nodes may be on any of them, and one of parxrun or torchrun is no rank.
  BOOST_TEST(who(error + "srun: error: n[07-08]: tasks 0-3: Killed\n") == " rank 3,");
  BOOST_TEST(who(error + ends + "parxrun: node n08: the job has ended with code 1\n") ==
             " rank 3,");
  BOOST_TEST(who("Error: no rank\n" + ends) == "");
  // A turn begins on other nodes.
  BOOST_TEST(who(ends + "turn 1 of job 7 on n[1-2] at x\n" + error) == " rank 3,");
}

BOOST_AUTO_TEST_CASE(other_ranks_tell_where_a_rank_is) {
  log_summary summary;
  read_log(
      "[parx rank 5] error: no\n"
      "[parx rank 0] error: all_reduce #8: rank 5 (n3:29500) closed the connection (of 6)\n"
      "[parx rank 1] error: rank 0 (of 6) has gone, as rank 2 (rank 4 of the job, n2, pid 7)\n",
      "x.log", summary);
  BOOST_TEST(who_failed(summary) == " rank 5 on n3,");
  BOOST_TEST(summary.nodes.node_of(0) == "");
  BOOST_TEST(summary.nodes.node_of(4) == "n2");
  BOOST_TEST(summary.nodes.node_of(2) == "");
}

BOOST_AUTO_TEST_CASE(files_of_one_rank_are_known_by_their_names) {
  const std::string attempt = R"({"nodes": [{"node": "a1", "ranks": 2}, {"node": "a2"}]})";
  BOOST_TEST((writer_of_file("logs/7/attempt_0.1/n1.r3.err", attempt) == log_writer{3, "a2"}));
  BOOST_TEST((writer_of_file("n1.r3.err") == log_writer{3, ""}));
  BOOST_TEST((writer_of_file("n4.r9.out", attempt) == log_writer{9, ""}));
  BOOST_TEST((writer_of_file("slurm_logs/lab.7.n1.0.out") == log_writer{0, "n1"}));
  BOOST_TEST((writer_of_file("lab.7_2.node-a.12.err") == log_writer{12, "node-a"}));
  for (const char* const other : {"train-7.log", "train.v2.0.out", "nx.r3.err", "a.b.c.d.e", ""}) {
    BOOST_TEST((writer_of_file(other, attempt) == log_writer{}), other);
  }
  log_summary summary;
  read_log("step 1\nTraceback (most recent call last):\n  x\n", "n1.r3.err", summary, attempt);
  BOOST_TEST(who_failed(summary) == " rank 3 on a2,");
  BOOST_TEST(summary.after == std::deque<std::string>{"  x"});
  BOOST_TEST(summary.ranks == std::set<int>{3});
  summary = {};
  read_log("[RANK 3] Error: no\n", "n1.r3.err", summary, attempt);
  BOOST_TEST(who_failed(summary) == " rank 3 on a2,");
}

BOOST_AUTO_TEST_CASE(parxruns_report_is_kept_whole) {
  log_summary summary;
  read_log(
      "step 3\nparxrun: rank 2 failed: exit code 5\n  its last lines:\n    no such file\nstep 4\n",
      "x", summary);
  BOOST_TEST(summary.launcher_lines ==
             (std::vector<std::string>{"parxrun: rank 2 failed: exit code 5",
                                       "  its last lines:", "    no such file"}));
  BOOST_TEST(!summary.first_error.has_value());
}

BOOST_AUTO_TEST_CASE(numbers_and_lines_of_any_size_are_survived) {
  log_summary summary;
  read_log("[rank 1999999999] WORLD_SIZE=2147483647\n" + std::string(100'000, 'x') +
               " Error: no\n 10%|#|\r 90%|##|\r",
           "x", summary);
  BOOST_TEST(summary.ranks.empty());
  BOOST_TEST(summary.world_size == 0);
  BOOST_TEST(summary.first_error->text.size() == 603u);
  BOOST_TEST(detail::shown_line(" 10%|#|\r 90%|##|\r") == " 90%|##|");
  BOOST_TEST(detail::shown_line("\r") == "");
  BOOST_TEST(detail::shown_line("") == "");
}

BOOST_AUTO_TEST_CASE(signals_that_a_user_would_not_know_are_explained) {
  const auto meaning = [](const char* line) { return meaning_of_signal({"srun: x", line}); };
  BOOST_TEST(
      meaning("srun: error: n1: tasks 0-1: User defined signal 1").starts_with("the warning"));
  BOOST_TEST(meaning("srun: error: n1: task 0: Illegal instruction").find("check") !=
             std::string::npos);
  BOOST_TEST(meaning("srun: error: n1: task 0: Terminated") == "");
}

BOOST_AUTO_TEST_CASE(ranks_are_known_by_what_launchers_write_before_a_line) {
  for (const auto& [line, rank] :
       std::vector<std::pair<const char*, int>>{{"[rank 3] x", 3},
                                                {"[RANK 12] WORLD_SIZE=20", 12},
                                                {"[parx rank 4] warning: x", 4},
                                                {"[default7]:x", 7},
                                                {"5: x", 5},
                                                {"step 5: x", -1},
                                                {"2026: x", 2026},
                                                {"x", -1}}) {
    BOOST_TEST(detail::rank_of_line(line).value_or(-1) == rank, line);
  }
}

BOOST_AUTO_TEST_CASE(slurms_verdict_is_read_where_there_is_no_accounting) {
  BOOST_TEST(state_from_lines({"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026 DUE TO TIME "
                               "LIMIT ***"}) == "TIMEOUT");
  BOOST_TEST(state_from_lines({"slurmstepd: error: Detected 1 oom_kill event in StepId=7.0"}) ==
             "OUT_OF_MEMORY");
  BOOST_TEST(
      state_from_lines({"slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026 DUE TO NODE "
                        "FAILURE ***"}) == "NODE_FAIL");
  BOOST_TEST(state_from_lines({"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026 ***"}) ==
             "CANCELLED");
  BOOST_TEST(state_from_lines({"srun: error: n08: task 1: Exited with exit code 1"}) == "");
  for (const char* const state :
       {"TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "CANCELLED by 1000", "FAILED"}) {
    BOOST_TEST(!meaning_of_state(state).empty(), state);
  }
  BOOST_TEST(meaning_of_state("COMPLETED").empty());
}
