// What parx_slurm logs finds in logs: those of a script that goes on turn by turn, of torchrun and
// of the labs.
#include <boost/test/unit_test.hpp>

#include <csignal>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/parx_slurm/logs/log_culprit.hpp"
#include "tools/parx_slurm/logs/log_errors.hpp"
#include "tools/parx_slurm/logs/log_reader.hpp"
#include "tools/parx_slurm/logs/log_summary.hpp"
#include "tools/parx_slurm/logs/log_text.hpp"
#include "tools/parx_slurm/logs/log_writer.hpp"
#include <parx/core/failure_record.hpp>
#include <parx/core/log.hpp>

using namespace parx::slurm;

namespace {

std::string who_of(const log_summary& summary) {
  const auto culprit = culprit_of(summary);
  return culprit ? culprit->who : std::string();
}

/// An error that a rank of parx prints. Who is to blame stands in its tag: the sentence is any.
std::string error_of(int rank, const std::string& sentence, std::optional<int> blamed = {},
                     const std::string& host = {}) {
  const parx::failure_record record{
      .code = blamed ? std::optional(parx::errc::aborted) : std::nullopt,
      .rank = rank,
      .blamed = blamed.value_or(-1),
      .host = host};
  std::string line;
  parx::logger::instance().set_sink([&](parx::log_level, std::string_view text) { line = text; });
  parx::logger::instance().set_rank(rank);
  parx::logger::instance().write(parx::log_level::error, sentence, parx::blame_tag(record));
  parx::logger::instance().set_sink(nullptr);
  return line;
}

log_summary summary_of(const std::string& text) {
  log_summary summary;
  read_log(text, "x.log", summary);
  return summary;
}

}  // namespace

BOOST_AUTO_TEST_CASE(only_the_last_turn_counts_for_the_end_of_a_job) {
  log_summary summary;
  read_log("turn 0 of job 7 on n[1-2] at 2026-11-26T10:00:00\n" + error_of(1, "ANY WORDS", 0) +
               "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-26T11:00:00 DUE TO "
               "PREEMPTION ***\n"
               "turn 1 of job 7 on n[1-2] at 2026-11-26T12:00:00\n"
               "[RANK 0] WORLD_SIZE=2\n[RANK 1] WORLD_SIZE=2\n"
               "step 10\n",
           "train-7.log", summary);
  BOOST_TEST(summary.turns == 2);
  BOOST_TEST(summary.lines == 7u);
  BOOST_TEST(!culprit_of(summary).has_value());
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
  const auto culprit = culprit_of(summary);
  BOOST_REQUIRE((culprit && culprit->error));
  BOOST_TEST(culprit->error->line.number == 3u);
  BOOST_TEST(culprit->error->line.file == "x.out");
  BOOST_TEST(culprit->error->before == (std::deque<std::string>{"a", "b"}));
  BOOST_TEST(culprit->error->after == std::deque<std::string>{"[default1]:RuntimeError: no"});
  BOOST_TEST(culprit->who == "rank 1");  // on n08 is torchrun, not rank 1
  BOOST_TEST(summary.errors.error_lines() == 3u);
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
  BOOST_TEST(who_of(summary) == "rank 5 on n2");
  const auto error = culprit_of(summary)->error.value();
  BOOST_TEST(error.before == std::deque<std::string>{"[rank 5 on n2] step 1"});
  BOOST_TEST(error.after.size() == 10u);
  BOOST_TEST(error.after.front() == "[rank 5 on n2]   line 11");
  BOOST_TEST(error.after.back() == "[rank 5 on n2] KeyError: 'x'");
  BOOST_TEST(summary.errors.error_lines() == 3u);
}

BOOST_AUTO_TEST_CASE(of_ranks_that_srun_has_started_its_own_lines_know_the_nodes) {
  const std::string error = error_of(3, "train.cpp:8: out of memory");
  const std::string ends =
      "srun: error: n08: task 3: Exited with exit code 1\n"
      "srun: error: n07: tasks 0-2: Exited with exit code 1\n";
  const auto who = [](const std::string& log) {
    log_summary summary;
    read_log(log, "x.log", summary);
    return who_of(summary);
  };
  BOOST_TEST(who(error + ends) == "rank 3 on n08");
  BOOST_TEST(who("[RANK 2] WORLD_SIZE=4\n[RANK 2] Error: no\n" + ends) == "rank 2 on n07");
  // A task of several nodes may be on any of them, and one of parxrun or torchrun is no rank.
  BOOST_TEST(who(error + "srun: error: n[07-08]: tasks 0-3: Killed\n") == "rank 3");
  BOOST_TEST(who(error + ends + "parxrun: node n08: the job has ended with code 1\n") == "rank 3");
  BOOST_TEST(who("Error: no rank\n" + ends) == "");
  // A turn begins on other nodes.
  BOOST_TEST(who(ends + "turn 1 of job 7 on n[1-2] at x\n" + error) == "rank 3");
}

BOOST_AUTO_TEST_CASE(other_ranks_tell_where_a_rank_is) {
  log_summary summary;
  read_log(error_of(5, "no") + error_of(0, "ANY WORDS", 5, "n3") +
               error_of(1, "ANY WORDS", 4, "n2") + error_of(2, "ANY WORDS", 0) +
               error_of(3, "ANY WORDS", -1),
           "x.log", summary);
  BOOST_TEST(who_of(summary) == "rank 5 on n3");
  BOOST_TEST(summary.nodes.node_of(0) == "");
  BOOST_TEST(summary.nodes.node_of(4) == "n2");
  BOOST_TEST(summary.nodes.node_of(2) == "");
  BOOST_TEST(summary.errors.found().back().is_echo);
}

BOOST_AUTO_TEST_CASE(files_of_one_rank_are_known_by_their_names) {
  const parx::generation_report report{
      .members = {{.node = "a1", .ranks = 2}, {.node = "a2", .ranks = 2}}};
  BOOST_TEST((writer_of_file("logs/7/attempt_0.1/n1.r3.err", &report) == log_writer{3, "a2"}));
  BOOST_TEST((writer_of_file("n1.r3.err") == log_writer{3, ""}));
  BOOST_TEST((writer_of_file("n4.r9.out", &report) == log_writer{9, ""}));
  BOOST_TEST((writer_of_file("slurm_logs/lab.7.n1.0.out") == log_writer{0, "n1"}));
  BOOST_TEST((writer_of_file("lab.7_2.node-a.12.err") == log_writer{12, "node-a"}));
  for (const char* const other : {"train-7.log", "train.v2.0.out", "nx.r3.err", "a.b.c.d.e", ""}) {
    BOOST_TEST((writer_of_file(other, &report) == log_writer{}), other);
  }
  log_summary summary;
  read_log("step 1\nTraceback (most recent call last):\n  x\n", "n1.r3.err", summary, &report);
  BOOST_TEST(who_of(summary) == "rank 3 on a2");
  BOOST_TEST(culprit_of(summary)->error->after == std::deque<std::string>{"  x"});
  BOOST_TEST(summary.ranks == std::set<int>{3});
  summary = {};
  read_log("[RANK 3] Error: no\n", "n1.r3.err", summary, &report);
  BOOST_TEST(who_of(summary) == "rank 3 on a2");
}

BOOST_AUTO_TEST_CASE(parxruns_report_is_kept_whole) {
  log_summary summary;
  read_log("step 3\nparxrun: rank 2 failed: exit code 5\n  its last lines:\n    no such file\n" +
               parx::line_of({.code = 5, .has_failed = true, .rank = 2, .why = "exit code 5"}) +
               "step 4\n",
           "x", summary);
  BOOST_TEST(summary.launcher_lines ==
             (std::vector<std::string>{"parxrun: rank 2 failed: exit code 5",
                                       "  its last lines:", "    no such file"}));
  BOOST_TEST(who_of(summary) == "rank 2");
}

BOOST_AUTO_TEST_CASE(numbers_and_lines_of_any_size_are_survived) {
  log_summary summary;
  read_log("[rank 1999999999] WORLD_SIZE=2147483647\n" + std::string(100'000, 'x') +
               " Error: no\n 10%|#|\r 90%|##|\r",
           "x", summary);
  BOOST_TEST(summary.ranks.empty());
  BOOST_TEST(summary.world_size == 0);
  BOOST_TEST(culprit_of(summary)->error->line.text.size() == 603u);
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

BOOST_AUTO_TEST_CASE(a_line_of_parx_names_the_node_of_its_writer_and_not_of_whom_it_blames) {
  const std::string blames = ", after rank 4 on n3] error: x";
  BOOST_TEST((writer_of_line("[parx rank 5 on n2" + blames) == log_writer{5, "n2"}));
  BOOST_TEST((writer_of_line("[parx rank 5" + blames) == log_writer{5, ""}));
  BOOST_TEST((writer_of_line("[rank 5 on n2] x") == log_writer{5, "n2"}));
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

namespace {

/// parxrun's report for people, in any words, and its record.
std::string report_of(parx::job_outcome outcome) {
  outcome.world_size = 6;
  outcome.has_failed = true;
  return outcome.goes_on
             ? parx::line_of(outcome)
             : "parxrun: ANY WORDS\n  OF ANY LENGTH\n" + parx::line_of(outcome);
}
const parx::job_outcome kill_of_rank_4{.code = 137,
                                       .rank = 4,
                                       .node = "node3",
                                       .signal = SIGKILL,
                                       .why = "killed by SIGKILL (signal 9), 5.9 s"};
const std::string report_of_rank_4 = report_of(kill_of_rank_4);
parx::job_outcome failure_of(int rank, const std::string& node, const std::string& why) {
  return {.code = 1, .rank = rank, .node = node, .why = why};
}
const std::string echoes =
    "[rank 0 on node1] step 8\n[parx rank 5 on node3, after rank 4 on node3] error: ANY WORDS\n"
    "[rank 0 on node1] " + error_of(0, "ANY WORDS", 4, "node3");

}  // namespace

BOOST_AUTO_TEST_CASE(the_first_error_is_that_of_parxruns_report_and_not_a_survivors) {
  const auto summary = summary_of("[rank 4 on node3] step 7\n[rank 4 on node3] step 8\n" + echoes +
                                  report_of_rank_4);
  BOOST_TEST(
      culprit_lines(summary) ==
      (std::vector<std::string>{"first error, rank 4 on node3: killed by SIGKILL (signal 9), 5.9 s",
                                "  its last lines:", "    [rank 4 on node3] step 7",
                                "    [rank 4 on node3] step 8", "  2 more lines tell of errors"}));
  BOOST_TEST(summary.world_size == 6);
  BOOST_TEST(signal_text(summary, "FAILED").starts_with("SIGKILL comes from outside"));
  BOOST_TEST(signal_text(summary, "TIMEOUT") == "");
  // Where the rank has an error of its own, its line is shown.
  const auto fails = summary_of(
      echoes + "[rank 2 on n1] Error: an unimportant one\n[rank 3 on n2] ValueError: Error: no\n" +
      report_of(failure_of(3, "n2", "exit code 1")));
  BOOST_TEST(culprit_lines(fails) ==
             (std::vector<std::string>{"first error, rank 3 on n2, x.log line 5 (3 more follow):",
                                       "  > [rank 3 on n2] ValueError: Error: no"}));
}

BOOST_AUTO_TEST_CASE(what_a_rank_has_written_before_a_sigkill_is_not_its_cause) {
  const std::string before = "[rank 4 on node3] ERROR: retrying a download\n";
  const std::string step = "[rank 4 on node3] step 8\n";
  BOOST_TEST(culprit_lines(summary_of(before + step + report_of_rank_4)) ==
             (std::vector<std::string>{
                 "first error, rank 4 on node3: killed by SIGKILL (signal 9), 5.9 s",
                 "  its last lines:", "    [rank 4 on node3] ERROR: retrying a download",
                 "    [rank 4 on node3] step 8", "  one more line tells of an error"}));
  const std::string killed = "srun: error: node3: task 4: Killed\n";
  const auto by_srun = culprit_lines(summary_of("[RANK 5] Connection closed by peer\n" + killed));
  BOOST_TEST(by_srun.front() == "first error, rank 4 on node3: Killed, says srun");
  // Of another signal its own words are the cause.
  parx::job_outcome by_segv = kill_of_rank_4;
  by_segv.signal = SIGSEGV;
  const auto segv = summary_of("[rank 4 on node3] Error: index 7 of 5\n" + report_of(by_segv));
  BOOST_TEST(culprit_lines(segv).front() == "first error, rank 4 on node3, x.log line 1:");
}

BOOST_AUTO_TEST_CASE(of_several_reports_the_last_counts_and_none_before_a_restart) {
  const std::string restart = report_of({.restarts = 1, .goes_on = true, .rank = 4});
  BOOST_TEST(who_of(summary_of(report_of_rank_4 + restart)) == "");
  BOOST_TEST(who_of(summary_of(report_of_rank_4 + restart + "[rank 2 on node1] Error: no\n")) ==
             "rank 2 on node1");
  const std::string second = report_of(failure_of(1, "node1", "exit code 3"));
  BOOST_TEST(who_of(summary_of(report_of_rank_4 + restart + second)) == "rank 1 on node1");
  BOOST_TEST(who_of(summary_of(report_of_rank_4 + second)) == "rank 1 on node1");
}

BOOST_AUTO_TEST_CASE(a_rank_that_the_report_blames_by_another_ones_words_is_the_culprit) {
  auto told = failure_of(4, "node3", "rank 4 was lost by rank 0 in all_reduce #3");
  told.told_by = 0;
  const auto lines =
      culprit_lines(summary_of("[rank 4 on node3] step 8\n" + echoes + report_of(told)));
  BOOST_TEST(lines.front() == "first error, rank 4 was lost by rank 0 in all_reduce #3");
  BOOST_TEST(lines.at(2) == "    [rank 4 on node3] step 8");
}

BOOST_AUTO_TEST_CASE(a_lost_node_goes_before_the_errors_of_the_others) {
  const auto summary = summary_of(
      "[rank 2 on node2] step 8\n" + echoes +
      report_of(failure_of(-1, "node2", "node node2 was lost: it closed the connection")));
  BOOST_TEST(
      culprit_lines(summary) ==
      (std::vector<std::string>{"first error, node node2 was lost: it closed the connection",
                                "  the last lines of its ranks:", "    [rank 2 on node2] step 8",
                                "  2 more lines tell of errors"}));
}

BOOST_AUTO_TEST_CASE(without_a_report_srun_or_the_survivors_name_the_culprit) {
  const std::string survivors = "[RANK 4] step 8\n" + error_of(5, "ANY WORDS", 4, "node3");
  const auto first = [](const std::string& text) {
    const auto lines = culprit_lines(summary_of(text));
    return lines.empty() ? std::string() : lines.front();
  };
  BOOST_TEST(first(survivors) == "first error, rank 4 on node3 was lost, says rank 5");
  const std::string killed =
      "srun: error: node1: tasks 0-1: Exited with exit code 1\n"
      "srun: error: node3: task 4: Killed\n";
  BOOST_TEST(first(survivors + killed) == "first error, rank 4 on node3: Killed, says srun");
  BOOST_TEST(first(killed) == "first error, rank 4 on node3: Killed, says srun");
  BOOST_TEST(culprit_lines(summary_of(survivors + killed))[2] == "    [RANK 4] step 8");
  BOOST_TEST(signal_text(summary_of(killed), "").starts_with("SIGKILL"));
  BOOST_TEST(first("parxrun: x\n" + killed) == "first error, task 4 on node3: Killed, says srun");
  BOOST_TEST(first("srun: error: n[1-2]: tasks 0-3: Terminated\n") ==
             "first error, tasks 0-3 on n[1-2]: Terminated, says srun");
  BOOST_TEST(
      first("parxrun: x\n" + survivors + "srun: error: n1: task 0: Exited with exit code 1\n") ==
      "first error, rank 4 on node3 was lost, says rank 5");
  // An error that a rank has of itself goes before all of them.
  BOOST_TEST(first(survivors + killed + "[RANK 2] Error: no\n") ==
             "first error, rank 2, x.log line 5 (1 more follow):");
  // An echo that names nobody is better than nothing.
  BOOST_TEST(first("[default0]:RuntimeError: Connection closed by peer\n") ==
             "first error, rank 0, x.log line 1:");
}

BOOST_AUTO_TEST_CASE(a_traceback_that_ends_in_an_echo_is_one) {
  const auto summary = summary_of(
      "[default0]:Traceback (most recent call last):\n[default0]:  at x\n"
      "[default0]:RuntimeError: Connection closed by peer\n"
      "[default1]:Traceback (most recent call last):\n[default1]:KeyError: 'x'\n");
  BOOST_TEST(who_of(summary) == "rank 1");
  BOOST_TEST(summary.errors.found().front().is_echo);
}

BOOST_AUTO_TEST_CASE(the_lines_around_an_error_are_never_those_of_another_rank) {
  const auto summary = summary_of(
      "starts\n[rank 0 on n1] step 1\n[rank 5 on n3] Error: no\n[rank 0 on n1] step 2\n");
  BOOST_TEST(culprit_lines(summary) ==
             (std::vector<std::string>{"first error, rank 5 on n3, x.log line 3:", "    starts",
                                       "  > [rank 5 on n3] Error: no"}));
}

BOOST_AUTO_TEST_CASE(an_error_before_a_restart_is_told_as_an_earlier_one) {
  const std::string restart =
      report_of({.restarts = 1, .goes_on = true, .rank = 1, .node = "b", .why = "exit code 3"});
  const std::string first = "[rank 1 on b] ValueError: Error: no\n" + restart;
  const std::string second = "[rank 0 on a] step 1\n";
  const auto summary = summary_of(first + second);
  BOOST_TEST(!culprit_of(summary).has_value());
  BOOST_TEST(earlier_lines(summary) ==
             (std::vector<std::string>{
                 "earlier, rank 1 on b: exit code 3: the ranks were started again (restart 1)",
                 "  its first error, x.log line 1:", "  > [rank 1 on b] ValueError: Error: no"}));
  BOOST_TEST(end_text(summary, "COMPLETED") ==
             "no line since then tells of an error: the job ended well");
  BOOST_TEST(end_text(summary, "RUNNING") ==
             "no line since then tells of an error: the job still runs");
  BOOST_TEST(end_text(summary, "") ==
             "no line since then tells of an error: the job ended well, or still runs");
  BOOST_TEST(end_text(summary_of("a"), "") == "no line of 1 tells of an error");
  // A second failure is the one that counts.
  const auto fails_again = summary_of(first + second + report_of_rank_4);
  BOOST_TEST(who_of(fails_again) == "rank 4 on node3");
  BOOST_TEST(end_text(fails_again, "FAILED") == "");
  BOOST_TEST(end_text(summary_of(report_of_rank_4), "COMPLETED") ==
             "the job ended well all the same, says Slurm");
}

BOOST_AUTO_TEST_CASE(a_number_of_ranks_does_not_read_like_a_rank) {
  BOOST_TEST(writers_text(summary_of("[RANK 5] x")) == "one rank has written a line");
  BOOST_TEST(writers_text(summary_of("[RANK 5] x\n[RANK 0] x")) == "2 ranks have written a line");
  BOOST_TEST(writers_text(summary_of("[RANK 5] WORLD_SIZE=6")) == "1 of 6 have written a line");
}

BOOST_AUTO_TEST_CASE(a_job_without_a_log_says_how_to_keep_one) {
  const std::string text = no_log_text({".", "logs"});
  BOOST_TEST(text.starts_with("looked at ., logs. "));
  BOOST_TEST(text.find("| tee train.log") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(what_parxrun_has_recorded_of_a_rank_stands_in_for_its_lines) {
  parx::generation_report report;
  report.outcome = failure_of(3, "a2", "exit code 1");
  report.outcome->has_failed = true;
  report.nodes.push_back({.node = "a2"});
  report.nodes[0].ranks.push_back({.rank = 3, .record = parx::failure_record{.text = "no data"}});
  const auto told = [&] {
    log_summary summary;
    read_log("step 1\n", "n0.r0.out", summary, &report);
    return culprit_lines(summary);
  };
  BOOST_TEST(told() == (std::vector<std::string>{"first error, rank 3 on a2: exit code 1",
                                                 "  its last lines:", "    no data"}));
  report.nodes[0].ranks[0].last_lines = {"step 8", "no data here"};
  BOOST_TEST(told().back() == "    no data here");
}

BOOST_AUTO_TEST_CASE(a_report_survives_the_way_as_json) {
  parx::job_report job{.id = "7", .command = "./train", .parx = "0.1"};
  job.generations.push_back({.start = 1.5, .members = {{.node = "a", .ranks = 2}}});
  auto& first = job.generations.front();
  first.outcome = kill_of_rank_4;
  first.nodes.push_back({.node = "a", .recorder = "/dev/shm/x", .reason = "none"});
  first.nodes[0].ranks.push_back(
      {.rank = 1,
       .pid = 7,
       .status = {0, SIGKILL},
       .seconds = 2.25,
       .record =
           parx::failure_record{
               .code = parx::errc::peer_lost, .rank = 1, .blamed = 0, .text = "\"lost\""},
       .last_lines = {"x\ty"}});
  const auto text = [](const parx::job_report& what) {
    return parx::json::dump(parx::json::to_json(what));
  };
  const auto same = parx::json::from_json<parx::job_report>(parx::json::parse(text(job)));
  BOOST_TEST(text(same) == text(job));
  BOOST_TEST((same.generations[0].nodes[0].ranks[0].record == first.nodes[0].ranks[0].record));
  BOOST_TEST(!same.generations[0].end.has_value());
  BOOST_CHECK_THROW((void)parx::json::from_json<parx::job_report>(parx::json::parse("{}")),
                    parx::json::error);
  // Lines that are no record, or one that is cut off.
  BOOST_TEST(!parx::outcome_of_line("parxrun: record {").has_value());
  BOOST_TEST(!parx::outcome_of_line("[rank 1] " + parx::line_of(kill_of_rank_4)).has_value());
  parx::job_outcome long_one = kill_of_rank_4;
  long_one.why = std::string(5000, '"');
  BOOST_TEST(parx::line_of(long_one).size() < 1024U);
}
